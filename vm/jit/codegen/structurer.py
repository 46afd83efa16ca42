"""Structured control flow: Python loops and branches for the control flow graph of a function.

A state with a single predecessor is written in place of the jump to it. A join state follows the text of its
immediate dominator; the local `at` selects the state if there are several. A state that cannot be placed in
this way
becomes a root, which is entered from the top of the function.

Must not contain: the translation of states (`states`).
"""

from __future__ import annotations

from collections.abc import Iterable

from ..analysis.type_inference import KnownTypes
from ..model.control_flow import FlowGraph
from ..model.function import Function
from .instructions import Instructions, Liberties, Version
from .python_text import Arrival, Statement, Told, mark, tick

# Nesting limits of statements, loops and states; a state that would exceed one becomes a root.
_DEEPEST = 40
# Python allows 20 nested blocks: a loop takes two; ticks, a handler and the function itself take more.
_MOST_LOOPS = 7
_LONGEST = 100


class Loop:
    """A `while` loop being written. states: the targets of `continue`; breaks: the targets after `break`."""

    def __init__(self, states: Iterable[int], is_root: bool = False) -> None:
        self.states = set(states)
        self.is_root = is_root
        self.breaks: set[int] = set()


class Nested(Exception):
    """Raised for a state that would be nested too deep; it becomes a root."""

    def __init__(self, state: int) -> None:
        self.state = state


class Regions(Instructions):
    """Writes the control structure around the states of a function.

    begun: whether the first line of the text charges the tick for the function entry.
    """

    def __init__(
        self, function: Function, graph: FlowGraph, known: KnownTypes, version: Version, liberties: Liberties
    ) -> None:
        super().__init__(function, known, version, liberties)
        self.graph = graph
        self.begun = False
        # The enclosing constructs: loops, and lists of following join states.
        self.around: list[Loop | list[int]] = []
        self.arrivals: dict[int, list[Arrival]] = {}
        # Number of nested regions, and indentation of their text.
        self.depth = 0
        self.nested = 0

    def state(self, state: int) -> tuple[list[Statement], set[int]]:
        """Write a state and its nested successors; return the text and the states that follow at its end."""
        raise NotImplementedError  # defined in `Writer`: this class knows only the structure

    def whole(self) -> list[Statement]:
        """The text of all reachable states."""
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
        """Whether the start is the only entry."""
        return self.graph.roots == {self.function.start} and not self.function.code.handlers

    def region(self, state: int) -> tuple[list[Statement], set[int]]:
        """Write a state and all states that it dominates; return the text and the states that follow at
        its end.
        """
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
        """Dispatch after a loop to the states at which control left it."""
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
        """Whether every back edge to a loop header costs a tick, so that the loop can iterate over ticks."""
        return all(
            self.function.ticks(state, header)
            for state in self.graph.before[header]
            if self.graph.is_back(state, header)
        )

    def counts_first(self, header: int) -> bool:
        """Whether entering the loop costs a tick too."""
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
        # The first iteration costs no tick.
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
        """Require `at` to distinguish these states."""
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
        """Whether the loop at the target of a jump charges the tick of the jump."""
        graph = self.graph
        if (state, target) in self.function.left:
            return False  # the loop is in another text
        if target not in graph.headers and not (self.is_plain and target == self.function.start):
            return False
        if not self.counts(target):
            return False
        return graph.is_back(state, target) or self.counts_first(target)
