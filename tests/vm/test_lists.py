"""The two forms of a list, behind one face; symbols, which are no strings."""

from __future__ import annotations

import copy
import pickle
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from list_forms import mixed

from llc.ir.constants import Symbol
from llc.vm.values import values
from llc.vm.values.lists import drop, first, from_iterable, is_list, iterate, length, pair, rest, to_tuple
from llc.vm.values.values import equal, from_host, show, to_host, type_name

ATOMS = st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3) | st.just(Symbol("a"))
VALUES = st.recursive(
    ATOMS,
    lambda inner: (
        st.lists(inner, max_size=12).map(tuple) | st.dictionaries(st.text(max_size=2), inner, max_size=3)
    ),
    max_leaves=30,
)
LISTS = st.lists(VALUES, max_size=30).map(tuple)
CHANCE = st.integers(0, 1 << 32).map(random.Random)


@given(LISTS, CHANCE)
def test_a_list_is_its_items_in_either_form(items: Any, chance: random.Random) -> None:
    """Count, order and whatever is taken from it."""
    other = mixed(items, chance)
    assert is_list(other)
    assert length(other) == len(items)
    assert equal(to_tuple(other), items)
    assert equal(tuple(iterate(other)), items)
    count = chance.randint(0, len(items))
    assert equal(drop(other, count), items[count:])
    if items:
        assert equal(first(other), items[0])
        assert equal(rest(other), items[1:])


@given(VALUES, VALUES, CHANCE)
def test_values_do_not_show_their_forms(value: Any, another: Any, chance: random.Random) -> None:
    """Equality, messages and host form are the same for both."""
    one, two = mixed(value, chance), mixed(value, chance)
    assert equal(one, two)
    assert equal(two, one)
    assert equal(mixed(value, chance), mixed(another, chance)) == equal(value, another)
    assert show(one) == show(value)
    assert to_host(one) == to_host(value)
    assert type_name(one) == type_name(value)


def test_a_chain_may_be_longer_than_any_stack() -> None:
    """Hundreds of thousands of pairs are compared, shown and written out; deep nesting too."""
    chain, other = from_iterable(range(300_000), pair(0, ())), from_iterable(range(300_000), pair(0, ()))
    assert equal(chain, other)
    assert show(chain).startswith("[0, 1, 2")
    assert to_host(chain) == [*range(300_000), 0]
    deep: Any = ()
    for _ in range(100_000):
        deep = pair(deep, ())
    assert equal(deep, from_host(to_host(deep)))


def test_lists_that_share_their_ends_compare_quickly() -> None:
    """Every end of a long list, twice over: what is known to be equal is not compared again."""

    def ends() -> Any:
        items: Any = pair(0, ())
        made: Any = ()
        for number in range(20_000):
            items = pair(number, items)
            made = pair(items, made)
        return made

    assert equal(ends(), ends())


def test_a_list_that_doubles_compares_at_once() -> None:
    """Two lists of themselves twice, sixty times over, one made of pairs."""
    left: Any = ("a",)
    right: Any = ("a",)
    for _ in range(60):
        left, right = (left, left), pair(right, pair(right, ()))
    assert equal(left, right)
    with pytest.raises(ValueError, match="too large"):
        to_host(right)


def test_many_ends_of_a_list_are_too_large_to_write_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host does not share ends, so two thousand items become two million."""
    monkeypatch.setattr(values, "MAX_HOST_SIZE", 1_000_000)
    items: Any = pair(0, ())
    made: list[Any] = []
    for number in range(2_000):
        items = pair(number, items)
        made.append(items)
    with pytest.raises(ValueError, match="too large"):
        to_host(tuple(made))


def test_walking_a_tuple_by_its_rest_copies_it_once() -> None:
    """The rest of the rest is shared."""
    whole = tuple(range(1000))
    for items, start in ((rest(whole), 1), (drop(whole, 2), 2)):
        assert rest(items) is rest(items)
        assert drop(items, 5) is drop(items, 5)
        assert to_tuple(items) == whole[start:]


def test_a_symbol_is_one_object() -> None:
    """Made twice, copied or sent elsewhere: the same."""
    symbol = Symbol("stop")
    assert Symbol("stop") is symbol
    assert copy.deepcopy(symbol) is symbol
    assert pickle.loads(pickle.dumps(symbol)) is symbol
    with pytest.raises(AttributeError):
        symbol.name = "go"


def test_a_symbol_is_no_string() -> None:
    """It equals itself only, is true, and leaves the machine as its name."""
    assert equal(Symbol("a"), Symbol("a"))
    assert not equal(Symbol("a"), "a")
    assert not equal((Symbol("a"),), (Symbol("b"),))
    assert bool(Symbol(""))
    assert show((Symbol("a"), "a")) == '[\'a, "a"]'
    assert to_host(Symbol("a")) == "a"
    assert to_host({"k": (Symbol("a"), pair(Symbol("b"), ()))}) == {"k": ["a", ["b"]]}
    assert type_name(Symbol("a")) == "symbol"
