"""Laws of the library's primitives: lists of both forms, numbers, maps and texts; and their bounds."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from list_forms import mix_list_forms

from llc.frontend.sexp.reader import read
from llc.ir.constants import Symbol
from llc.ir.primitives import PRIMITIVES
from llc.ir.spans import Source
from llc.vm.primitives.handlers import HANDLERS
from llc.vm.values import bounds
from llc.vm.values.faults import PrimitiveFault
from llc.vm.values.lists import is_list, iterate, pair, pairs, to_tuple
from llc.vm.values.text_form import written
from llc.vm.values.values import Box, FunctionValue, equal, from_host, show, to_host

Value = Any

NAMES = st.sampled_from(["a", "b", "a.b", "", "0"])
ATOMS = (
    st.none()
    | st.booleans()
    | st.integers(-20, 20)
    | st.sampled_from([0.5, 2.0, -0.0, math.inf, math.nan, 10**30])
    | st.text(max_size=4)
    | NAMES
    | NAMES.map(Symbol)
)
VALUES = st.recursive(
    ATOMS,
    lambda inner: st.lists(inner, max_size=4).map(tuple) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
LISTS = st.lists(VALUES, max_size=12).map(tuple)
CHANCE = st.integers(0, 1 << 32).map(random.Random)


def do(name: str, *operands: Value) -> Value:
    return HANDLERS[name](*operands)


def outcome(name: str, *operands: Value) -> Any:
    """A value in a comparable form, or kind and message of the fault."""
    try:
        return written(do(name, *operands))
    except PrimitiveFault as fault:
        return fault.kind, fault.message


# --- forms of lists ---------------------------------------------------------------------------


LEAVES = (None, True, 0, 1, -3, 2.5, math.nan, 10**30, "", "a", "a.b", " x,y\n", "[1]", Symbol("a"))


def random_value(chance: random.Random, depth: int) -> Value:
    """A random value, usually a list."""
    kind = chance.randrange(4) if depth else 0
    if kind == 0:
        return chance.choice(LEAVES)
    items = [random_value(chance, depth - 1) for _ in range(chance.randrange(5))]
    if kind == 1:
        return dict(zip(("a", "b", "", "0"), items, strict=False))
    return tuple(items)


@pytest.mark.parametrize("name", sorted(PRIMITIVES))
def test_primitives_ignore_list_forms(name: str) -> None:
    """The same value or the same fault, for any forms of the operands' lists."""
    row = PRIMITIVES[name]
    chance = random.Random(name)
    for _ in range(200):
        count = chance.randint(row.least, 4 if row.most is None else row.most)
        operands = [random_value(chance, 3) for _ in range(count)]
        expected = outcome(name, *operands)
        assert outcome(name, *[mix_list_forms(operand, chance) for operand in operands]) == expected, operands


# --- lists ------------------------------------------------------------------------------------


@given(LISTS, CHANCE)
def test_reversing_twice_changes_nothing(items: Value, chance: random.Random) -> None:
    """And the first item becomes the last."""
    mixed_list = do("reverse", mix_list_forms(items, chance))
    assert equal(do("reverse", mixed_list), items)
    if items:
        assert equal(do("last", mixed_list), items[0])


@given(LISTS, LISTS, LISTS, CHANCE)
def test_appending_is_associative(a: Value, b: Value, c: Value, chance: random.Random) -> None:
    """The empty list is the neutral element."""
    a, b, c = (mix_list_forms(part, chance) for part in (a, b, c))
    together = do("append", a, b, c)
    assert equal(do("append", do("append", a, b), c), together)
    assert equal(do("append", a, do("append", b, c)), together)
    assert equal(do("append", a, ()), a)
    assert do("length", together) == sum(do("length", part) for part in (a, b, c))


@given(LISTS, st.integers(0, 15), CHANCE)
def test_take_and_drop_split_a_list(items: Value, count: int, chance: random.Random) -> None:
    """Appended they are the list again, in either order of operands."""
    mixed_list = mix_list_forms(items, chance)
    assert equal(do("append", do("take", count, mixed_list), do("drop", mixed_list, count)), items)
    assert equal(do("take", mixed_list, count), do("take", count, mixed_list))
    if count < len(items):
        assert equal(do("nth", count, mixed_list), items[count])
        assert equal(do("nth", mixed_list, count), items[count])


@given(VALUES, LISTS)
def test_cons_is_undone_by_first_and_rest(item: Value, items: Value) -> None:
    result = do("cons", item, items)
    assert do("first", result) is item
    assert do("rest", result) is items


@given(st.lists(st.integers() | st.floats(allow_nan=False)) | st.lists(st.text()))
def test_sorted_is_an_ordered_permutation(items: list[Any]) -> None:
    result = do("sorted", tuple(items))
    assert sorted(map(repr, result)) == sorted(map(repr, items))
    assert all(result[index - 1] <= result[index] for index in range(1, len(result)))


