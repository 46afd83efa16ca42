"""Printer of loops as YAML: the FSM form of `llc compile --emit fsm`.

Keys are in the seed's order. A key is printed if it was given or differs from its default. The output reads
back to an equal loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..source.schema import Spec, Type, fields_of
from ..source.yaml_writer import Word, entry
from .evaluator_schema import Evaluator
from .schema import Loop, StateSpec

_LOOP_KEYS = ("name", "description", "initial", "scope", "context", "llm", "agent", "budget", "states")


def print_fsm(loop: Loop) -> str:
    """The loop as YAML in `paradigm: fsm`."""
    keys = [*_LOOP_KEYS, *(key for key in fields_of(Loop) if key not in _LOOP_KEYS)]
    lines: list[str] = []
    if "paradigm" in loop.spans:
        lines.append(f"paradigm: {loop.paradigm}")
    for key in keys:
        if key == "states":
            lines.append("states:" if loop.states else "states: {}")
            for name, state in loop.states.items():
                lines += entry(name, dict(_printed_entries(state)), 2)
        elif _is_printed(loop, key):
            lines += entry(key, _plain_value(getattr(loop, key), fields_of(Loop)[key].type), 0)
    return "\n".join(lines) + "\n"


def _is_printed(spec: Spec, key: str) -> bool:
    """Whether a field was given or differs from its default."""
    value = getattr(spec, key)
    if value is None:
        return fields_of(type(spec))[key].required  # `target: null` is a value to compare with
    if f"key:{key}" in spec.spans and key in fields_of(type(spec)):
        return True
    field = fields_of(type(spec))[key]
    default = field.default if field.factory is None else field.factory()
    return bool(value != default or type(value) is not type(default))


def _printed_entries(spec: Spec) -> Iterator[tuple[str, Any]]:
    """The keys and plain values of a block to print."""
    if isinstance(spec, Evaluator):
        yield "type", Word(spec.type)
    for key, field in fields_of(type(spec)).items():
        # `on_blocked` reads as an entry of `route`, and is printed as one.
        if _is_printed(spec, key):
            yield key, _plain_value(getattr(spec, key), field.type)
    if isinstance(spec, StateSpec) and spec.bindings:
        yield "with", spec.bindings


def _plain_value(value: Any, type: Type) -> Any:
    if isinstance(value, Spec):
        return dict(_printed_entries(value))
    if type.kind == "choice":
        return Word(value)
    return list(value) if isinstance(value, tuple) else value
