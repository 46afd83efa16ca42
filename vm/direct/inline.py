"""Primitives as Python expressions, where that says the same in less time than a call of their code.

Each row of `RULES` makes, of operands with what is known of their types, an expression and what is
known of its type; or nothing, and the primitive's function is called. An operand may be written more
than once in an expression, so it is a name or a constant (`translate` sees to that).

Types are words: "int", "bool", "str", "null", "box", "any".
"""

from __future__ import annotations

from .. import bounds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    # An operand or a result: Python text and what is known of its type.
    Typed = tuple[str, str]
    Rule = Callable[[Sequence[Typed]], "Typed | None"]

# Beyond this a product of two might be larger than an integer may be.
_SMALL = 1 << 64
# Lists of fewer items are no more than a list may be, whatever bounds a host sets within reason.
_MANY = 1 << 20
# Eight strings this long are no more than a text may be, whatever bounds a host sets within reason.
_SHORT = 1 << 16


def fits(name: str) -> bool:
    """Whether what a rule leaves unchecked is within the bounds that hold (`vm.bounds`)."""
    match name:
        case "string_append":
            return bounds.MAX_TEXT >= 8 * _SHORT
        case "cons":
            return bounds.MAX_ITEMS >= _MANY
        case _:
            return bounds.MAX_BITS >= 128


def _are_ints(operands: Sequence[Typed]) -> str | None:
    """The condition for all operands to be integers: '' where that is known, None where it is not so."""
    unsure = []
    for text, kind in operands:
        if kind == "any":
            unsure.append(f"type({text})")
        elif kind != "int":
            return None
    if len(unsure) == 2:
        return f"{unsure[0]} is int is {unsure[1]}"
    return f"{unsure[0]} is int" if unsure else ""


def _guarded(quick: str, condition: str, name: str, operands: Sequence[Typed]) -> str:
    if not condition:
        return f"({quick})"
    return f"({quick} if {condition} else {_called(name, operands)})"


def _called(name: str, operands: Sequence[Typed]) -> str:
    return f"P_{name}({', '.join(text for text, _ in operands)})"


def _sum(name: str, sign: str) -> Rule:
    def rule(operands: Sequence[Typed]) -> Typed | None:
        if len(operands) != 2:
            return None
        condition = _are_ints(operands)
        if condition is None:
            return None
        (left, _), (right, _) = operands
        text = _guarded(f"{left} {sign} {right}", condition, name, operands)
        return text, "any" if condition else "int"

    return rule


def _product(operands: Sequence[Typed]) -> Typed | None:
    if len(operands) != 2:
        return None
    condition = _are_ints(operands)
    if condition is None:
        return None
    (left, left_kind), (right, right_kind) = operands
    small = [f"-{_SMALL} < {text} < {_SMALL}" for text, _ in operands if not _is_number(text)]
    condition = " and ".join([part for part in (condition, *small) if part])
    kind = "int" if left_kind == right_kind == "int" else "any"
    return _guarded(f"{left} * {right}", condition, "mul", operands), kind


def _is_number(text: str) -> bool:
    """Whether an operand is a small number written out."""
    return text.lstrip("-").isdigit() and abs(int(text)) < _SMALL


def _order(name: str, sign: str) -> Rule:
    def rule(operands: Sequence[Typed]) -> Typed | None:
        if len(operands) != 2:
            return None
        condition = _are_ints(operands)
        if condition is None:
            return None
        (left, _), (right, _) = operands
        return _guarded(f"{left} {sign} {right}", condition, name, operands), "bool"

    return rule


def _division(name: str, quick: str) -> Rule:
    """Of an integer from 0 by one above 0, where Python's division is everybody's."""

    def rule(operands: Sequence[Typed]) -> Typed | None:
        condition = _are_ints(operands)
        if condition is None:
            return None
        (left, left_kind), (right, right_kind) = operands
        tests = [condition] if condition else []
        if not (_is_number(right) and int(right) > 0):
            if _is_number(right):
                return None
            tests.append(f"{right} > 0")
        if name != "modulo":
            tests.append(f"{left} >= 0")
        kind = "int" if left_kind == right_kind == "int" else "any"
        return _guarded(quick.format(left, right), " and ".join(tests), name, operands), kind

    return rule


