"""Comparison of a re-execution with its recording, up to the first difference; `diff_text` prints it.

Owns the definition of equality: notes and effects in order, arguments and fields by value, and the end of the
run. Durations do not count. An unfinished run is compared up to the end of its record.
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
from ...vm.machine.control import is_library
from ...vm.machine.machine import Machine
from ...vm.machine.outcomes import Effect
from ..journal import journal as journals
from ..journal.codec import RESERVED, digest_only, needs_packing
from ..journal.events import Route, StateNote
from ..runs.state_file import MAX_SEARCHED_FRAMES
from .re_execution import Endless, ReExecution
from .recording import EffectRequest, Note, ProgramChange, Recording, bounded

# Compared fields of `run_end`, and of its error. The position of an error is not compared: it may move.
OUTCOME_FIELDS = ("status", "terminated_by", "final_state", "iterations", "steps", "value", "error", "code")
_ERROR_FIELDS = ("kind", "message", "details")
# Tick limit of a changed program: this multiple of the recorded ticks, plus a minimum.
TICK_FACTOR = 20
MIN_TICKS = 10_000_000

Item = Note | EffectRequest | dict[str, Any]


@frozen
class Difference:
    """The first event that differs from the recording.

    Args:
        number: the number of the event in the run, from 1.
        recorded: the recorded event; None for no further event.
        now: the event of the re-execution; None for no further event.
        state: the state of the program.
        iteration: the iteration of the program.
        place: the position in its source.
        endless: whether the program exceeded its tick limit without another event.
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
        """The number of the effect that differs; None for another event."""
        for item in (self.now, self.recorded):
            if isinstance(item, EffectRequest):
                return item.seq
        return None

    @property
    def what(self) -> str:
        """The kind of event: effect, verdict, route, state, note or outcome."""
        item = self.recorded if self.recorded is not None else self.now
        if isinstance(item, EffectRequest):
            return "effect"
        if isinstance(item, Note):
            return NOTES[item.kind].noun if item.kind in NOTES else "note"
        return "outcome"


@frozen
class Comparison:
    """Result of a comparison.

    same: how many events are the same, out of `total`. ticks: used by the re-execution. is_ended: whether the
    recorded run is finished.
    """

    same: int
    total: int
    ticks: int
    difference: Difference | None
    is_ended: bool


