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
from list_forms import mix_list_forms
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
    """Lower the length from which lists are shared slices, so that tests can use short lists."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lists, "LONG", 32)
        yield


CHANCE = st.integers(0, 1 << 32).map(random.Random)


@given(LISTS, CHANCE)
def test_list_forms_are_equivalent(items: Any, chance: random.Random) -> None:
    """Length, order and all accessors."""
    mixed_list = mix_list_forms(items, chance)
    assert is_list(mixed_list)
    assert length(mixed_list) == len(items)
    assert equal(to_tuple(mixed_list), items)
    assert equal(tuple(iterate(mixed_list)), items)
    count = chance.randint(0, len(items))
    assert equal(drop(mixed_list, count), items[count:])
    if items:
        assert equal(first(mixed_list), items[0])
        assert equal(rest(mixed_list), items[1:])


@given(VALUES, VALUES, CHANCE)
def test_list_forms_are_not_observable(value: Any, another: Any, chance: random.Random) -> None:
    """Equality, messages and host form are the same."""
    first_form, second_form = mix_list_forms(value, chance), mix_list_forms(value, chance)
    assert equal(first_form, second_form)
    assert equal(second_form, first_form)
    assert equal(mix_list_forms(value, chance), mix_list_forms(another, chance)) == equal(value, another)
    assert show(first_form) == show(value)
    assert to_host(first_form) == to_host(value)
    assert type_name(first_form) == type_name(value)


def test_long_chains_do_not_recurse() -> None:
    """Hundreds of thousands of pairs are compared, shown and converted; deep nesting too."""
    chain, other = pairs(range(300_000), pair(0, ())), pairs(range(300_000), pair(0, ()))
    assert equal(chain, other)
    assert show(chain).startswith("[0, 1, 2")
    assert to_host(chain) == [*range(300_000), 0]
    deep: Any = ()
    for _ in range(100_000):
        deep = pair(deep, ())
    assert equal(deep, from_host(to_host(deep)))


def test_lists_with_shared_tails_compare_quickly() -> None:
    """Lists of all tails of a long list: known equalities are not checked again."""

    def tails() -> Any:
        items: Any = pair(0, ())
        result: Any = ()
        for number in range(20_000):
            items = pair(number, items)
            result = pair(items, result)
        return result

    assert equal(tails(), tails())


def test_exponential_list_compares_quickly() -> None:
    """Two lists that contain themselves twice, sixty levels deep, one of pairs."""
    left: Any = ("a",)
    right: Any = ("a",)
    for _ in range(60):
        left, right = (left, left), pair(right, pair(right, ()))
    assert equal(left, right)
    with pytest.raises(ValueError, match="too large"):
        to_host(right)


def test_all_tails_of_a_list_are_too_large_for_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host form does not share tails, so two thousand items become two million."""
    monkeypatch.setattr(values, "MAX_HOST_SIZE", 1_000_000)
    items: Any = pair(0, ())
    tails: list[Any] = []
    for number in range(2_000):
        items = pair(number, items)
        tails.append(items)
    with pytest.raises(ValueError, match="too large"):
        to_host(tuple(tails))


def test_walking_a_tuple_by_its_rest_copies_it_once() -> None:
    """The rest of the rest is shared."""
    complete = tuple(range(1000))
    for items, start in ((rest(complete), 1), (drop(complete, 2), 2)):
        assert rest(items) is rest(items)
        assert drop(items, 5) is drop(items, 5)
        assert to_tuple(items) == complete[start:]


def test_a_symbol_is_one_object() -> None:
    """Created twice, copied or pickled."""
    symbol = Symbol("stop")
    assert Symbol("stop") is symbol
    assert copy.deepcopy(symbol) is symbol
    assert pickle.loads(pickle.dumps(symbol)) is symbol
    with pytest.raises(AttributeError):
        symbol.name = "go"


