"""Structured control flow: Python loops and branches for the control flow graph of a function.

A state with a single predecessor is written in place of the jump to it. A join state follows the text of its
immediate dominator; the local `at` selects the state if there are several. A state that cannot be placed in
this way becomes a root, which is entered from the top of the function.

Must not contain: the translation of states (`states`).
"""

from __future__ import annotations

from collections.abc import Iterable

from ..analysis.type_inference import KnownTypes
from ..model.control_flow import FlowGraph
from ..model.function import Function
from .instructions import Instructions, Optimizations, Version
from .python_text import Arrival, ArrivalDemand, Statement, mark, tick

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


class TooDeep(Exception):
    """Raised for a state that would be nested too deep; it becomes a root."""

    def __init__(self, state: int) -> None:
        self.state = state


class Regions(Instructions):
    """Writes the control structure around the states of a function.

    charges_entry: whether the first line of the text charges the tick for the function entry.
    """

    def __init__(
        self,
        function: Function,
        graph: FlowGraph,
        known: KnownTypes,
        version: Version,
        optimizations: Optimizations,
    ) -> None:
        super().__init__(function, known, version, optimizations)
        self.graph = graph
        self.charges_entry = False
        # The enclosing constructs: loops, and lists of following join states.
        self.enclosing: list[Loop | list[int]] = []
        self.arrivals: dict[int, list[Arrival]] = {}
        # Number of nested regions, and indentation of their text.
        self.depth = 0
        self.indentation = 0

    def state(self, state: int) -> tuple[list[Statement], set[int]]:
        """Write a state and its nested successors; return the text and the states that follow at its end."""
        raise NotImplementedError  # defined in `Writer`: this class knows only the structure

    def write_all(self) -> list[Statement]:
        """The text of all reachable states."""
        graph, start = self.graph, self.function.start
        if self.has_single_entry:
            if not self.graph.predecessors[start]:
                return self.region(start)[0]
            self.charges_entry = self.is_ticked(start) and not self.function.is_entry
            loop = Loop(graph.roots, True)
            self.enclosing.append(loop)
            body = self.region(start)[0]
            self.enclosing.pop()
            return self.loop(start, body)
        self.enclosing.append(Loop(graph.roots, True))
        written: list[Statement] = []
        roots = sorted(graph.roots, key=lambda root: (root != self.function.start, root))
        for index, root in enumerate(roots):
            written.append((f"{'el' if index else ''}if at == {root}", self.region(root)[0]))
        self.enclosing.pop()
        return written

    @property
    def has_single_entry(self) -> bool:
        """Whether the start is the only entry."""
        return self.graph.roots == {self.function.start} and not self.function.code.handlers

    def region(self, state: int) -> tuple[list[Statement], set[int]]:
        """Write a state and all states that it dominates; return the text and the states that follow at
        its end.
        """
        graph = self.graph
        self.depth += 1
        if self.depth > _LONGEST or self.indentation > _DEEPEST:
            raise TooDeep(state)
        if state not in graph.headers:
            found = self.region_body(state)
        else:
            if sum(isinstance(one, Loop) for one in self.enclosing) >= _MOST_LOOPS:
                raise TooDeep(state)
            loop = Loop([state])
            self.enclosing.append(loop)
            self.indentation += 1
            body, falls = self.region_body(state)
            self.indentation -= 1
            self.enclosing.pop()
            if falls:
                body = [*body, "break"]
            found = self.after_loop(self.loop(state, body), loop.breaks | falls)
        self.depth -= 1
        return found

    def after_loop(self, written: list[Statement], leaves: set[int]) -> tuple[list[Statement], set[int]]:
        """Dispatch after a loop to the states at which control left it."""
        following: set[int] = set()
        for target in sorted(leaves):
            words = self.path_to(target)
            if words is None:
                following.add(target)
            elif len(leaves) == 1:
                written.append(words)
            else:
                self.require_dispatch(leaves)
                written.append((f"if at == {target}", [words]))
        return written, following

    def is_ticked(self, header: int) -> bool:
        """Whether every back edge to a loop header costs a tick, so that the loop can iterate over ticks."""
        return all(
            self.function.ticks(state, header)
            for state in self.graph.predecessors[header]
            if self.graph.is_back(state, header)
        )

    def is_entry_ticked(self, header: int) -> bool:
        """Whether entering the loop costs a tick too."""
        if header == self.function.start:
            return not self.function.is_entry
        return all(self.function.ticks(state, header) for state in self.graph.predecessors[header])

    def loop(self, header: int, body: list[Statement]) -> list[Statement]:
        if not self.is_ticked(header):
            return [("while True", body)]
        offset = self.function.offsets[header]
        if self.is_entry_ticked(header):
            more: list[Statement] = [f"({mark(offset)}MORE())", "continue"]
            return [("while True", [("for _ in tick", body), ("else", more), "break"])]
        # The first iteration costs no tick.
        again = [*tick(offset), "continue"]
        return [("while True", [("for _ in chain(ONE, tick)", body), ("else", again), "break"])]

    def region_body(self, state: int) -> tuple[list[Statement], set[int]]:
        graph = self.graph
        following = list(graph.joins[state])
        if not following:
            return self.state(state)
        self.enclosing.append(following)
        written, falls = self.state(state)
        while following:
            target = following.pop(0)
            if target not in falls:
                continue
            others = falls - {target}
            body, more = self.region(target)
            if others:
                self.require_dispatch(falls)
                written = [*written, (f"if at == {target}", body)]
                falls = others | more
            else:
                written = [*written, *body]
                falls = more
        self.enclosing.pop()
        return written, falls

    def require_dispatch(self, states: Iterable[int]) -> None:
        """Require `at` to distinguish these states."""
        for state in states:
            for arrival in self.arrivals.get(state, ()):
                arrival.is_needed = True
            self.arrivals.setdefault(state, []).append(ArrivalDemand())

    def arrival(self, target: int) -> Arrival:
        arrival = Arrival(target)
        known = self.arrivals.setdefault(target, [])
        arrival.is_needed = any(isinstance(other, ArrivalDemand) for other in known)
        known.append(arrival)
        return arrival

    def path_to(self, target: int) -> str | None:
        """How control reaches `target` after a loop: by `continue`, `break`, or falling through (None)."""
        loops: list[Loop] = []
        for one in reversed(self.enclosing):
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

    def is_ticked_by_loop(self, state: int, target: int) -> bool:
        """Whether the loop at the target of a jump charges the tick of the jump."""
        graph = self.graph
        if (state, target) in self.function.exit_jumps:
            return False  # the loop is in another text
        if target not in graph.headers and not (self.has_single_entry and target == self.function.start):
            return False
        if not self.is_ticked(target):
            return False
        return graph.is_back(state, target) or self.is_entry_ticked(target)
