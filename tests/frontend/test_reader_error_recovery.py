"""Diagnostics of a program in addition to the errors of the reader."""

from __future__ import annotations

import pytest

from llc.frontend.link.flow import compile_flow
from llc.frontend.source.files import text_source
from llc.ir.diagnostics import CompileError, in_order


def errors(text: str) -> list[tuple[int, str]]:
    """Line and id of each error of a program."""
    with pytest.raises(CompileError) as error:
        compile_flow(text_source(text, "flow.sexp"))
    diagnostics = in_order(error.value.diagnostics)
    assert all(item.is_error for item in diagnostics)
    return [(item.span.line, item.id) for item in diagnostics if item.span is not None]


def test_an_invalid_token_hides_only_its_form() -> None:
    """Other forms are expanded and checked; in the form itself only the token is reported."""
    text = "(define (f x) (* nobody 12abc))\n(if (f 1) 2)\n(f 1 2)\n(g nobody)"
    assert errors(text) == [
        (1, "bad-number"), (2, "missing-else"), (3, "wrong-arity"), (4, "unbound-name"), (4, "unbound-name"),
    ]  # fmt: skip


def test_unbalanced_brackets_suppress_name_errors() -> None:
    """A missing bracket may swallow a definition; other errors of complete forms are reported."""
    text = "(define (f x) (* x 2)\n(define (g x)\n  (if (> x 1) (f x)))\n(g nobody)\n(h (g 1 2))"
    assert errors(text) == [(1, "unclosed-form"), (3, "missing-else"), (5, "wrong-arity")]


@pytest.mark.parametrize("text", ['(if 1 2)\n(f "a', "(if 1 2)\n#| a", "(if 1 2)\n" + "(" * 5000])
def test_an_unclosed_form_is_not_expanded(text: str) -> None:
    """After an unterminated string or comment, or in too deep a text, the intended structure is unknown."""
    assert "missing-else" not in [id for _, id in errors(text)]


def test_warnings_are_omitted_after_reader_errors() -> None:
    """They would distract from the errors of the reader."""
    assert errors("(define (f x) (let ((y 1)) x))\n(f 1a)") == [(2, "bad-number")]
