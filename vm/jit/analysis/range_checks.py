"""Where an index stays below the end of a list: in a loop that asks so first.

A loop from one round to the next by a tail call of the function itself, such as

    (let next ((i 0)) (if (< i end) … (nth i items) …))

has `items` and `end` all along, so that once is enough to ask whether `end` is within `items`.
"""

from __future__ import annotations

from ..model.function import Function
from ..model.trees import Node, trees

# The primitives that compare an index with the end, and which way of a branch is that of a lesser one.
_TESTS = {"lt": 0, "ge": 1}


class Indices:
    """below: offsets of `nth` whose index is below the end, as long as for each of `limits`, slots of a list
    and of an end, the end is within the list when the function begins."""

    def __init__(self, function: Function) -> None:
        self.below: set[int] = set()
        self.limits: set[tuple[int, int]] = set()
        if function.is_entry or function.code.handlers or not any(function.again):
            return
        states = trees(function)
        test, way = _condition(states[0])
        if test is None:
            return
        index, end = (one.slot for one in test.taken)
        lasting = _lasting(function, states)
        if end not in lasting or index in function.stored():
            return
        beyond = _reached(function, way)
        for state, nodes in enumerate(states):
            if state in beyond:
                continue
            for node in nodes:
                if node.name != "nth":
                    continue
                for one, other in (node.taken, node.taken[::-1]):
                    if one.loads(index) and other.name == "LOAD" and other.slot in lasting:
                        self.below.add(node.offset)
                        self.limits.add((other.slot, end))


def _condition(nodes: list[Node]) -> tuple[Node | None, int]:
    """The comparison of two slots that a state branches by, and which way is that of the lesser one."""
    last = nodes[-1]
    if last.name == "BRANCH" and last.taken[0].name in _TESTS and len(last.taken[0].taken) == 2:
        test = last.taken[0]
        if all(one.name == "LOAD" for one in test.taken):
            return test, _TESTS[test.name]
    return None, 0


def _lasting(function: Function, states: list[list[Node]]) -> set[int]:
    """The slots that hold the same from the beginning to the end."""
    code = function.code
    found = set(range(code.parameters + code.captures)) - function.stored()
    for nodes, is_round in zip(states, function.again, strict=True):
        if is_round:
            arguments = nodes[-1].taken[-code.parameters :] if code.parameters else []
            found -= {slot for slot, one in enumerate(arguments) if not one.loads(slot)}
    return found


def _reached(function: Function, way: int) -> set[int]:
    """The states that can be come to other than by one way out of the first."""
    first, found = function.edges[0], {0}
    todo = [target for number, target in enumerate(first) if number != way]
    while todo:
        state = todo.pop()
        if state not in found:
            found.add(state)
            todo += function.edges[state]
    return found
