"""Settings of a task in a call (`files`, `context`, `history_config`), checked at compile time.

Values that are known only at run time are checked by `stdlib/calls.sexp`.
"""

from __future__ import annotations

from typing import Any

from ...ir.constants import Symbol
from ..core.nodes import Core, Literal, Operation
from ..sexp.datum import Datum
from ..tasks.atomic_task import CONTEXT_SETTINGS, HISTORY_SETTINGS, check_setting
from .expansion import Context

_SETTINGS = {"context": CONTEXT_SETTINGS, "history_config": HISTORY_SETTINGS}


def check_setting_of_call(x: Context, task: str, name: str, value: Core, datum: Datum) -> bool:
    """Whether a setting of a call is correct as far as it is known; reports errors."""
    if name == "files":
        if isinstance(value, Literal) and value.span is not None and not _is_files(value.value):
            x.error("wrong-type", f"`files` of `{task}` must be a list of paths", datum.span, "not this")
            return False
        return True
    known = _SETTINGS[name]
    is_sound = True
    if isinstance(value, Literal) and value.span is not None and not isinstance(value.value, tuple | None):
        x.error("wrong-type", f"`{name}` of `{task}` must be a map of settings", datum.span, "not this")
        return False
    for setting, given in _entries(value):
        problem = check_setting(known, setting, given) if given is not _LATE else None
        if given is _LATE and setting not in known:
            problem = check_setting(known, setting, None)
        if problem is not None:
            x.error("unknown-setting", f"in `{name}` of `{task}`, {problem}", datum.span)
            is_sound = False
    return is_sound


# A value that is known only at run time.
_LATE = object()


def _is_files(value: Any) -> bool:
    return value is None or (
        isinstance(value, tuple) and all(isinstance(item, str | Symbol) for item in value)
    )


def _entries(value: Core) -> list[tuple[str, Any]]:
    """The settings of a quoted list of pairs, or of a `dict`, as far as they are known."""
    if isinstance(value, Literal) and isinstance(value.value, tuple):
        pairs = [item for item in value.value if isinstance(item, tuple) and len(item) == 2]
        return [
            (_text(key), _text(given))
            for key, given in pairs
            if isinstance(key, str | Symbol) and _text(given) not in ("nil", "null", None, ())
        ]
    if isinstance(value, Operation) and value.op == "map":
        keys, values = value.args[::2], value.args[1::2]
        return [
            (key.value, _text(given.value) if isinstance(given, Literal) else _LATE)
            for key, given in zip(keys, values, strict=True)
            if isinstance(key, Literal) and isinstance(key.value, str)
        ]
    return []


def _text(value: Any) -> Any:
    return value.name if isinstance(value, Symbol) else value
