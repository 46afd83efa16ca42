"""The real world: performs the effects that a run requests.

Owns the parts that several effects share; `performers` has the table of functions that perform each kind.
`scripted_world.ScriptedWorld` implements the same protocol without performing anything. See
`spec/effects.md`.
"""

from __future__ import annotations

from ..host import clock
from ..host.effect_context import Context, EffectLike
from ..trees.recorder import TreeRecorder
from .performers import TURNS, Parts, observer_of, performer_of, turns_of
from .stalls import KINDS, StallDetector

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


# Names of the parts that record trees and detect stalls.
TREES, STALLS = "trees", "stalls"


class World(Parts):
    """Performs the effects of one run. The arguments are those of `Parts`."""

    def perform(self, effect: EffectLike, context: Context) -> dict[str, Any]:
        context.interrupt.check()
        recorder: TreeRecorder = self.keep_common(TREES, TreeRecorder)
        if not recorder.wants(effect.kind, effect.args, context):
            return self._perform(effect, context, None)
        return recorder.around(context, lambda tree: self._perform(effect, context, tree))

    def _perform(self, effect: EffectLike, context: Context, tree: str | None) -> dict[str, Any]:
        kind, args = effect.kind, effect.args
        if kind == "agent":
            return self._stalls.perform(args, context, tree, lambda: self._perform_agent(args, context, tree))
        if kind == "evaluate" and args.get("evidence"):
            recorder: TreeRecorder = self.keep_common(TREES, TreeRecorder)
            args = {**args, "evidence": {**args["evidence"], **recorder.changes(context)}}
        result = performer_of(kind)(args, context, self)
        if kind in KINDS:
            self._stalls.add(kind, result, context.state)
        return result

    def _perform_agent(self, args: dict[str, Any], context: Context, tree: str | None) -> dict[str, Any]:
        """Perform an `agent` effect and guard the paths that it names."""
        perform = performer_of("agent")
        if not args.get("guard"):
            return perform(args, context, self)
        recorder: TreeRecorder = self.keep_common(TREES, TreeRecorder)
        return recorder.guarded(args["guard"], context, tree, lambda: perform(args, context, self))

    @property
    def _stalls(self) -> StallDetector:
        return self.keep_common(STALLS, StallDetector)

    def detect_stalls(self, rounds: int) -> None:
        """Set the default number of rounds after which a loop stalls; 0 for never."""
        self.keep_common(STALLS, lambda: StallDetector(rounds))

    def record_files(self, mode: str, are_tasks_agents: bool) -> None:
        """Set the recording of the project's files; the arguments are those of `TreeRecorder`."""
        self.keep_common(TREES, lambda: TreeRecorder(mode, are_tasks_agents))

    def perform_kind(self, kind: str, args: dict[str, Any], context: Context) -> dict[str, Any]:
        return performer_of(kind)(args, context, self)

    def observe(self, effect: EffectLike, result: dict[str, Any], state: str | None = None) -> None:
        """Observe a recorded result; some kinds keep state between effects."""
        observe = observer_of(effect.kind)
        if observe is not None:
            observe(effect.args, result, self)
        if effect.kind in KINDS:
            self._stalls.add(effect.kind, result, state)

    def time(self) -> float:
        return clock.time()

    def monotonic(self) -> float:
        return clock.monotonic()

    def beside(self) -> World:
        """A world for a concurrent effect of the same run."""
        return World(self.kinds, self.workers, self._common)

    def save(self) -> Any:
        """State for a checkpoint: turns of tasks and rounds of loops; None if there are none."""
        turns = turns_of(self).save() if self.has(TURNS) else None
        rounds = self._stalls.save()
        return turns if rounds is None else {"turns": turns, "rounds": rounds}

    def restore(self, saved: Any) -> bool:
        """Restore the state that `save` returned; return False if it is invalid."""
        rounds = None
        if isinstance(saved, dict):
            saved, rounds = saved.get("turns"), saved.get("rounds")
        return (saved is None or turns_of(self).restore(saved)) and self._stalls.restore(rounds)
