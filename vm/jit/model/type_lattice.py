"""Type lattice: the kinds of values that inference distinguishes.

"int", "float", "bool", "str", "map" and "box" are types. "array" and "pair" are representations of a list.
"small" and "step" are integers of limited size. "true", "false" and "null" are single values. `("function",
3, kinds)` is function 3 with captures of these kinds and no applied arguments. "any" is any value.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...code.image import Image
from ...values.lists import Pair
from ...values.maps import MapVersion
from ...values.values import Box, FunctionValue, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias

Kind: TypeAlias = "str | tuple[str, int, tuple[Any, ...]]"

_OF_TYPES: dict[type, Kind] = {
    int: "int",
    float: "float",
    bool: "bool",
    str: "str",
    dict: "map",
    MapVersion: "map",
    tuple: "array",
    Pair: "pair",
    Box: "box",
    type(None): "null",
}
# From the narrowest to the widest. A step is at most `_STEP`. An integer that starts as `_SMALL` and changes
# only by steps stays below 2⁶² for any realistic run time, because each change costs time.
INTEGERS = frozenset({"int", "small", "step"})
_WIDTHS = ("step", "small", "int")
_STEP = 1 << 10
_SMALL = 1 << 48
_BOOLEANS = ("bool", "true", "false")
_WIDER = {"null": "any", "true": "bool", "false": "bool", "step": "small"}
# Nesting limit of functions as captures of functions.
_DEEPEST = 2


def of_value(value: Value, image: Image, depth: int = 0) -> Kind:
    kind = _OF_TYPES.get(type(value), "any")
    if kind == "int" and -_SMALL < value < _SMALL:
        return "step" if -_STEP <= value <= _STEP else "small"
    if type(value) is FunctionValue and depth < _DEEPEST:
        captures = value.captures
        if len(captures) == image.functions[value.function].captures:
            kinds = tuple(of_value(one, image, depth + 1) for one in captures)
            return "function", value.function, kinds
    return kind


def of_closure(function: int, captures: Sequence[Kind]) -> Kind:
    return "function", function, tuple(_shallow(kind, _DEEPEST - 1) for kind in captures)


def _shallow(kind: Kind, depth: int) -> Kind:
    if isinstance(kind, str):
        return _WIDER.get(kind, kind)
    if not depth:
        return "any"
    return "function", kind[1], tuple(_shallow(inner, depth - 1) for inner in kind[2])


def given(kinds: Sequence[Kind]) -> tuple[Kind, ...]:
    """The kinds of arguments, reduced to those that are worth a version of a function."""
    return tuple(_WIDER.get(kind, kind) if isinstance(kind, str) else kind for kind in kinds)


def join(kinds: Sequence[Kind], others: Sequence[Kind]) -> list[Kind]:
    """The least upper bound of two lists of kinds."""
    return [a if a == b else _either(a, b) for a, b in zip(kinds, others, strict=True)]


def _either(kind: Kind, other: Kind) -> Kind:
    if kind in _BOOLEANS and other in _BOOLEANS:
        return "bool"
    return wider(kind, other) if kind in INTEGERS and other in INTEGERS else "any"


def wider(*integers: Kind) -> Kind:
    """The widest of several integer kinds."""
    return max(integers, key=lambda kind: _WIDTHS.index(str(kind)))


# --- primitives ---------------------------------------------------------------------------------

# Result kinds of primitives. "whole" is an integer if all operands are integers.
_RESULTS = {
    "whole": "add sub mul quotient remainder modulo gcd lcm abs min max round floor ceiling truncate exact",
    "small": "length string_length",
    "str": "concat text to_string string_append substring join format tail trim replace upper lower "
    "symbol_name",
    "map": "map put remove from_entries merge without_nulls",
    "array": "array list range reverse unique flatten zip sorted keys values entries split lines",
    "pair": "cons",
    "box": "box unset_box",
    "bool": "num_eq lt le gt ge is_zero is_positive is_negative is_even is_odd eq not is_null is_nil "
    "is_string is_map is_symbol is_boolean is_function is_pair is_list is_integer is_number is_float "
    "is_empty has_key starts_with ends_with string_eq string_lt contains",
}
# Primitives whose result, if any, is a float if one operand is a float.
_FLOATING = frozenset({"add", "sub", "mul", "div"})
_RESULT_OF = {name: kind for kind, names in _RESULTS.items() for name in names.split()}


def of_result(name: str, operands: Sequence[Kind]) -> Kind:
    """The result kind of a primitive for operands of these kinds."""
    if name == "select":
        _, then, otherwise = operands
        return join([then], [otherwise])[0]
    if name in _FLOATING and "float" in operands:
        return "float"
    kind = _RESULT_OF.get(name, "any")
    if kind == "whole":
        return _whole(name, operands) if INTEGERS.issuperset(operands) else "any"
    return kind


def of_quick(name: str, kind: Kind) -> Kind:
    """The result kind of the integer fast path of a primitive (`inline`)."""
    return "int" if kind == "any" and _RESULT_OF.get(name) == "whole" else kind


def _whole(name: str, operands: Sequence[Kind]) -> Kind:
    """The result kind of integer arithmetic."""
    match name, *operands:
        case ("modulo" | "remainder", _, "step"):
            return "step"
        case ("add" | "sub", "step" | "small", "step") | ("add", "step", "small") | ("mul", "step", "step"):
            return "small"
        case ("quotient" | "abs" | "min" | "max" | "round" | "floor" | "ceiling" | "truncate" | "exact", *_):
            return wider(*operands)
        case _:
            return "int"
