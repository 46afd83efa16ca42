"""Faults of a program, their maps and their backtraces.

A fault is an error of the program and is data; a Python exception that leaves the machine is a defect of llc.
Must not contain: unwinding of frames (`machine`).
"""

from __future__ import annotations

from .maps import Map

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias

# path, line, column, end line, end column, as in `ir.spans.Span`
Place: TypeAlias = tuple[str, int, int, int, int]
# function, state, place
TraceFrame: TypeAlias = "tuple[str, str, Place | None]"

# Number of frames that a backtrace keeps at each end.
TRACE_ENDS = 8


class PrimitiveFault(Exception):
    """Raised by a primitive for an error of the program; the machine converts it to a fault.

    kind: a stable kebab-case name. message: one lower-case sentence. details: further facts as a
    map of values. place: the original place of a fault that is raised again (`is_again`), as its map states
    it; primitives omit it.
    """

    def __init__(self, kind: str, message: str, details: Map | None = None, place: str | None = None) -> None:
        self.kind = kind
        self.message = message
        self.details: Map = details or {}
        self.place = place
        self.is_again = place is not None
        super().__init__(kind, message)


class Fault:
    """The end of a program by its own error.

    span: the innermost known span, None if the program was compiled without spans.
    backtrace: frames from the entry function to the place of the fault; of more than sixteen frames the
    first and the last eight, and `omitted` is the number of the others.
    details: plain data.
    """

    __slots__ = ("backtrace", "details", "kind", "message", "omitted", "span")

    def __init__(
        self,
        kind: str,
        message: str,
        span: Place | None = None,
        backtrace: tuple[TraceFrame, ...] = (),
        omitted: int = 0,
        details: dict[str, Any] | None = None,
    ) -> None:
        self.kind = kind
        self.message = message
        self.span = span
        self.backtrace = backtrace
        self.omitted = omitted
        self.details = details or {}

    def __repr__(self) -> str:
        return f"Fault({self.kind!r}, {self.message!r}, {show_place(self.span)!r})"

    def trace_lines(self) -> list[str]:
        """The backtrace for people, one line a frame, from the entry function inwards."""
        lines = [
            f"in `{function}`, state `{state}`" + (f" ({show_place(place)})" if place else "")
            for function, state, place in self.backtrace
        ]
        if self.omitted:
            lines.insert(TRACE_ENDS, f"… {self.omitted} more")
        return lines


def show_place(place: Place | None) -> str | None:
    """`path:line:column`, as diagnostics show a place."""
    return None if place is None else f"{place[0]}:{place[1]}:{place[2]}"


def fault_map(kind: str, message: str, place: str | None, details: Map) -> dict[str, Any]:
    """The value for a handler's slot: {kind, message, span, details?}."""
    fault: dict[str, Any] = {"kind": kind, "message": message, "span": place}
    if details:
        fault["details"] = details
    return fault
