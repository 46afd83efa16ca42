"""The shape of a function's control flow: what Python's `if` and `while` can be made of it.

States are nodes, jumps are edges; `roots` are the states where control may enter. Owns dominators,
loops and the states where paths meet. Knows nothing of code.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class FlowGraph:
    """The states that can be reached from `roots`, in an order in which jumps forward go forward.

    order: those states in reverse postorder. roots: where control enters, and the states that must be
    entered from outside because a loop has no single way in. headers: the states that begin a loop.
    inner[n]: the states where paths meet that begin below n, in order (`order`); a root is below none.
    """

    __slots__ = ("before", "edges", "headers", "inner", "order", "position", "roots")

    def __init__(self, edges: Sequence[Sequence[int]], roots: Iterable[int]) -> None:
        self.edges = edges
        self.roots = set(roots)
        while not self._shape():
            pass

    def is_back(self, state: int, target: int) -> bool:
        """Whether a jump goes back in `order`: to a loop's header or to a root."""
        return self.position[target] <= self.position[state]

    @property
    def has_loop(self) -> bool:
        return bool(self.headers) or any(self.before[root] for root in self.roots)

    def _shape(self) -> bool:
        """Find the shape; False where another root was needed, to begin anew."""
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
                if above[state] < 0:  # paths from several roots meet here
                    self.roots.add(state)
                    return False
                self.inner[above[state]].append(state)
        return True

    def _reverse_postorder(self) -> list[int]:
        found: list[int] = []
        seen: set[int] = set()
        # From the last root to the first, so that the first comes first in the end.
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
        """The immediate dominator of each state; -1, outside of the function, is that of the roots.

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
