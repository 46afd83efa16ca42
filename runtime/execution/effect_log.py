"""Effect log: the journal events of effects, and the effects in progress.

Owns the fields of these events (`spec/events.md`). The driver decides when they must be on disk.
"""

from __future__ import annotations

from ...ir.effects import EFFECTS, SPENDERS
from ...vm.machine.machine import Effect
from ..host import secrets
from ..journal.agent_activity import AgentActivity
from ..journal.events import (
    ABSENT,
    ActionComplete,
    ActionStart,
    AgentActed,
    EffectComplete,
    EffectStart,
    Event,
    Process,
)
from ..journal.journal import Journal
from ..journal.position import Where

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..project.budget import Spending

# A longer `action` is shortened; the arguments contain the complete command.
MAX_ACTION_CHARACTERS = 4096
# Limits of the recorded events of one agent's effect.
MAX_AGENT_EVENTS = 10_000
MAX_AGENT_CHARACTERS = 16 << 20


class EffectLog:
    """Writes the events of effects to a journal.

    Args:
        journal: the journal. open_spending: opens the account of used amounts, at the first effect that may
        use a budget; None for a
            run without accounting.
        started: the processes of effects without a result that an earlier driver started.

    places: the position of the program when it requested each waiting effect. last: the highest number of a
    started effect.
    """

    def __init__(
        self,
        journal: Journal,
        open_spending: Callable[[], Spending] | None,
        started: dict[int, list[tuple[int, str]]],
    ) -> None:
        self._journal = journal
        self._open_spending = open_spending
        self._spending: Spending | None = None
        # The processes of started effects without a result.
        self._open = dict(started)
        # For each running agent, the number of its events and of their characters.
        self._recorded_sizes: dict[int, tuple[int, int]] = {}
        self.places: dict[int, Where] = {}
        self.last = 0

    def spending(self, kind: str) -> Spending | None:
        """The account of used amounts for an effect; None if the kind uses nothing."""
        if kind not in SPENDERS or self._open_spending is None:
            return None
        if self._spending is None:
            self._spending = self._open_spending()
        return self._spending

    def close(self) -> None:
        """Close the account of used amounts."""
        if self._spending is not None:
            self._spending.close()

    def start(self, effect: Effect, entered: str | None) -> None:
        """Record the start of an effect. entered: the state that was entered last."""
        args, seq, kind = effect.args, effect.seq, effect.kind
        self._open[seq] = []
        if kind in SPENDERS and (spending := self.spending(kind)) is not None:
            spending.begin(seq, kind)
        self.last = max(self.last, seq)
        state, _ = self.places[seq]
        if not EFFECTS[kind].is_action:
            # The state is recorded only if a concurrent call has entered another state since.
            shown = state if state != entered else ABSENT
            self._journal.record(EffectStart(seq=seq, kind=kind, state=shown, args=args))
            return
        action = args.get("command")
        if isinstance(action, str) and len(action) > MAX_ACTION_CHARACTERS:
            action = secrets.masked(action)[:MAX_ACTION_CHARACTERS] + " …"
        else:
            args = {name: value for name, value in args.items() if name != "command"}
        self._journal.record(ActionStart(action=action, seq=seq, kind=kind, args=args, state=state))

    def process(self, seq: int, pid: int, start_time: str) -> None:
        """Record a started process of an effect, and flush."""
        self._open[seq].append((pid, start_time))
        self._journal.record(Process(seq=seq, pid=pid, start_time=start_time))
        self._journal.flush()

    def agent(self, seq: int, activity: AgentActivity) -> None:
        """Record an activity of an agent, and flush; beyond the limits, one event `bound` only."""
        event = AgentActed.of_activity(seq, activity)
        count, size = self._recorded_sizes.get(seq, (0, 0))
        if count > MAX_AGENT_EVENTS or size > MAX_AGENT_CHARACTERS:
            return
        size += len(activity.text) + len(activity.target) + sum(map(len, activity.files))
        self._recorded_sizes[seq] = count + 1, size
        if count == MAX_AGENT_EVENTS or size > MAX_AGENT_CHARACTERS:
            event = AgentActed(seq=seq, what="bound")
        self.record(event)

    def record(self, event: Event) -> None:
        """Record an event about a running effect, and flush."""
        self._journal.record(event)
        self._journal.flush()

    def end(self, effect: Effect, result: dict[str, Any]) -> None:
        """Record the result of an effect."""
        seq, kind = effect.seq, effect.kind
        if EFFECTS[kind].is_action:
            code, took = result.get("exit_code"), result.get("duration_ms")
            event: Event = ActionComplete(exit_code=code, duration_ms=took, seq=seq, kind=kind, result=result)
        else:
            event = EffectComplete(seq=seq, kind=kind, result=result)
        self._journal.record(event)
        if kind in SPENDERS and (spending := self.spending(kind)) is not None:
            spending.take(seq, kind, result)
        self._open.pop(effect.seq, None)
        self._recorded_sizes.pop(effect.seq, None)
        self.places.pop(effect.seq, None)

    def running_effects(self) -> dict[str, Any]:
        """The running effects as plain data, for a checkpoint."""
        return {
            "last": self.last,
            "open": [[seq, processes] for seq, processes in self._open.items()],
            "places": [[seq, *place] for seq, place in self.places.items()],
        }
