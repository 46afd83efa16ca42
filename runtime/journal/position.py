"""Position of a run: state, iteration and steps, derived from the notes of its program.

Used by the driver, by replay and by the fold of the journal.
"""

from __future__ import annotations

from ...ir.light_records import LightRecord, field
from .events import Evaluate, LoopComplete, NoteEvent, Route, StateEnter, StateNote, shown_state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# State (None if there is none) and iteration.
Where = tuple[str | None, int]
# Fuel between two pauses of the machine; at a pause, notes are read and interrupts are checked.
QUANTUM = 2_000
# Notes that change the position.
_MOVES: dict[str, type[NoteEvent]] = {kind.name: kind for kind in (StateEnter, LoopComplete, Evaluate, Route)}
_VERDICTS = frozenset((Evaluate, Route))


class Progress(LightRecord):
    """Current state and iteration of a run, and number of entered states (steps).

    has_run_out: a loop reached its limit of iterations.

    Inside an inner loop the state is `<loop>/<state>`; after its end it is the surrounding state again.
    """

    state: str | None = None
    iteration: int = 0
    steps: int = 0
    has_run_out: bool = False
    # Position in each active loop, in the order of their latest notes; '' is the program.
    _loops: dict[str, Where] = field(factory=dict)

    @property
    def place(self) -> Where:
        return self.state, self.iteration

    @property
    def loops(self) -> list[tuple[str, str | None]]:
        """Active loops with their states, in the order of their latest notes."""
        return [(loop, state) for loop, (state, _) in self._loops.items()]

    def note(self, kind: str, fields: dict[str, Any]) -> None:
        """Add a note in the form of the machine: kind and fields."""
        moves = _MOVES.get(kind)
        if moves is StateEnter:
            self.enter(*StateEnter.read(fields))
        elif moves is not None and (len(self._loops) > 1 or moves not in _VERDICTS):
            self.add(moves.of(fields))

    def add(self, note: NoteEvent) -> None:
        """Add a note of the program."""
        if isinstance(note, StateEnter):
            self.enter(note.loop, note.state, note.iteration)
            return
        if note.__class__ in _VERDICTS:
            if not self.is_nested or note.loop is not None or "" not in self._loops:
                return
            # Inner loops that ended with a fault have no note of their end.
            self._loops = {"": self._loops[""]}
        elif isinstance(note, LoopComplete):
            if note.loop is None:
                # The end of a loop form of the program itself. The end of a loop of `run-loop` is the value
                # of the form.
                self.has_run_out = self.has_run_out or note.terminated_by == "max_iterations"
                return
            self._loops.pop(note.loop, None)
        else:
            return
        self.state, self.iteration = next(reversed(self._loops.values()), (None, 0))

    def enter(self, loop: str | None, state: str | None, iteration: int) -> None:
        """Enter a state of the program, or of the inner loop with this name."""
        self.steps += 1
        if loop is None:
            self.state, self.iteration = where = state, iteration
            self._loops = {"": where}
            return
        self._loops.pop(loop, None)
        self.state, self.iteration = self._loops[loop] = shown_state(loop, state), iteration

    @property
    def is_nested(self) -> bool:
        """Whether an inner loop is active. Otherwise a verdict or a route does not change the position."""
        return len(self._loops) > 1

    def to_data(self) -> list[Any]:
        """Convert the position to plain data."""
        loops = [[loop, *at] for loop, at in self._loops.items()]
        return [self.state, self.iteration, self.steps, loops, self.has_run_out]

    @classmethod
    def from_data(cls, data: Any) -> Progress:
        """Restore a position. Raises ValueError and TypeError for other data."""
        progress = cls()
        progress.state, progress.iteration, progress.steps, *more = data
        for loop, state, iteration in more[0] if more else ():
            progress._loops[loop] = (state, iteration)
        progress.has_run_out = bool(more[1:] and more[1])
        return progress


def event_fields(kind: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the event fields for a note: the confidence of a verdict is also a separate field."""
    if kind == Evaluate.name:
        details = fields.get("details")
        if details.__class__ is dict and "confidence" in details:
            return {**fields, "confidence": details["confidence"]}
    return fields


def state_shown(fields: dict[str, Any]) -> str | None:
    """Return the state of a note for display: `<loop>/<state>` for an inner loop."""
    return StateNote.of(fields).shown_state