class _Comparer:
    """Matches the events of a re-execution with the recorded events.

    In sequential execution each event must match the next recorded event. Concurrent effects start whenever a
    slot is free: then notes are matched in order, and effects by number.
    """

    def __init__(self, recording: Recording, execution: ReExecution, exact: bool) -> None:
        self.recording = recording
        self.execution = execution
        self.exact = exact
        self.same = 0
        self.events = recording.events
        self.total = len(recording.events) - len(recording.changes)
        # The first unmatched event, and the matched events after it.
        self.first = 0
        self.matched: set[int] = set()
        self.first_note = 0
        self.asked: set[int] = set()
        self.is_parallel = False

    def run(self) -> Comparison:
        difference: Difference | None
        try:
            difference = self.find_difference()
        except Endless:
            difference = self.differs(self.next(), None, endless=True)
        return Comparison(
            self.same, self.total, self.execution.machine.ticks, difference, self.recording.end is not None
        )

    def find_difference(self) -> Difference | None:
        """Re-execute up to the first difference, or to the end of the record."""
        recording, execution = self.recording, self.execution
        for answer in chain(recording.answers, (None,)):
            if answer is None and recording.end is None and self.is_over:
                return None  # the run may have crashed while it computed
            for event in execution.events():
                if isinstance(event, Effect):
                    self.is_parallel = self.is_parallel or execution.machine.is_ready
                    now: Note | EffectRequest = request_of(event)
                else:
                    now = note_of(*event)
                place = event.span if isinstance(event, Effect) else None
                if isinstance(now, EffectRequest) and recording.changes:
                    if now.seq in self.asked:
                        self.pass_change()
                    self.asked.add(now.seq)
                index = self.find_recorded(now)
                then = self.events[index] if index is not None else None
                if isinstance(then, ProgramChange) and isinstance(now, EffectRequest):
                    continue  # the run crashed before this effect started, and then the program was changed
                if then is None or isinstance(then, ProgramChange):
                    if self.is_past_record(now):
                        continue
                    return self.differs(self.next(), now, place)
                if not is_same(then, now):
                    return self.differs(then, now, place)
                self.mark_matched(index)  # type: ignore[arg-type]
                if answer is None and recording.end is None and self.is_over:
                    return None
            if answer is None:
                break
            if answer.seq not in execution.machine.waiting:
                return self.differs(self.next(), self.ended())
            execution.give(answer.seq, recording.result(answer))
        return self.end()

    def find_recorded(self, now: Note | EffectRequest) -> int | None:
        """The index of the recorded event that this event must match; None without one."""
        if not self.is_parallel:
            if self.is_over:
                return None
            if isinstance(now, Note) and isinstance(self.events[self.first], ProgramChange):
                # Notes that were not recorded yet when the program was changed come after the change.
                return next(
                    (i for i in self.unmatched() if not isinstance(self.events[i], ProgramChange)), None
                )
            return self.first
        if isinstance(now, EffectRequest):
            return next((i for i in self.effects.get(now.seq, ()) if self.is_unmatched(i)), None)
        while self.first_note < len(self.events):
            if self.is_unmatched(self.first_note) and isinstance(self.events[self.first_note], Note):
                return self.first_note
            self.first_note += 1
        return None

    @cached_property
    def effects(self) -> dict[int, list[int]]:
        """The indices of the requests of each effect: one for each program that requested it."""
        indices: dict[int, list[int]] = {}
        for index, event in enumerate(self.events):
            if isinstance(event, EffectRequest):
                indices.setdefault(event.seq, []).append(index)
        return indices

    @property
    def is_over(self) -> bool:
        """Whether all recorded events are matched."""
        return self.first == len(self.events)

    def is_unmatched(self, index: int) -> bool:
        return index >= self.first and index not in self.matched

    def unmatched(self) -> Iterator[int]:
        """The indices of the unmatched events."""
        return (index for index in range(self.first, len(self.events)) if index not in self.matched)

    def pass_change(self) -> None:
        """Skip to the next program: it requests an effect again, so earlier requests need no match."""
        change = next((i for i in self.unmatched() if isinstance(self.events[i], ProgramChange)), None)
        if change is not None:
            earlier = [
                i for i in self.unmatched() if i < change and isinstance(self.events[i], EffectRequest)
            ]
            for index in earlier:
                self.mark_matched(index)
            self.mark_matched(change)
            self.same -= 1

    def mark_matched(self, index: int) -> None:
        self.matched.add(index)
        while self.first in self.matched:
            self.matched.discard(self.first)
            self.first += 1
        self.same += 1

    def is_past_record(self, now: Note | EffectRequest) -> bool:
        """Whether the recording may lack this event because the run crashed or ended before it."""
        recording = self.recording
        if self.execution.answers < len(recording.answers):
            return self.is_parallel and isinstance(now, EffectRequest)  # it was waiting for a slot
        return recording.end is None or _may_interrupt_calls(recording.end)

    def end(self) -> Difference | None:
        """Compare the ends of both runs, after the last recorded answer."""
        end = self.recording.end
        if any(not isinstance(self.events[index], ProgramChange) for index in self.unmatched()):
            return self.differs(self.next(), self.ended())
        if end is None:
            return None
        if is_same_end(end, self.execution, self.exact):
            return None
        return self.differs(ending(end, self.exact), self.ended())

    def ended(self) -> dict[str, Any] | None:
        return _ended(self.execution, self.exact)

    def next(self) -> Item | None:
        """The next unmatched event of the record: a note, an effect or its end."""
        for index in self.unmatched():
            event = self.events[index]
            if not isinstance(event, ProgramChange):
                return event
        return ending(self.recording.end, self.exact) if self.recording.end is not None else None

    def differs(
        self, recorded: Item | None, now: Item | None, place: Any = None, endless: bool = False
    ) -> Difference:
        progress = self.execution.progress
        span = Span(*place) if place is not None else self.place(now)
        return Difference(self.same + 1, recorded, now, progress.state, progress.iteration, span, endless)

    def place(self, now: Item | None) -> Span | None:
        """The source position of the state in a note, or else the current position of the program."""
        execution = self.execution
        if isinstance(now, Note):
            is_route = now.kind == Route.name
            name = Route.of(now.fields).from_ if is_route else StateNote.of(now.fields).state
            state_place = place_of_state(execution.image, name)
            if state_place is not None:
                return state_place
        if execution.stop is not None:
            fault_place = getattr(execution.stop, "span", None)
            return Span(*fault_place) if fault_place else None
        return place_of_machine(execution.machine)


