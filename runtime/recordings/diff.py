"""The first difference between a re-execution and its recording; `diff_text` shows it.

Owns what counts as the same: notes and effects in their order, arguments and fields by value, and how
the run ends. Durations do not count; an unfinished run is compared as far as it is recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import chain
from typing import Any

from ...ir.effects import NOTES
from ...ir.records import frozen
from ...ir.spans import Span
from ...vm.code.image import Image
from ...vm.machine.machine import Machine
from ...vm.machine.outcomes import Effect
from ..journal import journal as journals
from ..journal.codec import RESERVED, digest_only, needs_packing
from ..journal.events import Route, StateNote
from .re_execution import Endless, ReExecution
from .recording import Asked, Changed, Note, Recording, bounded

# What of a run's end is compared; of an error its kind, message and details: its place may move.
ENDING = ("status", "terminated_by", "final_state", "iterations", "steps", "value", "error", "code")
_ERROR = ("kind", "message", "details")
# How many times the ticks of the recorded run another program may use before it counts as endless.
PATIENCE = 20
LEAST_TICKS = 10_000_000
# Where functions of the library come from, and how many of them call each other at most.
_LIBRARY = "stdlib/"
_NEAR = 32

Item = Note | Asked | dict[str, Any]


@frozen
class Difference:
    """The first event that is not as recorded; None for no event.

    number: of the event in the run, from 1. state, iteration: where the program was. place: where in
    its source. late: the same thing happened, before or after an effect that it had not been before.
    """

    number: int
    recorded: Item | None
    now: Item | None
    state: str | None = None
    iteration: int = 0
    place: Span | None = None
    endless: bool = False

    @property
    def seq(self) -> int | None:
        """The effect that is another one, if it is an effect."""
        for item in (self.now, self.recorded):
            if isinstance(item, Asked):
                return item.seq
        return None

    @property
    def what(self) -> str:
        """effect, verdict, route, state, note or outcome."""
        item = self.recorded if self.recorded is not None else self.now
        if isinstance(item, Asked):
            return "effect"
        if isinstance(item, Note):
            return NOTES[item.kind].noun if item.kind in NOTES else "note"
        return "outcome"


@frozen
class Comparison:
    """What came of telling a record again: how many events were the same, the ticks used, what was not."""

    same: int
    total: int
    ticks: int
    difference: Difference | None
    is_ended: bool


class _Comparing:
    """Events of the record are taken off as the program comes to them.

    While one thing happens after the other, each must be the next on record. Where calls run side by
    side, effects begin as there is room for them: then notes are in order, and effects go by their number.
    """

    def __init__(self, recording: Recording, execution: ReExecution, exact: bool) -> None:
        self.recording = recording
        self.execution = execution
        self.exact = exact
        self.same = 0
        self.events = recording.events
        self.total = len(recording.events) - len(recording.changes)
        # The first event that is not taken, and those taken after it.
        self.first = 0
        self.taken: set[int] = set()
        self.first_note = 0
        self.asked: set[int] = set()
        self.is_parallel = False

    def run(self) -> Comparison:
        difference: Difference | None
        try:
            difference = self.tell()
        except Endless:
            difference = self.differs(self.next(), None, endless=True)
        return Comparison(
            self.same,
            self.total,
            self.execution.machine.ticks,
            difference,
            self.recording.end is not None,
        )

    def tell(self) -> Difference | None:
        """Tell it up to the first difference, or to the end of the record."""
        recording, execution = self.recording, self.execution
        for answer in chain(recording.answers, (None,)):
            if answer is None and recording.end is None and self.is_over:
                return None  # the run may have crashed while it computed
            for event in execution.events():
                if isinstance(event, Effect):
                    self.is_parallel = self.is_parallel or execution.machine.is_ready
                    now: Note | Asked = asked(event)
                else:
                    now = note(*event)
                place = event.span if isinstance(event, Effect) else None
                if isinstance(now, Asked) and recording.changes:
                    if now.seq in self.asked:
                        self.pass_change()
                    self.asked.add(now.seq)
                at = self.find(now)
                then = self.events[at] if at is not None else None
                if isinstance(then, Changed) and isinstance(now, Asked):
                    continue  # the run crashed before it started, and then the program was changed
                if then is None or isinstance(then, Changed):
                    if self.is_past_record(now):
                        continue
                    return self.differs(self.next(), now, place)
                if not is_same(then, now):
                    return self.differs(then, now, place)
                self.take(at)  # type: ignore[arg-type]
                if answer is None and recording.end is None and self.is_over:
                    return None
            if answer is None:
                break
            if answer.seq not in execution.machine.waiting:
                return self.differs(self.next(), self.ended())
            execution.give(answer.seq, recording.result(answer))
        return self.end()

    def find(self, now: Note | Asked) -> int | None:
        """Which event of the record this is to be."""
        if not self.is_parallel:
            at = self.first if not self.is_over else None
            if isinstance(now, Note) and at is not None and isinstance(self.events[at], Changed):
                # Notes that were not on record yet when the program was changed stand behind that.
                return next((at for at in self.left() if not isinstance(self.events[at], Changed)), None)
            return at
        if isinstance(now, Asked):
            return next((at for at in self.effects.get(now.seq, ()) if self.is_left(at)), None)
        while self.first_note < len(self.events):
            if self.is_left(self.first_note) and isinstance(self.events[self.first_note], Note):
                return self.first_note
            self.first_note += 1
        return None

    @cached_property
    def effects(self) -> dict[int, list[int]]:
        """Where an effect was asked for, once for each program that did."""
        found: dict[int, list[int]] = {}
        for at, event in enumerate(self.events):
            if isinstance(event, Asked):
                found.setdefault(event.seq, []).append(at)
        return found

    @property
    def is_over(self) -> bool:
        """Whether all events are taken."""
        return self.first == len(self.events)

    def is_left(self, at: int) -> bool:
        return at >= self.first and at not in self.taken

    def left(self) -> Iterator[int]:
        """The events that are not taken."""
        return (at for at in range(self.first, len(self.events)) if at not in self.taken)

    def pass_change(self) -> None:
        """An effect is asked for anew: what is on record of the programs before is over."""
        change = next((at for at in self.left() if isinstance(self.events[at], Changed)), None)
        if change is not None:
            for at in [at for at in self.left() if at < change and isinstance(self.events[at], Asked)]:
                self.take(at)
            self.take(change)
            self.same -= 1

    def take(self, at: int) -> None:
        self.taken.add(at)
        while self.first in self.taken:
            self.taken.discard(self.first)
            self.first += 1
        self.same += 1

    def is_past_record(self, now: Note | Asked) -> bool:
        """Whether an event may be missing in the recording: the run crashed, or ended, before it."""
        recording = self.recording
        if self.execution.answers < len(recording.answers):
            return self.is_parallel and isinstance(now, Asked)  # it waited for its turn
        return recording.end is None or _was_left(recording.end)

    def end(self) -> Difference | None:
        """Compare how it ended, once all that is on record was given."""
        end = self.recording.end
        if any(not isinstance(self.events[at], Changed) for at in self.left()):
            return self.differs(self.next(), self.ended())
        if end is None:
            return None
        if is_same_end(end, self.execution, self.exact):
            return None
        return self.differs(ending(end, self.exact), self.ended())

    def ended(self) -> dict[str, Any] | None:
        return _ended(self.execution, self.exact)

    def next(self) -> Item | None:
        """What the record has next: a note, an effect or its end."""
        for at in self.left():
            event = self.events[at]
            if not isinstance(event, Changed):
                return event
        return ending(self.recording.end, self.exact) if self.recording.end is not None else None

    def differs(
        self, recorded: Item | None, now: Item | None, place: Any = None, endless: bool = False
    ) -> Difference:
        progress = self.execution.progress
        span = Span(*place) if place is not None else self.place(now)
        return Difference(self.same + 1, recorded, now, progress.state, progress.iteration, span, endless)

    def place(self, now: Item | None) -> Span | None:
        """Where the author's state stands that a note tells of, or else the program itself."""
        execution = self.execution
        if isinstance(now, Note):
            is_route = now.kind == Route.name
            name = Route.of(now.fields).from_ if is_route else StateNote.of(now.fields).state
            found = place_of_state(execution.image, name)
            if found is not None:
                return found
        if execution.stop is not None:
            fault_place = getattr(execution.stop, "span", None)
            return Span(*fault_place) if fault_place else None
        return place_of_machine(execution.machine)


