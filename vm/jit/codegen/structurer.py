"""Structured control flow: loops and branches of Python from the control flow graph of a function.

A state that one jump alone leads to stands where that jump was; states where paths meet follow the state
above them all, asking `at` which was meant where that is not plain; what cannot be said so is a root,
which is entered from the top of the function.

Must not contain: what states become (`writer`).
"""

from __future__ import annotations

from collections.abc import Iterable

from ..analysis.type_inference import KnownTypes
from ..model.control_flow import FlowGraph
from ..model.function import Function
from .instructions import Instructions, Liberties, Version
from .python_text import Arrival, Statement, Told, mark, tick

# How deep statements and loops are nested, and how many states stand below one another, before one
# becomes a root.
_DEEPEST = 40
# Python has room for 20 blocks inside one another: a loop takes two, and those of a tick, a handler and
# the whole function come on top.
_MOST_LOOPS = 7
_LONGEST = 100


class Loop:
    """A `while` being written. states: where `continue` leads to; breaks: where what leaves it goes."""

    def __init__(self, states: Iterable[int], is_root: bool = False) -> None:
        self.states = set(states)
        self.is_root = is_root
        self.breaks: set[int] = set()


class Nested(Exception):
    """A state would stand too deep: it is to be a root."""

    def __init__(self, state: int) -> None:
        self.state = state


class Regions(Instructions):
    """Writes the text around the states of a function.

    begun: whether the text uses the tick for entering the function itself, in its first line.
    """

    def __init__(
        self, function: Function, graph: FlowGraph, known: KnownTypes, version: Version, liberties: Liberties
    ) -> None:
        super().__init__(function, known, version, liberties)
        self.graph = graph
        self.begun = False
        # What stands around: loops, and lists of the states that follow.
        self.around: list[Loop | list[int]] = []
        self.arrivals: dict[int, list[Arrival]] = {}
        # How many regions are being written inside one another, and how deep their text stands.
        self.depth = 0
        self.nested = 0

    def state(self, state: int) -> tuple[list[Statement], set[int]]:
        """A state and its nested successors; and the states that follow at its end."""
        raise NotImplementedError  # `Writer` says how: a region knows what stands where, not what it does

    def whole(self) -> list[Statement]:
        """The text of all that can be reached."""
        graph, start = self.graph, self.function.start
        if self.is_plain:
            if not self.graph.before[start]:
                return self.region(start)[0]
            self.begun = self.counts(start) and not self.function.is_entry
            loop = Loop(graph.roots, True)
            self.around.append(loop)
            body = self.region(start)[0]
            self.around.pop()
            return self.loop(start, body)
        self.around.append(Loop(graph.roots, True))
        written: list[Statement] = []
        roots = sorted(graph.roots, key=lambda root: (root != self.function.start, root))
        for index, root in enumerate(roots):
            written.append((f"{'el' if index else ''}if at == {root}", self.region(root)[0]))
        self.around.pop()
        return written

    @property
    def is_plain(self) -> bool:
        """Whether control enters at the start only."""
        return self.graph.roots == {self.function.start} and not self.function.code.handlers

    def region(self, state: int) -> tuple[list[Statement], set[int]]:
        """A state and all states that it dominates; and the states that follow at the end of the text."""
        graph = self.graph
        self.depth += 1
        if self.depth > _LONGEST or self.nested > _DEEPEST:
            raise Nested(state)
        if state not in graph.headers:
            found = self.inside(state)
        else:
            if sum(isinstance(one, Loop) for one in self.around) >= _MOST_LOOPS:
                raise Nested(state)
            loop = Loop([state])
            self.around.append(loop)
            self.nested += 1
            body, falls = self.inside(state)
            self.nested -= 1
            self.around.pop()
            if falls:
                body = [*body, "break"]
            found = self.after(self.loop(state, body), loop.breaks | falls)
        self.depth -= 1
        return found

    def after(self, written: list[Statement], leaves: set[int]) -> tuple[list[Statement], set[int]]:
        """What follows a loop, by where control has left it for."""
        onward: set[int] = set()
        for target in sorted(leaves):
            words = self.onward(target)
            if words is None:
                onward.add(target)
            elif len(leaves) == 1:
                written.append(words)
            else:
                self.tell(leaves)
                written.append((f"if at == {target}", [words]))
        return written, onward

    def counts(self, header: int) -> bool:
        """Whether each jump back to a loop's header uses a tick: then the loop can go over those."""
        return all(
            self.function.ticks(state, header)
            for state in self.graph.before[header]
            if self.graph.is_back(state, header)
        )

    def counts_first(self, header: int) -> bool:
        """Whether entering the loop uses one too."""
        if header == self.function.start:
            return not self.function.is_entry
        return all(self.function.ticks(state, header) for state in self.graph.before[header])

    def loop(self, header: int, body: list[Statement]) -> list[Statement]:
        if not self.counts(header):
            return [("while True", body)]
        offset = self.function.offsets[header]
        if self.counts_first(header):
            more: list[Statement] = [f"({mark(offset)}MORE())", "continue"]
            return [("while True", [("for _ in tick", body), ("else", more), "break"])]
        # The first time round uses no tick.
        again = [*tick(offset), "continue"]
        return [("while True", [("for _ in chain(ONE, tick)", body), ("else", again), "break"])]

    def inside(self, state: int) -> tuple[list[Statement], set[int]]:
        graph = self.graph
        following = list(graph.inner[state])
        if not following:
            return self.state(state)
        self.around.append(following)
        written, falls = self.state(state)
        while following:
            target = following.pop(0)
            if target not in falls:
                continue
            others = falls - {target}
            body, more = self.region(target)
            if others:
                self.tell(falls)
                written = [*written, (f"if at == {target}", body)]
                falls = others | more
            else:
                written = [*written, *body]
                falls = more
        self.around.pop()
        return written, falls

    def tell(self, states: Iterable[int]) -> None:
        """`at` must say which of these it is."""
        for state in states:
            for arrival in self.arrivals.get(state, ()):
                arrival.is_told = True
            self.arrivals.setdefault(state, []).append(Told())

    def arrive(self, target: int) -> Arrival:
        arrival = Arrival(target)
        known = self.arrivals.setdefault(target, [])
        arrival.is_told = any(isinstance(other, Told) for other in known)
        known.append(arrival)
        return arrival

    def onward(self, target: int) -> str | None:
        """How control reaches `target` after a loop: by `continue`, `break`, or falling through (None)."""
        loops: list[Loop] = []
        for one in reversed(self.around):
            if isinstance(one, Loop):
                if target in one.states:
                    break
                loops.append(one)
            elif target in one:
                break
        else:
            raise AssertionError("a jump leads nowhere")
        if loops:
            for loop in loops:
                loop.breaks.add(target)
            return "break"
        return "continue" if isinstance(one, Loop) else None

    def is_counted(self, state: int, target: int) -> bool:
        """Whether the loop that a jump leads to uses the tick for it."""
        graph = self.graph
        if (state, target) in self.function.left:
            return False  # that loop is in another text
        if target not in graph.headers and not (self.is_plain and target == self.function.start):
            return False
        if not self.counts(target):
            return False
        return graph.is_back(state, target) or self.counts_first(target)
