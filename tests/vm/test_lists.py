"""The three forms of a list behave the same; symbols are not strings."""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Iterator
from typing import Any

import pytest
from flow_runs import machine_of
from hypothesis import given
from hypothesis import strategies as st
from list_forms import mixed
from tiers import LAWS, assert_tiers_agree, outcome_data

from llc.ir.constants import Symbol
from llc.vm.primitives.handlers import HANDLERS
from llc.vm.tiered import Machine
from llc.vm.values import lists, values
from llc.vm.values.heap import HeapReader, HeapWriter
from llc.vm.values.lists import (
    Pair,
    Queue,
    Slice,
    drop,
    first,
    is_list,
    iterate,
    length,
    pair,
    pairs,
    rest,
    to_tuple,
)
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


@pytest.fixture(autouse=True, scope="module")
def slices_of_short_lists() -> Iterator[None]:
    """Lists that are short enough for a test are shared by what is appended to them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lists, "LONG", 32)
        yield


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
    chain, other = pairs(range(300_000), pair(0, ())), pairs(range(300_000), pair(0, ()))
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


# --- slices ----------------------------------------------------------------------------------------


def appended(chance: random.Random, count: int) -> list[tuple[Any, tuple[Any, ...]]]:
    """Lists made of one another, each with the tuple of its items."""
    made: list[tuple[Any, tuple[Any, ...]]] = [(items := tuple(range(50)), items)]
    for number in range(count):
        (one, items), (other, others) = (
            made[-1] if chance.random() < 0.6 else chance.choice(made) for _ in range(2)
        )
        new = tuple(range(chance.choice((0, 1, 1, 1, 2, 3, 50))))
        match chance.randrange(9):
            case 0 | 1 | 2 | 3:
                made.append((do("append", one, mixed(new, chance)), items + new))
            case 4:
                made.append((do("append", mixed(new, chance), one), new + items))
            case 5 if len(items) + len(others) < 500:
                made.append((do("append", one, new, other), items + new + others))
            case 6:
                size = len(items) - chance.choice((0, 1, 1, 10, 40))
                made.append((do("take", one, max(0, size)), items[: max(0, size)]))
            case 7:
                made.append((do("drop", one, 1), items[1:]))
            case _:
                made.append((do("cons", number, one), (number, *items)))
    return made


def do(name: str, *operands: Any) -> Any:
    return HANDLERS[name](*operands)


@given(CHANCE)
def test_every_slice_is_what_copying_gives(chance: random.Random) -> None:
    """Whichever lists were appended to, taken of or walked before."""
    made = appended(chance, 120)
    assert any(type(one) is Slice for one, _ in made)
    chance.shuffle(made)
    for one, items in made:
        assert to_tuple(one) == items
        assert length(one) == len(items)
        for index in (0, len(items) // 2, len(items) - 1) if items else ():
            assert do("nth", index, one) == items[index]


@given(CHANCE)
def test_the_stored_form_depends_on_no_slice(chance: random.Random) -> None:
    """What is made of a slice is stored like what is made of the tuple that a snapshot makes of it."""
    one, _ = chance.choice(appended(chance, 40))
    new = mixed(tuple(range(chance.choice((1, 3, 40)))), chance)
    again = stored(one)[1]
    for name, *operands in (("append", one, new), ("append", new, one), ("take", one, 35), ("drop", one, 3)):
        others = [again if operand is one else operand for operand in operands]
        assert stored(do(name, *operands))[0] == stored(do(name, *others))[0], name


def stored(value: Any) -> tuple[Any, Any]:
    """The nodes that store a value, and what is read from them."""
    writer = HeapWriter()
    reference = writer.write(value)
    return writer.nodes, HeapReader(writer.nodes).read(reference)


BUILDING = {
    "append": "(append made (list i))",
    "append pairs": "(append made (cons i nil))",
    "append several": "(append made (list i) nil (list i))",
    "prepend": "(append (list i) made)",
    "cons": "(cons i made)",
    "queue": "(append (if (odd? i) (rest made) made) (list i))",
    "put before a queue": "(append (cons i (if (odd? i) (rest made) made)) (list i))",
    "take": "(take (append made (list i i)) (+ i 1))",
    "nth": "(if (< i 40) (append made (list i)) (append made (list (nth (quotient i 2) made))))",
}


@pytest.mark.parametrize("tier", ["interpreter", "direct"])
@pytest.mark.parametrize("step", BUILDING.values(), ids=BUILDING)
def test_building_copies_few_items(step: str, tier: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of n items is built with a few copied items for each change."""
    copied = 0

    def counted(function: Any) -> Any:
        def call(items: Any, other: Any) -> Any:
            nonlocal copied
            made = function(items, other)
            if type(made) is Pair:
                copied += length(items)
            elif type(made) is Queue:
                pass
            elif type(made) is tuple or made.most == 2 * len(made):
                copied += len(made)
            return made

        return call

    monkeypatch.setattr(lists, "append", counted(lists.append))
    monkeypatch.setattr(lists, "take", counted(lists.take))
    for count in (500, 2000):
        copied = 0
        text = f"(length (reduce (lambda (made i) {step}) () (range 0 {count})))"
        assert outcome_data(Machine(machine_of(text).image, tier=tier).resume())[0] == "done"
        assert copied < 60 * count, copied


# Rounds that change a long list, the one before it and the first.
ROUND = """
(define (go i items old kept)
  (if (= i 12)
      (list items old kept)
      (go (+ i 1) {items} items {kept})))
(go 0 (range 0 40) (range 0 40) nil)
"""
ITEMS = (
    "(append items (list i))",
    "(append old (list i))",
    "(append items (cons i nil) (list i))",
    "(append (list i) items)",
    "(append (take items 35) (list i i))",
    "(append (take items (- (length items) 1)) (list i i))",
    "(append (begin (now) items) (list i))",
    "(drop 1 (append items (list i i i)))",
    "(rest (append items old))",
    "(rest (append (rest items) (list i)))",
    "(append (cons i (rest items)) (list i i))",
)
KEPT = ("kept", "(cons items kept)", "(cons (nth 3 old) kept)", "(cons (reverse items) kept)", "(list old)")


@LAWS
@given(st.sampled_from(ITEMS), st.sampled_from(KEPT), st.integers(1, 40), st.integers(0, 255))
def test_both_tiers_agree_about_long_lists(items: str, kept: str, quantum: int, turns: int) -> None:
    """Results and snapshots are alike in either tier, and where a machine goes through JSON at any time."""
    assert_tiers_agree(machine_of(ROUND.format(items=items, kept=kept)).image, quantum, [], turns)
