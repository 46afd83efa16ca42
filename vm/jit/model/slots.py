"""Assigned slots: which slots of a function can hold a value at which state.

A frame's own slots are empty when its function begins, and snapshots show them. Code that begins a function
again in the same Python frame would therefore have to clear them. A slot that cannot have been assigned
since then need not be cleared: an inspection of the frame takes it for empty (`analysis/assignment.py`).
"""

from __future__ import annotations

# Exits at which a frame can be inspected; so can that of a loop's run once it has ended.
WAITS = frozenset({"CALL", "PERFORM", "PARALLEL"})


class Slots:
    """The assigned slots of a whole function without inlined calls. Sets of slots are bit masks.

    stored: by state, the slots that it assigns before its exit. may: by reachable state, the slots that can
    have been assigned where it begins. unsure: the slots that must be cleared where the function begins,
    since they are read or inspected at a place where they may or may not have been assigned.
    """

    __slots__ = ("may", "stored", "unsure")

    def __init__(self, stored: list[int], may: dict[int, int], unsure: int) -> None:
        self.stored = stored
        self.may = may
        self.unsure = unsure

    def full(self, state: int, is_exit: bool) -> int:
        """The slots that may not be empty where a state begins, or at its exit."""
        return self.may.get(state, -1) | (self.stored[state] if is_exit else 0) | self.unsure
