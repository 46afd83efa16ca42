"""Timeline of a recorded run with random access to its points.

Owns the points of a run (one after each recorded result) and the reconstruction of the machine at a point,
from the nearest earlier snapshot that was taken during re-execution. The events at a point come from the
recording; the machine provides only the slots.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...ir.records import frozen
from ...ir.spans import Span
from ...vm.code.image import Image
from ...vm.machine.control import is_library
from ...vm.machine.frames import FrameView
from ...vm.machine.outcomes import Effect
from ...vm.machine.strands import StrandView
from ...vm.tiered import Machine
from ...vm.values.values import show, to_host
from ..host import secrets
from ..host.errors import Failure
from ..journal import journal
from ..journal.events import AgentActed, Evaluate, Guarded, StateEnter, TreeTaken
from ..journal.position import Progress
from ..runs.state_file import MAX_SEARCHED_FRAMES
from . import diff, diff_text
from .re_execution import ReExecution
from .recording import Answer, EffectRequest, Note, ProgramChange, Recording, map_texts, unpacked

# Initial number of points between two snapshots.
_STRIDE = 64
# At this number of snapshots every other one is removed, and the stride doubles.
_MAX_SNAPSHOTS = 128
# Longer texts in slots and results are shortened.
MAX_TEXT_CHARACTERS = 4096
# Number of innermost frames that are shown.
_MAX_SHOWN_FRAMES = 3
# Number of ticks between two views from which translated code is faster than the interpreter.
_WARM_TICKS = 1000
_BAD_VERDICTS = ("failure", "error", "blocked")

# A machine at a point: its program, its snapshot, and its progress as plain data.
SavedMachine = tuple[Image, dict[str, Any], list[Any]]


@frozen
class Frame:
    """An active function: its name, the name of its state, and its slots as plain data."""

    function: str
    state: str
    slots: dict[str, Any]


@frozen
class View:
    """The machine at a point.

    Args:
        seq: the effect that is shown; None without one.
        frames: the active functions of its call, innermost last.
        items: the indices of the item of its call, for concurrent calls.
        place: the position in the author's source.
        strands: for each waiting effect of concurrent calls, the indices of its item.
    """

    seq: int | None
    frames: list[Frame]
    items: tuple[int, ...]
    place: Span | None
    strands: dict[int, tuple[int, ...]]


@frozen
class Point:
    """A run after a number of results.

    Args:
        number: the number of results.
        state: the current state; None before the first.
        iteration: the current iteration.
        notes: notes of the program since the previous point.
        asked: the effect whose result comes next; None without one.
        result: this result, if it is recorded.
        activity: actions of the effect's agent, and changed files.
        waiting: the other waiting effects.
        frames: the active functions of the effect's call, innermost last.
        items: as in `View`.
        place: the position in the author's source.
        outcome: the end of the run, at its last point.
        is_failure: whether the point shows a failure.
    """

    number: int
    state: str | None
    iteration: int
    notes: list[Note]
    asked: EffectRequest | None
    result: dict[str, Any] | None
    activity: list[AgentActed | Guarded | TreeTaken]
    waiting: list[EffectRequest]
    frames: list[Frame]
    items: tuple[int, ...]
    place: Span | None
    outcome: dict[str, Any] | None
    is_failure: bool

    def to_json(self) -> dict[str, Any]:
        span = self.place
        asked = self.asked
        data: dict[str, Any] = {
            "point": self.number,
            "state": self.state,
            "iteration": self.iteration,
            "notes": [{"note": note.kind, "fields": shown(note.fields)} for note in self.notes],
            "effect": None,
            "waiting": [
                {"seq": effect.seq, "kind": effect.kind, "args": shown(effect.args)}
                for effect in self.waiting
            ],
            "frames": [
                {"function": frame.function, "state": frame.state, "slots": frame.slots}
                for frame in self.frames
            ],
            "items": list(self.items),
            "failure": self.is_failure,
            "outcome": shown(self.outcome) if self.outcome is not None else None,
            "file": span.path if span else None,
            "line": span.line if span else None,
            "column": span.column if span else None,
        }
        if asked is not None:
            data["effect"] = {
                "seq": asked.seq,
                "kind": asked.kind,
                "args": shown(asked.args),
                "result": shown(self.result) if self.result is not None else None,
                "activity": [{"event": event.name, **event.own_fields()} for event in self.activity],
            }
        return data


def shown(packed: Any) -> Any:
    """A recorded value for output: secrets masked, long texts shortened."""
    return shortened(diff_text.shown_value(packed))


def shortened(value: Any) -> Any:
    """Plain data with long texts shortened and secrets masked."""
    return map_texts(value, _shortened)


def _shortened(text: str) -> str:
    text = secrets.masked(text)
    half = MAX_TEXT_CHARACTERS // 2
    if len(text) <= MAX_TEXT_CHARACTERS:
        return text
    return f"{text[:half]}\n… {len(text) - MAX_TEXT_CHARACTERS} characters …\n{text[-half:]}"


class Timeline:
    """The points of a recorded run, numbered from 0; `count` is their number.

    Args:
        recording: the recorded events.
        image: the first program of the run.
        start: the first point of the recording and its machine; None if the recording begins with the run.
        is_part: whether the record continues after the recording.

    Methods raise UserError if the program does not repeat the record.
    """

    def __init__(
        self,
        recording: Recording,
        image: Image,
        start: tuple[int, SavedMachine] | None = None,
        is_part: bool = False,
    ) -> None:
        self.recording = recording
        self.image = image
        self._is_part = is_part
        self._first = 0 if start is None else start[0]
        self._count_points()
        self._stride = _STRIDE
        self._snapshots: dict[int, SavedMachine] = {} if start is None else dict([start])
        # The point of the snapshot outside the stride; see `_keep_tail`.
        self._tail = 0
        self._execution = self._begin()

    def _count_points(self) -> None:
        """Update the counts of events and points."""
        self._events = len(self.recording.events)
        self.count = len(self.recording.answers) + 1

    def extend(self) -> None:
        """Include the events that were added to the recording of an unfinished run."""
        last = self.count - 1
        if self._events == len(self.recording.events) and last == len(self.recording.answers):
            return
        self._count_points()
        # The machine of the last point may be incomplete: it stopped at the last recorded event.
        self._snapshots.pop(last, None)
        if self._execution.answers >= last:
            near = max(self._snapshots, default=None)
            self._execution = self._begin() if near is None else self._restore(near)

    def _begin(self) -> ReExecution:
        if self._first:
            return self._restore(self._first)
        execution = ReExecution(self.image, recording=self.recording)
        self._run_on(execution)
        return execution

    # --- from the recording -------------------------------------------------------------------

    def effect(self, seq: int | None) -> EffectRequest | None:
        """The effect with this number; None if it is not recorded."""
        index = self.recording.asked_at.get(seq) if seq is not None else None
        return self.recording.events[index] if index is not None else None  # type: ignore[return-value]

    def _waiting(self, effect: Effect) -> EffectRequest | None:
        """The request of a waiting effect; None if it is not recorded."""
        found = self.effect(effect.seq)
        return diff.request_of(effect) if found is None and self._is_part else found

    def events(self, number: int) -> Sequence[Note | EffectRequest | ProgramChange]:
        """The events between the previous point and this one."""
        recording = self.recording
        start = recording.events_before[number - 1] if number else 0
        end = (
            recording.events_before[number]
            if number < len(recording.events_before)
            else len(recording.events)
        )
        return recording.events[start:end]

    def notes(self, number: int) -> list[Note]:
        return [event for event in self.events(number) if isinstance(event, Note)]

    def answer(self, number: int) -> Answer | None:
        """The next result at a point; None if none is recorded."""
        answers = self.recording.answers
        return answers[number] if number < len(answers) else None

    def is_failure(self, number: int) -> bool:
        """Whether a point has a failed result, a bad verdict or an unsuccessful end."""
        answer = self.answer(number)
        if answer is not None and _failed(answer.result):
            return True
        if any(
            note.kind == Evaluate.name and Evaluate.of(note.fields).verdict in _BAD_VERDICTS
            for note in self.notes(number)
        ):
            return True
        end = self.recording.end
        return number == self.count - 1 and end is not None and end.get("status") != "success"

    def find_failure(self, number: int, step: int = 1) -> int | None:
        """The nearest point with a failure after (step 1) or before (step -1) a point; None without one."""
        return next((point for point in self._others(number, step) if self.is_failure(point)), None)

    def find_text(self, number: int, text: str) -> int | None:
        """The next point after `number` that contains a text in its notes, its effect or the result."""
        wanted = text.lower()
        return next((point for point in self._others(number, 1) if wanted in self._text(point).lower()), None)

    def find_place(self, word: str) -> int | None:
        """The point of an effect (by number), an iteration (`iN`) or a state (by name); None without one."""
        if word.isascii() and word.isdigit():
            is_asked = int(word) in self.recording.asked_at
            return self.recording.answered_at.get(int(word), self.count - 1 if is_asked else None)
        iteration = word[1:] if word[:1] == "i" and word[1:].isdigit() else None
        for number in range(self.count):
            for note in self.notes(number):
                if note.kind != StateEnter.name:
                    continue
                entry = StateEnter.of(note.fields)
                is_iteration = iteration is not None and entry.iteration == int(iteration)
                if is_iteration or word in (entry.state, entry.shown_state):
                    return number
        return None

    def _others(self, number: int, step: int) -> range:
        return range(number + 1, self.count) if step > 0 else range(number - 1, -1, -1)

    def _text(self, number: int) -> str:
        answer = self.answer(number)
        parts: list[Any] = [[note.kind, note.fields] for note in self.notes(number)]
        if answer is not None:
            asked = self.effect(answer.seq)
            parts += [asked.kind, asked.args] if asked is not None else []
            parts.append(answer.result)
        try:
            plain = unpacked(parts, self.recording.fetch, secrets.hidden)
        except journal.BlobError:
            plain = diff_text.shown_value(parts)
        return "\n".join(_texts(plain))

    # --- from the machine ---------------------------------------------------------------------

    def view(self, number: int) -> View:
        """The frames and slots at a point. Raises UserError."""
        execution = self._move_to(number)
        machine = execution.machine
        if machine.direct is None:
            # For few ticks between views, showing frames of translated code costs more than it saves.
            machine.warm = machine.ticks + machine.seq + _WARM_TICKS
        answer = self.answer(number)
        seq = answer.seq if answer is not None else _shown_effect(machine)
        strands = [] if machine.ended else machine.strands()
        frames, items = self._frames(machine, strands, seq)
        own = [frame for frame in frames if not is_library(frame.place)] or frames
        shown_frames = [_frame(frame) for frame in own[-_MAX_SHOWN_FRAMES:]]
        concurrent = {
            strand.effect.seq: strand.items
            for strand in strands
            if strand.effect is not None and strand.items
        }
        return View(seq, shown_frames, items, self._place(execution, frames, seq), concurrent)

    def at(self, number: int) -> Point:
        """The complete data of a point. Raises UserError."""
        view = self.view(number)
        execution = self._execution
        answer = self.answer(number)
        seq = view.seq
        asked = self.effect(seq)
        end = self.recording.end
        return Point(
            number,
            execution.progress.state,
            execution.progress.iteration,
            self.notes(number),
            asked,
            answer.result if answer is not None else None,
            [event.of(shown(event.wire)) for event in self.recording.activity.get(seq or 0, ())],
            [
                request
                for effect in execution.machine.waiting.values()
                if effect.seq != seq and (request := self._waiting(effect)) is not None
            ],
            view.frames,
            view.items,
            view.place,
            diff.ending(end) if end is not None and number == self.count - 1 else None,
            self.is_failure(number),
        )

    def __iter__(self) -> Iterator[Point]:
        return map(self.at, range(self.count))

    def _move_to(self, number: int) -> ReExecution:
        """Move the re-execution to a point, from its current point or from the nearest earlier snapshot."""
        if self._execution.answers > number:
            near = max((point for point in self._snapshots if point <= number), default=None)
            self._execution = self._begin() if near is None else self._restore(near)
        else:
            near = max((point for point in self._snapshots if point <= number), default=0)
            if near > self._execution.answers:
                self._execution = self._restore(near)
        execution = self._execution
        while execution.answers < number:
            answer = self.recording.answers[execution.answers]
            if answer.seq not in execution.machine.waiting:
                raise Failure(
                    "not-repeatable",
                    f"a replay of {self.recording.name} does not reach effect {answer.seq}",
                    f"to see the difference: llc replay {self.recording.name}",
                )
            execution.give(answer.seq, self.recording.result(answer))
            self._run_on(execution)
            if execution.answers % self._stride == 0 and execution.answers not in self._snapshots:
                self._keep(execution)
            elif (
                execution.answers == self.count - 2 and self.recording.end is None and execution.stop is None
            ):
                self._keep_tail(execution)
        return execution

    def _run_on(self, execution: ReExecution) -> None:
        """Run until no strand is ready, or until the last recorded event of an unfinished run."""
        is_last = self.recording.end is None and execution.answers == len(self.recording.answers)
        remaining = len(self.events(execution.answers)) if is_last else -1
        if remaining == 0:
            return
        for _ in execution.events():
            remaining -= 1
            if remaining == 0:
                return

    def _keep(self, execution: ReExecution) -> None:
        # At the last event of an unfinished run the machine may have ended without `stop`.
        if execution.machine.ended:
            return
        if len(self._snapshots) >= _MAX_SNAPSHOTS:
            self._stride *= 2
            self._snapshots = {
                point: saved for point, saved in self._snapshots.items() if point % self._stride == 0
            }
            if execution.answers % self._stride:
                return
        self._snapshots[execution.answers] = _saved_machine(execution)

    def _keep_tail(self, execution: ReExecution) -> None:
        """Keep a snapshot of the last point but one, from which `extend` continues an unfinished run."""
        if self._tail % self._stride:
            self._snapshots.pop(self._tail, None)
        self._tail = execution.answers
        self._snapshots[self._tail] = _saved_machine(execution)

    def _restore(self, number: int) -> ReExecution:
        image, snapshot, progress = self._snapshots[number]
        execution = ReExecution(image, recording=self.recording)
        execution.machine = Machine.restore(image, snapshot)
        execution.skip_to(number)
        execution.progress = Progress.from_data(progress)
        execution.answers = number
        return execution

    def _frames(
        self, machine: Machine, strands: list[StrandView], seq: int | None
    ) -> tuple[list[FrameView], tuple[int, ...]]:
        """The frames of an effect's call, and the indices of its item for concurrent calls."""
        if machine.ended:
            return [], ()
        if seq is not None:
            for strand in strands:
                if strand.effect is not None and strand.effect.seq == seq:
                    return strand.frames, strand.items
        return machine.frames()[-MAX_SEARCHED_FRAMES:], ()

    def _place(self, execution: ReExecution, frames: list[FrameView], seq: int | None) -> Span | None:
        """The position in the author's source: of the effect, or else of the innermost frame."""
        if execution.stop is not None:
            place = getattr(execution.stop, "span", None)
            return Span(*place) if place else diff.place_of_state(self.image, execution.progress.state)
        waiting = execution.machine.waiting
        places = [waiting[seq].span] if seq in waiting else []
        for place in (*places, *(frame.place for frame in reversed(frames))):
            if place is not None and not is_library(place):
                return Span(*place)
        return None


def _saved_machine(execution: ReExecution) -> SavedMachine:
    return execution.image, execution.machine.snapshot(), execution.progress.to_data()


def _shown_effect(machine: Machine) -> int | None:
    """The effect to show if no result follows: `exit`, or else the first waiting effect."""
    waiting = machine.waiting.values()
    return next(
        (effect.seq for effect in waiting if effect.kind == "exit"), next(iter(machine.waiting), None)
    )


def _frame(view: FrameView) -> Frame:
    return Frame(view.function, view.state, {name: _host(value) for name, value in view.slots.items()})


def _host(value: Any) -> Any:
    """A slot's value as plain data, or as text if it has no such form."""
    try:
        return shortened(to_host(value))
    except (TypeError, ValueError):
        return secrets.masked(show(value))


def _failed(result: Any) -> bool:
    if not isinstance(result, dict):
        return False
    code = result.get("exit_code")
    return bool(code) or any(result.get(name) for name in ("error", "timed_out", "signal"))


def _texts(value: Any) -> Iterator[str]:
    """All texts in plain data, in order."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            stack += [part for pair in reversed(item.items()) for part in (pair[1], pair[0])]
        elif isinstance(item, list | tuple):
            stack += reversed(item)
        elif item is not None:
            yield str(item)
