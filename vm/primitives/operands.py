"""Operand checks of primitives: each function returns the operand or raises a fault.

Messages show at most 200 characters of an operand.
"""

from __future__ import annotations

from ...ir.constants import Symbol
from ..values.faults import PrimitiveFault
from ..values.lists import is_list, to_tuple
from ..values.maps import Map, is_map, read
from ..values.values import show, type_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Value = Any


def expected(what: str, value: Value, help: str = "") -> PrimitiveFault:
    """The fault for an operand of the wrong type. help: what to do instead."""
    message = f"expected {what}, not {show(value)} ({type_name(value)})"
    return PrimitiveFault("type-error", f"{message}; {help}" if help else message)


def number(value: Value) -> int | float:
    if type(value) is int or type(value) is float:
        return value
    raise expected("a number", value)


def whole(value: Value) -> int:
    """An integer; an integral float is converted."""
    if type(value) is int:
        return value
    if type(value) is float and value.is_integer():
        return int(value)
    raise expected("a whole number", value)


def count(value: Value) -> int:
    """A count or an index: an integer ≥ 0."""
    if type(value) is int and value >= 0:
        return value
    raise expected("a whole number from 0", value)


def string(value: Value) -> str:
    if type(value) is str:
        return value
    help = "`to-string` or `symbol->string` gives its text" if type(value) is Symbol else ""
    raise expected("a string", value, help)


def key(value: Value) -> str:
    """A map key: a string, or the name of a symbol."""
    if type(value) is str:
        return value
    if type(value) is Symbol:
        return value.name
    raise expected("a string or a symbol as key", value)


def any_list(value: Value) -> Value:
    """A list in any of its forms; null counts as the empty list."""
    if type(value) is tuple or is_list(value):
        return value
    if value is None:
        return ()
    raise expected("a list", value)


def items(value: Value) -> tuple[Value, ...]:
    """The items of a list; empty for null."""
    if type(value) is tuple:
        return value
    return to_tuple(any_list(value))


def a_map(value: Value) -> Map:
    if is_map(value):
        return value
    raise expected("a map", value)


def map_or_null(value: Value) -> Map:
    """null counts as an empty map."""
    return {} if value is None else a_map(value)


def entries(value: Value) -> dict[str, Value]:
    """The entries of a map, empty for null. The caller must not change or store the dict."""
    return value if type(value) is dict else read(map_or_null(value))