def compare(
    recording: Recording, image: Image, exact: bool = False, max_ticks: int | None = None
) -> Comparison:
    """Re-execute a recording with the program `image`, up to the first difference.

    exact: the position of an error counts too. max_ticks: the tick limit; None for no limit. Raises UserError
    if a recorded value cannot be read.
    """
    with bounded(recording.about):
        return _Comparer(recording, ReExecution(image, max_ticks, recording), exact).run()


def place_of_machine(machine: Machine) -> Span | None:
    """The position of a machine in the author's source: the innermost frame outside the library."""
    for frame in reversed(machine.frames(MAX_SEARCHED_FRAMES)):
        place = frame.place or frame.origin
        if place is not None and not is_library(place):
            return Span(*place)
    return None


def place_of_state(image: Image, name: Any) -> Span | None:
    """The source position of the state `name`; None if there is no such state."""
    for function in image.functions:
        if name in function.states:
            place = image.place(function.state_spans[function.states.index(name)])
            return Span(*place) if place is not None else None
    return None


# --- equality ---------------------------------------------------------------------------------


def request_of(effect: Effect) -> EffectRequest:
    """An effect of the machine in the form of a recording."""
    return EffectRequest(effect.seq, effect.kind, _packed(effect.args))


def note_of(kind: str, fields: Mapping[str, Any]) -> Note:
    """A note of the machine in the form of a recording."""
    return Note(kind, _packed(fields, RESERVED))


def is_same_end(end: Mapping[str, Any], execution: ReExecution, exact: bool) -> bool:
    """Whether a re-execution ended like the recorded `run_end`; `exact` as in `compare`."""
    now = _ended(execution, exact)
    if now is None:
        return was_refused(end) or _is_stalled(end)
    return is_same(ending(end, exact), now)


def _ended(execution: ReExecution, exact: bool) -> dict[str, Any] | None:
    """The compared fields of the end of a re-execution; None if it has not ended."""
    if execution.stop is None and execution.exit is None:
        return None
    return ending(_packed(execution.ending()), exact)


def _packed(fields: Mapping[str, Any], excluded: frozenset[str] = frozenset()) -> dict[str, Any]:
    remaining = {name: value for name, value in fields.items() if name not in excluded}
    if not needs_packing(remaining):
        return remaining
    return {name: journals.pack(value, digest_only) for name, value in remaining.items()}


def is_same(then: Item, now: Item) -> bool:
    """Whether two events are equal; the order of names and the masking of secrets do not count."""
    if type(then) is not type(now):
        return False
    (kind_then, fields_then), (kind_now, fields_now) = _kind_and_fields(then), _kind_and_fields(now)
    return kind_then == kind_now and (
        journals.is_same(fields_then, fields_now)
        or journals.is_same(dict(sorted(fields_then.items())), dict(sorted(fields_now.items())))
    )


def _kind_and_fields(item: Item) -> tuple[str, dict[str, Any]]:
    match item:
        case EffectRequest():
            return item.kind, item.args
        case Note():
            return item.kind, item.fields
    return "", item


def ending(end: Mapping[str, Any], exact: bool = False) -> dict[str, Any]:
    """The compared fields of a `run_end`; `exact` as in `compare`."""
    fields = {name: end[name] for name in OUTCOME_FIELDS if end.get(name) is not None}
    error = fields.get("error")
    if isinstance(error, dict) and not exact:
        fields["error"] = {name: error[name] for name in _ERROR_FIELDS if error.get(name)}
    return fields


def _may_interrupt_calls(end: Mapping[str, Any]) -> bool:
    """Whether the run may have ended during concurrent calls."""
    return end.get("terminated_by") == "exit" or was_refused(end) or _is_stalled(end)


def _is_stalled(end: Mapping[str, Any]) -> bool:
    """Whether the driver ended the run because a loop repeated itself without progress."""
    return end.get("terminated_by") == "stall" and end.get("status") == "limit"


def was_refused(end: Mapping[str, Any]) -> bool:
    """Whether the run ended because its world refused to perform an effect."""
    error = end.get("error")
    return isinstance(error, dict) and error.get("kind") == "not-performed"