def compare(recording: Recording, image: Image, exact: bool = False, most: int | None = None) -> Comparison:
    """Tell a recording again with the program `image` and compare, up to the first difference.

    exact: the place of an error counts too. most: ticks it may use. Raises UserError where what is on
    record cannot be read.
    """
    with bounded(recording.about):
        return _Comparing(recording, ReExecution(image, most, recording), exact).run()


def place_of_machine(machine: Machine) -> Span | None:
    """Where in the author's source a machine stands: the innermost state that is not the library's."""
    for frame in reversed(machine.frames(_NEAR)):
        place = frame.place or frame.origin
        if place is not None and not place[0].startswith(_LIBRARY):
            return Span(*place)
    return None


def place_of_state(image: Image, name: Any) -> Span | None:
    """The place of the author's state of that name in the source."""
    for function in image.functions:
        if name in function.states:
            place = image.place(function.state_spans[function.states.index(name)])
            return Span(*place) if place is not None else None
    return None


# --- the same ---------------------------------------------------------------------------------


def asked(effect: Effect) -> Asked:
    """An effect that the program asks for now, as a recording has it."""
    return Asked(effect.seq, effect.kind, _packed(effect.args))


def note(kind: str, fields: Mapping[str, Any]) -> Note:
    """A note that the program makes now, as a recording has it."""
    return Note(kind, _packed(fields, RESERVED))


