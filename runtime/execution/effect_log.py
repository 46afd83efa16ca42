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

# Length from which `action` is shortened; the arguments contain the whole command.
LONGEST_ACTION = 4096
# Events of one agent's effect, and characters in them, that are recorded at most.
MOST_EVENTS = 10_000
MOST_TEXT = 16 << 20


class EffectLog:
    """Writes the events of effects to a journal.

    open_spending(): makes what counts what effects use, at the first one that may use a budget; None for
    a run that counts nothing. places: where the program was when it asked for each
    effect that waits. last: the highest number of an effect that began. begun: the processes of effects that
    an earlier driver has started, and that have no result.
    """

    def __init__(
        self,
        journal: Journal,
        open_spending: Callable[[], Spending] | None,
        begun: dict[int, list[tuple[int, str]]],
    ) -> None:
        self._journal = journal
        self._open_spending = open_spending
        self._spending: Spending | None = None
        # Those that started and have no result: their processes.
        self._open = dict(begun)
        # Of each agent at work: the number of its events, and the characters in them.
        self._told: dict[int, tuple[int, int]] = {}
        self.places: dict[int, Where] = {}
        self.last = 0

    def spending(self, kind: str) -> Spending | None:
        """What counts what an effect uses; None for one that uses nothing."""
        if kind not in SPENDERS or self._open_spending is None:
            return None
        if self._spending is None:
            self._spending = self._open_spending()
        return self._spending

    def close(self) -> None:
        """The run ends or stops."""
        if self._spending is not None:
            self._spending.close()

    def start(self, effect: Effect, entered: str | None) -> None:
        """An effect begins; `entered` is the state that was entered last."""
        args, seq, kind = effect.args, effect.seq, effect.kind
        self._open[seq] = []
        spending = self.spending(kind)
        if spending is not None:
            spending.begin(seq, kind)
        self.last = max(self.last, seq)
        state, _ = self.places[seq]
        if not EFFECTS[kind].is_action:
            # The state is left out unless another call was in a state last, side by side with this one.
            shown = state if state != entered else ABSENT
            self._journal.record(EffectStart(seq=seq, kind=kind, state=shown, args=args))
            return
        action = args.get("command")
        if isinstance(action, str) and len(action) > LONGEST_ACTION:
            action = secrets.masked(action)[:LONGEST_ACTION] + " …"
        else:
            args = {name: value for name, value in args.items() if name != "command"}
        self._journal.record(ActionStart(action=action, seq=seq, kind=kind, args=args, state=state))

    def process(self, seq: int, pid: int, start_time: str) -> None:
        """A process was started for an effect; that is in the file at once."""
        self._open[seq].append((pid, start_time))
        self._journal.record(Process(seq=seq, pid=pid, start_time=start_time))
        self._journal.flush()

    def agent(self, seq: int, activity: AgentActivity) -> None:
        """What an agent does; it is in the file at once, and bounded for an agent that floods."""
        event = AgentActed.of_activity(seq, activity)
        count, size = self._told.get(seq, (0, 0))
        if count > MOST_EVENTS or size > MOST_TEXT:
            return
        size += len(activity.text) + len(activity.target) + sum(map(len, activity.files))
        self._told[seq] = count + 1, size
        if count == MOST_EVENTS or size > MOST_TEXT:
            event = AgentActed(seq=seq, what="bound")
        self.record(event)

    def record(self, event: Event) -> None:
        """An event about an effect in progress; it is in the file at once."""
        self._journal.record(event)
        self._journal.flush()

    def end(self, effect: Effect, result: dict[str, Any]) -> None:
        """An effect has its result."""
        seq, kind = effect.seq, effect.kind
        if EFFECTS[kind].is_action:
            code, took = result.get("exit_code"), result.get("duration_ms")
            event: Event = ActionComplete(exit_code=code, duration_ms=took, seq=seq, kind=kind, result=result)
        else:
            event = EffectComplete(seq=seq, kind=kind, result=result)
        self._journal.record(event)
        spending = self.spending(kind)
        if spending is not None:
            spending.take(seq, kind, result)
        self._open.pop(effect.seq, None)
        self._told.pop(effect.seq, None)
        self.places.pop(effect.seq, None)

    def under_way(self) -> dict[str, Any]:
        """The effects in progress as plain data, for a checkpoint."""
        return {
            "last": self.last,
            "open": [[seq, processes] for seq, processes in self._open.items()],
            "places": [[seq, *place] for seq, place in self.places.items()],
        }
