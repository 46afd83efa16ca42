"""What can be said of a text's meaning although it could not be read without errors.

The reader's data are a guess then. What is found in a form that was read without an error is told beside
the reader's findings; where brackets are in doubt a definition may be lost, so names are not told then.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...ir.diagnostics import Diagnostic
from ...ir.spans import Span
from ..sexp.datum import Datum

# After these what follows was read as something else than its author meant, or not at all.
_HOPELESS = frozenset(("nested-too-deep", "too-many-findings", "unterminated-string", "unterminated-comment"))
_IN_DOUBT = frozenset(("unclosed-form", "stray-bracket", "mismatched-bracket", "reserved-brace"))
# What is found where a definition was lost.
_OF_NAMES = frozenset(("unbound-name", "unknown-task", "repeated-name", "used-before-definition"))


def is_worth_expanding(found: Iterable[Diagnostic]) -> bool:
    """Whether anything can be said of data that were read with these findings."""
    return not any(finding.id in _HOPELESS for finding in found)


def said_beside(
    found: Sequence[Diagnostic], further: Iterable[Diagnostic], data: Iterable[Datum]
) -> list[Diagnostic]:
    """Of the findings about the data those that the reader's, `found`, do not put in question."""
    errors = [finding.span for finding in found if finding.is_error and finding.span is not None]
    is_in_doubt = any(finding.id in _IN_DOUBT for finding in found)
    broken = [
        span
        for datum in data
        if (span := datum.span) is not None and any(_holds(span, error) for error in errors)
    ]
    return [
        finding
        for finding in further
        if finding.is_error
        and finding.span is not None
        and not (is_in_doubt and finding.id in _OF_NAMES)
        and not any(_holds(span, finding.span) for span in broken)
    ]


def _holds(outer: Span, inner: Span) -> bool:
    """Whether one span begins within another."""
    begins = (inner.line, inner.column)
    return outer.path == inner.path and (outer.line, outer.column) <= begins < (
        outer.end_line,
        max(outer.end_column, 1),
    )
