"""Error recovery: further diagnostics for a text that has reader errors.

After an error, the data of the reader are a guess. Diagnostics in forms that were read without an error are
reported together with those of the reader. If brackets are in doubt, a definition may be missing, so
diagnostics about names are omitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...ir.diagnostics import Diagnostic
from ...ir.spans import Span
from ..sexp.datum import Datum

# After one of these errors, the rest of the text was misread or not read at all.
_HOPELESS = frozenset(("nested-too-deep", "too-many-findings", "unterminated-string", "unterminated-comment"))
_IN_DOUBT = frozenset(("unclosed-form", "stray-bracket", "mismatched-bracket", "reserved-brace"))
# Diagnostics that a missing definition causes.
_OF_NAMES = frozenset(("unbound-name", "unknown-task", "repeated-name", "used-before-definition"))


def is_worth_expanding(found: Iterable[Diagnostic]) -> bool:
    """Whether data that were read with these diagnostics are reliable enough for expansion."""
    return not any(finding.id in _HOPELESS for finding in found)


def reliable_findings(
    found: Sequence[Diagnostic], further: Iterable[Diagnostic], data: Iterable[Datum]
) -> list[Diagnostic]:
    """The diagnostics in `further` that do not depend on the reader's errors in `found`."""
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
    """Whether a span begins within another one."""
    begins = (inner.line, inner.column)
    return outer.path == inner.path and (outer.line, outer.column) <= begins < (
        outer.end_line,
        max(outer.end_column, 1),
    )
