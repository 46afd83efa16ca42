"""A recorded run: the notes, effect requests and answers of its program, in their order.

Owns the conversion of a journal to a `Recording`. A recorded case is converted to one too. Replay, tests,
forks and traces use it.
"""

from __future__ import annotations

import contextlib
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, overload

import attrs

from ...ir.records import define, frozen
from ...vm.code.image import Image
from ..host.errors import Failure
from ..journal import events as kinds
from ..journal.codec import digest_only, unpack
from ..journal.journal import BlobError
from ..journal.reader import Damage, EventFile
from ..project.limits import Bounds, restoring_bounds


@frozen
class Note:
    """A note of the program; values in the form of the journal (`journal.pack`)."""

    kind: str
    fields: dict[str, Any]


@frozen
class EffectRequest:
    """An effect that the program requested; arguments in the form of the journal."""

    seq: int
    kind: str
    args: dict[str, Any]


@frozen
class ProgramChange:
    """A change of the program to the file `image` in the run's folder. answers: how many came before it."""

    image: str
    answers: int
    kind: str = kinds.ProgramChanged.name


@frozen
class Answer:
    """The result of an effect, in the form of the journal."""

    seq: int
    result: Any


T = TypeVar("T")


class StoredEvents(Sequence[T]):
    """Events of a journal, read on access; only their offsets are in memory.

    make: converts an event to its form in a recording. Changes of the program are kept in memory, because
    they depend on their position. skipped: the number of events before the first stored one; they must not be
    accessed.
    """

    def __init__(self, file: EventFile, make: Callable[[Any], T], skipped: int = 0) -> None:
        self._file = file
        self._skipped = skipped
        self._make = make
        self._offsets = array("Q")
        self._kept: dict[int, T] = {}
        self._latest: tuple[int, T] | None = None

    def add(self, event: kinds.Event, kept: T | None = None) -> None:
        """Add an event of the journal. kept: its converted form, if it stays in memory."""
        if kept is not None:
            self._kept[len(self)] = kept
        self._offsets.append(event.offset)

    def __len__(self) -> int:
        return self._skipped + len(self._offsets)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        if index in self._kept:
            return self._kept[index]
        if self._latest is None or self._latest[0] != index:
            self._latest = (index, self._make(self._file.at(self._offsets[index - self._skipped])))
        return self._latest[1]


@define
class Recording:
    """The recorded events of a run, in order.

    Args:
        name: the name of the run in messages.
        about: its `run_start`.
        fetch: reads a long text by hash and size.
        events: notes, effect requests and changes of the program.
        answers: results in the order in which the program got them; this order determines everything else.
        events_before: events_before[i] is the number of events before answer i.
        changes: the changes of the program.
        end: its `run_end`; None for an unfinished run.
        programs: loads a later program of the run by the name of its file.
        left_out: a sentence about events that are missing because of damage; "" for an intact journal.
        activity: by effect, the actions of its agent and the changes of files.

    asked_at and answered_at map an effect to the index of its last request, and to the index of its answer.
    """

    name: str
    about: dict[str, Any]
    fetch: Callable[[str, int], str]
    events: Sequence[Note | EffectRequest | ProgramChange] = attrs.Factory(list)
    answers: Sequence[Answer] = attrs.Factory(list)
    events_before: Sequence[int] = attrs.Factory(list)
    changes: Sequence[ProgramChange] = ()
    end: dict[str, Any] | None = None
    programs: Callable[[str], Image] | None = None
    left_out: str = ""
    activity: Mapping[int, Sequence[kinds.AgentActed | kinds.Guarded | kinds.TreeTaken]] = attrs.Factory(dict)
    asked_at: dict[int, int] = attrs.field(init=False)
    answered_at: dict[int, int] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.asked_at = {
            event.seq: at for at, event in enumerate(self.events) if isinstance(event, EffectRequest)
        }
        self.answered_at = {answer.seq: at for at, answer in enumerate(self.answers)}

    def with_one_program(self) -> Recording:
        """The recording without changes of the program: each effect as it was requested last."""
        if not self.changes:
            return self
        kept = [
            at
            for at, event in enumerate(self.events)
            if not isinstance(event, ProgramChange)
            and (not isinstance(event, EffectRequest) or self.asked_at[event.seq] == at)
        ]
        events_before = [bisect_left(kept, at) for at in self.events_before]
        events = [self.events[at] for at in kept]
        return attrs.evolve(self, events=events, events_before=events_before, changes=())

    def add(self, event: Note | EffectRequest) -> None:
        """Append an event, for a recording that is not read from a journal."""
        assert isinstance(self.events, list)
        if isinstance(event, EffectRequest):
            self.asked_at[event.seq] = len(self.events)
        self.events.append(event)

    def give(self, answer: Answer) -> None:
        """Append an answer after the present events."""
        assert isinstance(self.answers, list)
        assert isinstance(self.events_before, list)
        self.answered_at[answer.seq] = len(self.answers)
        self.answers.append(answer)
        self.events_before.append(len(self.events))

    def result(self, answer: Answer) -> Any:
        """The value of an answer. Raises UserError if a text of it is lost."""
        return self.value(answer.result, f"the result of effect {answer.seq}")

    def empty_copy(self) -> tuple[Recording, Callable[[str], dict[str, Any]]]:
        """An empty recording of the same run, and the function that stores a long text for it."""
        texts: dict[str, str] = {}

        def keep(text: str) -> dict[str, Any]:
            packed = digest_only(text)
            texts[packed["$blob"]] = text
            return packed

        def fetch(name: str, size: int) -> str:
            return texts[name] if name in texts else self.fetch(name, size)

        return Recording(self.name, self.about, fetch), keep

    def value(self, packed: Any, description: str) -> Any:
        """Unpack a recorded value. Raises UserError with `description` if a text of the value is lost."""
        try:
            return unpacked(packed, self.fetch)
        except BlobError as error:
            raise Failure("damaged-record", f"{self.name}: {description} is lost: {error}") from None


