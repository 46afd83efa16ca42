"""Control flow graph of a loop: reachability, and facts that hold on every path.

States are numbered. A target that is known only at run time may be any state; it leads to a node of its
own, "any state", so that the number of edges stays linear. An unknown target is treated the same way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from .schema import CURRENT, Loop, StateSpec

# The state that a target names; None if it is known only at run time.
Resolve = Callable[[str], str | None]


class Graph:
    """States by number, in the order of the loop; the last number is the node "any state"."""

    def __init__(self, loop: Loop, resolve: Resolve) -> None:
        self.loop = loop
        self.names = list(loop.states)
        self.number = {name: number for number, name in enumerate(self.names)}
        self.any_state = len(self.names)
        self.resolve = resolve
        # Whether every state is valid. Otherwise an invalid state may contain a definition that seems to be
        # missing.
        self.is_valid = not loop.flawed and not any(state.flawed for state in loop.states.values())
        # Whether every target is also known. Otherwise the set of paths is not exact.
        self.is_exact = self.is_valid
        self.successors = [self.successors_of(state) for state in loop.states.values()]
        self.successors.append(list(range(self.any_state)))
        self.initial = self.number.get(loop.initial)

    def successors_of(self, state: StateSpec) -> list[int]:
        """The numbers of the possible successors of `state`."""
        routes = state.routes
        targets = [*routes.values(), state.next, self.loop.restart_of(state)]
        targets += [state.on_retry_exhausted, state.on_throttle_hard]
        if "_error" not in routes and self.loop.on_error != state.name:
            targets.append(self.loop.on_error)
        if state.action is not None and self.loop.kind_of(state) == "slash":
            targets += [self.loop.on_stall, self.loop.quota_target(state)]
        numbers = {self.any_state: None} if state.flawed else {}
        for target in targets:
            if target is not None:
                name = state.name if target == CURRENT else self.resolve(target)
                number = self.any_state if name is None else self.number.get(name)
                if number is None:
                    self.is_exact = False
                    number = self.any_state
                numbers[number] = None
        return list(numbers)

    def reachable(self) -> set[int]:
        """The states that a run may enter, including those that run when a limit is reached."""
        names = (self.loop.on_max_steps, self.loop.on_max_iterations)
        last = [self.number[name] for name in names if name in self.number]
        return _reach([self.initial, *last] if self.initial is not None else [], self.successors)

    def can_finish(self) -> set[int]:
        """The states from which a terminal or an invalid state can be reached."""
        predecessors: list[list[int]] = [[] for _ in self.successors]
        for number, successors in enumerate(self.successors):
            for successor in successors:
                predecessors[successor].append(number)
        states = self.loop.states.values()
        ends = [number for number, state in enumerate(states) if state.is_terminal or state.flawed]
        return _reach(ends, predecessors)

    def facts_on_all_paths(self, given: Sequence[int]) -> list[int]:
        """For each state, the bits that hold on every path to it (a forward must-analysis).

        given: the bits that each state adds.
        """
        everything = 0
        for bits in given:
            everything |= bits
        before = [everything] * len(self.successors)
        if self.initial is None:
            return before
        before[self.initial] = 0
        queue = deque([self.initial])
        queued = bytearray(len(self.successors))
        while queue:
            number = queue.popleft()
            queued[number] = 0
            after = before[number] | (given[number] if number < self.any_state else 0)
            for successor in self.successors[number]:
                fewer = before[successor] & after
                if fewer != before[successor]:
                    before[successor] = fewer
                    if not queued[successor]:
                        queued[successor] = 1
                        queue.append(successor)
        return before

    def shortest_path(self, goal: int, avoided: Iterable[int]) -> list[str]:
        """The names on a shortest path from the start to `goal` that does not leave any state of
        `avoided`.
        """
        if self.initial is None:
            return []
        closed = set(avoided)
        previous: dict[int, int | None] = {self.initial: None}
        queue = deque([self.initial])
        while queue:
            number = queue.popleft()
            if number == goal:
                break
            if number in closed:
                continue
            for successor in self.successors[number]:
                if successor not in previous:
                    previous[successor] = number
                    queue.append(successor)
        if goal not in previous:
            return []
        names = []
        at: int | None = goal
        while at is not None:
            if at != self.any_state:
                names.append(self.names[at])
            at = previous[at]
        return names[::-1]


def _reach(starts: Iterable[int], edges: Sequence[Sequence[int]]) -> set[int]:
    seen = set(starts)
    stack = list(seen)
    while stack:
        for other in edges[stack.pop()]:
            if other not in seen:
                seen.add(other)
                stack.append(other)
    return seen
