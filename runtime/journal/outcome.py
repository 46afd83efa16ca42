"""Outcome of a run: the result of its program, the `run_end` event, and the exit code.

Also the interruptions of a run that has used up its fuel or its budget; such a run can be resumed.
"""

from __future__ import annotations

from ...ir.light_records import LightRecord
from ...ir.python_internals import re
from ...vm.machine.outcomes import Done
from ...vm.values.faults import Fault, Place, show_place
from ..host.effect_context import Interrupted
from ..host.errors import EXIT_FAILURE, EXIT_HANGUP, EXIT_INTERRUPTED, EXIT_LIMIT, EXIT_OK
from .events import ABSENT, HANGUP, RunEnd

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ...vm.machine.machine import Machine
    from .position import Progress


EXIT_CODES = {
    "success": EXIT_OK,
    "failure": EXIT_FAILURE,
    "error": EXIT_FAILURE,
    "limit": EXIT_LIMIT,
    "interrupted": EXIT_INTERRUPTED,
    "queued": EXIT_OK,
}
# Statuses that the value of a loop can contain.
_LOOP_STATUSES = tuple(status for status in EXIT_CODES if status not in ("interrupted", "queued"))
# Fields of an outcome that the value of a loop contains.
_LOOP_FIELDS = ("status", "terminated_by", "final_state", "iterations", "steps")


def error_of(fault: Fault) -> dict[str, Any]:
    """Return the error of an outcome for the fault that ended the program."""
    return {
        "kind": fault.kind,
        "message": fault.message,
        "span": show_place(fault.span),
        "backtrace": fault.trace_lines(),
        "details": fault.details,
    }


def headline(error: dict[str, Any]) -> tuple[str, str | None]:
    """Return the message and the help of an error for display, with the cause first.

    The recorded message of a verdict without a route begins with the routing. Replay and recorded tests
    compare recorded messages, so only the displayed message has another order.
    """
    message, help = str(error.get("message")), error.get("help")
    if error.get("kind") != "unrouted-verdict":
        return message, help
    pattern = r"(?s)(state `.+?`): (nothing routes the verdict `.+?`) \((.*)\); (add .+)"
    match = re.fullmatch(pattern, message)
    if match is None:
        return message, help
    return f"{match[1]}: {match[3]}", f"{match[2]}: {match[4]}"


class Outcome(LightRecord):
    """Outcome of a run that ended or was interrupted.

    Args:
        kind: "loop" or "flow".
        status: "success", "failure", "error", "limit", "interrupted", or "queued" for a run that workers will
            drive.
        value: result of a flow.
        code: exit code that the program requested.
        has_run_out: a loop reached its limit of iterations; `terminated_by` of a returning flow shows this.
        error: for the status "error": {kind, message, span, backtrace, …}; place: location of the error.
        evidence: evidence of a success after work of an agent (`journal.evidence`).
    """

    run: str | None
    program: str | None
    kind: str
    status: str
    terminated_by: str | None = None
    final_state: str | None = None
    iterations: int = 0
    steps: int = 0
    value: Any = None
    code: int | None = None
    has_run_out: bool = False
    error: dict[str, Any] | None = None
    place: Place | None = None
    duration_ms: int = 0
    evidence: dict[str, Any] | None = None

    def reach(self, progress: Progress) -> Outcome:
        """Set the final position of the program; return the outcome."""
        self.final_state = progress.state
        self.iterations = progress.iteration
        self.steps = progress.steps
        self.has_run_out = progress.has_run_out
        return self

    def take(self, stop: Done | Fault | int) -> Outcome:
        """Set the result of the program (value, fault or requested exit code); return the outcome."""
        if isinstance(stop, Fault):
            self.status = self.terminated_by = "error"
            self.place = stop.span
            self.error = error_of(stop)
        elif isinstance(stop, int):
            self.status, self.terminated_by = "success" if stop == 0 else "failure", "exit"
            self.code = stop
        elif (
            self.kind == "loop"
            and isinstance(stop.value, dict)
            and stop.value.get("status") in _LOOP_STATUSES
        ):
            for name in _LOOP_FIELDS:
                setattr(self, name, stop.value.get(name, getattr(self, name)))
        else:
            self.status, self.terminated_by = "success", "max_iterations" if self.has_run_out else "return"
            self.value = stop.value
        return self

    @property
    def exit_code(self) -> int:
        if self.terminated_by in ("fuel", "budget"):
            return EXIT_LIMIT
        if self.terminated_by == HANGUP:
            return EXIT_HANGUP
        return EXIT_CODES[self.status] if self.code is None else self.code

    def to_json(self) -> dict[str, Any]:
        """Return the object that `llc run --json` prints."""
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
            **({} if self.evidence is None else {"evidence": self.evidence}),
        }

    def to_event(self) -> RunEnd:
        """Return the `run_end` event."""
        return RunEnd(
            status=self.status,
            terminated_by=self.terminated_by,
            final_state=self.final_state,
            iterations=self.iterations,
            steps=self.steps,
            value=self.value,
            error=self.error,
            duration_ms=self.duration_ms,
            code=ABSENT if self.code is None else self.code,
            evidence=ABSENT if self.evidence is None else self.evidence,
        )

    @classmethod
    def of_event(cls, run: str, program: str | None, kind: str, event: dict[str, Any]) -> Outcome:
        """Restore the outcome from the fields of a `run_end`, with encoded values."""
        outcome = cls(run, program, kind, "error")
        for name in (*_LOOP_FIELDS, "value", "error", "code", "evidence"):
            setattr(outcome, name, event.get(name))
        if outcome.status not in EXIT_CODES:
            outcome.status = "error"
        outcome.duration_ms = event.get("duration_ms") or 0
        return outcome


class FuelLimitReached(Interrupted):
    """The program has used all its fuel."""

    def __init__(self, fuel: int) -> None:
        self.fuel = fuel
        super().__init__()

    def describe(self, outcome: Outcome, machine: Machine) -> str:
        """Set the error of the outcome; return the reason for the journal."""
        outcome.terminated_by = "fuel"
        outcome.place = machine.frames(1)[-1].place
        outcome.error = {
            "kind": "out-of-fuel",
            "message": f"the program has used all its fuel ({self.fuel:,} ticks) and runs on",
            "span": show_place(outcome.place),
            "help": f"if it should go on: llc resume {outcome.run} --fuel N",
        }
        return "fuel"


class BudgetLimitReached(Interrupted):
    """The budget is used up, or the used amount is unknown. The run stops before its next call.

    help: command that resumes the run, with `{run}` for its id. renews_at: time of the renewal of the ledger
    in seconds since 1970; None: never. The caller may wait until then.
    """

    def __init__(self, message: str, help: str, renews_at: float | None = None) -> None:
        self.help = help
        self.renews_at = renews_at
        super().__init__(message)

    def describe(self, outcome: Outcome, machine: Machine) -> str:
        """Set the error of the outcome; return the reason for the journal."""
        outcome.terminated_by = "budget"
        help = self.help.replace("{run}", outcome.run or "")
        outcome.error = {"kind": "over-budget", "message": str(self), "span": None, "help": help}
        return "budget"
