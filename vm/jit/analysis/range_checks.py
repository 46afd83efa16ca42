"""Range checks: `nth` in a loop that has already compared the index with the length of the list.

In a loop that iterates by a self tail call, such as

    (let next ((i 0)) (if (< i end) … (nth i items) …))

`items` and `end` do not change, so it suffices to check once that `end` is within `items`.
"""

from __future__ import annotations

from ..model.function import Function
from ..model.trees import Node, trees

# Comparisons of an index with the end, and the branch that is taken if the index is smaller.
_TESTS = {"lt": 0, "ge": 1}


class RangeChecks:
    """Redundant range checks.

    below: offsets of `nth` instructions whose index is below the end, provided that for each of `limits` (a
    slot of a list and a slot of an end) the end is within the list when the function begins.
    """

    def __init__(self, function: Function) -> None:
        self.below: set[int] = set()
        self.limits: set[tuple[int, int]] = set()
        if function.is_entry or function.code.handlers or not any(function.restarts):
            return
        states = trees(function)
        test, branch = _condition(states[0])
        if test is None:
            return
        index, end = (one.slot for one in test.operands)
        constant = _constant_slots(function, states)
        if end not in constant or index in function.stored():
            return
        unguarded = _reachable_without(function, branch)
        for state, nodes in enumerate(states):
            if state in unguarded:
                continue
            for node in nodes:
                if node.name != "nth":
                    continue
                for one, other in (node.operands, node.operands[::-1]):
                    if one.loads(index) and other.name == "LOAD" and other.slot in constant:
                        self.below.add(node.offset)
                        self.limits.add((other.slot, end))


def _condition(nodes: list[Node]) -> tuple[Node | None, int]:
    """The comparison of two slots by which a state branches, and the branch that is taken if the first is
    smaller.
    """
    last = nodes[-1]
    if last.name == "BRANCH" and last.operands[0].name in _TESTS and len(last.operands[0].operands) == 2:
        test = last.operands[0]
        if all(one.name == "LOAD" for one in test.operands):
            return test, _TESTS[test.name]
    return None, 0


def _constant_slots(function: Function, states: list[list[Node]]) -> set[int]:
    """The slots that never change."""
    code = function.code
    found = set(range(code.parameters + code.captures)) - function.stored()
    for nodes, is_restart in zip(states, function.restarts, strict=True):
        if is_restart:
            arguments = nodes[-1].operands[-code.parameters :] if code.parameters else []
            found -= {slot for slot, one in enumerate(arguments) if not one.loads(slot)}
    return found


def _reachable_without(function: Function, branch: int) -> set[int]:
    """The states that are reachable without the given branch of the first state."""
    first, found = function.edges[0], {0}
    todo = [target for number, target in enumerate(first) if number != branch]
    while todo:
        state = todo.pop()
        if state not in found:
            found.add(state)
            todo += function.edges[state]
    return found
