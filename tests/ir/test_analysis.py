"""Analyses of the state graph agree with simple reference definitions that are too slow for production."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llc.ir.analysis import components, cycles, graph, reachable
from llc.ir.nodes import Function, Goto, State

GRAPHS = st.integers(1, 7).flatmap(
    lambda size: st.lists(st.lists(st.integers(0, size - 1), max_size=4), min_size=size, max_size=size)
)


@given(GRAPHS)
def test_reachable_is_closed_and_smallest(ways: list[list[int]]) -> None:
    """It holds the start and all successors, and of each but the start a predecessor."""
    found = reachable(ways)
    assert 0 in found
    assert all(target in found for number in found for target in ways[number])
    order = [0]
    for number in order:
        order += [target for target in dict.fromkeys(ways[number]) if target not in order]
    assert found == set(order)


@given(GRAPHS)
def test_components_are_mutual_reachability(ways: list[list[int]]) -> None:
    """Two states share a component exactly if each reaches the other, and sinks come first."""
    found = components(ways)
    assert sorted(itertools.chain(*found)) == list(range(len(ways)))
    where = {member: number for number, component in enumerate(found) for member in component}
    reach = [reachable(ways, number) for number in range(len(ways))]
    for one, other in itertools.combinations(range(len(ways)), 2):
        assert (where[one] == where[other]) == (one in reach[other] and other in reach[one])
    assert all(where[target] <= where[number] for number, targets in enumerate(ways) for target in targets)


@given(GRAPHS)
def test_each_cyclic_component_gives_a_cycle(ways: list[list[int]]) -> None:
    """What is given is a cycle of the graph, and there is none exactly if the graph has none."""
    found = list(cycles(ways))
    for cycle in found:
        assert len(set(cycle)) == len(cycle)
        assert all(
            target in ways[number] for number, target in zip(cycle, [*cycle[1:], cycle[0]], strict=True)
        )
    cyclic = {
        number for number in range(len(ways)) if any(number in reachable(ways, t) for t in ways[number])
    }
    assert len(found) == sum(1 for component in components(ways) if cyclic & set(component))


def test_long_chains_need_no_recursion() -> None:
    """A cycle of 100,000 states is one component and one cycle."""
    ways = [[(number + 1) % 100_000] for number in range(100_000)]
    assert [len(component) for component in components(ways)] == [100_000]
    assert [len(cycle) for cycle in cycles(ways)] == [100_000]


def test_an_unknown_target_is_an_error() -> None:
    """Graphs are made of functions whose names resolve."""
    with pytest.raises(KeyError):
        graph(Function("f", (), (State("s", (), Goto("t")),)))
