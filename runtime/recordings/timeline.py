"""Timeline of a recorded run: any point of it can be reached at once.

Owns the points of a run (after each of its recorded results) and how the machine comes to one: from the
nearest snapshot before it, taken during re-execution. The events at a point are read from the recording;
the machine is needed only for what was in its slots.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...ir.records import frozen
from ...ir.spans import Span
from ...vm.code.image import Image
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
from . import diff, diff_text
from .re_execution import ReExecution
from .recording import Answer, Asked, Changed, Note, Recording, each_text, unpacked

# Points between two snapshots at first, and how many are kept: then every other one goes.
_STRIDE = 64
_MOST = 128
# A text in a slot or a result that is longer is shown shortened.
LONGEST = 4096
# Active functions that are shown, and looked through for a place in the author's source.
_FRAMES = 3
_NEAR = 32
# Ticks between two views from which on compiled code is faster.
_LONG = 1000
_LIBRARY = "stdlib/"
_BAD_VERDICTS = ("failure", "error", "blocked")

# A machine at a point: its program, its snapshot, and its progress as plain data.
Kept = tuple[Image, dict[str, Any], list[Any]]


@frozen
class Frame:
    """An active function: its name, its state's, and its slots in host form, for people."""

    function: str
    state: str
    slots: dict[str, Any]


@frozen
class View:
    """The slots at a point: active functions, innermost last, those of the call of effect `seq`.

    items: for which item that call is, side by side with others. place: of the author's source. strands: of
    each effect that is waited for, side by side with others, the items of its call.
    """

    seq: int | None
    frames: list[Frame]
    items: tuple[int, ...]
    place: Span | None
    strands: dict[int, tuple[int, ...]]


