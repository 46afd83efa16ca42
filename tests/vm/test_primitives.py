"""The pure primitives: results, faults and limits."""

from __future__ import annotations

import contextlib
import inspect
import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spec.blocks import text_of
from spec.tables import compare
from tiers import COUNT

from llc.ir.primitives import PRIMITIVES
from llc.vm.primitives.handlers import HANDLERS
from llc.vm.values.bounds import MAX_BITS, MAX_ITEMS, MAX_TEXT
from llc.vm.values.faults import PrimitiveFault
from llc.vm.values.values import Box, FunctionValue, equal, from_host, to_host

Value = Any

NUMBERS = st.integers(-(10**20), 10**20) | st.floats(allow_nan=False, allow_infinity=False)
HOST = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
UNUSUAL = st.sampled_from([math.inf, -math.inf, math.nan, 10**400, -0.0, "\ud800", "\0", ()])
VALUES = UNUSUAL | HOST.map(from_host) | st.builds(Box) | st.builds(FunctionValue, st.just(0), st.just(()))


def do(name: str, *operands: Value) -> Value:
    return HANDLERS[name](*operands)


def fault_of(name: str, *operands: Value) -> PrimitiveFault:
    with pytest.raises(PrimitiveFault) as caught:
        do(name, *operands)
    return caught.value


# --- the table --------------------------------------------------------------------------------


def table() -> Iterator[str]:
    yield from ("| primitive | operands | meaning |", "|---|---|---|")
    yield from (f"| `{row.name}` | {row.operands} | {row.doc} |" for row in PRIMITIVES.values())


def test_chapter_matches_the_table(update: bool) -> None:
    """The limits are compared too."""
    compare("primitives.md", lambda name: table(), update)
    text = text_of("primitives.md")
    assert all(f" {bound} " in text for bound in (MAX_BITS, MAX_ITEMS, MAX_TEXT))


def test_every_row_has_a_handler() -> None:
    assert HANDLERS.keys() == PRIMITIVES.keys()


@pytest.mark.parametrize("name", PRIMITIVES)
def test_handler_accepts_the_operands_of_its_row(name: str) -> None:
    """The verifier checks counts with the table, so the handler must accept exactly these."""
    row = PRIMITIVES[name]
    signature = inspect.signature(HANDLERS[name])
    for count in range(5 if row.most is None else row.most + 2):
        is_legal = count >= row.least and (row.most is None or count <= row.most)
        try:
            signature.bind(*range(count))
        except TypeError:
            assert not is_legal
        else:
            assert is_legal or name in ("box", "dynamic_box")  # which may also be created without a value


@pytest.mark.parametrize("name", sorted(PRIMITIVES))
@settings(max_examples=COUNT)
@given(data=st.data())
def test_wrong_operands_only_fault(name: str, data: st.DataObject) -> None:
    """Any operands give a value or a fault of the program, never an internal error."""
    row = PRIMITIVES[name]
    max_operands = 4 if row.most is None else row.most
    operands = data.draw(st.lists(VALUES, min_size=row.least, max_size=max_operands))
    before = [repr(operand) for operand in operands]
    with contextlib.suppress(PrimitiveFault):
        do(name, *operands)
    assert [repr(operand) for operand in operands] == before


# --- values -----------------------------------------------------------------------------------


def test_lists_and_maps_are_made_from_operands() -> None:
    """The operands of a map are pairs."""
    assert do("list", 1, "a") == (1, "a")
    assert do("list") == ()
    assert do("map", "a", 1, "b", (2,)) == {"a": 1, "b": (2,)}
    assert fault_of("map", "a").kind == "type-error"
    assert fault_of("map", 1, 2).kind == "type-error"


def test_null_counts_as_an_empty_map() -> None:
    """`get` gives null for a missing key, `put` creates a map."""
    assert do("get", None, "a") is None
    assert do("get", {"a": 1}, "b") is None
    assert do("put", None, "a", 1) == {"a": 1}
    assert do("without_nulls", None) == {}
    assert do("without_nulls", {"a": None, "b": 0}) == {"b": 0}


def test_put_does_not_change_its_operand() -> None:
    """Values are immutable."""
    before = {"a": 1}
    assert do("put", before, "a", 2) == {"a": 2}
    assert before == {"a": 1}


@given(values=st.lists(VALUES, min_size=1, max_size=4))
def test_and_and_or_give_an_operand(values: list[Value]) -> None:
    """The first operand that decides, else the last."""
    assert do("and", *values) is next((value for value in values if not value), values[-1])
    assert do("or", *values) is next((value for value in values if value), values[-1])


def test_and_and_or_of_nothing() -> None:
    """Without operands `and` is true and `or` is false."""
    assert (do("and"), do("or")) == (True, False)