class RecordingBuilder:
    """Builds a recording from the entries of a journal, in order; the journal may grow in the meantime.

    file: the journal, from which events are read on access. results: the number of results before the first
    entry, if it is not the first of the journal. damage: the first damage, after which nothing is added; an
    incomplete last line does not count.
    """

    def __init__(
        self, name: str, file: EventFile, fetch: Callable[[str, int], str], results: int = 0
    ) -> None:
        self._file = file
        self._events: StoredEvents[Note | EffectRequest | ProgramChange] = StoredEvents(file, _as_recorded)
        self._answers: StoredEvents[Answer] = StoredEvents(
            file, lambda event: Answer(event.seq, event.result), skipped=results
        )
        self._changes: list[ProgramChange] = []
        self._events_before = array("Q", bytes(8 * results))
        self._activity: dict[int, StoredEvents[kinds.AgentActed | kinds.Guarded | kinds.TreeTaken]] = {}
        self._asked: set[int] = set()
        self.damage: Damage | None = None
        self.recording = Recording(
            *(name, {}, fetch, self._events, self._answers, self._events_before, self._changes),
            activity=self._activity,
        )

    def add(self, event: kinds.Event | Damage) -> None:
        """Add the next entry."""
        if self.damage is not None:
            return
        match event:
            case Damage():
                if event.missing or not (event.at_end and event.torn):
                    self.damage = event
            case kinds.RunStart():
                recording = self.recording
                recording.about = recording.about or recording.value(event.wire, "the start of the run")
            case kinds.EffectStarted(seq=seq) if not (
                seq in self._asked or seq in self.recording.answered_at
            ):
                self._asked.add(seq)
                self.recording.asked_at[seq] = len(self._events)
                self._events.add(event)
            case kinds.EffectFinished(seq=seq, result=dict()) if seq not in self.recording.answered_at:
                self.recording.answered_at[seq] = len(self._answers)
                self._asked.discard(seq)
                self._events_before.append(len(self._events))
                self._answers.add(event)
            case kinds.AgentActed() | kinds.Guarded() | kinds.TreeTaken():
                self._activity.setdefault(event.seq, StoredEvents(self._file, _as_activity)).add(event)
            case kinds.RunEnd():
                self.recording.end = event.wire
            case kinds.ProgramChanged():
                self._changes.append(ProgramChange(event.image, len(self._answers)))
                self._events.add(event, self._changes[-1])
                self._asked.clear()  # the new program requests pending effects again
            case kinds.NoteEvent():
                self._events.add(event)


def recording_of(
    name: str, entries: Iterable[kinds.Event | Damage], file: EventFile, fetch: Callable[[str, int], str]
) -> tuple[Recording, Damage | None]:
    """The recording of the entries of a journal up to the first damage, and this damage (None without).

    Raises UserError if the first event is lost.
    """
    builder = RecordingBuilder(name, file, fetch)
    for entry in entries:
        builder.add(entry)
        if builder.damage is not None:
            break
    if not builder.recording.about:
        raise Failure("no-record", f"the beginning of the journal of {name} is lost")
    return builder.recording, builder.damage


def _as_recorded(event: Any) -> Note | EffectRequest:
    if isinstance(event, kinds.EffectStarted):
        return EffectRequest(event.seq, event.kind, event.arguments)
    return Note(event.kind_name, event.own_fields())


def _as_activity(event: Any) -> kinds.AgentActed | kinds.Guarded | kinds.TreeTaken:
    assert isinstance(event, kinds.AgentActed | kinds.Guarded | kinds.TreeTaken)
    return event


def unpacked(
    packed: Any, fetch: Callable[[str, int], str], secret: Callable[[list[str]], str] | None = None
) -> Any:
    """As `journal.unpack`, but malformed values raise BlobError too."""
    try:
        return unpack(packed, fetch, secret)
    except (ValueError, TypeError, AttributeError):
        raise BlobError("not a valid value") from None


def map_texts(value: Any, convert: Callable[[str], str]) -> Any:
    """A copy of a value with `convert` applied to each text. Iterative: values may be deeply nested."""
    if not isinstance(value, dict | list | tuple):
        return convert(value) if isinstance(value, str) else value
    root: list[Any] = [value]
    stack: list[tuple[Any, Any]] = [(root, 0)]
    while stack:
        holder, key = stack.pop()
        item = holder[key]
        if isinstance(item, str):
            holder[key] = convert(item)
        elif isinstance(item, dict):
            holder[key] = copy = dict(item)
            stack.extend((copy, name) for name in copy)
        elif isinstance(item, list | tuple):
            holder[key] = items = list(item)
            stack.extend((items, index) for index in range(len(items)))
    return root[0]


@contextlib.contextmanager
def bounded(about: dict[str, Any]) -> Iterator[None]:
    """Context in which the bounds of a run's `run_start` apply: its program depends on them."""
    with restoring_bounds():
        Bounds.of_record(about).apply()
        yield