@given(LISTS)
def test_unique_keeps_the_first_of_equals(items: Value) -> None:
    """Compared with the definition by pairs."""
    expected = [item for at, item in enumerate(items) if not any(equal(item, e) for e in items[:at])]
    result = do("unique", items)
    assert len(result) == len(expected)
    assert all(actual is wanted for actual, wanted in zip(result, expected, strict=True))


def flat(items: Value) -> Iterator[Value]:
    for item in iterate(items):
        if is_list(item):
            yield from flat(item)
        else:
            yield item


@given(LISTS, CHANCE)
def test_flatten_keeps_atoms(items: Value, chance: random.Random) -> None:
    """Compared with the recursive definition."""
    assert equal(do("flatten", mix_list_forms(items, chance)), tuple(flat(items)))


@given(st.integers(-50, 50), st.integers(-50, 50), st.integers(-9, 9).filter(bool))
def test_range_agrees_with_python(start: int, end: int, step: int) -> None:
    """Integers, also counting down."""
    assert do("range", start, end, step) == tuple(range(start, end, step))


@given(st.dictionaries(st.text(max_size=3), VALUES))
def test_map_equals_its_entries(map: dict[str, Value]) -> None:
    """Split into entries and rebuilt; keys and values have the same order."""
    assert equal(do("from_entries", do("entries", map)), map)
    assert equal(do("from_entries", do("zip", do("keys", map), do("values", map))), map)
    for key in map:
        assert do("has_key", map, Symbol(key))
        assert not do("has_key", do("remove", map, key), key)
        assert equal(do("put", do("remove", map, key), Symbol(key), map[key]), map)


# --- text -------------------------------------------------------------------------------------


def json_form(value: Value) -> Value:
    """A value after JSON: names for symbols, no infinities."""
    return from_host(json.loads(json.dumps(to_host(value))))


@given(VALUES, CHANCE, st.integers(0, 3))
def test_json_reads_back(value: Value, chance: random.Random, indent: int) -> None:
    """On one line or several; numbers without a JSON form are faults."""
    text = outcome("json_format", mix_list_forms(value, chance), indent)
    if isinstance(text, tuple):
        assert text[0] == "type-error"
        assert "JSON has no" in text[1]
    else:
        text = do("json_format", value, indent)
        assert equal(do("json_parse", text), json_form(value))
        assert text == json.dumps(to_host(value), indent=indent or None, ensure_ascii=False)


WRITTEN = st.recursive(ATOMS | st.text() | st.floats(), lambda inner: st.lists(inner, max_size=4).map(tuple))


def of_datum(datum: Any) -> Value:
    if hasattr(datum, "items"):
        return tuple(of_datum(item) for item in datum.items)
    return datum.value


@given(WRITTEN)
def test_written_values_read_back(value: Value) -> None:
    """Lists, symbols, strings and numbers, read by the reader of the language."""
    data, diagnostics = read(Source("<test>", "", written(value)))
    assert not diagnostics
    assert equal(of_datum(data[0]), value)


@given(st.text(), st.text(min_size=1, max_size=2))
def test_split_is_undone_by_join(text: str, separator: str) -> None:
    """In either order of operands; characters join to the text."""
    parts = do("split", text, separator)
    assert do("join", parts, separator) == do("join", separator, parts) == text
    assert do("join", do("split", text, ""), "") == text


@given(st.integers(-(10**60), 10**60) | st.floats(allow_nan=False, allow_infinity=False))
def test_written_number_is_parsed(number: float) -> None:
    """With its type."""
    parsed = do("parse_number", do("to_string", number))
    assert (type(parsed), parsed) == (type(number), number)


@given(st.text(alphabet="abé€ ", max_size=20))
def test_replacing_matches_by_themselves_changes_nothing(text: str) -> None:
    """Also if matches are empty."""
    for pattern in ("a|b", "(a)(b)?", "é*", "", "[^a]+"):
        assert do("regex_replace", pattern, text, "\\0") == text
        assert "".join(map(first_of, do("regex_find_all", "(?s).", text))) == text


def first_of(match: Value) -> str:
    return str(match if isinstance(match, str) else to_tuple(match)[0])


# --- limits -----------------------------------------------------------------------------------


def fault_kind(name: str, *operands: Value) -> str:
    with pytest.raises(PrimitiveFault) as caught:
        do(name, *operands)
    assert len(caught.value.message) < 1000
    return caught.value.kind


BIG = 1 << (bounds.MAX_BITS - 1)
LONG = "x" * 10_000
DEEP: Value = ()
for _ in range(100_000):
    DEEP = (DEEP,)
DOUBLED: Value = ("text" * 20_000,)
EMPTIES: Value = ()
for _ in range(60):
    DOUBLED = (DOUBLED, pair(DOUBLED, ()))
    EMPTIES = (EMPTIES, EMPTIES)


