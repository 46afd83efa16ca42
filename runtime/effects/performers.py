"""Table of performers, the functions that perform each kind of effect in the real world, and their parts.

A performer is a function `(args, context, parts) -> result`. Its module is imported for the first effect of
its kind, because a run needs few performers and some import much. `tests/runtime/test_world.py` compares the
table with `ir.effects`. A performer receives the parts of its world, such as helper processes, which persist
between effects, and creates its own part on first use:

    def perform(args, context, parts):
        return parts.keep("shell", Shell).perform(args, context)
"""

from __future__ import annotations

from ...ir.python_internals import import_module
from ..host.effect_context import Context

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol, TypeVar

    from ..models.conversation import Turns
    from ..models.worker_pool import SharedWorkers

    class Part(Protocol):
        def close(self) -> None: ...

    P = TypeVar("P", bound=Part)
    Perform = Callable[[dict[str, Any], Context, "Parts"], dict[str, Any]]
    Observe = Callable[[dict[str, Any], dict[str, Any], "Parts"], object]

# `module:function` by kind; modules are relative to `runtime`.
PERFORMERS = {
    "shell": "effects.shell:perform",
    "tool": "effects.tools.tool:perform",
    "task": "effects.task:perform",
    "context": "effects.context_search:perform",
    "agent": "effects.agents.agent:perform",
    "ask": "effects.ask:perform",
    "evaluate": "effects.evaluate:perform",
    "jq": "effects.jq:perform",
    "sleep": "effects.immediate:perform_sleep",
    "clock": "effects.immediate:perform_clock",
    "env": "effects.immediate:perform_env",
    "link": "effects.immediate:perform_link",
    "pause": "effects.immediate:perform_pause",
    "exit": "effects.immediate:perform_exit",
}
# Functions `(args, result, parts)` that observe a result which a resumed run takes from the journal.
OBSERVERS = {"task": "effects.performers:observe_task"}
# Functions `args -> bool`: whether an interrupted effect can be continued.
CONTINUABLE = {"agent": "effects.agents.agent:can_continue"}
# The part of a world that checkpoints contain, and its class.
TURNS, _TURNS_CLASS = "turns", "models.conversation:Turns"

_ROOT = __package__.rpartition(".")[0]
_loaded: dict[str, Any] = {}


def performer_of(kind: str) -> Perform:
    """The performer of a kind. Raises ValueError for an unknown kind."""
    if kind not in PERFORMERS:
        raise ValueError(f"no effect of kind `{kind}`")
    return _function(PERFORMERS[kind])  # type: ignore[no-any-return]


def observer_of(kind: str) -> Observe | None:
    """The observer of a kind; None if it has none."""
    return _function(OBSERVERS[kind]) if kind in OBSERVERS else None


def can_continue(kind: str, args: dict[str, Any]) -> bool:
    """Whether an interrupted effect can be continued instead of repeated."""
    return kind in CONTINUABLE and _function(CONTINUABLE[kind])(args)


def turns_of(parts: Parts) -> Turns:
    """The turns of the run's tasks."""
    turns: Turns = parts.keep_common(TURNS, _function(_TURNS_CLASS))
    return turns


def observe_task(args: dict[str, Any], result: dict[str, Any], parts: Parts) -> None:
    """Observe the recorded result of a `task` effect."""
    turns_of(parts).observe(args, result)


def _function(entry: str) -> Any:
    function = _loaded.get(entry)
    if function is None:
        module, _, name = entry.partition(":")
        function = _loaded[entry] = getattr(import_module(f"{_ROOT}.{module}"), name)
    return function


# --- parts of a world ----------------------------------------------------------------------------


class Parts:
    """The parts of one world, by name.

    Args:
        kinds: effect kinds that the program can request; empty if unknown.
        workers: model clients that many runs share; None if the run has its own.
        common: parts that the worlds of concurrent effects of one run share; None to create this map. The
            world that creates the map closes its parts.
    """

    def __init__(
        self,
        kinds: frozenset[str] = frozenset(),
        workers: SharedWorkers | None = None,
        common: dict[str, Part] | None = None,
    ) -> None:
        self.kinds = kinds
        self.workers = workers
        self._owns_common = common is None
        self._common: dict[str, Part] = {} if common is None else common
        self._lasting: dict[str, Part] = {}
        self._of_run: dict[str, Part] = {}

    def perform_kind(self, kind: str, args: dict[str, Any], context: Context) -> dict[str, Any]:
        """Perform an effect as a part of another effect."""
        raise NotImplementedError  # `World` implements it

    def keep(self, name: str, make: Callable[[], P]) -> P:
        """Get or create a part that a later run can also use."""
        return self._get_or_create(self._lasting, name, make)

    def keep_for_run(self, name: str, make: Callable[[], P]) -> P:
        """Get or create a part that is closed at the end of the run."""
        return self._get_or_create(self._of_run, name, make)

    def keep_common(self, name: str, make: Callable[[], P]) -> P:
        """Get or create a part that all threads of a run share."""
        part: Any = self._common.get(name) or self._common.setdefault(name, make())
        return part  # type: ignore[no-any-return]

    def has(self, name: str) -> bool:
        return any(name in parts for parts in (self._lasting, self._of_run, self._common))

    def take_over(self, used: Parts) -> None:
        """Take over the lasting parts of a world that no run uses any more, and close the world."""
        used.end_run()
        for name in list(used._lasting):
            if name not in self._lasting:
                self._lasting[name] = used._lasting.pop(name)
        used.close()

    def end_run(self) -> None:
        """Close the parts of the run."""
        _close(self._of_run)

    def close(self) -> None:
        self.end_run()
        _close(self._lasting)
        if self._owns_common:
            _close(self._common)

    @staticmethod
    def _get_or_create(parts: dict[str, Part], name: str, make: Callable[[], P]) -> P:
        part: Any = parts.get(name)
        if part is None:
            part = parts[name] = make()
        return part  # type: ignore[no-any-return]


def _close(parts: dict[str, Part]) -> None:
    while parts:
        parts.popitem()[1].close()
