"""`spec/language.md`: its blocks are run and compared; its table lists all forms."""

from __future__ import annotations

import re

import pytest
from flow_texts import expansion, findings, marks, value_text
from spec.blocks import Block, parameters, take, text_of

import llc.frontend.expand.program  # noqa: F401  the forms register with it
from llc.frontend.core.forms import FORMS
from llc.frontend.core.printer import expanded_text
from llc.frontend.core.reserved_names import FORM_NAMES
from llc.frontend.sexp.reader import read
from llc.frontend.source.files import text_source

BLOCKS = [block for block in take("language.md", "sexp") if not block.info]
EXPANSIONS = take("language.md", "sexp expands")


@pytest.mark.parametrize("block", parameters(BLOCKS))
def test_a_block_has_the_shown_outcomes(block: Block) -> None:
    """Each shown value, fault, error and warning occurs on its line, and there are no other diagnostics."""
    expected = marks(block.text)
    reported = [
        (item.span.line, item.severity, item.id) for item in findings(block.text) if item.span is not None
    ]
    shown = [(mark.line, mark.kind, mark.text) for mark in expected if mark.kind in ("error", "warning")]
    assert sorted(reported) == sorted(shown)
    for mark in expected:
        if mark.kind in ("=>", "fault"):
            text = mark.text if mark.kind == "=>" else f"fault: {mark.text}"
            assert value_text(_complete(block, mark.line)) == text


def _complete(block: Block, line: int) -> str:
    """The program up to a line, without earlier forms that fault, but with later definitions."""
    lines = block.text.split("\n")
    faults = {mark.line for mark in marks(block.text) if mark.kind == "fault"} - {line}
    data, _ = read(text_source(block.text, "block"))
    before, after, last = [], [], ""
    for datum in data:
        assert datum.span is not None
        text = "\n".join(lines[datum.span.line - 1 : datum.span.end_line])
        if datum.span.end_line == line:
            last = text
        elif datum.span.end_line not in faults:
            (before if datum.span.end_line < line else after).append(text)
    if last.startswith("(define "):
        return "\n".join([*before, last, *after])
    return "\n".join([*before, last])


@pytest.mark.parametrize("block", parameters(EXPANSIONS))
def test_a_form_expands_to_the_shown_core(block: Block) -> None:
    """The left side of a line is a program, the right side its expansion to core."""
    for line in block.text.strip().split("\n"):
        text, expected = re.split(r"\s{1,}= (?=\()", line, maxsplit=1)
        assert expanded_text(expansion(text).program).strip() == expected


def test_every_name_of_a_form_has_a_handler() -> None:
    """A name in `FORM_NAMES` without a handler would be reserved without a meaning."""
    assert FORM_NAMES - FORMS.keys() == set()


def test_the_table_has_every_form() -> None:
    """The table has the rows of `FORMS`, ordered by name."""
    rows = [
        f"| `{row.name}` | `` {row.usage} `` | {row.doc} |"
        for row in sorted(FORMS.values(), key=lambda row: row.name)
    ]
    table = text_of("language.md").partition("| form | written | meaning |\n|---|---|---|\n")[2]
    assert table.split("\n\n")[0].split("\n") == rows