def _of_one(name: str, quick: str) -> Rule:
    """A question about one integer."""

    def rule(operands: Sequence[Typed]) -> Typed | None:
        condition = _are_ints(operands)
        if condition is None:
            return None
        return _guarded(quick.format(operands[0][0]), condition, name, operands), "bool"

    return rule


def _equal(operands: Sequence[Typed]) -> Typed | None:
    if len(operands) != 2:
        return None
    (left, left_kind), (right, right_kind) = operands
    for text, other in ((left, right), (right, left)):
        if other in ("None", "True", "False"):
            return (f"({text} is {other})", "bool") if text.isidentifier() else None
    if left_kind == right_kind == "int" or "str" in (left_kind, right_kind):
        return f"({left} == {right})", "bool"
    for text, kind in operands:
        # Python's 1 equals True, no other number does.
        if kind == "int" and _is_number(text) and int(text) not in (0, 1):
            return f"({left} == {right})", "bool"
    return _guarded(f"{left} == {right}", f"type({left}) is int is type({right})", "eq", operands), "bool"


def _is(test: str) -> Rule:
    def rule(operands: Sequence[Typed]) -> Typed | None:
        text, _ = operands[0]
        return (f"({test.format(text)})", "bool") if text.isidentifier() else None

    return rule


def _unbox(operands: Sequence[Typed]) -> Typed | None:
    ((box, kind),) = operands
    if not box.isidentifier():
        return None
    return _guarded(f"{box}.value", "" if kind == "box" else f"type({box}) is Box", "unbox", operands), "any"


def _unbox_set(operands: Sequence[Typed]) -> Typed | None:
    box, _ = operands[0]
    if not box.isidentifier():
        return None
    quick = f"type({box}) is Box and {box}.value is not {box}"
    return _guarded(f"{box}.value", quick, "unbox_set", operands), "any"


def _first(operands: Sequence[Typed]) -> Typed | None:
    ((items, _),) = operands
    if not items.isidentifier():
        return None
    return _guarded(f"{items}.head", f"type({items}) is Pair", "first", operands), "any"


def _rest(operands: Sequence[Typed]) -> Typed | None:
    ((items, _),) = operands
    if not items.isidentifier():
        return None
    return _guarded(f"{items}.tail", f"type({items}) is Pair", "rest", operands), "any"


def _cons(operands: Sequence[Typed]) -> Typed | None:
    (item, _), (tail, _) = operands
    if not tail.isidentifier():
        return None
    quick = f"Pair({item}, {tail}, {tail}.length + 1)"
    return _guarded(quick, f"type({tail}) is Pair and {tail}.length < {_MANY}", "cons", operands), "any"


def _nth(operands: Sequence[Typed]) -> Typed | None:
    """Of an array: where an item of a chain is, takes a search."""
    for (items, _), (index, kind) in (operands, operands[::-1]):
        if kind == "int" and items.isidentifier():
            test = f"type({items}) is tuple and -1 < {index} < len({items})"
            return _guarded(f"{items}[{index}]", test, "nth", operands), "any"
    return None


def _length(operands: Sequence[Typed]) -> Typed | None:
    ((items, _),) = operands
    if not items.isidentifier():
        return None
    return _guarded(f"len({items})", f"type({items}) is tuple", "length", operands), "int"


def _get(operands: Sequence[Typed]) -> Typed | None:
    (map_, _), (key, kind) = operands
    if not map_.isidentifier():
        return None
    test = f"type({map_}) is dict" + ("" if kind == "str" else f" and type({key}) is str")
    return _guarded(f"{map_}.get({key})", test, "get", operands), "any"


def _get_or(operands: Sequence[Typed]) -> Typed | None:
    (map_, _), (key, kind), *_ = operands
    if not map_.isidentifier():
        return None
    test = f"type({map_}) is dict" + ("" if kind == "str" else f" and type({key}) is str")
    default = operands[2][0] if len(operands) > 2 else "None"
    return _guarded(f"{map_}.get({key}, {default})", test, "get_or", operands), "any"


