"""A recorded run: the notes, effects and answers of its program in the order in which they happened.

Owns how a `RunHistory` becomes a `Recording`; a recorded case becomes one too. Replay, tests, forks and
traces start from it.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Any

import attrs

from ...ir.records import define, frozen
from ...vm.code.image import Image
from ..host.errors import EXIT_FAILURE, UserError
from ..journal.codec import digest_only, unpack
from ..journal.events import EffectFinished, EffectStarted, NoteEvent, ProgramChanged, RunEnd, RunStart
from ..journal.history import RunHistory
from ..journal.journal import BlobError
from ..project.limits import Bounds, keeping


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
    kind: str = ProgramChanged.name


@frozen
class Answer:
    """The result of an effect, as in a journal."""

    seq: int
    result: Any


@define
class Recording:
    """All that happened in a run, in order.

    name: what to call it. about: its `run_start`. events: what the program did. answers: in the order
    they were given, which determines all else; given[i] is how many events were there before answer i.
    end: its `run_end`; None for a run that had not ended. fetch: a long text by its hash and size.
    programs: the programs it went on with, by the names of their files. left_out: a sentence on what is
    not in here because the journal is damaged, "" where it is sound.
    """

    name: str
    about: dict[str, Any]
    fetch: Callable[[str, int], str]
    events: list[Note | Asked | Changed] = attrs.Factory(list)
    answers: list[Answer] = attrs.Factory(list)
    given: list[int] = attrs.Factory(list)
    end: dict[str, Any] | None = None
    programs: Callable[[str], Image] | None = None
    left_out: str = ""

    @property
    def changes(self) -> list[Changed]:
        return [event for event in self.events if isinstance(event, Changed)]

    def as_one(self) -> Recording:
        """As if it had had one program all the time: each effect as it was asked for last."""
        last = {event.seq: at for at, event in enumerate(self.events) if isinstance(event, Asked)}
        kept = [
            at
            for at, event in enumerate(self.events)
            if not isinstance(event, Changed) and (not isinstance(event, Asked) or last[event.seq] == at)
        ]
        given = [bisect_left(kept, at) for at in self.given]
        return attrs.evolve(self, events=[self.events[at] for at in kept], given=given)

    def give(self, answer: Answer) -> None:
        """Put an answer behind what has happened so far."""
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
            raise UserError(
                "damaged-record", f"{self.name}: {what} is lost: {error}", exit_code=EXIT_FAILURE
            ) from None


def recording_of(name: str, history: RunHistory, fetch: Callable[[str, int], str]) -> Recording:
    """The recording in a detailed history, up to its first damage; the end of a torn journal is no damage.

    Raises UserError where the first event is lost.
    """
    recording = Recording(name, {}, fetch)
    damage = next((damage for damage in history.damage if not (damage.at_end and damage.torn)), None)
    asked: set[int] = set()
    answered: set[int] = set()
    for event in history.events:
        if damage is not None and event.offset > damage.offset:
            break
        match event:
            case RunStart():
                recording.about = recording.about or recording.value(event.wire, "how the run began")
            case EffectStarted(seq=seq) if seq not in asked:
                asked.add(seq)
                recording.events.append(Asked(seq, event.kind, event.arguments))
            case EffectFinished(seq=seq, result=dict(result)) if seq not in answered:
                answered.add(seq)
                recording.give(Answer(seq, result))
            case RunEnd():
                recording.end = event.wire
            case ProgramChanged():
                recording.events.append(Changed(event.image, len(recording.answers)))
                asked &= answered  # pending effects are asked for again
            case NoteEvent():
                recording.events.append(Note(event.kind_name, event.own_fields()))
    if not recording.about:
        raise UserError("no-record", f"the journal of {name} has lost its beginning", exit_code=EXIT_FAILURE)
    return recording


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
    with keeping():
        Bounds.recorded(about).apply()
        yield
