"""Text forms of values: JSON, and the syntax of the language. Bounded, without recursion."""

from __future__ import annotations

from ...ir.constants import Symbol
from . import bounds
from .faults import PrimitiveFault
from .lists import Pair, Queue, Slice, is_list, iterate
from .maps import MapVersion
from .values import FunctionValue, kind_of, type_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    Value = Any

# Scalars with JSON up to this length are written before the length is checked.
_SHORT = 64
_PLAIN = 1 << 64
_NAMES = {None: "null", True: "true", False: "false"}
_CONTAINERS = (tuple, Pair, Slice, Queue, dict)


def duration_text(milliseconds: float) -> str:
    """A duration for people: `0.3s`, `12s`, `2m 34s`, `1h 2m`."""
    if milliseconds < 10_000:
        return f"{milliseconds / 1000:.1f}s"
    seconds = int(milliseconds // 1000)
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3600:
        return f"{seconds // 60}m {seconds % 60}s"
    return f"{seconds // 3600}h {seconds % 3600 // 60}m"


def digits(number: int) -> str:
    """The decimal digits of an integer, including those beyond Python's digit limit."""
    if number.bit_length() < 10_000:
        return str(number)
    sign, number = ("-", -number) if number < 0 else ("", number)
    chunks = []
    base = 10**1000
    while number:
        number, chunk = divmod(number, base)
        chunks.append(str(chunk).rjust(1000, "0"))
    return sign + "".join(reversed(chunks)).lstrip("0")


class _Out:
    """A bounded buffer of text parts."""

    __slots__ = ("parts", "size")

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.size = 0

    def add(self, part: str) -> None:
        self.parts.append(part)
        self.size += len(part)
        bounds.check_text(self.size)


# --- JSON -------------------------------------------------------------------------------------


def _json() -> ModuleType:
    # Deferred: most programs write no JSON.
    import json

    return json


def json_scalar(value: Value, strict: bool = False) -> str:
    """A scalar as JSON; a symbol becomes its name. strict: reject numbers that JSON does not have."""
    kind = type(value)
    if kind is bool:
        return "true" if value else "false"
    if kind is int:
        return digits(value)
    if value is None:
        return "null"
    if kind is float:
        if strict and value - value != 0.0:
            raise PrimitiveFault("type-error", f"JSON has no {value}")
        return _json().dumps(value)  # type: ignore[no-any-return]
    if kind is str or kind is Symbol:
        return _json().encoder.encode_basestring(value if kind is str else value.name)  # type: ignore[no-any-return]
    raise PrimitiveFault("type-error", f"{kind_of(value)} has no text")


def _short_json(value: Value, spell: Callable[[str], str]) -> str | None:
    """A scalar as JSON if the result is short; None otherwise."""
    kind = type(value)
    if kind is str:
        return spell(value) if len(value) < _SHORT else None
    if kind is int:
        return str(value) if -_PLAIN < value < _PLAIN else None
    return _NAMES.get(value) if kind is bool or value is None else None


def json_text(value: Value, indent: int = 0, strict: bool = False) -> str:
    """A value as JSON, on one line or with `indent` spaces per level."""
    out, spell = _Out(), _json().encoder.encode_basestring
    # Work stack: a text, or a value in a one-item list, with its level.
    todo: list[tuple[str | list[Value], int]] = [([value], 0)]
    while todo:
        piece, level = todo.pop()
        if isinstance(piece, str):
            out.add(piece)
            continue
        item: Value = piece[0]
        if type(item) is MapVersion:
            item = item.read()
        kind = type(item)
        if kind not in _CONTAINERS:
            out.add(json_scalar(item, strict))
            continue
        opening, closing = ("{", "}") if kind is dict else ("[", "]")
        separator = ", "
        if indent and item:
            separator = ",\n" + " " * (indent * (level + 1))
            opening, closing = opening + separator[1:], "\n" + " " * (indent * level) + closing
        ahead: list[tuple[str | list[Value], int]] = []
        text, parts = opening, []
        for entry in item if kind is dict else iterate(item):
            parts.append(text)
            content = entry
            if kind is dict:
                parts += (spell(entry), ": ")
                content = item[entry]
            if (short := _short_json(content, spell)) is not None:
                parts.append(short)
            else:
                ahead += (("".join(parts), 0), ([content], level + 1))
                parts = []
            text = separator
        ahead.append(("".join(parts) + (closing if item else opening + closing), 0))
        ahead.reverse()
        todo += ahead
    return "".join(out.parts)


# --- the language -----------------------------------------------------------------------------


def written(value: Value, limit: int | None = None, function_name: Callable[[int], str] | None = None) -> str:
    """A value in the syntax of the language: `(1 "a" b)`, `(dict ("k" 1))`, `null`, `#<function>`.

    A value without functions, quoted if it is a list or a symbol, reads back as an equal value. Text
    longer than `limit` characters is cut and ends with `…`. function_name: gives the name of a function by
    its index, for `#<function area>`.
    """
    out = _Out()
    todo: list[str | list[Value]] = [[value]]
    while todo:
        piece = todo.pop()
        if isinstance(piece, str):
            out.add(piece)
            if limit is not None and out.size > limit:
                return "".join(out.parts)[:limit] + "…"
            continue
        item: Value = piece[0]
        if type(item) is MapVersion:
            item = item.read()
        kind = type(item)
        if kind is FunctionValue and function_name is not None:
            out.add(f"#<function {function_name(item.function)}>")
            continue
        if kind is dict:
            ahead: list[str | list[Value]] = ["(dict"]
            for name, content in item.items():
                ahead += [f" ({_spell(name)} ", [content], ")"]
        elif is_list(item):
            ahead = []
            for entry in iterate(item):
                ahead += [" " if ahead else "(", [entry]]
            if not ahead:
                ahead.append("(")
        else:
            out.add(_atom(item))
            continue
        ahead.append(")")
        ahead.reverse()
        todo += ahead
    return "".join(out.parts)


def _spell(value: str | float | Symbol) -> str:
    from ...ir import spelling  # imported only when a value is written

    if isinstance(value, str):
        return spelling.spell_string(value)
    return spelling.spell_float(value) if isinstance(value, float) else spelling.spell_symbol(value.name)


def _atom(value: Value) -> str:
    kind = type(value)
    if value is None:
        return "null"
    if kind is bool:
        return "true" if value else "false"
    if kind is int:
        return digits(value)
    if kind is float or kind is str or kind is Symbol:
        return _spell(value)
    return f"#<{type_name(value)}>"
