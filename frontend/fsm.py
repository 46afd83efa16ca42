"""Loops as YAML: the FSM form that `llc compile --emit fsm` prints.

Keys come in the seed's order, only those that were given or say something; what is printed reads
back to an equal loop. Written here because no YAML writer keeps to the seed's look.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import attrs

from .documents import read_scalar
from .schema import Evaluator, Loop, Spec, Type
from .structure import fields_of

_LOOP_KEYS = ("name", "description", "initial", "scope", "context", "llm", "agent", "budget", "states")
_BARE_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
# What a YAML 1.1 reader would not take as text.
_OLD_WORDS = frozenset({"y", "n", "yes", "no", "on", "off"})
_MAX_SIMPLE_KEY = 120
_MAX_FLOW = 80
# Characters that a double-quoted YAML text must escape and JSON leaves alone.
_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufe00-\ufe0f\ufeff\ufff0-\uffff]")
_BLOCK_LINE = re.compile(
    "[\t\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufdff\uff00-\uffef\U00010000-\U0010ffff]*"
)


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
                lines += _entry(name, dict(_given(state)), 2)
        elif _says_something(loop, key):
            lines += _entry(key, _plain(getattr(loop, key), fields_of(Loop)[key].type), 0)
    return "\n".join(lines) + "\n"


class _Word(str):
    """A text that needs no quotes: one of a field's choices."""


def _says_something(spec: Spec, key: str) -> bool:
    """Whether a field was given, or holds something else than it would by itself."""
    value = getattr(spec, key)
    if value is None:
        return fields_of(type(spec))[key].required  # `target: null` is a value to compare with
    if f"key:{key}" in spec.spans and key in fields_of(type(spec)):
        return True
    default = getattr(attrs.fields(type(spec)), key).default
    if isinstance(default, attrs.Factory):  # type: ignore[arg-type]
        default = default.factory()
    return bool(default is attrs.NOTHING or value != default or type(value) is not type(default))


def _given(spec: Spec) -> Iterator[tuple[str, Any]]:
    """The keys and plain values of a block that are worth printing."""
    if isinstance(spec, Evaluator):
        yield "type", _Word(spec.type)
    for key, field in fields_of(type(spec)).items():
        # `on_blocked` reads as an entry of `route`, and is printed as one.
        if _says_something(spec, key):
            yield key, _plain(getattr(spec, key), field.type)


def _plain(value: Any, type: Type) -> Any:
    if isinstance(value, Spec):
        return dict(_given(value))
    if type.kind == "choice":
        return _Word(value)
    return list(value) if isinstance(value, tuple) else value


# --- YAML -------------------------------------------------------------------------------------


def _entry(key: str, value: Any, indent: int) -> list[str]:
    """The lines of one key and its value."""
    pad = " " * indent
    name = key if _is_bare(key) else _quoted(key)
    head = f"{pad}{name}:" if len(name) <= _MAX_SIMPLE_KEY else f"{pad}? {name}\n{pad}:"
    return _behind(head, value, indent)


def _behind(head: str, value: Any, indent: int) -> list[str]:
    """A value put behind `head`, which stands at `indent`."""
    simple = _flow(value)
    if simple is not None:
        return [f"{head} {simple}"]
    if isinstance(value, str):
        body = value.removesuffix("\n")
        pad = " " * (indent + 2)
        mark = "|" if body != value else "|-"
        return [f"{head} {mark}", *(pad + line if line else "" for line in body.split("\n"))]
    lines = [head]
    if isinstance(value, dict):
        for key, item in value.items():
            lines += _entry(key, item, indent + 2)
    else:
        for item in value:
            lines += _behind(" " * (indent + 2) + "-", item, indent + 2)
    return lines


def _flow(value: Any) -> str | None:
    """The value on one line, or None where it needs or deserves several."""
    if isinstance(value, _Word):
        return str(value)
    if isinstance(value, str):
        return None if _is_block(value) else _quoted(value)
    if isinstance(value, dict):
        return None if value else "{}"
    if isinstance(value, list | tuple):
        items = [_flow(item) if not isinstance(item, list | dict) or not item else None for item in value]
        line = f"[{', '.join(item or '' for item in items)}]"
        return line if None not in items and len(line) <= _MAX_FLOW else None
    return json.dumps(value)


def _is_bare(key: str) -> bool:
    return (
        bool(_BARE_KEY.fullmatch(key)) and isinstance(read_scalar(key), str) and key.lower() not in _OLD_WORDS
    )


def _is_block(text: str) -> bool:
    """Whether a text is shown best, and exactly, as a literal block."""
    lines = text.removesuffix("\n").split("\n")
    return (
        len(lines) > 1
        and lines[0][:1] not in ("", " ", "\t")
        and lines[-1] != ""
        and all(_BLOCK_LINE.fullmatch(line) for line in lines)
    )


def _quoted(text: str) -> str:
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(text, ensure_ascii=False))
