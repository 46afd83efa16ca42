"""Loops that use two ticks each time round, and take both at once.

Where the way from the head of a loop to a function written in place does nothing that anybody could see, the
tick for entering that function is taken together with the one for going round. Whoever leaves the loop on the
way gives the second one back; so does a fault.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..model.control_flow import FlowGraph
    from ..model.function import Function
    from .instructions import Liberties

_QUIET = frozenset({"LOAD", "CONST", "PRIM", "STORE", "CLOSURE"})
_LONGEST = 6


def way(function: Function, graph: FlowGraph, liberties: Liberties) -> list[int]:
    """The states from the head of the function's own loop to the call; none where two cannot be taken."""
    filled = function.parts[0].filled
    if filled is None:
        return []
    hidden = ~filled.full(0, False)
    found: list[int] = []
    state = function.start
    while len(found) < _LONGEST and function.part_of[state].call < 0:
        found.append(state)
        if not _is_quiet(function, state, liberties, hidden):
            return []
        part = function.called.get(state)
        if part is not None:
            return found if part.leaves is None and part.state not in graph.headers else []
        name = function.states[state][-1][1].name
        if name == "JUMP":
            onward = function.edges[state]
        elif name == "BRANCH":
            # Nobody goes another way and comes back.
            onward = [target for target in function.edges[state] if _comes_back(function, target)]
        else:
            return []
        if len(onward) != 1 or graph.is_back(state, onward[0]):
            return []
        state = onward[0]
    return []


def _is_quiet(function: Function, state: int, liberties: Liberties, hidden: int) -> bool:
    """Whether a state only finds values, and stores what cannot be seen at the head of the loop."""
    for offset, row, words in function.states[state][:-1]:
        if row.name not in _QUIET or offset in liberties.maps:
            return False
        if row.name == "STORE" and not hidden >> words[0] & 1:
            return False
        if row.name == "PRIM" and liberties.growing and function.image.constants[words[0]] == "cons":
            return False
    return True


def _comes_back(function: Function, state: int) -> bool:
    seen = {state}
    todo = [state]
    while todo:
        for target in function.edges[todo.pop()]:
            if target == function.start:
                return True
            if target not in seen:
                seen.add(target)
                todo.append(target)
    return False
