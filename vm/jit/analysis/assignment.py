"""Definite assignment: the slots that may, and those that must, have been assigned at the start of a
state.
"""

from __future__ import annotations

from ..model.function import Function
from ..model.slots import WAITS, AssignedSlots


def assigned_slots(function: Function) -> AssignedSlots:
    """The assigned slots of a whole function."""
    code = function.code
    given = (1 << code.parameters + code.captures) - 1
    stored_by = [_stored(function, state) for state in range(len(function.states))]
    # Slots that may, and slots that must, have been assigned at the start of each state.
    may_by = {0: given}
    must_by = {0: given}
    for target, _ in code.handlers.values():
        may_by[target] = (1 << len(code.slots)) - 1
        must_by[target] = given
    todo = sorted(may_by)
    while todo:
        state = todo.pop()
        stored = stored_by[state]
        slot = function.result_slot(state)
        if slot is not None:
            stored |= 1 << slot
        may, must = may_by[state] | stored, must_by[state] | stored
        if function.restarts[state]:
            may = must = given
        for target in function.edges[state]:
            new = may_by.get(target, 0) | may, must_by.get(target, -1) & must
            if new != (may_by.get(target), must_by.get(target)):
                may_by[target], must_by[target] = new
                todo.append(target)
    return AssignedSlots(stored_by, may_by, _slots_to_clear(function, may_by, must_by))


def _slots_to_clear(function: Function, may_by: dict[int, int], must_by: dict[int, int]) -> int:
    """The slots to clear at the start of the function (`Slots.unsure`)."""
    found = 0
    ticked = {0}
    for state in may_by:
        ticked.update(target for target in function.edges[state] if function.ticks(state, target))
    for state, may in may_by.items():
        must = must_by[state]
        if state in ticked or function.code.handlers:
            found |= may & ~must
        for _, row, words in function.states[state]:
            if row.name == "LOAD":
                found |= (1 << words[0]) & ~must
            elif row.name == "STORE":
                must |= 1 << words[0]
        if function.states[state][-1][1].name in WAITS or function.is_end(state):
            found |= may & ~must
    return found


def _stored(function: Function, state: int) -> int:
    """The slots that a state assigns before its exit."""
    stored = 0
    for _, row, words in function.states[state]:
        if row.name == "STORE":
            stored |= 1 << words[0]
    return stored
