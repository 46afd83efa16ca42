"""Values as a flat table: exact, shared, without nesting, and strictly checked when read."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llc.ir.constants import Symbol
from llc.vm.values.heap import HeapError, HeapReader, HeapWriter
from llc.vm.values.lists import Pair, append, iterate, pair, pairs
from llc.vm.values.values import Box, FunctionValue

TEXT = st.text(st.characters(exclude_categories=())) | st.text(min_size=60, max_size=70)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | TEXT
ATOMS = SCALARS | TEXT.map(Symbol)
VALUES = st.recursive(
    ATOMS, lambda inner: st.lists(inner, max_size=4).map(tuple) | st.dictionaries(TEXT, inner, max_size=4)
)
NAMES = ["zero", "one"]


def find(name: Any, captures: int) -> int:
    if name not in NAMES:
        raise HeapError("no such function")
    return NAMES.index(name)


def store(*values: Any) -> tuple[Any, Any]:
    """References and nodes after a JSON round trip."""
    writer = HeapWriter(NAMES.__getitem__)
    references = [writer.write(value) for value in values]
    stored = json.loads(json.dumps([references, writer.nodes]))
    return stored[0], stored[1]


def load(stored: tuple[Any, Any]) -> list[Any]:
    reader = HeapReader(stored[1], find)
    return [reader.read(reference) for reference in stored[0]]


@given(st.lists(VALUES, max_size=4))
def test_plain_values_round_trip(values: list[Any]) -> None:
    """Exactly: integers of any size, NaN, infinities, lone surrogates."""
    assert repr(load(store(*values))) == repr(values)


@given(st.lists(VALUES, max_size=4))
def test_table_is_canonical(values: list[Any]) -> None:
    """Storing loaded values gives the same table."""
    stored = store(*values)
    assert store(*load(stored)) == stored


def test_huge_integers_survive_json() -> None:
    """JSON readers limit integers; the table writes them as text."""
    values = [2**63, -(2**63) - 1, 10**10_000, -(10**10_000)]
    assert load(store(*values)) == values


def test_sharing_is_kept() -> None:
    """One object is one node, and one object again after loading."""
    shared = ("a", 1)
    once, twice = load(store((shared, {"k": shared}), shared))
    assert once[0] is once[1]["k"]
    assert once[0] is twice


@st.composite
def sharing_lists(draw: st.DrawFn) -> list[Any]:
    """Lists that start inside one another or contain one another."""
    lists: list[Any] = [()]
    for _ in range(draw(st.integers(1, 12))):
        tail = draw(st.sampled_from(lists))
        items = draw(st.lists(ATOMS | st.sampled_from(lists), max_size=3))
        lists.append(append(tuple(items), tail if draw(st.booleans()) else pair(None, tail)))
    return lists


def identity_structure(values: list[Any]) -> list[Any]:
    """The values, with a number for each distinct object."""
    numbers: dict[int, int] = {}
    held: list[Any] = []
    rows: list[Any] = []

    def number(value: Any) -> Any:
        if type(value) is not Pair and (type(value) is not tuple or not value):
            return repr(value)
        if id(value) not in numbers:
            numbers[id(value)] = len(numbers)
            held.append(value)
            parts = [value.head, value.tail] if type(value) is Pair else list(value)
            rows.append([type(value).__name__, [number(part) for part in parts]])
        return numbers[id(value)]

    return [[number(value) for value in values], rows]


@given(sharing_lists())
def test_shared_tails_are_kept(values: list[Any]) -> None:
    """The identity of pairs is kept, whichever list is stored first."""
    stored = store(*values)
    assert identity_structure(load(stored)) == identity_structure(values)
    assert store(*load(stored)) == stored


def test_a_long_list_of_pairs_is_few_nodes() -> None:
    """A reference may start anywhere in the list."""
    items = pairs(range(100_000), pair(None, ()))
    tail = items
    for _ in range(50_000):
        tail = tail.tail
    stored = store(items, tail)
    assert len(stored[1]) < 500
    complete, half = load(stored)
    assert list(iterate(complete)) == [*range(100_000), None]
    assert list(iterate(half)) == [*range(50_000, 100_000), None]
    for _ in range(50_000):
        complete = complete.tail
    assert complete is half


def test_a_long_text_is_stored_once() -> None:
    """For any number of slots."""
    text = "x" * 1000
    references, nodes = store(text, {"a": text}, "".join(["x"] * 1000))
    assert json.dumps([references, nodes]).count("x" * 1000) == 1


def test_cycles_through_boxes_are_kept() -> None:
    """A box may contain its own container, through lists, maps and captures."""
    box = Box()
    box.value = ({"self": box}, FunctionValue(1, (box, box)))
    (copy,) = load(store(box))
    assert copy.value[0]["self"] is copy
    assert copy.value[1].captures == (copy, copy)
    assert copy.value[1].function == 1


def test_cycles_through_lists_of_pairs_are_kept() -> None:
    """A box in a list that contains a tail of the same list."""
    box = Box()
    tail = pair(box, pair("end", ()))
    items = pairs(range(300), tail)
    box.value = (tail, items)
    (copy,) = load(store(items))
    end = copy
    while type(end.head) is int:
        end = end.tail
    assert end.head.value[0] is end
    assert end.head.value[1] is copy


def test_deep_values_are_stored_without_recursion() -> None:
    """Chains of lists, captures and boxes, 100,000 deep."""
    value: Any = None
    for index in range(100_000):
        value = (Box(value), FunctionValue(0, (value,)), (value,))[index % 3]
    (copy,) = load(store(value))
    for index in reversed(range(100_000)):
        copy = (lambda v: v.value, lambda v: v.captures[0], lambda v: v[0])[index % 3](copy)
    assert copy is None


@pytest.mark.parametrize(
    "nodes",
    [
        None,
        [1],
        [[]],
        [["list", [0]]],
        [["list", [1]], ["list"]],
        [["list", [-1]]],
        [["list", [True]]],
        [["map", "a"]],
        [["map", 1, 2]],
        [["map", "a", 1, "a", 2]],
        [["function"]],
        [["function", "two"]],
        [["box"]],
        [["box", [7]]],
        [["text", 1]],
        [["utf8", "zz"]],
        [["utf8", "ff"]],
        [["odd"]],
        [[["list"]]],
        [["list", {"int": "0xZ"}]],
        [["list", {"int": "0x0_1"}]],
        [["list", {"float": "1.5"}]],
        [["list", {}]],
        [["list", []]],
        [["cons", 1]],
        [["cons", 1, 2]],
        [["cons", 1, [0]]],
        [["list"], ["cons", 1, [0]], ["list", [1, 1]]],
        [["list"], ["cons", 1, 2, [0]], ["list", [1, -1]]],
        [["list", 1], ["queue", [0]]],
        [["list", 1], ["queue", [0], 2]],
        [["list", 1], ["list"], ["queue", [0], [1]]],
        [["list", 1], ["list"], ["queue", [1], [0]]],
        [["list", 1], ["queue", [0], [0]], ["queue", [1], [0]]],
        [["list", 1], ["queue", [0], [0]], ["queue", [0], [1]]],
        [["list", 1], ["queue", [0], [0]], ["cons", 1, [1]]],
        [["list", 1], ["cons", 1, [0]], ["queue", [0], [1]]],
        [["list"], ["list", [0, 1]]],
        [["list", [0, 0, 0]]],
        [["list", {"symbol": 1}]],
        [["list"], ["list", {"symbol": [0]}]],
    ],
)
def test_malformed_table_is_an_error(nodes: Any) -> None:
    """The reader raises HeapError."""
    with pytest.raises(HeapError):
        HeapReader(nodes, find)


def test_a_table_of_plain_data_has_no_functions_and_boxes() -> None:
    """Constants cannot contain them, when written or read."""
    for nodes in ([["function", "zero"]], [["box", 1]]):
        with pytest.raises(HeapError):
            HeapReader(nodes)
    with pytest.raises(HeapError):
        HeapWriter().write(FunctionValue(0, ()))


JSON = st.recursive(
    SCALARS
    | st.sampled_from(
        ["list", "map", "box", "function", "zero", "text", "utf8", "int", "float", "cons", "queue"]
    ),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["int", "float", "symbol"]), inner)
    ),
)


@given(st.lists(st.lists(JSON | st.integers(0, 4).map(lambda i: [i]), max_size=4), max_size=5))
def test_any_table_is_read_or_rejected(nodes: Any) -> None:
    """The reader raises nothing but HeapError."""
    with suppress(HeapError):
        HeapReader(nodes, find)