def test_a_symbol_is_no_string() -> None:
    """It equals only itself, is true, and its host form is its name."""
    assert equal(Symbol("a"), Symbol("a"))
    assert not equal(Symbol("a"), "a")
    assert not equal((Symbol("a"),), (Symbol("b"),))
    assert bool(Symbol(""))
    assert show((Symbol("a"), "a")) == '[\'a, "a"]'
    assert to_host(Symbol("a")) == "a"
    assert to_host({"k": (Symbol("a"), pair(Symbol("b"), ()))}) == {"k": ["a", ["b"]]}
    assert type_name(Symbol("a")) == "symbol"


# --- slices ----------------------------------------------------------------------------------------


def random_lists(chance: random.Random, count: int) -> list[tuple[Any, tuple[Any, ...]]]:
    """Lists derived from one another, each with the tuple of its items."""
    results: list[tuple[Any, tuple[Any, ...]]] = [(items := tuple(range(50)), items)]
    for number in range(count):
        (first_list, items), (second_list, second_items) = (
            results[-1] if chance.random() < 0.6 else chance.choice(results) for _ in range(2)
        )
        new = tuple(range(chance.choice((0, 1, 1, 1, 2, 3, 50))))
        match chance.randrange(9):
            case 0 | 1 | 2 | 3:
                results.append((do("append", first_list, mix_list_forms(new, chance)), items + new))
            case 4:
                results.append((do("append", mix_list_forms(new, chance), first_list), new + items))
            case 5 if len(items) + len(second_items) < 500:
                results.append((do("append", first_list, new, second_list), items + new + second_items))
            case 6:
                size = len(items) - chance.choice((0, 1, 1, 10, 40))
                results.append((do("take", first_list, max(0, size)), items[: max(0, size)]))
            case 7:
                results.append((do("drop", first_list, 1), items[1:]))
            case _:
                results.append((do("cons", number, first_list), (number, *items)))
    return results


def do(name: str, *operands: Any) -> Any:
    return HANDLERS[name](*operands)


@given(CHANCE)
def test_slices_agree_with_copies(chance: random.Random) -> None:
    """After any appends to, takes from and walks of other lists."""
    lists = random_lists(chance, 120)
    assert any(type(list_) is Slice for list_, _ in lists)
    chance.shuffle(lists)
    for list_, items in lists:
        assert to_tuple(list_) == items
        assert length(list_) == len(items)
        for index in (0, len(items) // 2, len(items) - 1) if items else ():
            assert do("nth", index, list_) == items[index]


@given(CHANCE)
def test_snapshot_form_does_not_depend_on_slices(chance: random.Random) -> None:
    """A result from a slice is stored like one from the tuple that a snapshot stores."""
    list_, _ = chance.choice(random_lists(chance, 40))
    new = mix_list_forms(tuple(range(chance.choice((1, 3, 40)))), chance)
    restored = stored(list_)[1]
    for name, *operands in (
        ("append", list_, new),
        ("append", new, list_),
        ("take", list_, 35),
        ("drop", list_, 3),
    ):
        replaced = [restored if operand is list_ else operand for operand in operands]
        assert stored(do(name, *operands))[0] == stored(do(name, *replaced))[0], name


def stored(value: Any) -> tuple[Any, Any]:
    """The nodes that store a value, and the value read from them."""
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
    """A list of n items is built with a few copied items per change."""
    copied = 0

    def count_copies(function: Any) -> Any:
        def call(items: Any, other: Any) -> Any:
            nonlocal copied
            result = function(items, other)
            if type(result) is Pair:
                copied += length(items)
            elif type(result) is Queue:
                pass
            elif type(result) is tuple or result.most == 2 * len(result):
                copied += len(result)
            return result

        return call

    monkeypatch.setattr(lists, "append", count_copies(lists.append))
    monkeypatch.setattr(lists, "take", count_copies(lists.take))
    for count in (500, 2000):
        copied = 0
        text = f"(length (reduce (lambda (made i) {step}) () (range 0 {count})))"
        assert outcome_data(Machine(machine_of(text).image, tier=tier).resume())[0] == "done"
        assert copied < 60 * count, copied


# Iterations that change a long list, the previous one and the first.
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
    """Results and snapshots are equal, also for machines restored from JSON at any time."""
    assert_tiers_agree(machine_of(ROUND.format(items=items, kept=kept)).image, quantum, [], turns)
