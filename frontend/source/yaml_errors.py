"""Syntax errors of YAML: libyaml's messages translated to diagnostics."""

from __future__ import annotations

from typing import Any

from .document import Document


def report_syntax(document: Document, error: Any) -> None:
    mark = error.problem_mark or error.context_mark
    at = min(mark.index, len(document.text)) if mark is not None else 0
    span = document.span_at(at, min(at + 1, len(document.text)))
    if document.text[at : at + 1] == "\t":
        document.fail("yaml-tab", "a tab cannot indent in YAML", span, "a tab", "indent with spaces")
        return
    problem = error.problem or "this is not YAML"
    begun = error.context_mark.line + 1 if error.context_mark is not None else 0
    if problem == "found unexpected end of stream" and begun:
        what = (error.context or "").removeprefix("while scanning ") or "something"
        at = min(error.context_mark.index, len(document.text))
        document.fail("yaml-syntax", f"{what} has no end", document.span_at(at, at + 1), "begins here")
        return
    known = next((answer for words, answer in _SYNTAX.items() if words in problem), None)
    if known is None:
        found = problem.removeprefix("did not find expected ")
        message = f"{found} is expected here" if found != problem else problem
        known = message, f"in what begins in line {begun}" if begun and begun != span.line else None
    document.fail("yaml-syntax", known[0], span, "here", known[1])


# libyaml's messages for the most common mistakes, with the message and help of the diagnostic.
_SYNTAX: dict[str, tuple[str, str | None]] = {
    "mapping values are not allowed": (
        "a `:` is not allowed here",
        "put a text that contains `: ` in quotes, or check the indentation",
    ),
    "cannot start any token": ("this character cannot begin a text", "put the text in quotes"),
    "expected <document start>": ("this belongs to nothing before it", "check the indentation"),
    "expected key": ("a key is expected here", "check the indentation and the quotes before it"),
    "could not find expected ':'": ("this line is neither a key nor a value", "a key ends in `:`"),
    "sequence entries are not allowed": ("a list item is not allowed here", "check the indentation"),
    "expected '-' indicator": ("a list item is expected here", "an item begins with `- `"),
    "expected node content": ("a value is expected here", None),
}
