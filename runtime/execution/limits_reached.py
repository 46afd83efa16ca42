"""Why a run stops before its end though nobody asked it to: it has used up what it may use."""

from __future__ import annotations

from ...vm.machine.machine import Machine
from ...vm.values.faults import show_place
from ..host.context import Interrupted
from ..journal.outcome import Outcome


class FuelLimitReached(Interrupted):
    """The program has used all its fuel: it stops where it is, and can go on with more."""

    def __init__(self, fuel: int) -> None:
        self.fuel = fuel
        super().__init__()

    def tell(self, outcome: Outcome, machine: Machine) -> str:
        """Put it into the outcome; a word for it."""
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
    """The run has used all it may, or nobody can say: it stops before its next call, and can go on.

    help: how, with `{run}` for the run.
    """

    def __init__(self, why: str, help: str) -> None:
        self.help = help
        super().__init__(why)

    def tell(self, outcome: Outcome, machine: Machine) -> str:
        """Put it into the outcome; a word for it."""
        outcome.terminated_by = "budget"
        help = self.help.replace("{run}", outcome.run or "")
        outcome.error = {"kind": "over-budget", "message": str(self), "span": None, "help": help}
        return "budget"
