"""Completeness of input that grows line by line, as the reader reports it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llc.frontend.sexp.completeness import Pending
from llc.frontend.sexp.reader import read
from llc.frontend.source.files import text_source

COMPLETE = (
    "1", "(+ 1 2)", "(f) (g)", '"a b"', '(f ")")', "; (\n", "(f ; )\n)", "#| ( |# 1", "'x", "'(a)", "[a]",
    "a)", '"a\n\nb"', '"a\\"b"', "|a (|", "#| #| |# |# 1", "#;(a) b", "", '"a\\\\"',
)  # fmt: skip
OPEN = (
    "(", "(f (g)", '"a', '(f ")', "#| 1", "#| #| |#", "'", "(f '", "`(a ,", "#;", '"a\\"', "[a (b)", "(f ; )",
    '"a\\', "(a\n(b)\n", '"\\\\\\"',
)  # fmt: skip


@pytest.mark.parametrize("text", COMPLETE)
def test_complete_input(text: str) -> None:
    assert Pending(text).is_complete


@pytest.mark.parametrize("text", OPEN)
def test_incomplete_input(text: str) -> None:
    """Input is incomplete inside a bracket, a string, a comment or a quoted datum."""
    assert not Pending(text).is_complete


@pytest.mark.parametrize(
    ("text", "is_blank"), [("", True), (" ; x\n", True), ("#| a\nb |#", True), ("1", False)]
)
def test_blank_input(text: str, is_blank: bool) -> None:
    """Input that contains only comments is blank."""
    assert Pending(text).is_blank == is_blank


@given(st.text(alphabet="()[]\"\\;#|'`, a1\n", max_size=40))
def test_input_without_reader_errors_is_complete(text: str) -> None:
    """A text that the reader accepts is complete, also if it is entered line by line."""
    _, diagnostics = read(text_source(text, "text"))
    pending = Pending(text)
    if not any(finding.is_error for finding in diagnostics):
        assert pending.is_complete
    if pending.is_complete:
        assert not {finding.id for finding in diagnostics} & {"unterminated-string", "unterminated-comment"}
