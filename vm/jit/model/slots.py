"""Which slots of a function can hold something where.

A function begins with nothing in its own slots, and snapshots show them. So a text that begins a function
anew in the same Python frame would have to empty them. Mostly it need not: where nothing can have been
stored to a slot since the function began, whoever looks at the frame takes it for empty.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .function import Function

# Exits at which a frame can be looked at; so can that of a loop's run when it has ended.
WAITS = frozenset({"CALL", "PERFORM", "PARALLEL"})


class Slots:
    """What a whole function, with nothing written in place, has stored where. Sets of slots are bits.

    unsure: the slots that must be emptied where the function begins, since they are read or can be looked at
    where it is not sure whether anything was stored to them.
    """

    __slots__ = ("may", "must", "stored", "unsure")

    def __init__(self, function: Function) -> None:
        code = function.code
        given = (1 << code.parameters + code.captures) - 1
        self.stored = [_stored(function, state) for state in range(len(function.states))]
        # What may have been stored to, and what must have been, where each state begins.
        self.may = {0: given}
        self.must = {0: given}
        for target, _ in code.handlers.values():
            self.may[target] = (1 << len(code.slots)) - 1
            self.must[target] = given
        todo = sorted(self.may)
        while todo:
            state = todo.pop()
            stored = self.stored[state]
            slot = function.result_slot(state)
            if slot is not None:
                stored |= 1 << slot
            may, must = self.may[state] | stored, self.must[state] | stored
            if function.again[state]:
                may = must = given
            for target in function.edges[state]:
                new = self.may.get(target, 0) | may, self.must.get(target, -1) & must
                if new != (self.may.get(target), self.must.get(target)):
                    self.may[target], self.must[target] = new
                    todo.append(target)
        self.unsure = self._unsure(function)

    def _unsure(self, function: Function) -> int:
        found = 0
        ticked = {0}
        for state in self.may:
            ticked.update(target for target in function.edges[state] if function.ticks(state, target))
        for state, may in self.may.items():
            must = self.must[state]
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

    def full(self, state: int, is_exit: bool) -> int:
        """The slots that are not sure to be empty where a state begins, or where its exit waits."""
        return self.may.get(state, -1) | (self.stored[state] if is_exit else 0) | self.unsure


def _stored(function: Function, state: int) -> int:
    """What a state stores to before its exit."""
    stored = 0
    for _, row, words in function.states[state]:
        if row.name == "STORE":
            stored |= 1 << words[0]
    return stored
