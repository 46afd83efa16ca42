"""Assigned slots: the slots of a function that can contain a value at each state.

A frame's local slots are empty when its function begins, and snapshots show them. Code that restarts a
function in the same Python frame would therefore have to clear them. A slot that cannot have been assigned
since the restart need not be cleared: an inspection of the frame treats it as empty
(`analysis/assignment.py`).
"""

from __future__ import annotations

# Exits at which a frame can be inspected; another place is the end of a loop's function.
WAITS = frozenset({"CALL", "PERFORM", "PARALLEL"})


class AssignedSlots:
    """The assigned slots of a complete function without inlined calls. Sets of slots are bit masks.

    stored: the slots that each state assigns before its exit. may_be_assigned: the slots that can have been
    assigned at the start of each reachable state. to_clear: the slots to clear at the start of the function,
    because they are read or inspected at a place where their assignment is not certain.
    """

    __slots__ = ("may_be_assigned", "stored", "to_clear")

    def __init__(self, stored: list[int], may_be_assigned: dict[int, int], to_clear: int) -> None:
        self.stored = stored
        self.may_be_assigned = may_be_assigned
        self.to_clear = to_clear

    def assigned_at(self, state: int, is_exit: bool) -> int:
        """The slots that can contain a value at the start of a state, or at its exit."""
        return self.may_be_assigned.get(state, -1) | (self.stored[state] if is_exit else 0) | self.to_clear
