"""Table of performers: the function that performs each kind of effect in the real world.

A performer is a function `(args, context, parts) -> result`. Its module is loaded when the first effect
of its kind is performed, because a run needs few of them and some load much. `tests/runtime/test_world.py`
compares the table with `ir.effects`.
"""

from __future__ import annotations

from ...ir.python_internals import import_module
from ..host.effect_context import Context
from .parts import Parts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..models.conversation import Turns

    Perform = Callable[[dict[str, Any], Context, Parts], dict[str, Any]]
    Observe = Callable[[dict[str, Any], dict[str, Any], Parts], object]

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
    "pause": "effects.immediate:perform_pause",
    "exit": "effects.immediate:perform_exit",
}
# Functions `(args, result, parts)` that note a result which a resumed run takes from the journal.
OBSERVERS = {"task": "effects.performers:observe_task"}
# Functions `args -> bool` that tell whether an interrupted effect can be continued.
CONTINUABLE = {"agent": "effects.agents.agent:can_continue"}
# The part of a world that checkpoints contain, and its class.
TURNS, _TURNS_CLASS = "turns", "models.conversation:Turns"

_ROOT = __package__.rpartition(".")[0]
_loaded: dict[str, Any] = {}


def performer_of(kind: str) -> Perform:
    """The performer of a kind. Raises ValueError if there is no such kind."""
    if kind not in PERFORMERS:
        raise ValueError(f"no effect of kind `{kind}`")
    return _function(PERFORMERS[kind])  # type: ignore[no-any-return]


def observer_of(kind: str) -> Observe | None:
    """The observer of a kind, None if it has none."""
    return _function(OBSERVERS[kind]) if kind in OBSERVERS else None


def can_continue(kind: str, args: dict[str, Any]) -> bool:
    """Whether an effect that was interrupted can be continued, not only performed again."""
    return kind in CONTINUABLE and _function(CONTINUABLE[kind])(args)


def turns_of(parts: Parts) -> Turns:
    """The turns of the tasks of the run that a world belongs to."""
    turns: Turns = parts.keep_common(TURNS, _function(_TURNS_CLASS))
    return turns


def observe_task(args: dict[str, Any], result: dict[str, Any], parts: Parts) -> None:
    """Note the result of a `task` effect that is on record."""
    turns_of(parts).observe(args, result)


def _function(entry: str) -> Any:
    found = _loaded.get(entry)
    if found is None:
        module, _, name = entry.partition(":")
        found = _loaded[entry] = getattr(import_module(f"{_ROOT}.{module}"), name)
    return found