@frozen
class Point:
    """A run after a number of results.

    number: how many. notes: what the program noted since the point before. asked: the effect whose result
    comes next, with that result, where it is on record. activity: what its agent did, and which files
    changed. waiting: the others that wait. outcome: how the run ended, at its last point. frames: innermost
    last, those of the effect's own call.
    """

    number: int
    state: str | None
    iteration: int
    notes: list[Note]
    asked: Asked | None
    result: dict[str, Any] | None
    activity: list[AgentActed | Guarded | TreeTaken]
    waiting: list[Asked]
    frames: list[Frame]
    items: tuple[int, ...]
    place: Span | None
    outcome: dict[str, Any] | None
    is_failure: bool

    def to_json(self) -> dict[str, Any]:
        span = self.place
        asked = self.asked
        told: dict[str, Any] = {
            "point": self.number,
            "state": self.state,
            "iteration": self.iteration,
            "notes": [{"note": note.kind, "fields": shown(note.fields)} for note in self.notes],
            "effect": None,
            "waiting": [{"seq": one.seq, "kind": one.kind, "args": shown(one.args)} for one in self.waiting],
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
            told["effect"] = {
                "seq": asked.seq,
                "kind": asked.kind,
                "args": shown(asked.args),
                "result": shown(self.result) if self.result is not None else None,
                "activity": [{"event": event.name, **event.own_fields()} for event in self.activity],
            }
        return told


def shown(packed: Any) -> Any:
    """A recorded value for people: no secrets, long texts shortened."""
    return shortened(diff_text.shown_value(packed))


def shortened(value: Any) -> Any:
    """Plain data with its long texts cut, without secrets."""
    return each_text(value, _shortened)


def _shortened(text: str) -> str:
    text = secrets.masked(text)
    half = LONGEST // 2
    if len(text) <= LONGEST:
        return text
    return f"{text[:half]}\n… {len(text) - LONGEST} characters …\n{text[-half:]}"


class Timeline:
    """The points of a recorded run, numbered from 0; `count` is how many there are.

    image: the program of the run. start: the point at which the recording begins, if that is not the first,
    and the machine there. is_part: the record continues after the recording. Raises UserError where the
    program does not repeat the record.
    """

    def __init__(
        self,
        recording: Recording,
        image: Image,
        start: tuple[int, Kept] | None = None,
        is_part: bool = False,
    ) -> None:
        self.recording = recording
        self.image = image
        self._is_part = is_part
        self._first = 0 if start is None else start[0]
        self._count_points()
        self._stride = _STRIDE
        self._snapshots: dict[int, Kept] = {} if start is None else dict([start])
        # The one of them that is not at the stride.
        self._tail = 0
        self._execution = self._begin()

    def _count_points(self) -> None:
        """Take the events and answers that are new into account."""
        self._events = len(self.recording.events)
        self.count = len(self.recording.answers) + 1

    def extend(self) -> None:
        """Continue with what was added to the recording of an unfinished run."""
        last = self.count - 1
        if self._events == len(self.recording.events) and last == len(self.recording.answers):
            return
        self._count_points()
        # At the last point the machine may have been left while it was computing.
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

    # --- by the record alone ------------------------------------------------------------------

    def effect(self, seq: int | None) -> Asked | None:
        """The effect of that number; None where it was not asked for."""
        at = self.recording.asked_at.get(seq) if seq is not None else None
        return self.recording.events[at] if at is not None else None  # type: ignore[return-value]

    def _waiting(self, effect: Effect) -> Asked | None:
        """An effect that waits, as it was asked for; None where that is not on record."""
        found = self.effect(effect.seq)
        return diff.asked(effect) if found is None and self._is_part else found

    def events(self, number: int) -> Sequence[Note | Asked | Changed]:
        """What was noted and asked for between the point before and this one."""
        recording = self.recording
        start = recording.given[number - 1] if number else 0
        end = recording.given[number] if number < len(recording.given) else len(recording.events)
        return recording.events[start:end]

    def notes(self, number: int) -> list[Note]:
        return [event for event in self.events(number) if isinstance(event, Note)]

    def answer(self, number: int) -> Answer | None:
        """The result that comes next at a point."""
        answers = self.recording.answers
        return answers[number] if number < len(answers) else None

    def is_failure(self, number: int) -> bool:
        """Whether something went wrong there: the effect's result, a verdict, the end."""
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
        """The next point after (or before) one where something went wrong."""
        return next((at for at in self._others(number, step) if self.is_failure(at)), None)

    def find_text(self, number: int, text: str) -> int | None:
        """The next point after one that has a text in its notes, its effect or the result."""
        wanted = text.lower()
        return next((at for at in self._others(number, 1) if wanted in self._text(at).lower()), None)

    def find_place(self, word: str) -> int | None:
        """The point that is meant by an effect's number, `iN` for an iteration, or a state's name."""
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

    # --- with the machine ---------------------------------------------------------------------

    def view(self, number: int) -> View:
        """What is in the slots at a point. Raises UserError."""
        execution = self._wind(number)
        machine = execution.machine
        if machine.direct is None:
            # To show frames of the compiled tier costs more than it saves where little is done between views.
            machine.warm = machine.ticks + machine.seq + _LONG
        answer = self.answer(number)
        seq = answer.seq if answer is not None else _last_word(machine)
        strands = [] if machine.ended else machine.strands()
        frames, items = self._frames(machine, strands, seq)
        own = [frame for frame in frames if not _is_library(frame)] or frames
        shown_frames = [_frame(frame) for frame in own[-_FRAMES:]]
        beside = {one.effect.seq: one.items for one in strands if one.effect is not None and one.items}
        return View(seq, shown_frames, items, self._place(execution, frames, seq), beside)

    def at(self, number: int) -> Point:
        """A point with all that is to be seen there. Raises UserError."""
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
                found
                for one in execution.machine.waiting.values()
                if one.seq != seq and (found := self._waiting(one)) is not None
            ],
            view.frames,
            view.items,
            view.place,
            diff.ending(end) if end is not None and number == self.count - 1 else None,
            self.is_failure(number),
        )

    def __iter__(self) -> Iterator[Point]:
        return map(self.at, range(self.count))

    def _wind(self, number: int) -> ReExecution:
        """The run at a point: told on from where it stands, or from the nearest snapshot before."""
        if self._execution.answers > number:
            near = max((at for at in self._snapshots if at <= number), default=None)
            self._execution = self._begin() if near is None else self._restore(near)
        else:
            near = max((at for at in self._snapshots if at <= number), default=0)
            if near > self._execution.answers:
                self._execution = self._restore(near)
        execution = self._execution
        while execution.answers < number:
            answer = self.recording.answers[execution.answers]
            if answer.seq not in execution.machine.waiting:
                raise Failure(
                    "not-repeatable",
                    f"told again, {self.recording.name} does not come to its effect {answer.seq}",
                    "`llc replay` tells how it differs",
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
        """Run until no strand is ready; an unfinished run may have been computing then."""
        is_past = self.recording.end is None and execution.answers == len(self.recording.answers)
        left = len(self.events(execution.answers)) if is_past else -1
        if left == 0:
            return
        for _ in execution.events():
            left -= 1
            if left == 0:
                return

    def _keep(self, execution: ReExecution) -> None:
        if execution.stop is not None:
            return
        if len(self._snapshots) >= _MOST:
            self._stride *= 2
            self._snapshots = {at: kept for at, kept in self._snapshots.items() if at % self._stride == 0}
            if execution.answers % self._stride:
                return
        self._snapshots[execution.answers] = _kept(execution)

    def _keep_tail(self, execution: ReExecution) -> None:
        """Keep the point before the last one, from which a run that continues is extended."""
        if self._tail % self._stride:
            self._snapshots.pop(self._tail, None)
        self._tail = execution.answers
        self._snapshots[self._tail] = _kept(execution)

    def _restore(self, number: int) -> ReExecution:
        image, snapshot, progress = self._snapshots[number]
        execution = ReExecution(image, recording=self.recording)
        execution.machine = Machine.restore(image, snapshot)
        execution.passed(number)
        execution.progress = Progress.from_data(progress)
        execution.answers = number
        return execution

    def _frames(
        self, machine: Machine, strands: list[StrandView], seq: int | None
    ) -> tuple[list[FrameView], tuple[int, ...]]:
        """The active functions around an effect, and for which item its call is, side by side with others."""
        if machine.ended:
            return [], ()
        if seq is not None:
            for strand in strands:
                if strand.effect is not None and strand.effect.seq == seq:
                    return strand.frames, strand.items
        return machine.frames()[-_NEAR:], ()

    def _place(self, execution: ReExecution, frames: list[FrameView], seq: int | None) -> Span | None:
        """Where the author's source is at: the effect, or else what is around it."""
        if execution.stop is not None:
            place = getattr(execution.stop, "span", None)
            return Span(*place) if place else diff.place_of_state(self.image, execution.progress.state)
        waiting = execution.machine.waiting
        places = [waiting[seq].span] if seq in waiting else []
        for place in (*places, *(frame.place for frame in reversed(frames))):
            if place is not None and not place[0].startswith(_LIBRARY):
                return Span(*place)
        return None


def _kept(execution: ReExecution) -> Kept:
    return execution.image, execution.machine.snapshot(), execution.progress.to_data()


def _last_word(machine: Machine) -> int | None:
    """The effect that is shown where no result comes next: the one that ends the run, or the first."""
    waiting = machine.waiting.values()
    return next(
        (effect.seq for effect in waiting if effect.kind == "exit"), next(iter(machine.waiting), None)
    )


def _is_library(view: FrameView) -> bool:
    place = view.place
    return place is not None and place[0].startswith(_LIBRARY)


def _frame(view: FrameView) -> Frame:
    return Frame(view.function, view.state, {name: _host(value) for name, value in view.slots.items()})


def _host(value: Any) -> Any:
    """A slot's value as plain data where it has such a form, else as it is shown."""
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
