"""How a run ended: what `llc run --json` writes, and the exit code that goes with it."""

from __future__ import annotations

from ...vm.faults import show_place
from ..errors import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_LIMIT, EXIT_OK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ...vm.faults import Fault, Place

EXIT_CODES = {
    "success": EXIT_OK,
    "failure": EXIT_FAILURE,
    "error": EXIT_FAILURE,
    "limit": EXIT_LIMIT,
    "interrupted": EXIT_INTERRUPTED,
}


def error_of(fault: Fault) -> dict[str, Any]:
    """What an outcome says of the fault that ended its program."""
    return {
        "kind": fault.kind,
        "message": fault.message,
        "span": show_place(fault.span),
        "backtrace": fault.trace_lines(),
        "details": fault.details,
    }


class Outcome:
    """How a run ended, or that it was interrupted.

    kind: "loop" or "flow". status: "success", "failure", "error", "limit" or "interrupted".
    error: {kind, message, span, backtrace, …} where the status is "error", `place` where that was.
    value: a flow's result. code: the exit code that the program asked for.
    """

    __slots__ = (
        "code",
        "duration_ms",
        "error",
        "final_state",
        "iterations",
        "kind",
        "place",
        "program",
        "run",
        "status",
        "steps",
        "terminated_by",
        "value",
    )

    def __init__(self, run: str | None, program: str | None, kind: str, status: str) -> None:
        self.run = run
        self.program = program
        self.kind = kind
        self.status = status
        self.terminated_by: str | None = None
        self.final_state: str | None = None
        self.iterations = 0
        self.steps = 0
        self.value: Any = None
        self.code: int | None = None
        self.error: dict[str, Any] | None = None
        self.place: Place | None = None
        self.duration_ms = 0

    @property
    def exit_code(self) -> int:
        if self.terminated_by in ("fuel", "budget"):
            return EXIT_LIMIT
        return EXIT_CODES[self.status] if self.code is None else self.code

    def to_json(self) -> dict[str, Any]:
        """The one object that `llc run --json` writes."""
        return {
            "run": self.run,
            "program": self.program,
            "status": self.status,
            "terminated_by": self.terminated_by,
            "final_state": self.final_state,
            "iterations": self.iterations,
            "steps": self.steps,
            "value": self.value,
            "error": self.error,
            "duration_ms": self.duration_ms,
        }
