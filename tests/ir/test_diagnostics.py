"""Diagnostics with related positions, as text and as JSON."""

from __future__ import annotations

from llc.ir.diagnostics import Diagnostic, labelled, render, to_json
from llc.ir.spans import Source, Span

TEXT = "a: 1\n" + "\n" * 9 + "a: 2\n"


def test_related_span_is_shown_after_the_primary_one() -> None:
    """It has its own excerpt and label, in the same columns; JSON has it under `related`."""
    first, second = Span("t.yaml", 1, 1, 1, 2), Span("t.yaml", 11, 1, 11, 2)
    related = labelled(first, "first given here")
    finding = Diagnostic("duplicate-key", "`a` is given twice", second, "again", related=related)
    assert render(finding, {"t.yaml": Source("t.yaml", "", TEXT)}).splitlines() == [
        "error[duplicate-key]: `a` is given twice",
        "   --> t.yaml:11:1",
        "   |",
        "11 | a: 2",
        "   | ^ again",
        "   ::: t.yaml:1:1",
        "   |",
        " 1 | a: 1",
        "   | - first given here",
    ]
    position = {"file": "t.yaml", "line": 1, "column": 1, "end_line": 1, "end_column": 2}
    assert to_json(finding)["related"] == [{**position, "label": "first given here"}]


def test_diagnostic_without_related_spans_has_no_field() -> None:
    """An unknown span gives no label, and JSON has no `related`."""
    assert labelled(None, "first given here") == ()
    assert "related" not in to_json(Diagnostic("duplicate-key", "`a` is given twice"))
