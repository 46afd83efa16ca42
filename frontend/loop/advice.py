"""Warnings that only `llc validate` gives: behaviour of a loop that its author may not expect.

`checks` has the diagnostics of every compilation.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.diagnostics import Diagnostic
from .schema import Loop


def advice(loop: Loop) -> Iterator[Diagnostic]:
    """The warnings about a loop without errors, in the order of the document."""
    if loop.maintain and loop.maintain_delay is None and loop.backoff is None:
        yield Diagnostic(
            "no-delay",
            "`maintain` repeats without a pause between two cycles",
            loop.span_of("key:maintain"),
            help="add `maintain_delay: 60`, in seconds; `maintain_delay: 0` if no pause is intended",
            severity="warning",
        )
    if loop.dialect is not None:
        return
    for state in loop.states.values():
        rest = (state.route or {}).get("_")
        is_given = "key:route._" in state.spans  # false for a loop that was written in another paradigm
        if is_given and state.next is None and state.routes.get("_error") is None:
            yield Diagnostic(
                "errors-not-routed",
                "`_` does not apply to errors: an error ends the loop",
                state.span_of("key:route._"),
                help=f"add `_error: {rest}`, or another state; `dialect: llc` if this is intended",
                severity="warning",
            )