def test_box_contains_its_value() -> None:
    """Each call creates a new box."""
    assert do("unbox", do("box", 5)) == 5
    assert do("box", 5) is not do("box", 5)
    assert fault_of("unbox", 5).kind == "type-error"


# --- numbers ----------------------------------------------------------------------------------


@given(left=NUMBERS, right=NUMBERS)
def test_arithmetic_agrees_with_python(left: float, right: float) -> None:
    """Integers are exact; integers and floats are compared by value."""
    assert do("add", left, right) == left + right
    assert do("sub", left, right) == left - right
    assert do("mul", left, right) == left * right
    assert do("min", left, right) == min(left, right)
    assert do("max", left, right) == max(left, right)
    assert do("lt", left, right) is (left < right)
    assert do("le", left, right) is (left <= right)
    assert do("gt", left, right) is (left > right)
    assert do("ge", left, right) is (left >= right)


@given(left=st.integers(), right=st.integers().filter(bool))
def test_integral_quotients_are_integers(left: int, right: int) -> None:
    """`div` is exact if possible."""
    assert do("div", left * right, right) == left
    assert isinstance(do("div", left * right, right), int)


def test_division_by_zero_is_a_fault() -> None:
    """For integer and float zero."""
    assert fault_of("div", 1, 0).kind == "division-by-zero"
    assert fault_of("div", 1.0, 0.0).kind == "division-by-zero"


def test_a_boolean_is_no_number() -> None:
    """It neither equals a number nor is accepted as one."""
    assert do("eq", True, 1) is False
    assert do("eq", (1, {"a": 2}), (1.0, {"a": 2.0})) is True
    for name in ("add", "lt", "div"):
        assert fault_of(name, True, 1).kind == "type-error"
    assert fault_of("lt", "a", "b").kind == "type-error"


def test_integers_are_bounded() -> None:
    """Repeated squaring faults before memory is full."""
    number = 3
    while number.bit_length() * 2 <= MAX_BITS:
        number = do("mul", number, number)
    assert fault_of("mul", number, number).kind == "too-large"


def test_sums_are_not_checked() -> None:
    """A sum grows by one bit; only multiplication checks the limit."""
    largest = (1 << MAX_BITS) - 1
    assert do("add", largest, 1) == 1 << MAX_BITS
    assert do("sub", -largest, largest) == -2 * largest
    assert fault_of("mul", 1 << MAX_BITS, 2).kind == "too-large"


def test_huge_integer_with_float_is_a_fault() -> None:
    """There is no OverflowError."""
    for name in ("add", "sub", "mul", "div"):
        assert fault_of(name, 10**400, 1.5).kind == "too-large"
    assert do("lt", 1.5, 10**400) is True


# --- text -------------------------------------------------------------------------------------


@given(data=HOST)
def test_text_of_lists_and_maps_is_json(data: Any) -> None:
    """The JSON text reads back to the same value."""
    text = do("text", from_host(data))
    if isinstance(data, str):
        assert text == data
    elif data is None:
        assert text == ""
    else:
        assert equal(from_host(json.loads(text)), from_host(data))
        assert text == json.dumps(data, ensure_ascii=False)


def test_text_of_numbers() -> None:
    """Integral floats keep the point, huge integers all digits."""
    assert [do("text", value) for value in (1, 1.0, -0.5, True, 1e300)] == [
        "1",
        "1.0",
        "-0.5",
        "true",
        "1e+300",
    ]
    assert do("text", 7**20000) == str_of(7**20000)
    assert do("text", -(10**5000)) == "-1" + "0" * 5000
    assert do("text", math.inf) == "Infinity"


def str_of(number: int) -> str:
    digits = []
    while number:
        number, digit = divmod(number, 10**18)
        digits.append(f"{digit:018}")
    return "".join(reversed(digits)).lstrip("0")


def test_text_of_a_function_or_a_box_is_a_fault() -> None:
    """They have no meaning outside the machine, also inside other values."""
    assert fault_of("text", Box()).kind == "type-error"
    assert fault_of("concat", "a", ({"b": FunctionValue(0, ())},)).kind == "type-error"


def test_text_of_a_deep_value_needs_no_stack() -> None:
    """A hundred thousand nested lists."""
    value: Value = ()
    for _ in range(100_000):
        value = (value,)
    assert do("text", value) == "[" * 100_001 + "]" * 100_001


