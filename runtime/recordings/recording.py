"""A recorded run: the notes, effects and answers of its program in the order in which they happened.

Owns how a journal becomes a `Recording`; a recorded case becomes one too. Replay, tests, forks and
traces start from it.
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
    """Something the program noted; values as in a journal (`journal.pack`)."""

    kind: str
    fields: dict[str, Any]


@frozen
class Asked:
    """An effect the program asked for; its arguments as in a journal."""

    seq: int
    kind: str
    args: dict[str, Any]


@frozen
class Changed:
    """The run went on with another program, the file `image` of its folder. answers: given before."""

    image: str
    answers: int
    kind: str = kinds.ProgramChanged.name


@frozen
class Answer:
    """The result of an effect, as in a journal."""

    seq: int
    result: Any


T = TypeVar("T")


class Stored(Sequence[T]):
    """Events of a journal that are read when they are asked for: memory holds their offsets.

    make: what an event is in a recording. A change of the program is kept, as it depends on its place.
    skipped: how many before the first one are not there; they must not be asked for.
    """

    def __init__(self, file: EventFile, make: Callable[[Any], T], skipped: int = 0) -> None:
        self._file = file
        self._skipped = skipped
        self._make = make
        self._offsets = array("Q")
        self._kept: dict[int, T] = {}
        self._latest: tuple[int, T] | None = None

    def add(self, event: kinds.Event, kept: T | None = None) -> None:
        """Add an event of the journal, or what to keep in its place."""
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
            return [self[at] for at in range(*index.indices(len(self)))]
        if index in self._kept:
            return self._kept[index]
        if self._latest is None or self._latest[0] != index:
            self._latest = (index, self._make(self._file.at(self._offsets[index - self._skipped])))
        return self._latest[1]


@define
class Recording:
    """All that happened in a run, in order.

    name: what to call it. about: its `run_start`. events: what the program did. answers: in the order
    they were given, which determines all else; given[i] is how many events were there before answer i.
    changes: those of the program. end: its `run_end`; None for a run that had not ended. fetch: a long text
    by its hash and size. programs: the programs it went on with, by the names of their files. left_out: a
    sentence on what is not in here because the journal is damaged, "" where it is sound. activity: by effect,
    what an agent did and which files changed. asked_at: of each effect the index of the event that asked for
    it last. answered_at: the index of its answer.
    """

    name: str
    about: dict[str, Any]
    fetch: Callable[[str, int], str]
    events: Sequence[Note | Asked | Changed] = attrs.Factory(list)
    answers: Sequence[Answer] = attrs.Factory(list)
    given: Sequence[int] = attrs.Factory(list)
    changes: Sequence[Changed] = ()
    end: dict[str, Any] | None = None
    programs: Callable[[str], Image] | None = None
    left_out: str = ""
    activity: Mapping[int, Sequence[kinds.AgentActed | kinds.Guarded | kinds.TreeTaken]] = attrs.Factory(dict)
    asked_at: dict[int, int] = attrs.field(init=False)
    answered_at: dict[int, int] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.asked_at = {event.seq: at for at, event in enumerate(self.events) if isinstance(event, Asked)}
        self.answered_at = {answer.seq: at for at, answer in enumerate(self.answers)}

    def as_one(self) -> Recording:
        """As if it had had one program all the time: each effect as it was asked for last."""
        if not self.changes:
            return self
        kept = [
            at
            for at, event in enumerate(self.events)
            if not isinstance(event, Changed)
            and (not isinstance(event, Asked) or self.asked_at[event.seq] == at)
        ]
        given = [bisect_left(kept, at) for at in self.given]
        return attrs.evolve(self, events=[self.events[at] for at in kept], given=given, changes=())

    def add(self, event: Note | Asked) -> None:
        """Add what the program did; for a recording that is not in a journal."""
        assert isinstance(self.events, list)
        if isinstance(event, Asked):
            self.asked_at[event.seq] = len(self.events)
        self.events.append(event)

    def give(self, answer: Answer) -> None:
        """Add an answer after what has happened so far."""
        assert isinstance(self.answers, list)
        assert isinstance(self.given, list)
        self.answered_at[answer.seq] = len(self.answers)
        self.answers.append(answer)
        self.given.append(len(self.events))

    def result(self, answer: Answer) -> Any:
        """The value of an answer. Raises UserError where its text is lost."""
        return self.value(answer.result, f"the result of effect {answer.seq}")

    def anew(self) -> tuple[Recording, Callable[[str], dict[str, Any]]]:
        """A recording of the same run with nothing in it yet, and what keeps a long text for it."""
        texts: dict[str, str] = {}

        def keep(text: str) -> dict[str, Any]:
            packed = digest_only(text)
            texts[packed["$blob"]] = text
            return packed

        def fetch(name: str, size: int) -> str:
            return texts[name] if name in texts else self.fetch(name, size)

        return Recording(self.name, self.about, fetch), keep

    def value(self, packed: Any, what: str) -> Any:
        """A recorded value as the program has it. Raises UserError where a text of it is lost."""
        try:
            return unpacked(packed, self.fetch)
        except BlobError as error:
            raise Failure("damaged-record", f"{self.name}: {what} is lost: {error}") from None


class RecordingBuilder:
    """Makes a recording of the entries of a journal, in order; the journal may grow meanwhile.

    file: the journal, from which events are read when they are asked for. results: how many there were before
    the first entry, if that is not the first of the journal. damage: the first one, after which nothing is
    added; a torn end is none.
    """

    def __init__(
        self, name: str, file: EventFile, fetch: Callable[[str, int], str], results: int = 0
    ) -> None:
        self._file = file
        self._events: Stored[Note | Asked | Changed] = Stored(file, _as_recorded)
        self._answers: Stored[Answer] = Stored(
            file, lambda event: Answer(event.seq, event.result), skipped=results
        )
        self._changes: list[Changed] = []
        self._given = array("Q", bytes(8 * results))
        self._activity: dict[int, Stored[kinds.AgentActed | kinds.Guarded | kinds.TreeTaken]] = {}
        self._asked: set[int] = set()
        self.damage: Damage | None = None
        self.recording = Recording(
            *(name, {}, fetch, self._events, self._answers, self._given, self._changes),
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
                recording.about = recording.about or recording.value(event.wire, "how the run began")
            case kinds.EffectStarted(seq=seq) if not (
                seq in self._asked or seq in self.recording.answered_at
            ):
                self._asked.add(seq)
                self.recording.asked_at[seq] = len(self._events)
                self._events.add(event)
            case kinds.EffectFinished(seq=seq, result=dict()) if seq not in self.recording.answered_at:
                self.recording.answered_at[seq] = len(self._answers)
                self._asked.discard(seq)
                self._given.append(len(self._events))
                self._answers.add(event)
            case kinds.AgentActed() | kinds.Guarded() | kinds.TreeTaken():
                self._activity.setdefault(event.seq, Stored(self._file, _as_activity)).add(event)
            case kinds.RunEnd():
                self.recording.end = event.wire
            case kinds.ProgramChanged():
                self._changes.append(Changed(event.image, len(self._answers)))
                self._events.add(event, self._changes[-1])
                self._asked.clear()  # pending effects are asked for again
            case kinds.NoteEvent():
                self._events.add(event)


def recording_of(
    name: str, entries: Iterable[kinds.Event | Damage], file: EventFile, fetch: Callable[[str, int], str]
) -> tuple[Recording, Damage | None]:
    """The recording in the entries of a journal, up to its first damage, and that damage.

    Raises UserError where the first event is lost.
    """
    builder = RecordingBuilder(name, file, fetch)
    for entry in entries:
        builder.add(entry)
        if builder.damage is not None:
            break
    if not builder.recording.about:
        raise Failure("no-record", f"the journal of {name} has lost its beginning")
    return builder.recording, builder.damage


def _as_recorded(event: Any) -> Note | Asked:
    if isinstance(event, kinds.EffectStarted):
        return Asked(event.seq, event.kind, event.arguments)
    return Note(event.kind_name, event.own_fields())


def _as_activity(event: Any) -> kinds.AgentActed | kinds.Guarded | kinds.TreeTaken:
    assert isinstance(event, kinds.AgentActed | kinds.Guarded | kinds.TreeTaken)
    return event


def unpacked(
    packed: Any, fetch: Callable[[str, int], str], secret: Callable[[list[str]], str] | None = None
) -> Any:
    """As `journal.unpack`; BlobError for a value that no journal holds, too."""
    try:
        return unpack(packed, fetch, secret)
    except (ValueError, TypeError, AttributeError):
        raise BlobError("it cannot be read as a value") from None


def each_text(value: Any, put: Callable[[str], str]) -> Any:
    """A value with each of its texts as `put` gives it. Iterative: it may be nested deep."""
    if not isinstance(value, dict | list | tuple):
        return put(value) if isinstance(value, str) else value
    root: list[Any] = [value]
    stack: list[tuple[Any, Any]] = [(root, 0)]
    while stack:
        holder, key = stack.pop()
        item = holder[key]
        if isinstance(item, str):
            holder[key] = put(item)
        elif isinstance(item, dict):
            holder[key] = copy = dict(item)
            stack.extend((copy, name) for name in copy)
        elif isinstance(item, list | tuple):
            holder[key] = items = list(item)
            stack.extend((items, index) for index in range(len(items)))
    return root[0]


@contextlib.contextmanager
def bounded(about: dict[str, Any]) -> Iterator[None]:
    """Inside, a run's bounds hold, by its `run_start`: they are part of what its program does."""
    with restoring_bounds():
        Bounds.of_record(about).apply()
        yield
