"""Limits reached: a run stops because it has used up its fuel or its budget. It can be resumed."""

from __future__ import annotations

from ...vm.machine.machine import Machine
from ...vm.values.faults import show_place
from ..host.effect_context import Interrupted
from ..journal.outcome import Outcome


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

    help: how to resume it, with `{run}` for the run.
    """

    def __init__(self, why: str, help: str) -> None:
        self.help = help
        super().__init__(why)

    def describe(self, outcome: Outcome, machine: Machine) -> str:
        """Describe it in the outcome; the reason for the journal."""
        outcome.terminated_by = "budget"
        help = self.help.replace("{run}", outcome.run or "")
        outcome.error = {"kind": "over-budget", "message": str(self), "span": None, "help": help}
        return "budget"
