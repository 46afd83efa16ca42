"""The control flow graph of a loop: reachability, and facts that hold on every path.

States are numbered. A target that is computed at run time reaches every state, through one node of its
own, so that no loop makes the graph quadratic; so does a target that does not exist.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from .schema import CURRENT, Loop, StateSpec

# The state that a target names; None if it is known only at run time.
Resolve = Callable[[str], str | None]


class Graph:
    """States by number in the order of the loop; the last number is the node for "any state"."""

    def __init__(self, loop: Loop, resolve: Resolve) -> None:
        self.loop = loop
        self.names = list(loop.states)
        self.number = {name: number for number, name in enumerate(self.names)}
        self.any = len(self.names)
        self.resolve = resolve
        # Whether every state could be read; what is missing may be in the others otherwise.
        self.is_read = not loop.flawed and not any(state.flawed for state in loop.states.values())
        # Whether every target is a state, too; ways are not known for sure otherwise.
        self.is_whole = self.is_read
        self.successors = [self.following(state) for state in loop.states.values()]
        self.successors.append(list(range(self.any)))
        self.initial = self.number.get(loop.initial)

    def following(self, state: StateSpec) -> list[int]:
        """The numbers of the states that may come after `state`."""
        routes = state.routes
        targets = [*routes.values(), state.next, self.loop.restart_of(state)]
        targets += [state.on_retry_exhausted, state.on_throttle_hard]
        if "_error" not in routes and self.loop.on_error != state.name:
            targets.append(self.loop.on_error)
        if state.action is not None and self.loop.kind_of(state) == "slash":
            targets += [self.loop.on_stall, self.loop.quota_target(state)]
        found = {self.any: None} if state.flawed else {}
        for target in targets:
            if target is not None:
                name = state.name if target == CURRENT else self.resolve(target)
                number = self.any if name is None else self.number.get(name)
                if number is None:
                    self.is_whole = False
                    number = self.any
                found[number] = None
        return list(found)

    def reachable(self) -> set[int]:
        """The states some run may enter, those that run when a limit is reached among them."""
        names = (self.loop.on_max_steps, self.loop.on_max_iterations)
        last = [self.number[name] for name in names if name in self.number]
        return _reach([self.initial, *last] if self.initial is not None else [], self.successors)

    def finishing(self) -> set[int]:
        """The states from which a terminal, or what could not be read, can be reached."""
        predecessors: list[list[int]] = [[] for _ in self.successors]
        for number, following in enumerate(self.successors):
            for successor in following:
                predecessors[successor].append(number)
        states = self.loop.states.values()
        ends = [number for number, state in enumerate(states) if state.is_terminal or state.flawed]
        return _reach(ends, predecessors)

    def definite(self, given: Sequence[int]) -> list[int]:
        """For each state the bits that every way to it has, a state adding `given[state]`."""
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
            after = before[number] | (given[number] if number < self.any else 0)
            for successor in self.successors[number]:
                fewer = before[successor] & after
                if fewer != before[successor]:
                    before[successor] = fewer
                    if not queued[successor]:
                        queued[successor] = 1
                        queue.append(successor)
        return before

    def way(self, goal: int, avoided: Iterable[int]) -> list[str]:
        """The names on a shortest way from the start to `goal` that leaves no state in `avoided`."""
        if self.initial is None:
            return []
        closed = set(avoided)
        came: dict[int, int | None] = {self.initial: None}
        queue = deque([self.initial])
        while queue:
            number = queue.popleft()
            if number == goal:
                break
            if number in closed:
                continue
            for successor in self.successors[number]:
                if successor not in came:
                    came[successor] = number
                    queue.append(successor)
        if goal not in came:
            return []
        names = []
        at: int | None = goal
        while at is not None:
            if at != self.any:
                names.append(self.names[at])
            at = came[at]
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