def _put(operands: Sequence[Typed]) -> Typed | None:
    (map_, _), (key, kind), (value, _) = operands
    if not map_.isidentifier():
        return None
    test = f"type({map_}) is dict" + ("" if kind == "str" else f" and type({key}) is str")
    return _guarded(f"{{**{map_}, {key}: {value}}}", test, "put", operands), "any"


def _map(operands: Sequence[Typed]) -> Typed | None:
    if len(operands) % 2 or any(kind != "str" for _, kind in operands[::2]):
        return None
    entries = [f"{key}: {value}" for (key, _), (value, _) in zip(operands[::2], operands[1::2], strict=True)]
    return f"{{{', '.join(entries)}}}", "any"


def _joined(operands: Sequence[Typed]) -> Typed | None:
    """Short strings, and integers that are not long; others may be more than a text may hold."""
    if not 0 < len(operands) < 9:
        return None
    tests, parts = [], []
    for text, kind in operands:
        if kind == "str" and not text.isidentifier():
            parts.append(f"{{{text}}}")
        elif kind == "int":
            tests.append("" if _is_number(text) else f"-{_SMALL} < {text} < {_SMALL}")
            parts.append(f"{{{text}}}")
        elif text.isidentifier() and kind in ("str", "any"):
            tests.append("" if kind == "str" else f"type({text}) is str")
            tests.append(f"len({text}) < {_SHORT}")
            parts.append(f"{{{text}}}")
        else:
            return None
    condition = " and ".join(test for test in tests if test)
    quick = 'f"' + "".join(parts) + '"'
    return _guarded(quick, condition, "string_append", operands), "str"


def _select(operands: Sequence[Typed]) -> Typed:
    (condition, _), (then, kind), (otherwise, other) = operands
    return f"({then} if {condition} else {otherwise})", kind if kind == other else "any"


RULES: dict[str, Rule] = {
    "add": _sum("add", "+"),
    "sub": _sum("sub", "-"),
    "mul": _product,
    "num_eq": _order("num_eq", "=="),
    "lt": _order("lt", "<"),
    "le": _order("le", "<="),
    "gt": _order("gt", ">"),
    "ge": _order("ge", ">="),
    "quotient": _division("quotient", "{} // {}"),
    "remainder": _division("remainder", "{} % {}"),
    "modulo": _division("modulo", "{} % {}"),
    "is_even": _of_one("is_even", "{} & 1 == 0"),
    "is_odd": _of_one("is_odd", "{} & 1 == 1"),
    "is_zero": _of_one("is_zero", "{} == 0"),
    "is_positive": _of_one("is_positive", "{} > 0"),
    "is_negative": _of_one("is_negative", "{} < 0"),
    "eq": _equal,
    "not": _is("not {}"),
    "is_null": _is("{} is None"),
    "is_nil": _is("not {0} and ({0} is None or {0} == ())"),
    "is_string": _is("type({}) is str"),
    "is_map": _is("type({}) is dict"),
    "is_symbol": _is("type({}) is Symbol"),
    "is_boolean": _is("type({}) is bool"),
    "is_function": _is("type({}) is FunctionValue"),
    "is_pair": _is("type({0}) is Pair or type({0}) is tuple and {0} != ()"),
    "is_list": _is("type({0}) is Pair or type({0}) is tuple"),
    "unbox": _unbox,
    "unbox_set": _unbox_set,
    "cons": _cons,
    "nth": _nth,
    "length": _length,
    "first": _first,
    "rest": _rest,
    "get": _get,
    "get_or": _get_or,
    "put": _put,
    "map": _map,
    "string_append": _joined,
    "select": _select,
}
# What is known of the result where the function is called.
RESULTS = {
    "box": "box",
    "unset_box": "box",
    "concat": "str",
    "text": "str",
    "to_string": "str",
    "string_append": "str",
    "length": "int",
    "string_length": "int",
    "is_integer": "bool",
    "is_number": "bool",
    "is_float": "bool",
    "is_empty": "bool",
    "has_key": "bool",
    "contains": "bool",
    "starts_with": "bool",
    "ends_with": "bool",
    "string_eq": "bool",
    "string_lt": "bool",
    "substring": "str",
}
