"""YAML syntax errors: libyaml's messages translated to diagnostics."""

from __future__ import annotations

from typing import Any

from ...ir.python_internals import late_pattern
from ...ir.spans import Span
from .document import Document


def report_syntax(document: Document, error: Any) -> None:
    """Report an error of libyaml. error: a `yaml.MarkedYAMLError`."""
    mark = error.problem_mark or error.context_mark
    at = min(mark.index, len(document.text)) if mark is not None else 0
    span = document.span_at(at, min(at + 1, len(document.text)))
    if document.text[at : at + 1] == "\t":
        document.fail(
            "yaml-tab", "YAML does not allow tabs for indentation", span, "a tab", "indent with spaces"
        )
        return
    problem = error.problem or "this is not YAML"
    if "maximum nesting depth" in problem:
        # libyaml 0.2.6 has a limit of its own and finds opening brackets before it reports their events.
        document.fail("too-deep", "nested more than 1000 deep", span)
        return
    if (cause := _cause(document, error, problem)) is not None:
        document.fail("yaml-syntax", *cause)
        return
    context_line = error.context_mark.line + 1 if error.context_mark is not None else 0
    if problem == "found unexpected end of stream" and context_line:
        construct = (error.context or "").removeprefix("while scanning ") or "something"
        at = min(error.context_mark.index, len(document.text))
        document.fail(
            "yaml-syntax", f"{construct} is not closed", document.span_at(at, at + 1), "begins here"
        )
        return
    known = next((known for part, known in _SYNTAX.items() if part in problem), None)
    if known is None:
        expected = problem.removeprefix("did not find expected ")
        message = f"{expected} is expected here" if expected != problem else problem
        known = (
            message,
            f"in the block that begins in line {context_line}"
            if context_line and context_line != span.line
            else None,
        )
    document.fail("yaml-syntax", known[0], span, "here", known[1])


_NO_SPACE = late_pattern(r"\s*(?:- )?[\w-]+(:(?=[^\s/\\])|：)")
_BLOCK = late_pattern(r".*:\s*[|>][+-]?[0-9]?\s*(?:#.*)?")


def _cause(document: Document, error: Any, problem: str) -> tuple[str, Span, str, str] | None:
    """Message, span, label and help of a known mistake, which may be on a line before the error; None:
    unknown.
    """
    lines = document.text.splitlines()
    at = error.problem_mark.line if error.problem_mark is not None else 0
    if "mapping values are not allowed" in problem:
        for line in (at - 1, at):
            text = lines[line] if 0 <= line < len(lines) else ""
            if match := _NO_SPACE.match(text):
                place = _span_in(document, line, match.start(1), match.end(1))
                if match[1] == ":":
                    return (
                        "there is no space between `:` and the value",
                        place,
                        "here",
                        "write a space after `:`",
                    )
                return "`：` is not a YAML colon", place, "here", "write `: `"
    if "could not find expected ':'" in problem and error.context_mark is not None:
        line = error.context_mark.line
        text = lines[line] if line < len(lines) else ""
        indent = len(text) - len(text.lstrip())
        place = _span_in(document, line, indent, len(text))
        help = "a key ends in `:`"
        if line and _BLOCK.fullmatch(lines[line - 1]):
            help = f"a text below `|` or `>` is indented further than the key of line {line}"
        return "this line is neither a key nor a value", place, "here", help
    if "unknown escape character" in problem:
        index = min(error.problem_mark.index, len(document.text) - 1)
        escape = document.text[index - (document.text[index] != "\\") :][:2]
        help = f"write the text in single quotes, or `\\{escape}`"
        place = document.span_at(index, index + 1)
        return f"unknown escape sequence in double quotes: `{escape}`", place, "here", help
    return None


def _span_in(document: Document, line: int, start: int, end: int) -> Span:
    """The span of some characters of a line; line and columns are counted from 0."""
    offset = sum(len(text) for text in document.text.splitlines(keepends=True)[:line])
    return document.span_at(offset + start, offset + max(end, start + 1))


# Parts of libyaml's messages for the most common mistakes, with the message and help of the diagnostic.
_SYNTAX: dict[str, tuple[str, str | None]] = {
    "mapping values are not allowed": (
        "a `:` is not allowed here",
        "put a text that contains `: ` in quotes, or check the indentation",
    ),
    "alphabetic or numeric character": (
        "`&` and `*` mark anchors and aliases here",
        "put a text that begins with, or follows, `[`, `{`, `&` or `*` in quotes",
    ),
    "cannot start any token": ("this character cannot begin a text", "put the text in quotes"),
    "expected <document start>": (
        "this line does not continue the mapping or list before it",
        "check the indentation",
    ),
    "expected key": ("a key is expected here", "check the indentation and the quotes before it"),
    "could not find expected ':'": ("this line is neither a key nor a value", "a key ends in `:`"),
    "sequence entries are not allowed": ("a list item is not allowed here", "check the indentation"),
    "expected '-' indicator": ("a list item is expected here", "an item begins with `- `"),
    "expected node content": ("a value is expected here", None),
}
