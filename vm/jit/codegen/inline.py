"""Inline expansion of primitives: Python expressions that are faster than a call of the primitive.

Each row of `RULES` builds an expression from operands with their inferred kinds (`type_lattice`), together
with the guard under which it equals the primitive ('' if it always does). A rule returns None if it does not
apply, and the primitive is called. An operand can occur several times in an expression, so it must be a name
or a constant (`instructions` ensures this), except for the primitives in `IN_ORDER`.

`ALTERNATIVES` has rules for operands of another type; they are tried if the guard of the first rule fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from ...values import bounds, lists
from ...values.maps import SHORT
from ..model.type_lattice import INTEGERS, Kind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

# An operand: Python text and inferred kind.
Typed: TypeAlias = "tuple[str, Kind]"
# An expression and its guard.
Quick: TypeAlias = "tuple[str, str]"
Rule: TypeAlias = "Callable[[Sequence[Typed]], Quick | None]"

# The product of larger integers may exceed the limit of integers.
_SMALL_INTEGER = 1 << 64
# Python compares integers of one digit in a third of the time; most are.
_DIGIT = (1 << 30) - 1
# Shorter lists are within the limit of lists for any reasonable setting of the host.
_MAX_LIST = 1 << 20
# The rest of a shorter list is a copy.
_MAX_COPIED = 8
# The entries of a `MapVersion`.
_ENTRIES = "({0}.entries or {0}.read())"
# Eight strings of this length are within the limit of strings for any reasonable setting of the host.
_SHORT_TEXT = 1 << 16

# Matches text that refers to a variable outside of string literals, or in the replacement fields of an
# f-string.
_VARIABLE = re.compile(r"""[^'"]*\b[sxL]\d+\b|\(*f"[^"]*\{[sx]\d+\}""")


def limits_allow(name: str) -> bool:
    """Whether the current limits (`vm.values.bounds`) allow a rule to omit its size check."""
    match name:
        case "string_append" | "to_string":
            return bounds.MAX_TEXT >= 8 * _SHORT_TEXT
        case "append" | "cons":
            return bounds.MAX_ITEMS >= _MAX_LIST
        case _:
            return bounds.MAX_BITS >= 128


def trusted_limits() -> tuple[bool, ...]:
    """The limits that generated code depends on; part of the key of a translation."""
    return tuple(limits_allow(name) for name in ("string_append", "cons", "mul"))


def _are_ints(operands: Sequence[Typed]) -> str | None:
    """Guard that all operands are integers; '' if that is known, None if one is not an integer."""
    unsure = []
    for text, kind in dict.fromkeys(operands):
        if kind == "any":
            unsure.append(f"type({text})")
        elif kind not in INTEGERS:
            return None
    if len(unsure) == 2:
        return f"{unsure[0]} is int is {unsure[1]}"
    return " and ".join(f"{one} is int" for one in unsure)


def _numeric_rule(sign: str) -> Rule:
    """Rule for two numbers, or for several integers."""

    def rule(operands: Sequence[Typed]) -> Quick | None:
        if len(operands) < 2:
            return None
        texts = f" {sign} ".join(text for text, _ in operands)
        if _has_float(operands):
            condition = _are_numbers(operands)
            # Adding 0 turns -0.0 into 0.0, as in the interpreter.
            texts = f"{'0 + ' * (sign == '+')}{texts}"
        else:
            condition = _are_ints(operands)
        return None if condition is None else (texts, condition)

    return rule


def _float_rule(sign: str) -> Rule:
    """Rule for two operands that may be floats, or one of them and a small integer."""

    def rule(operands: Sequence[Typed]) -> Quick | None:
        unsure = [f"type({text})" for text, kind in dict.fromkeys(operands) if kind == "any"]
        if len(operands) != 2 or not {kind for _, kind in operands} <= {"any", "small", "step"} or not unsure:
            return None
        condition = " is float is ".join(unsure) + " is float" * (len(unsure) == 1)
        return f"{'0 + ' * (sign == '+')}{operands[0][0]} {sign} {operands[1][0]}", condition

    return rule


def _has_float(operands: Sequence[Typed]) -> bool:
    return any(kind == "float" for _, kind in operands)


def _are_numbers(operands: Sequence[Typed]) -> str | None:
    """Guard that all operands are floats or integers that a float represents exactly; see `_are_ints`."""
    tests = []
    for text, kind in dict.fromkeys(operands):
        if kind == "any":
            tests.append(f"(type({text}) is float or type({text}) is int and {_is_small(text, 'int')})")
        elif kind in INTEGERS:
            tests.append(_is_small(text, kind))
        elif kind != "float":
            return None
    return " and ".join(test for test in tests if test)


def _quotient(operands: Sequence[Typed]) -> Quick | None:
    """Rule for two numbers, one of them a float."""
    condition = _are_numbers(operands) if len(operands) == 2 and _has_float(operands) else None
    if condition is None:
        return None
    (left, _), (right, _) = operands
    tests = [condition, "" if _is_number(right) and int(right) else f"{right} != 0"]
    return f"{left} / {right}", " and ".join(test for test in tests if test)


def _product(operands: Sequence[Typed]) -> Quick | None:
    if len(operands) < 2:
        return None
    if _has_float(operands[:2]):
        condition = _are_numbers(operands)
        return None if condition is None else (" * ".join(text for text, _ in operands), condition)
    condition = _are_ints(operands) if len(operands) == 2 else None
    if condition is None:
        return None
    (left, _), (right, _) = operands
    tests = [condition, *(_is_small(*operand) for operand in dict.fromkeys(operands))]
    return f"{left} * {right}", " and ".join(test for test in tests if test)


def _is_small(text: str, kind: Kind) -> str:
    """Guard that an integer is small; '' if that is known."""
    if kind in ("small", "step") or _is_number(text):
        return ""
    return f"({text} < {_DIGIT} and {text} > -{_DIGIT} or -{_SMALL_INTEGER} < {text} < {_SMALL_INTEGER})"


def _is_number(text: str) -> bool:
    """Whether an operand is a short integer literal."""
    return text.lstrip("-").isdigit() and abs(int(text)) < _SMALL_INTEGER


def _division(name: str, quick: str) -> Rule:
    """Rule for a dividend ≥ 0 and a divisor > 0, for which all definitions of division agree with
    Python's.
    """

    def rule(operands: Sequence[Typed]) -> Quick | None:
        condition = _are_ints(operands)
        if condition is None:
            return None
        (left, _), (right, _) = operands
        tests = [condition] if condition else []
        if not (_is_number(right) and int(right) > 0):
            if _is_number(right):
                return None
            tests.append(f"{right} > 0")
        if name != "modulo":
            tests.append(f"{left} >= 0")
        return quick.format(left, right), " and ".join(tests)

    return rule


def _integer_predicate(quick: str) -> Rule:
    """Rule for a predicate of one integer."""

    def rule(operands: Sequence[Typed]) -> Quick | None:
        condition = _are_ints(operands)
        if condition is None:
            return None
        return quick.format(operands[0][0]), condition

    return rule


def _equal(operands: Sequence[Typed]) -> Quick | None:
    if len(operands) != 2:
        return None
    (left, left_kind), (right, right_kind) = operands
    for text, other in ((left, right), (right, left)):
        if other in ("None", "True", "False"):
            return (f"{text} is {other}", "") if text.isidentifier() else None
    if {left_kind, right_kind} <= INTEGERS or "str" in (left_kind, right_kind):
        return f"{left} == {right}", ""
    for text, kind in operands:
        # In Python 1 equals True and 0 equals False; other numbers equal no boolean.
        if kind in INTEGERS and _is_number(text) and int(text) not in (0, 1):
            return f"{left} == {right}", ""
    for (_, kind), (other, _) in (operands, operands[::-1]):
        if kind in INTEGERS:
            return f"{left} == {right}", f"(type({other}) is int or type({other}) is str)"
    are_ints, are_texts = (f"type({left}) is {name} and type({right}) is {name}" for name in ("int", "str"))
    return f"{left} == {right}", f"({are_ints} or {are_texts})"


def _type_test(test: str) -> Rule:
    def rule(operands: Sequence[Typed]) -> Quick | None:
        text, _ = operands[0]
        return (test.format(text), "") if text.isidentifier() else None

    return rule


def _unbox(operands: Sequence[Typed]) -> Quick | None:
    ((box, kind),) = operands
    if not box.isidentifier():
        return None
    return f"{box}.value", "" if kind == "box" else f"type({box}) is Box"


def _unbox_set(operands: Sequence[Typed]) -> Quick | None:
    box, _ = operands[0]
    if not box.isidentifier():
        return None
    quick = f"type({box}) is Box and {box}.value is not {box}"
    return f"{box}.value", quick


def _first(operands: Sequence[Typed]) -> Quick | None:
    return _field("head", operands) or _item(0)(operands)


def _rest(operands: Sequence[Typed]) -> Quick | None:
    return _field("tail", operands) or _short_rest(operands)


def _field(name: str, operands: Sequence[Typed]) -> Quick | None:
    """Rule for a field of a pair."""
    ((items, kind),) = operands
    if not items.isidentifier() or kind == "array":
        return None
    return f"{items}.{name}", "" if kind == "pair" else f"type({items}) is Pair"


def _item(index: int) -> Rule:
    """Rule for an item of an array."""

    def rule(operands: Sequence[Typed]) -> Quick | None:
        return _nth([(str(index), "step"), *operands])

    return rule


def _short_rest(operands: Sequence[Typed]) -> Quick | None:
    """Rule for an array so short that copying it is faster than creating pairs (`vm.values.lists`)."""
    ((items, kind),) = operands
    if not items.isidentifier() or kind == "pair":
        return None
    return f"{items}[1:]", f"{_is_array(items, kind)}0 < len({items}) < {_MAX_COPIED}"


def _is_array(items: str, kind: Kind) -> str:
    """The first part of a guard that a list is an array."""
    return "" if kind == "array" else f"type({items}) is tuple and "


def _cons(operands: Sequence[Typed]) -> Quick | None:
    (item, _), (tail, kind) = operands
    if not tail.isidentifier():
        return None
    test = "" if kind == "pair" else f"type({tail}) is Pair and "
    return f"Pair({item}, {tail}, {tail}.length + 1)", f"{test}{tail}.length < {_MAX_LIST}"


def _nth(operands: Sequence[Typed]) -> Quick | None:
    """Rule for an item of an array; in a chain of pairs, items must be searched."""
    for (index, other), (items, kind) in (operands, operands[::-1]):
        if other in INTEGERS and kind in ("array", "any") and items.isidentifier():
            if index == "0":
                return f"{items}[0]", f"{_is_array(items, kind)}{items} is not NIL"
            end = f"len({items}) > {index}" if index.isdigit() else f"-1 < {index} < len({items})"
            return f"{items}[{index}]", f"{_is_array(items, kind)}{end}"
    return _nth_of_any(operands)


def _nth_of_any(operands: Sequence[Typed]) -> Quick | None:
    """Rule for an index of unknown kind: the first operand, unless that is known to be a list."""
    (index, other), (items, kind) = operands if operands[0][1] == "any" else operands[::-1]
    if other != "any" or kind not in ("array", "any") or not items.isidentifier():
        return None
    return (
        f"{items}[{index}]",
        f"type({index}) is int and {_is_array(items, kind)}-1 < {index} < len({items})",
    )


def _length(operands: Sequence[Typed]) -> Quick | None:
    ((items, kind),) = operands
    if not items.isidentifier():
        return None
    if kind == "pair":
        return f"{items}.length", ""
    return f"len({items})", "" if kind == "array" else f"type({items}) is tuple"


def _length_of_pairs(operands: Sequence[Typed]) -> Quick | None:
    ((items, kind),) = operands
    if not items.isidentifier() or kind in ("pair", "array"):
        return None
    return f"{items}.length", f"type({items}) is Pair"


def _pair_of_pair_rule(field: str) -> Rule:
    """Rule for a list that begins with two pairs."""

    def rule(operands: Sequence[Typed]) -> Quick | None:
        ((items, kind),) = operands
        if not items.isidentifier() or kind == "array":
            return None
        test = "" if kind == "pair" else f"type({items}) is Pair and "
        return f"{items}.tail.{field}", f"{test}type({items}.tail) is Pair"

    return rule


def _append(operands: Sequence[Typed]) -> Quick | None:
    """Rule for two short arrays (`vm.values.lists.append`)."""
    if len(operands) != 2 or not all(items.isidentifier() for items, _ in operands):
        return None
    tests = [f"{_is_array(items, kind)}len({items}) < {lists.LONG}" for items, kind in operands]
    return f"{operands[0][0]} + {operands[1][0]}", " and ".join(tests)


def _list(operands: Sequence[Typed]) -> Quick | None:
    """Rule for a list with a variable item. A list of constants would be created once by Python and
    shared.
    """
    if not any(_VARIABLE.match(text) for text, _ in operands):
        return None
    return f"({''.join(f'{text}, ' for text, _ in operands)})", ""


def are_map_and_key(map_: Typed, key: Typed) -> list[str]:
    """Guards that the operands are a map and a string key."""
    tests = ["" if map_[1] == "map" else f"type({map_[0]}) is dict"]
    tests.append("" if key[1] == "str" else f"type({key[0]}) is str")
    return [test for test in tests if test]


def _dict_rule(quick: str) -> Rule:
    """Rule for a key and a dict, or either form of map if the operand is known to be a map."""

    def rule(operands: Sequence[Typed]) -> Quick | None:
        (map_, kind), key, *more = operands
        if not map_.isidentifier():
            return None
        texts = [text for text, _ in (key, *more)]
        tests = are_map_and_key((map_, kind), key)
        if kind == "map":
            map_ = f"({map_} if type({map_}) is dict else {_ENTRIES.format(map_)})"
        return quick.format(map_, texts[0], ", ".join(texts)), " and ".join(tests)

    return rule


def _version_rule(quick: str) -> Rule:
    """Rule for a `MapVersion`, without the calls of the primitive."""

    def rule(operands: Sequence[Typed]) -> Quick | None:
        (map_, kind), key, *more = operands
        if not map_.isidentifier() or kind != "any":
            return None
        texts = [text for text, _ in (key, *more)]
        tests = [f"type({map_}) is MapVersion", *are_map_and_key((map_, "map"), key)]
        return quick.format(_ENTRIES.format(map_), texts[0], ", ".join(texts)), " and ".join(tests)

    return rule


def _put(operands: Sequence[Typed]) -> Quick | None:
    (map_, _), key, (value, _) = operands
    if not map_.isidentifier():
        return None
    tests = [*are_map_and_key((map_, "any"), key), f"len({map_}) < {SHORT - 1}"]
    return f"{{**{map_}, {key[0]}: {value}}}", " and ".join(tests)


def _put_in_version(operands: Sequence[Typed]) -> Quick | None:
    (map_, _), key, (value, _) = operands
    tests = [f"type({map_}) is MapVersion", *are_map_and_key((map_, "map"), key)]
    return f"PUT({map_}, {key[0]}, {value})", " and ".join(tests)


def _map(operands: Sequence[Typed]) -> Quick | None:
    if len(operands) % 2 or any(kind != "str" for _, kind in operands[::2]):
        return None
    entries = [f"{key}: {value}" for (key, _), (value, _) in zip(operands[::2], operands[1::2], strict=True)]
    return f"{{{', '.join(entries)}}}", ""


def _joined(operands: Sequence[Typed]) -> Quick | None:
    """Rule for short strings and short integers; others could exceed the limit of strings."""
    if not 0 < len(operands) < 9:
        return None
    tests, parts = [], []
    for text, kind in operands:
        if kind == "str" and not text.isidentifier():
            parts.append(text[1:-1] if _is_plain(text) else f"{{{text}}}")
        elif kind in INTEGERS or (text.isidentifier() and kind in ("str", "any")):
            tests.append(_is_short(text, kind))
            parts.append(f"{{{text}}}")
        else:
            return None
    condition = " and ".join(test for test in tests if test)
    quick = 'f"' + "".join(parts) + '"'
    return quick, condition


def _is_short(text: str, kind: Kind) -> str:
    """Guard that an operand is a short string or a small integer."""
    if kind in INTEGERS:
        return _is_small(text, kind)
    is_short = f"len({text}) < {_SHORT_TEXT}"
    if kind == "str":
        return is_short
    return f"(type({text}) is str and {is_short} or type({text}) is int and {_is_small(text, 'int')})"


def _to_string(operands: Sequence[Typed]) -> Quick | None:
    ((text, kind),) = operands
    if not text.isidentifier() or kind not in (*INTEGERS, "str", "any"):
        return None
    if kind == "str":
        return text, ""
    if kind in INTEGERS:
        return f'f"{{{text}}}"', _is_small(text, kind)
    return f'f"{{{text}}}"', f"(type({text}) is str or type({text}) is int and {_is_small(text, 'int')})"


def _is_plain(text: str) -> bool:
    """Whether a string literal can be inserted in an f-string unchanged."""
    return not any(mark in text[1:-1] for mark in "\\\"'{}")


def _are_texts(*operands: Typed) -> str | None:
    """Guard that all operands are strings; see `_are_ints`."""
    if not all(kind in ("str", "any") for _, kind in operands):
        return None
    return " and ".join(f"type({text}) is str" for text, kind in operands if kind == "any")


def _of_texts(sign: str) -> Rule:
    """Rule for two strings."""

    def rule(operands: Sequence[Typed]) -> Quick | None:
        condition = _are_texts(*operands) if len(operands) == 2 else None
        return None if condition is None else (f"{operands[0][0]} {sign} {operands[1][0]}", condition)

    return rule


def _string_length(operands: Sequence[Typed]) -> Quick | None:
    condition = _are_texts(*operands)
    return None if condition is None else (f"len({operands[0][0]})", condition)


def _substring(operands: Sequence[Typed]) -> Quick | None:
    whole, *ends = operands
    is_text, are_ints = _are_texts(whole), _are_ints(ends)
    if is_text is None or are_ints is None or not whole[0].isidentifier():
        return None
    text, first, last = whole[0], ends[0][0], ends[-1][0]
    order = f"0 <= {first} <= {last} <= len({text})" if len(ends) == 2 else f"0 <= {first} <= len({text})"
    quick = f"{text}[{first}:{last if len(ends) == 2 else ''}]"
    return quick, " and ".join(test for test in (is_text, are_ints, order) if test)


def _extreme(name: str, sign: str) -> Rule:
    """Rule for the minimum or maximum of integers."""

    def rule(operands: Sequence[Typed]) -> Quick | None:
        condition = _are_ints(operands) if len(operands) > 1 else None
        if condition is None:
            return None
        texts = [text for text, _ in operands]
        if len(texts) > 2:
            return f"{name}({', '.join(texts)})", condition
        return f"({texts[0]} if {texts[0]} {sign} {texts[1]} else {texts[1]})", condition

    return rule


def _select(operands: Sequence[Typed]) -> Quick:
    (condition, _), (then, _), (otherwise, _) = operands
    return f"({then} if {condition} else {otherwise})", ""


RULES: dict[str, Rule] = {
    "add": _numeric_rule("+"),
    "sub": _numeric_rule("-"),
    "mul": _product,
    "div": _quotient,
    "num_eq": _numeric_rule("=="),
    "lt": _numeric_rule("<"),
    "le": _numeric_rule("<="),
    "gt": _numeric_rule(">"),
    "ge": _numeric_rule(">="),
    "quotient": _division("quotient", "{} // {}"),
    "remainder": _division("remainder", "{} % {}"),
    "modulo": _division("modulo", "{} % {}"),
    "is_even": _integer_predicate("{} & 1 == 0"),
    "is_odd": _integer_predicate("{} & 1 == 1"),
    "is_zero": _integer_predicate("{} == 0"),
    "is_positive": _integer_predicate("{} > 0"),
    "is_negative": _integer_predicate("{} < 0"),
    "eq": _equal,
    "not": lambda operands: (f"not {operands[0][0]}", ""),
    "is_null": _type_test("{} is None"),
    "is_nil": _type_test("{0} is NIL or {0} is None"),
    "is_string": _type_test("type({}) is str"),
    "is_map": _type_test("type({0}) is dict or type({0}) is MapVersion"),
    "is_symbol": _type_test("type({}) is Symbol"),
    "is_boolean": _type_test("type({}) is bool"),
    "is_number": _type_test("type({0}) is int or type({0}) is float"),
    "is_function": _type_test("type({}) is FunctionValue"),
    "is_pair": _type_test("type({0}) is Pair or type({0}) is tuple and {0} is not NIL or type({0}) in LONG"),
    "is_list": _type_test("type({0}) is Pair or type({0}) is tuple or type({0}) in LONG"),
    "unbox": _unbox,
    "unbox_set": _unbox_set,
    "append": _append,
    "cons": _cons,
    "nth": _nth,
    "length": _length,
    "first": _first,
    "second": _item(1),
    "third": _item(2),
    "rest": _rest,
    "rest_of_rest": _pair_of_pair_rule("tail"),
    "list": _list,
    "min": _extreme("min", "<="),
    "max": _extreme("max", ">="),
    "has_key": _dict_rule("{1} in {0}"),
    "to_string": _to_string,
    "string_eq": _of_texts("=="),
    "string_lt": _of_texts("<"),
    "string_length": _string_length,
    "substring": _substring,
    "get": _dict_rule("{0}.get({2})"),
    "get_or": _dict_rule("{0}.get({2})"),
    "put": _put,
    "map": _map,
    "string_append": _joined,
    "select": _select,
}

ALTERNATIVES: dict[str, Rule] = {
    "first": _item(0),
    "rest": _short_rest,
    "length": _length_of_pairs,
    "second": _pair_of_pair_rule("head"),
    "has_key": _version_rule("{1} in {0}"),
    "get": _version_rule("{0}.get({2})"),
    "get_or": _version_rule("{0}.get({2})"),
    "put": _put_in_version,
    "add": _float_rule("+"),
    "sub": _float_rule("-"),
    "mul": _float_rule("*"),
    "lt": _float_rule("<"),
    "le": _float_rule("<="),
    "gt": _float_rule(">"),
    "ge": _float_rule(">="),
}
# Primitives whose expression contains each operand once, in order.
IN_ORDER = frozenset({"list", "map"})
