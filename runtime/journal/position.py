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
    """The author's state a run is in, its iteration, and how many states it has entered.

    Of a loop that the program runs within itself, the state is `<loop>/<state>`; when that loop is
    over, it is again the state of what is around it.
    """

    __slots__ = ("_loops", "iteration", "state", "steps")

    def __init__(self) -> None:
        self.state: str | None = None
        self.iteration = 0
        self.steps = 0
        # The place in each loop under way, in the order they were last heard of; '' is the program.
        self._loops: dict[str, Where] = {}

    @property
    def place(self) -> Where:
        return self.state, self.iteration

    @property
    def loops(self) -> list[tuple[str, str | None]]:
        """The loops under way, each with its state, in the order they were last heard of."""
        return [(loop, state) for loop, (state, _) in self._loops.items()]

    def note(self, kind: str, fields: dict[str, Any]) -> None:
        loop = fields.get("loop") if kind != "loop_start" else None
        if kind == "state_enter":
            self.steps += 1
            iteration = fields.get("iteration")
            state = state_shown(fields)
            if not isinstance(loop, str):
                self._loops.clear()
                loop = ""
            self._loops.pop(loop, None)
            self._loops[loop] = (state, iteration if isinstance(iteration, int) else 0)
        elif kind == "loop_complete" and isinstance(loop, str):
            self._loops.pop(loop, None)
        elif kind in ("evaluate", "route") and loop is None and "" in self._loops:
            # Loops within that ended in a fault did not say that they are over.
            self._loops = {"": self._loops[""]}
        else:
            return
        self.state, self.iteration = next(reversed(self._loops.values()), (None, 0))

    def to_data(self) -> list[Any]:
        """All of it as plain data."""
        return [self.state, self.iteration, self.steps, [[loop, *at] for loop, at in self._loops.items()]]

    @classmethod
    def from_data(cls, data: Any) -> Progress:
        """The progress that was. ValueError or TypeError where the data are none."""
        progress = cls()
        progress.state, progress.iteration, progress.steps, *more = data
        for loop, state, iteration in more[0] if more else ():
            progress._loops[loop] = (state, iteration)
        return progress


def state_shown(fields: dict[str, Any]) -> str | None:
    """The state that a note is about as people see it: with its loop, where that is one within another."""
    state, loop = fields.get("state"), fields.get("loop")
    if not isinstance(state, str):
        return None
    return f"{loop}/{state}" if isinstance(loop, str) else state


def event_fields(kind: str, fields: dict[str, Any]) -> dict[str, Any]:
    """A note's fields as its event has them: the seed shows a verdict's confidence beside it."""
    if kind == "evaluate":
        details = fields.get("details")
        if isinstance(details, dict) and "confidence" in details:
            return {**fields, "confidence": details["confidence"]}
    return fields