@pytest.mark.parametrize(
    ("name", "operands"),
    [
        ("expt", (10, 10**9)),
        ("expt", (-3, 10**100)),
        ("expt", (2, -(10**12))),
        ("expt", (BIG, 2)),
        ("expt", (BIG, 0.5)),
        ("mul", (BIG, BIG)),
        ("lcm", (BIG, BIG - 1)),
        ("inexact", (BIG,)),
        ("sqrt", (BIG - 1,)),
        ("range", (10**12,)),
        ("range", (0, 1e18, 1e-3)),
        ("flatten", (DOUBLED,)),
        ("to_string", (DOUBLED,)),
        ("json_format", (DOUBLED,)),
        ("parse_number", ("9" * 50_000,)),
        ("json_parse", ("[" + "9" * 50_000 + "]",)),
    ],
)
def test_too_large_result_is_a_fault(name: str, operands: tuple[Value, ...]) -> None:
    """The size is checked before the value is created."""
    assert fault_kind(name, *operands) == "too-large"


def test_limits_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """For texts, integers and lists; values within the limits are unaffected."""
    for name in ("MAX_TEXT", "MAX_BITS", "MAX_ITEMS"):
        monkeypatch.setattr(bounds, name, getattr(bounds, name))
    bounds.set_bounds(text=100, bits=64, items=50)
    assert do("range", 50) == tuple(range(50))
    assert do("mul", 1 << 32, 1 << 31) == 1 << 63
    for name, operands in {
        "mul": (1 << 32, 1 << 33),
        "range": (51,),
        "append": ((1,) * 30, (1,) * 30),
        "cons": (1, pairs(range(49), pair(0, ()))),
        "split": ("x" * 60, ""),
        "lines": ("\n" * 60,),
        "regex_find_all": ("x", "x" * 60),
        "regex_replace": ("x", "xxxxxxxxxxx", LONG),
        "string_append": ("x" * 60, "x" * 60),
        "join": (("x",) * 40, "xxx"),
        "replace": ("xxxx", "x", "y" * 40),
        "format": ("~a~a", "x" * 60, "x" * 60),
        "to_string": (tuple(range(40)),),
    }.items():
        assert fault_kind(name, *operands) == "too-large", name
    with pytest.raises(ValueError, match="at least 1"):
        bounds.set_bounds(items=0)


@pytest.mark.parametrize("name", sorted(PRIMITIVES))
def test_fault_messages_are_short(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For long, deep and large operands; there is no other exception."""
    monkeypatch.setattr(bounds, "MAX_TEXT", 1 << 20)  # reached sooner
    row = PRIMITIVES[name]
    counts = range(row.least, min(row.least + 2, 4 if row.most is None else row.most) + 1)
    for kind, value in enumerate((LONG, DEEP, DOUBLED, BIG, (LONG,) * 1000, {LONG: LONG})):
        for count in counts:
            message = ""
            try:
                do(name, *[value] * count)
            except PrimitiveFault as fault:
                message = fault.message
            assert len(message) < 2000, (kind, count)


def test_empty_exponential_list_is_traversed_quickly() -> None:
    """Empty lists nested sixty times with sharing; each is visited once."""
    assert do("flatten", EMPTIES) == ()
    assert len(do("unique", (EMPTIES, EMPTIES, DOUBLED, DOUBLED))) == 2
    assert do("flatten", DEEP) == ()


def test_json_depth_limit_is_fixed() -> None:
    """Five hundred brackets for any caller; brackets in strings do not count."""
    assert do("json_parse", "[" * 500 + "]" * 500) == do("json_parse", " " + "[" * 500 + "]" * 500)
    assert fault_kind("json_parse", "[" * 501 + "]" * 501) == "too-large"
    assert fault_kind("json_parse", '{"a":' * 501) == "too-large"
    assert do("json_parse", '["' + "[" * 600 + '\\"[[",[],[]]')[1:] == ((), ())
    assert len(do("json_parse", "[" + "[]," * 600 + "[]]")) == 601


def test_deep_values_need_no_stack() -> None:
    """A hundred thousand nested lists are written, read and compared."""
    text = do("to_string", DEEP)
    assert text == "(" * 100_001 + ")" * 100_001
    assert do("json_format", DEEP) == "[" * 100_001 + "]" * 100_001
    assert fault_kind("json_parse", do("json_format", DEEP)) == "too-large"
    assert do("index_of", DEEP, (1, DEEP)) == 1


def test_regular_expressions_run_in_linear_time() -> None:
    """RE2 has no catastrophic expressions."""
    assert do("regex_match", "(a+)+$", "a" * 5_000 + "b") is None
    assert fault_kind("regex_match", "(a{1000}){1000}", "a") == "bad-pattern"


def test_text_of_functions_and_boxes() -> None:
    """They are written by their type and never as JSON."""
    assert do("to_string", (FunctionValue(0, ()), 1)) == "(#<function> 1)"
    assert fault_kind("json_format", (FunctionValue(0, ()),)) == "type-error"
    assert do("unique", (box := Box(), box, Box()))[0] is box
    assert show(do("symbol_name", Symbol("a"))) == '"a"'
