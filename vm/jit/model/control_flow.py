"""Control flow graph of a function, prepared for Python's `if` and `while`.

States are nodes, jumps are edges; `roots` are the states at which control can enter. Owns dominators,
loops and join states. Knows nothing about instructions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class FlowGraph:
    """The states that are reachable from `roots`.

    order: these states in reverse postorder. roots: the entry states, including states that
    need their own entry because a loop is irreducible. headers: the loop headers.
    joins[n]: the join states that n immediately dominates, in `order`; no state dominates a root.
    """

    __slots__ = ("edges", "headers", "joins", "order", "position", "predecessors", "roots")

    def __init__(self, edges: Sequence[Sequence[int]], roots: Iterable[int]) -> None:
        self.edges = edges
        self.roots = set(roots)
        while not self._build():
            pass

    def is_back(self, state: int, target: int) -> bool:
        """Whether a jump goes backwards in `order`: to a loop header or to a root."""
        return self.position[target] <= self.position[state]

    @property
    def has_loop(self) -> bool:
        return bool(self.headers) or any(self.predecessors[root] for root in self.roots)

    def _build(self) -> bool:
        """Compute the graph; False if another root was added and the computation must be repeated."""
        self.order = self._reverse_postorder()
        self.position = {state: index for index, state in enumerate(self.order)}
        self.predecessors: dict[int, list[int]] = {state: [] for state in self.order}
        predecessors = self.predecessors
        for state in self.order:
            for target in self.edges[state]:
                predecessors[target].append(state)
        dominator = self._dominators(predecessors)
        self.headers: set[int] = set()
        self.joins: dict[int, list[int]] = {state: [] for state in self.order}
        for state in self.order:
            forward = 0
            for source in predecessors[state]:
                if not self.is_back(source, state):
                    forward += 1
                elif state in self.roots:
                    continue
                elif self._dominates(dominator, state, source):
                    self.headers.add(state)
                else:
                    self.roots.add(state)
                    return False
            if forward > 1 and state not in self.roots:
                if dominator[state] < 0:  # paths from several roots join here
                    self.roots.add(state)
                    return False
                self.joins[dominator[state]].append(state)
        return True

    def _reverse_postorder(self) -> list[int]:
        found: list[int] = []
        seen: set[int] = set()
        # In reverse, so that the first root comes first in the result.
        for root in sorted(self.roots, reverse=True):
            if root in seen:
                continue
            seen.add(root)
            stack = [(root, iter(self.edges[root]))]
            while stack:
                state, targets = stack[-1]
                for target in targets:
                    if target not in seen:
                        seen.add(target)
                        stack.append((target, iter(self.edges[target])))
                        break
                else:
                    stack.pop()
                    found.append(state)
        return found[::-1]

    def _dominators(self, predecessors: dict[int, list[int]]) -> dict[int, int]:
        """The immediate dominator of each state; -1, a virtual node, dominates the roots.

        Cooper, Harvey and Kennedy: A Simple, Fast Dominance Algorithm (2001).
        """
        position = {**self.position, -1: -1}
        dominator: dict[int, int] = dict.fromkeys(self.roots, -1)
        dominator[-1] = -1
        changed = True
        while changed:
            changed = False
            for state in self.order:
                if state in self.roots:
                    continue
                best: int | None = None
                for source in predecessors[state]:
                    if source not in dominator:
                        continue
                    if best is None:
                        best = source
                        continue
                    other = source
                    while best != other:
                        while position[other] > position[best]:
                            other = dominator[other]
                        while position[best] > position[other]:
                            best = dominator[best]
                assert best is not None
                if dominator.get(state) != best:
                    dominator[state] = best
                    changed = True
        return dominator

    def _dominates(self, dominator: dict[int, int], state: int, other: int) -> bool:
        while self.position.get(other, -1) > self.position[state]:
            other = dominator[other]
        return other == state
