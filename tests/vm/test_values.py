"""Values: their host form, equality and display in messages."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llc.ir.constants import Symbol
from llc.vm.values.values import (
    MAX_SHOWN,
    Box,
    FunctionValue,
    equal,
    from_host,
    show,
    small_map,
    to_host,
    type_name,
)

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
HOST = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4)
)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = (value,)
    return value


@given(HOST)
def test_host_data_round_trips(data: Any) -> None:
    """`to_host(from_host(x))` is x, types included."""
    assert repr(to_host(from_host(data))) == repr(data)


@given(st.dictionaries(st.text(), SCALARS | st.dictionaries(st.text(), SCALARS, max_size=3), max_size=6))
def test_fast_path_of_small_maps(data: Any) -> None:
    """It gives the result of `to_host`, without maps of the machine."""
    value = from_host(data)
    small = small_map(value)
    assert repr(small) == repr(to_host(value))
    assert small is not None
    assert small is not value
    assert all(small[key] is not item for key, item in value.items() if type(item) is dict)


@pytest.mark.parametrize(
    "value",
    [
        ("a",),
        {"a": ("b",)},
        {"a": {"b": {"c": 1}}},
        {"a": "x" * 200_000},
        {"x" * 200_000: 1},
        {str(number): number for number in range(100)},
        {"a": Symbol("b")},
        {"a": Box(1)},
    ],
    ids=["list", "with a list", "deep", "long", "long key", "wide", "symbol", "box"],
)
def test_other_values_do_not_use_the_fast_path(value: Any) -> None:
    """Values that must be counted, converted or rejected."""
    assert small_map(value) is None


@given(HOST, HOST)
def test_equality_is_reflexive_and_symmetric(left: Any, right: Any) -> None:
    a, b = from_host(left), from_host(right)
    assert equal(a, a)
    assert equal(a, from_host(left))
    assert equal(a, b) == equal(b, a)


def test_a_boolean_never_equals_a_number() -> None:
    """true is not 1, false is not 0, also inside lists and maps."""
    assert not equal(True, 1)
    assert not equal((False,), (0,))
    assert not equal({"a": True}, {"a": 1.0})


def test_an_integer_equals_the_same_float() -> None:
    """1 equals 1.0; an integer beyond the range of floats equals no float."""
    assert equal(1, 1.0)
    assert equal((1, {"a": 2}), (1.0, {"a": 2.0}))
    assert not equal(2**53 + 1, float(2**53))


def test_boxes_equal_themselves_only() -> None:
    """Two boxes with equal content differ."""
    box = Box(1)
    assert equal((box,), (box,))
    assert not equal(box, Box(1))


def test_functions_are_equal_by_code_and_captures() -> None:
    """A function created again is equal; captured boxes are compared as boxes."""
    box = Box(1)
    assert equal(FunctionValue(0, (1, box)), FunctionValue(0, (1.0, box)))
    assert not equal(FunctionValue(0, (box,)), FunctionValue(0, (Box(1),)))
    assert not equal(FunctionValue(0, ()), FunctionValue(1, ()))


def test_deep_and_shared_values() -> None:
    """Values 100,000 deep are compared, converted and shown; an exponential value is compared quickly."""
    assert equal(nested(100_000), nested(100_000))
    assert not equal(nested(100_000), nested(99_999))
    assert to_host(from_host(to_host(nested(100_000)))) is not None
    assert len(show(nested(100_000))) <= MAX_SHOWN
    left: Any = ("a",)
    right: Any = ("a",)
    for _ in range(60):
        left, right = (left, left), (right, right)
    assert equal(left, right)


def test_too_large_host_form_is_an_error() -> None:
    """Sharing makes a small value whose host form would fill memory."""
    value: Any = ("text",)
    for _ in range(60):
        value = (value, value)
    with pytest.raises(ValueError, match="too large"):
        to_host(value)


@pytest.mark.parametrize("value", [Box(1), FunctionValue(0, ()), ({"a": Box(1)},)])
def test_functions_and_boxes_have_no_host_form(value: Any) -> None:
    """They have no meaning outside the machine."""
    with pytest.raises(TypeError, match="cannot leave"):
        to_host(value)


@pytest.mark.parametrize("data", [{1: 2}, object(), [b"bytes"], {"a": {1, 2}}, [[{"a": 1j}]]])
def test_foreign_data_is_an_error(data: Any) -> None:
    """A non-string key and a foreign type, at any position."""
    with pytest.raises(TypeError):
        from_host(data)


def test_cyclic_data_is_an_error() -> None:
    """Data that is used twice is not."""
    twice: list[Any] = [1]
    assert from_host([twice, twice, [twice]]) == ((1,), (1,), ((1,),))
    cycle: dict[str, Any] = {"a": [twice]}
    cycle["a"].append(cycle)
    with pytest.raises(ValueError, match="contains itself"):
        from_host(cycle)


@given(HOST)
def test_shown_values_are_short_and_clean(data: Any) -> None:
    """At most 200 characters, all of which can be encoded."""
    text = show(from_host(data))
    assert len(text) <= MAX_SHOWN
    text.encode()


def test_shown_values_look_like_json() -> None:
    """Small values are shown completely, large ones truncated with an ellipsis."""
    assert show({"a": (1, None, True), "b": "x"}) == '{"a": [1, null, true], "b": "x"}'
    assert show("\ud800") == '"?"'
    assert show("x" * 1000).endswith("…")
    assert show(tuple(range(1000))).endswith("…")
    assert show(10**5000) == "<integer of 16610 bits>"
    assert show((Box(), FunctionValue(0, ()), math.inf)) == "[<box>, <function>, inf]"


def test_every_kind_of_value_has_a_name() -> None:
    """The type names in messages."""
    values = [None, True, 1, 1.0, "", (), {}, FunctionValue(0, ()), Box()]
    names = ["null", "boolean", "integer", "float", "string", "list", "map", "function", "box"]
    assert [type_name(value) for value in values] == names
