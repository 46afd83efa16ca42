"""How far a run is, as its notes tell; and the note as it stands in the journal.

Shared by the driver, which goes on from here, and by the replay, which comes to here.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    # The author's state, if there is one, and the iteration.
    Where = tuple[str | None, int]

# Ticks between two looks at what else happens: notes are taken, an interrupt is noticed.
QUANTUM = 2_000


class Progress:
    """The author's state a run is in, its iteration, and how many states it has entered."""

    __slots__ = ("iteration", "state", "steps")

    def __init__(self) -> None:
        self.state: str | None = None
        self.iteration = 0
        self.steps = 0

    @property
    def place(self) -> Where:
        return self.state, self.iteration

    def note(self, kind: str, fields: dict[str, Any]) -> None:
        if kind == "state_enter":
            self.steps += 1
            state, iteration = fields.get("state"), fields.get("iteration")
            self.state = state if isinstance(state, str) else None
            self.iteration = iteration if isinstance(iteration, int) else 0


def event_fields(kind: str, fields: dict[str, Any]) -> dict[str, Any]:
    """A note's fields as its event has them: the seed shows a verdict's confidence beside it."""
    if kind == "evaluate":
        details = fields.get("details")
        if isinstance(details, dict) and "confidence" in details:
            return {**fields, "confidence": details["confidence"]}
    return fields
