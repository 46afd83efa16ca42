"""Outcome of a run: how its program ended, the event for it, and the exit code.

A run that has used up its fuel or its budget stops too; it can be resumed.
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
# How a loop can end by what it says itself.
_STATUSES = tuple(status for status in EXIT_CODES if status not in ("interrupted", "queued"))
# What a loop's value says of its end.
_OF_LOOP = ("status", "terminated_by", "final_state", "iterations", "steps")


def error_of(fault: Fault) -> dict[str, Any]:
    """What an outcome says of the fault that ended its program."""
    return {
        "kind": fault.kind,
        "message": fault.message,
        "span": show_place(fault.span),
        "backtrace": fault.trace_lines(),
        "details": fault.details,
    }


def headline(error: dict[str, Any]) -> tuple[str, str | None]:
    """The message of an error and its help, as people see them: the cause first.

    The message of a verdict without a route begins with the routing. It is part of the record, which replay
    and recorded tests compare, so only what is shown is put in another order.
    """
    message, help = str(error.get("message")), error.get("help")
    if error.get("kind") != "unrouted-verdict":
        return message, help
    form = r"(?s)(state `.+?`): (nothing routes the verdict `.+?`) \((.*)\); (add .+)"
    found = re.fullmatch(form, message)
    if found is None:
        return message, help
    return f"{found[1]}: {found[3]}", f"{found[2]}: {found[4]}"


class Outcome(LightRecord):
    """How a run ended, or that it was interrupted.

    kind: "loop" or "flow". status: "success", "failure", "error", "limit", "interrupted", or "queued" for
    a run that workers will perform.
    error: {kind, message, span, backtrace, …} where the status is "error", `place` where that was.
    value: a flow's result. code: the exit code that the program asked for. has_run_out: a loop reached its
    limit of iterations, which a flow that returns says in `terminated_by`. evidence: of a success after work
    of an agent (`journal.evidence`).
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
        """Where the program was at its end; gives itself."""
        self.final_state = progress.state
        self.iterations = progress.iteration
        self.steps = progress.steps
        self.has_run_out = progress.has_run_out
        return self

    def take(self, stop: Done | Fault | int) -> Outcome:
        """How the program ended: with a value, in a fault, or by asking for an exit code; gives itself."""
        if isinstance(stop, Fault):
            self.status = self.terminated_by = "error"
            self.place = stop.span
            self.error = error_of(stop)
        elif isinstance(stop, int):
            self.status, self.terminated_by = "success" if stop == 0 else "failure", "exit"
            self.code = stop
        elif self.kind == "loop" and isinstance(stop.value, dict) and stop.value.get("status") in _STATUSES:
            for name in _OF_LOOP:
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
            **({} if self.evidence is None else {"evidence": self.evidence}),
        }

    def to_event(self) -> RunEnd:
        """The event of the run's end."""
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
        """What a `run_end` tells, its values as they were."""
        outcome = cls(run, program, kind, "error")
        for name in (*_OF_LOOP, "value", "error", "code", "evidence"):
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
        """Describe it in the outcome; the reason for the journal."""
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
    """The budget is used up, or what was used is unknown: the run stops before its next call.

    help: how to resume it, with `{run}` for the run. renews_at: seconds since 1970 when the ledger that is
    used up is renewed, None for never; a wait until then may begin here.
    """

    def __init__(self, why: str, help: str, renews_at: float | None = None) -> None:
        self.help = help
        self.renews_at = renews_at
        super().__init__(why)

    def describe(self, outcome: Outcome, machine: Machine) -> str:
        """Describe it in the outcome; the reason for the journal."""
        outcome.terminated_by = "budget"
        help = self.help.replace("{run}", outcome.run or "")
        outcome.error = {"kind": "over-budget", "message": str(self), "span": None, "help": help}
        return "budget"
