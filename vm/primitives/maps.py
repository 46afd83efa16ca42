"""Primitives over maps, and field access.

A key is a string; a symbol counts as its name. null counts as the empty map.
"""

from __future__ import annotations

from ...ir.constants import Symbol
from ..values import maps
from ..values.faults import PrimitiveFault
from ..values.lists import is_list, item, iterate, length, to_tuple
from ..values.maps import is_map, read
from ..values.values import kind_of, show
from .operands import any_list, entries, expected, key, map_or_null, string

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Value = Any

_TEXT = frozenset({str})
# Limit of field names in a message.
_SHOWN = 12


def make_map(*entries: Value) -> Value:
    keys = entries[::2]
    if len(entries) % 2:
        raise PrimitiveFault("type-error", f"a map is made of pairs, not of {len(entries)} operands")
    if not _TEXT.issuperset(map(type, keys)):
        raise expected("a string as key", next(name for name in keys if type(name) is not str))
    return dict(zip(keys, entries[1::2], strict=True))


def get_or(map: Value, name: Value, default: Value = None) -> Value:
    return entries(map).get(name if type(name) is str else key(name), default)


def put(map: Value, name: Value, value: Value) -> Value:
    return maps.put(map_or_null(map), name if type(name) is str else key(name), value)


def from_entries(pairs: Value) -> Value:
    made: dict[str, Value] = {}
    for entry in iterate(any_list(pairs)):
        if not is_list(entry) or length(entry) != 2:
            raise expected("entries that are lists of a key and a value", entry)
        name, value = to_tuple(entry)
        made[key(name)] = value
    return made


def merge(*parts: Value) -> Value:
    made: Value = {}
    for part in parts:
        made = maps.merge(made, map_or_null(part))
    return made


def without_nulls(map: Value) -> Value:
    return {name: value for name, value in entries(map).items() if value is not None}


# --- fields -----------------------------------------------------------------------------------


def get_field(value: Value, path: Value) -> Value:
    """The field with a name or a dotted path; null if there is none.

    In a map or an association list, a field with the whole dotted name has precedence. An integer selects an
    item of a list.
    """
    if type(path) is int:
        return _field(value, path)
    names = key(path)
    if is_map(value) and names in (fields := read(value)):
        return fields[names]
    if "." in names and is_list(value) and all(map(_is_entry, iterate(value))):
        for label, content in map(to_tuple, iterate(value)):
            if _is_label(label, names):
                return content
    for name in names.split("."):
        value = _field(value, name)
    return value


def _field(value: Value, name: str | int) -> Value:
    if value is None:
        return None
    if is_map(value) and type(name) is str:
        return read(value).get(name)
    if not is_list(value):
        raise PrimitiveFault("type-error", f"{kind_of(value)} has no field {show(name)}: {show(value)}")
    if isinstance(name, int) or (name.isdecimal() and name.isascii() and len(name) < 10):
        index = int(name)
        return item(value, index) if 0 <= index < length(value) else None
    for entry in iterate(value):  # all entries are checked, so that the result does not depend on their order
        if not _is_entry(entry):
            raise expected("an association list, of lists of a key and a value", entry)
    return next((content for label, content in map(to_tuple, iterate(value)) if _is_label(label, name)), None)


def _is_entry(entry: Value) -> bool:
    """Whether a value can be an entry of an association list."""
    return is_list(entry) and length(entry) == 2


def _is_label(label: Value, name: str) -> bool:
    return type(label) in (str, Symbol) and key(label) == name


class _Undefined(Exception):
    """A path that cannot be followed, with the reason."""


def _walk(value: Value, path: Value) -> Value:
    if not is_list(path):
        raise expected("a list of keys", path)
    for depth, step in enumerate(iterate(path)):
        if type(step) is not str and type(step) is not int:
            raise expected("a name or an index", step)
        if is_map(value):
            found = read(value)
            if type(step) is not str or step not in found:
                fields = ", ".join(f"`{show_key(name)}`" for name in list(found)[:_SHOWN])
                raise _Undefined(
                    f"there is no `{show_key(step)}`" + (f"; there is {fields}" if fields else "")
                )
            value = found[step]
        elif is_list(value):
            index = int(step) if type(step) is str and step.isdecimal() and len(step) < 10 else step
            if type(index) is not int or not 0 <= index < length(value):
                raise _Undefined(f"`{show_key(step)}` is no index into a list of {length(value)}")
            value = item(value, index)
        elif value is None and depth == 0:
            raise _Undefined("nothing has set it yet")
        else:
            raise _Undefined(f"{kind_of(value)} has no `{show_key(step)}`")
    return value


def show_key(name: Value) -> str:
    return name[:80] if type(name) is str else show(name)


def lookup(value: Value, path: Value, variable: Value) -> Value:
    try:
        return _walk(value, path)
    except _Undefined as why:
        name = variable if type(variable) is str else show(variable)
        name = name if name.startswith("${") else f"${{{name}}}"
        raise PrimitiveFault("undefined-variable", f"`{name}` is not defined: {why}") from None


def lookup_or(value: Value, path: Value, default: Value) -> Value:
    try:
        return _walk(value, path)
    except _Undefined:
        return default


HANDLERS: dict[str, Callable[..., Value]] = {
    "map": make_map,
    "get": lambda map, name: entries(map).get(name if type(name) is str else string(name)),
    "get_or": get_or,
    "put": put,
    "remove": lambda map, name: maps.remove(map_or_null(map), key(name)),
    "has_key": lambda map, name: key(name) in entries(map),
    "keys": lambda map: tuple(entries(map)),
    "values": lambda map: tuple(entries(map).values()),
    "entries": lambda map: tuple(entries(map).items()),
    "from_entries": from_entries,
    "merge": merge,
    "without_nulls": without_nulls,
    "get_field": get_field,
    "lookup": lookup,
    "lookup_or": lookup_or,
}
