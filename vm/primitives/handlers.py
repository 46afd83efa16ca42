"""Handlers of the pure primitives, one function for each row of `ir.primitives`.

This module has the primitives over values of any type, functions and shell words; `numbers`, `sequences`,
`maps`, `strings` and `verdicts` have the others. The import fails if rows and handlers do not match. A
primitive maps values to a value; it has no side effects, does not change its operands, and raises
`PrimitiveFault` for errors of the program. No handler recurses over a value, and no result exceeds `bounds`.
"""

from __future__ import annotations

from ...ir.primitives import PRIMITIVES
from ..values.faults import PrimitiveFault
from ..values.maps import is_map
from ..values.values import (
    BOXES,
    MAX_HOST_DEPTH,
    Box,
    DynamicBox,
    FunctionValue,
    equal,
    from_host,
    show,
    to_host,
)
from . import maps, numbers, reports, sequences, shell_words, strings, verdicts
from .operands import expected, items, string
from .strings import text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Value = Any

__all__ = ["HANDLERS", "text"]


# --- values -----------------------------------------------------------------------------------


def plain(value: Value) -> Value:
    try:
        return from_host(to_host(value, MAX_HOST_DEPTH))
    except TypeError as error:
        raise PrimitiveFault("type-error", str(error)) from None
    except ValueError as error:
        raise PrimitiveFault("too-large", str(error)) from None


def conjunction(*values: Value) -> Value:
    last = True
    for last in values:
        if not last:
            break
    return last


def disjunction(*values: Value) -> Value:
    last = False
    for last in values:
        if last:
            break
    return last


def unbox(box: Value) -> Value:
    if type(box) not in BOXES:
        raise expected("a box", box)
    return box.value


def unset_box() -> Value:
    # No other value of a program is a box that contains itself.
    box = Box()
    box.value = box
    return box


def unbox_set(box: Value, variable: Value) -> Value:
    value = unbox(box)
    if value is box:
        raise PrimitiveFault("uninitialised", f"`{string(variable)}` is used before it has its value")
    return value


# --- functions --------------------------------------------------------------------------------


def applied(function: Value, values: Value) -> Value:
    if type(function) is not FunctionValue:
        raise PrimitiveFault("not-a-function", f"cannot call {show(function)}: it is not a function")
    return FunctionValue(function.function, (*items(values), *function.captures))


def are_equal(first: Value, *others: Value) -> bool:
    return equal(first, others[0]) if len(others) == 1 else all(equal(first, other) for other in others)


def operate(name: Value, values: Value) -> Value:
    signature = PRIMITIVES.get(string(name))
    if signature is None or name == "operate":  # `operate` applied to itself could recurse without limit
        raise PrimitiveFault("type-error", f"there is no primitive {show(name)}")
    operands = items(values)
    if len(operands) < signature.least or (signature.most is not None and len(operands) > signature.most):
        raise PrimitiveFault("arity", f"`{name}` takes `{signature.operands}`, not {len(operands)} operands")
    return HANDLERS[name](*operands)


HANDLERS: dict[str, Callable[..., Value]] = {
    "is_null": lambda value: value is None,
    "is_boolean": lambda value: type(value) is bool,
    "is_map": is_map,
    "is_function": lambda value: type(value) is FunctionValue,
    "eq": are_equal,
    "plain": plain,
    "select": lambda condition, then, otherwise: then if condition else otherwise,
    "not": lambda value: not value,
    "and": conjunction,
    "or": disjunction,
    "box": Box,
    "dynamic_box": DynamicBox,
    "unbox": unbox,
    "unset_box": unset_box,
    "unbox_set": unbox_set,
    "applied": applied,
    "operate": operate,
    **shell_words.HANDLERS,
    **numbers.HANDLERS,
    **sequences.HANDLERS,
    **maps.HANDLERS,
    **strings.HANDLERS,
    **reports.HANDLERS,
    **verdicts.HANDLERS,
}

if HANDLERS.keys() != PRIMITIVES.keys():
    odd = ", ".join(sorted(HANDLERS.keys() ^ PRIMITIVES.keys()))
    raise AssertionError(f"primitives without code, or code without a primitive: {odd}")
