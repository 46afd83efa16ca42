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
def test_reachable_is_closed_and_smallest(successors: list[list[int]]) -> None:
    """The result contains the start, all successors, and for each other state a predecessor."""
    result = reachable(successors)
    assert 0 in result
    assert all(target in result for number in result for target in successors[number])
    order = [0]
    for number in order:
        order += [target for target in dict.fromkeys(successors[number]) if target not in order]
    assert result == set(order)


@given(GRAPHS)
def test_components_are_mutual_reachability(successors: list[list[int]]) -> None:
    """Two states share a component exactly if each reaches the other; sinks come first."""
    result = components(successors)
    assert sorted(itertools.chain(*result)) == list(range(len(successors)))
    where = {member: number for number, component in enumerate(result) for member in component}
    reach = [reachable(successors, number) for number in range(len(successors))]
    for first, second in itertools.combinations(range(len(successors)), 2):
        assert (where[first] == where[second]) == (first in reach[second] and second in reach[first])
    assert all(
        where[target] <= where[number] for number, targets in enumerate(successors) for target in targets
    )


@given(GRAPHS)
def test_each_cyclic_component_gives_a_cycle(successors: list[list[int]]) -> None:
    """Each result is a cycle of the graph; there is one for each cyclic component."""
    result = list(cycles(successors))
    for cycle in result:
        assert len(set(cycle)) == len(cycle)
        assert all(
            target in successors[number] for number, target in zip(cycle, [*cycle[1:], cycle[0]], strict=True)
        )
    cyclic = {
        number
        for number in range(len(successors))
        if any(number in reachable(successors, t) for t in successors[number])
    }
    assert len(result) == sum(1 for component in components(successors) if cyclic & set(component))


def test_long_chains_need_no_recursion() -> None:
    """A cycle of 100,000 states is one component and one cycle."""
    successors = [[(number + 1) % 100_000] for number in range(100_000)]
    assert [len(component) for component in components(successors)] == [100_000]
    assert [len(cycle) for cycle in cycles(successors)] == [100_000]


def test_an_unknown_target_is_an_error() -> None:
    """The graph of a function needs resolved names."""
    with pytest.raises(KeyError):
        graph(Function("f", (), (State("s", (), Goto("t")),)))