def is_same_end(end: Mapping[str, Any], execution: ReExecution, exact: bool) -> bool:
    """Whether a program has ended as its `run_end` says it; `exact` as in `compare`."""
    now = _ended(execution, exact)
    if now is None:
        return was_refused(end) or _is_stalled(end)
    return is_same(ending(end, exact), now)


def _ended(execution: ReExecution, exact: bool) -> dict[str, Any] | None:
    """How the program has ended, as it is compared; None where it has not."""
    if execution.stop is None and execution.exit is None:
        return None
    return ending(_packed(execution.ending()), exact)


def _packed(fields: Mapping[str, Any], but: frozenset[str] = frozenset()) -> dict[str, Any]:
    found = {name: value for name, value in fields.items() if name not in but}
    if not needs_packing(found):
        return found
    return {name: journals.pack(value, digest_only) for name, value in found.items()}


def is_same(then: Item, now: Item) -> bool:
    """Whether two events are the same; the order of names, and what was secret when, do not count."""
    if type(then) is not type(now):
        return False
    (one, recorded), (other, fields) = _plain(then), _plain(now)
    return one == other and (
        journals.is_same(recorded, fields)
        or journals.is_same(dict(sorted(recorded.items())), dict(sorted(fields.items())))
    )


def _plain(item: Item) -> tuple[str, dict[str, Any]]:
    match item:
        case Asked():
            return item.kind, item.args
        case Note():
            return item.kind, item.fields
    return "", item


def ending(end: Mapping[str, Any], exact: bool = False) -> dict[str, Any]:
    found = {name: end[name] for name in ENDING if end.get(name) is not None}
    error = found.get("error")
    if isinstance(error, dict) and not exact:
        found["error"] = {name: error[name] for name in _ERROR if error.get(name)}
    return found


def _was_left(end: Mapping[str, Any]) -> bool:
    """Whether the run ended while calls side by side may have been doing something."""
    return end.get("terminated_by") == "exit" or was_refused(end) or _is_stalled(end)


def _is_stalled(end: Mapping[str, Any]) -> bool:
    """Whether its host ended the run because a loop repeated itself without change."""
    return end.get("terminated_by") == "stall" and end.get("status") == "limit"


def was_refused(end: Mapping[str, Any]) -> bool:
    """Whether the run ended because its world would not perform an effect."""
    error = end.get("error")
    return isinstance(error, dict) and error.get("kind") == "not-performed"
