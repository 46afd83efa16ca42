"""The real world: performs the effects that a run requests.

Owns which parts of a world several effects share; what performs a kind is listed in `performers`.
`scripted_world.ScriptedWorld` follows the same protocol and performs nothing. See `spec/effects.md`.
"""

from __future__ import annotations

from ..host import clock
from ..host.effect_context import Context, EffectLike
from ..trees.recorder import TreeRecorder
from .parts import Parts
from .performers import TURNS, observer_of, performer_of, turns_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


# The part of a world that records trees.
TREES = "trees"


class World(Parts):
    """Performs effects for one run; the arguments are those of `Parts`."""

    __slots__ = ()

    def perform(self, effect: EffectLike, context: Context) -> dict[str, Any]:
        context.interrupt.check()
        perform = performer_of(effect.kind)
        recorder: TreeRecorder = self.keep_common(TREES, TreeRecorder)
        if not recorder.wants(effect.kind, effect.args, context):
            return perform(effect.args, context, self)
        with recorder.around(context):
            return perform(effect.args, context, self)

    def record_files(self, mode: str, are_tasks_agents: bool) -> None:
        """How the files of the project are recorded; the arguments are those of `TreeRecorder`."""
        self.keep_common(TREES, lambda: TreeRecorder(mode, are_tasks_agents))

    def perform_kind(self, kind: str, args: dict[str, Any], context: Context) -> dict[str, Any]:
        return performer_of(kind)(args, context, self)

    def observe(self, effect: EffectLike, result: dict[str, Any], state: str | None = None) -> None:
        """Note a result that is on record; only some kinds have something to remember."""
        observe = observer_of(effect.kind)
        if observe is not None:
            observe(effect.args, result, self)

    def time(self) -> float:
        return clock.time()

    def monotonic(self) -> float:
        return clock.monotonic()

    def beside(self) -> World:
        """A world for an effect of the same run that is performed at the same time."""
        return World(self.kinds, self.workers, self._common)

    def save(self) -> Any:
        """What a checkpoint contains of it: the turns of tasks, None if there were none."""
        return turns_of(self).save() if self.has(TURNS) else None

    def restore(self, saved: Any) -> bool:
        """Restore what `save` returned; whether that is possible."""
        return saved is None or turns_of(self).restore(saved)