def test_text_of_a_shared_value_is_limited() -> None:
    """A list that contains itself twice, sixty levels deep, is small; its text would not be."""
    value: Value = "x" * 1000
    for _ in range(60):
        value = (value, value)
    assert fault_of("text", value).kind == "too-large"
    half = "x" * (MAX_TEXT // 2)
    assert fault_of("concat", half, half, "y").kind == "too-large"


def test_concat_joins_texts() -> None:
    """Each operand as rendered by `text`."""
    assert do("concat", "a", 1, None, (1, "b")) == 'a1[1, "b"]'
    assert do("concat") == ""


def test_rule_2_final_newline_is_removed() -> None:
    """One newline, as the rule says; other types are unchanged."""
    assert do("trim_newline", "a\n") == "a"
    assert do("trim_newline", "a\n\n") == "a\n"
    assert do("trim_newline", "a") == "a"
    assert do("trim_newline", None) is None
    assert do("trim_newline", 3) == 3


def test_tail_takes_characters_from_the_end() -> None:
    """Characters, not bytes; none for a count below one."""
    assert do("tail", "aébc", 3) == "ébc"
    assert do("tail", "ab", 10) == "ab"
    assert do("tail", "ab", 0) == ""
    assert do("tail", "ab", -1) == ""
    assert do("tail", "ab", math.inf) == "ab"


@pytest.mark.parametrize(
    ("milliseconds", "expected"),
    [
        (0, "0.0s"),
        (340, "0.3s"),
        (12_400, "12s"),
        (154_000, "2m 34s"),
        (3_720_000, "1h 2m"),
        (1234.5, "1.2s"),
    ],
)
def test_duration_format(milliseconds: float, expected: str) -> None:
    """As in the progress display; the example of the seed is `2m 34s`."""
    assert do("duration", milliseconds) == expected


def test_a_duration_is_finite() -> None:
    """Infinity and NaN are faults."""
    for value in (math.inf, -math.inf, math.nan):
        assert fault_of("duration", value).kind == "too-large"


# --- variables --------------------------------------------------------------------------------


def test_lookup_follows_keys_and_indices() -> None:
    """A key of a map, an index of a list as text; an existing null is null."""
    value = from_host({"a": {"b": [10, {"c": None}]}})
    assert do("lookup", value, ("a", "b", "0"), "x") == 10
    assert do("lookup", value, ("a", "b", "1", "c"), "x") is None
    assert do("lookup", value, (), "x") is value


@pytest.mark.parametrize(
    ("value", "path", "why"),
    [
        (None, ["output"], "nothing has set it yet"),
        ({"output": "x"}, ["outptu"], "there is no `outptu`; there is `output`"),
        ({"a": "x"}, ["a", "b"], "a string has no `b`"),
        ({"a": None}, ["a", "b"], "a null has no `b`"),
        ([1, 2], ["2"], "no index into a list of 2"),
        ([1, 2], ["-1"], "no index into a list of 2"),
        ([1, 2], ["x"], "no index into a list of 2"),
    ],
)
def test_an_undefined_variable_is_a_fault_that_names_it(value: Any, path: list[str], why: str) -> None:
    """loops.md, rule 6: the error names the variable; a default prevents it."""
    fault = fault_of("lookup", from_host(value), tuple(path), "captured.x.output")
    assert fault.kind == "undefined-variable"
    assert fault.message.startswith("`${captured.x.output}` is not defined: ")
    assert why in fault.message
    assert do("lookup_or", from_host(value), tuple(path), "default") == "default"


def test_lookup_or_uses_the_existing_value() -> None:
    """The default replaces an undefined value, not null."""
    assert do("lookup_or", {"a": None}, ("a",), 1) is None
    assert do("lookup_or", {"a": 0}, ("a",), 1) == 0


@given(data=HOST)
def test_primitives_keep_values_in_host_form(data: Any) -> None:
    """A value is unchanged after passing through a list and a map."""
    value = from_host(data)
    result = do("map", "k", do("list", value, value))
    assert equal(from_host(to_host(result)), result)


def test_field_of_an_association_list_is_order_independent() -> None:
    """A list with an entry that is no pair faults, wherever that entry is."""
    good = (("a", 1), ("b.c", 2), ("d", (("e", 3),)))
    assert [do("get_field", good, name) for name in ("a", "b.c", "d.e", "x", "b")] == [1, 2, 3, None, None]
    for wrong in ("x", (1,), (1, 2, 3)):
        for entries in ((wrong, ("a", 1)), (("a", 1), wrong)):
            for name in ("a", "b", "a.b"):
                assert fault_of("get_field", entries, name).kind == "type-error"
    assert do("get_field", ("a", ("b", "c")), "1.0") == "b"
    assert do("get_field", (("a.b", 1), ("a", (("b", 2),))), "a.b") == 1
    assert do("get_field", (), "a.b") is None


def test_messages_have_the_right_article() -> None:
    """ "an integer", "a string"."""
    assert fault_of("get_field", 5, "x").message == 'an integer has no field "x": 5'
    assert fault_of("get_field", "a", "x").message == 'a string has no field "x": "a"'
