"""What is on record of a run: its notes, effects and answers in the order they happened.

Owns how a journal becomes a `Recording`, and which run a user means by a name or a path. A recorded case
(`cases`) becomes one too; whatever is done with a record (replay, test, fork, trace) starts here.
"""

from __future__ import annotations

import contextlib
import os.path
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import attrs

from ...ir.records import define, frozen
from ...vm.code.image import Image
from ..host import files
from ..host.errors import EXIT_FAILURE, UserError
from ..host.paths import FIRST_IMAGE, HISTORY, ROOT, RUNNING
from ..project import run_programs
from ..project.limits import Bounds, keeping
from ..runs import runs
from ..runs.lookup import find_run_folder, is_run_of
from . import journal as journals
from .codec import digest_only
from .events import OWN
from .run_folder import RunFolder

_STARTS = ("action_start", "effect_start")
_ENDS = ("action_complete", "effect_complete")
JOURNAL_SUFFIX = ".events.jsonl"


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
    kind: str = "program_changed"


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
        except journals.BlobError as error:
            raise UserError(
                "damaged-record", f"{self.name}: {what} is lost: {error}", exit_code=EXIT_FAILURE
            ) from None


# --- runs -------------------------------------------------------------------------------------


@frozen
class RunFiles:
    """Where the files of a run are, wherever its folder was moved to."""

    name: str
    folder: str
    journal: str

    @property
    def outputs(self) -> str:
        return os.path.join(self.folder, "outputs")

    @classmethod
    def of(cls, run: RunFolder) -> RunFiles:
        return cls(run.id, run.path, run.journal)

    def load_image(self) -> Image:
        """The program the run began with. Raises UserError and CompileError."""
        return self.load_program(FIRST_IMAGE)

    def recording(self) -> Recording:
        """What its journal holds, up to where that is damaged. JournalError if it cannot be read."""
        events: list[dict[str, Any]] = []
        left_out = ""
        records = journals.read(self.journal)
        for record in records:
            if record.event is not None:
                events.append(record.event)
                continue
            damage = record.damage
            if damage is not None and not (damage.at_end and damage.torn):
                # What followed from what is lost there cannot be told again.
                after = sum(later.event is not None for later in records)
                more = f", and so {'is' if after == 1 else 'are'} the {after} after it" if after else ""
                left_out = f"{self.journal}: {damage} and left out{more}"
                break
        recording = take_apart(self.name, events, journals.Blobs(self.outputs).fetch)
        recording.programs = self.load_program
        recording.left_out = left_out
        return recording

    def load_program(self, name: str) -> Image:
        """A program that the run went on with. Raises UserError and CompileError."""
        return run_programs.load(self.name, self.journal, name)


def take_apart(name: str, events: Iterable[dict[str, Any]], fetch: Callable[[str, int], str]) -> Recording:
    """The recording in the events of a journal. Raises UserError where it has no beginning."""
    recording = Recording(name, {}, fetch)
    asked: set[int] = set()
    answered: set[int] = set()
    for event in events:
        kind, seq = event["event"], event.get("seq")
        if kind == "run_start":
            recording.about = recording.about or recording.value(event, "how the run began")
        elif kind in _STARTS and isinstance(seq, int):
            if seq not in asked:
                asked.add(seq)
                recording.events.append(Asked(seq, str(event.get("kind")), arguments(event)))
        elif kind in _ENDS and isinstance(seq, int):
            if seq not in answered and isinstance(event.get("result"), dict):
                answered.add(seq)
                recording.give(Answer(seq, event["result"]))
        elif kind == "run_end":
            recording.end = event
        elif kind == "program_changed":
            recording.events.append(Changed(str(event.get("image")), len(recording.answers)))
            asked &= answered  # what waits is asked for anew
        elif kind not in OWN:
            fields = {key: value for key, value in event.items() if key not in journals.RESERVED}
            recording.events.append(Note(kind, fields))
    if not recording.about:
        raise UserError("no-record", f"the journal of {name} has lost its beginning", exit_code=EXIT_FAILURE)
    return recording


def arguments(event: dict[str, Any]) -> dict[str, Any]:
    """The arguments of an effect in the event of its start, its command among them."""
    given = event.get("args")
    args = dict(given) if isinstance(given, dict) else {}
    if "action" in event:
        args.setdefault("command", event["action"])
    return args


def unpacked(
    packed: Any, fetch: Callable[[str, int], str], secret: Callable[[list[str]], str] | None = None
) -> Any:
    """As `journal.unpack`; BlobError for a value that no journal holds, too."""
    try:
        return journals.unpack(packed, fetch, secret)
    except (ValueError, TypeError, AttributeError):
        raise journals.BlobError("it cannot be read as a value") from None


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


# --- which run is meant -----------------------------------------------------------------------


def find_run(target: str, root: str = ROOT) -> RunFiles:
    """The run that is meant by its id, the path of its folder, or its loop: then the last one.

    Raises UserError.
    """
    path = os.path.join(root, target)
    if os.path.sep in target and files.isdir(path):
        return run_at(path)
    found = find_run_folder(target, root)
    if found.id != target:
        same = [run for folder in (RUNNING, HISTORY) for run in runs.runs_in(root, folder)]
        same = [run for run in same if not run.is_husk() and is_run_of(run, target)]
        found = max(same, key=lambda run: run.id[-20:], default=found)
    return RunFiles.of(found)


def run_at(path: str) -> RunFiles:
    """The run in a folder. Raises UserError."""
    try:
        journals_there = sorted(file for file in files.listdir(path) if file.endswith(JOURNAL_SUFFIX))
    except OSError:
        journals_there = []
    if len(journals_there) != 1:
        count = "no" if not journals_there else "more than one"
        raise UserError("not-a-run", f"`{path}` has {count} journal (`*{JOURNAL_SUFFIX}`)")
    name = os.path.basename(os.path.normpath(path))
    return RunFiles(name, path, os.path.join(path, journals_there[0]))
