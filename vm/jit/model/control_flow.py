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
    inner[n]: the join states that n immediately dominates, in `order`; no state dominates a root.
    """

    __slots__ = ("before", "edges", "headers", "inner", "order", "position", "roots")

    def __init__(self, edges: Sequence[Sequence[int]], roots: Iterable[int]) -> None:
        self.edges = edges
        self.roots = set(roots)
        while not self._shape():
            pass

    def is_back(self, state: int, target: int) -> bool:
        """Whether a jump goes backwards in `order`: to a loop header or to a root."""
        return self.position[target] <= self.position[state]

    @property
    def has_loop(self) -> bool:
        return bool(self.headers) or any(self.before[root] for root in self.roots)

    def _shape(self) -> bool:
        """Compute the graph; False if another root was added and the computation must be repeated."""
        self.order = self._reverse_postorder()
        self.position = {state: index for index, state in enumerate(self.order)}
        self.before: dict[int, list[int]] = {state: [] for state in self.order}
        before = self.before
        for state in self.order:
            for target in self.edges[state]:
                before[target].append(state)
        above = self._dominators(before)
        self.headers: set[int] = set()
        self.inner: dict[int, list[int]] = {state: [] for state in self.order}
        for state in self.order:
            forward = 0
            for source in before[state]:
                if not self.is_back(source, state):
                    forward += 1
                elif state in self.roots:
                    continue
                elif self._is_above(above, state, source):
                    self.headers.add(state)
                else:
                    self.roots.add(state)
                    return False
            if forward > 1 and state not in self.roots:
                if above[state] < 0:  # paths from several roots join here
                    self.roots.add(state)
                    return False
                self.inner[above[state]].append(state)
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

    def _dominators(self, before: dict[int, list[int]]) -> dict[int, int]:
        """The immediate dominator of each state; -1, a virtual node, dominates the roots.

        Cooper, Harvey and Kennedy: A Simple, Fast Dominance Algorithm (2001).
        """
        position = {**self.position, -1: -1}
        above: dict[int, int] = dict.fromkeys(self.roots, -1)
        above[-1] = -1
        changed = True
        while changed:
            changed = False
            for state in self.order:
                if state in self.roots:
                    continue
                best: int | None = None
                for source in before[state]:
                    if source not in above:
                        continue
                    if best is None:
                        best = source
                        continue
                    other = source
                    while best != other:
                        while position[other] > position[best]:
                            other = above[other]
                        while position[best] > position[other]:
                            best = above[best]
                assert best is not None
                if above.get(state) != best:
                    above[state] = best
                    changed = True
        return above

    def _is_above(self, above: dict[int, int], state: int, other: int) -> bool:
        while self.position.get(other, -1) > self.position[state]:
            other = above[other]
        return other == state
