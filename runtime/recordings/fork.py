"""`llc fork`: a new run that shares the history of another up to a point.

Owns what is shared and how: the events up to the point as lines of the new run's own journal, and long texts
as links to the same files, so that the new run remains whole when its parent is removed. The new run is then
resumed like a run that crashed there (`launch.resume`).
"""

from __future__ import annotations

import os.path
from collections.abc import Iterator
from itertools import chain
from typing import Any

import attrs

from ... import __version__
from ...ir.diagnostics import suggest
from ...ir.records import frozen
from ...vm.code.image import Image
from ...vm.machine.outcomes import Effect
from ..host import clock, files
from ..host.clock import timestamp
from ..host.errors import Failure, UserError
from ..host.paths import ROOT
from ..journal import events as kinds
from ..journal import journal as journals
from ..journal.codec import KIND, RESERVED, TIME
from ..journal.reader import Damage, read
from ..journal.run_folder import RunFolder
from ..project.load import load_program
from ..project.options import Values, recorded_options
from ..runs import locks, program_file
from ..runs.loop_names import resolve_loop
from . import diff, diff_text
from .find import RunFiles, find_run
from .re_execution import ReExecution
from .recording import Note, Recording, bounded

# Events of the driver that the new run needs for its active time and its programs.
_KEPT = (kinds.RunInterrupted, kinds.RunResume, kinds.ProgramChanged)


@frozen
class Point:
    """Where a run is forked. answers: how many results are shared. seq: the effect that comes next there."""

    answers: int
    seq: int
    state: str | None
    iteration: int

    def __str__(self) -> str:
        where = f" in `{self.state}`, iteration {self.iteration}" if self.state is not None else ""
        return f"before effect {self.seq}{where}"


@frozen
class Forked:
    """The new run, its parent's name and where they part."""

    run: RunFolder
    parent: str
    point: Point
    left_out: str = ""

    def __str__(self) -> str:
        count = self.point.answers
        shared = f"{count} result{'' if count == 1 else 's'} shared"
        note = f"note: {self.left_out}\n" if self.left_out else ""
        return f"{note}{self.run.id} is forked from {self.parent} {self.point}, {shared}"


def fork(
    target: str, at: int | None, state: str | None, iteration: int | None, changes: Values | None
) -> Forked:
    """A new run from a point of the one that `target` means, ready to be resumed.

    at: the effect before which they part; or else the state that is entered there, at that iteration.
    changes: another program (`target`), or options over those of the run; the past must be the same under
    them. Raises UserError, CompileError and JournalError; nothing of the new run is left then.
    """
    run_files = find_run(target)
    recording, image = run_files.recording(), run_files.load_image()
    if (at is None) == (state is None):
        raise UserError(
            "bad-option",
            "say where to fork: either --at N or --state NAME",
            f"its effects and states: llc trace {target}",
        )
    if iteration is not None and state is None:
        raise UserError("bad-option", "--iteration goes with --state")
    point = find_point(recording, image, at, state, iteration)
    about = dict(recording.about)
    if changes is not None:
        if recording.changes:
            raise Failure(
                "several-programs",
                f"{run_files.name} went on with another program, so nothing can be changed in its past",
                "fork it as it is",
            )
        image = _changed(recording, point, changes, about)
    run = _create(run_files, image, point, about)
    return Forked(run, run_files.name, point, recording.left_out)


def find_point(
    recording: Recording, image: Image, at: int | None, state: str | None, iteration: int | None
) -> Point:
    """The point of a run before effect `at`, or where `state` is entered. Raises UserError for none."""
    with bounded(recording.about):
        execution = ReExecution(image, recording=recording)
        entered: Point | None = None
        for answer in (*recording.answers, None):
            for event in execution.events():
                progress = execution.progress
                if isinstance(event, Effect):
                    if entered is not None or event.seq == at:
                        where = entered or Point(
                            execution.answers, event.seq, progress.state, progress.iteration
                        )
                        return attrs.evolve(where, seq=event.seq)
                elif entered is None and is_entry(*event, state, iteration):
                    entered = Point(execution.answers, 0, progress.state, progress.iteration)
            if answer is None or answer.seq not in execution.machine.waiting:
                break
            execution.give(answer.seq, recording.result(answer))
    if at is not None:
        asked = execution.machine.seq
        count = f"{asked} effect{'' if asked == 1 else 's'}"
        raise UserError("no-such-point", f"there is no effect {at} in {recording.name}", f"it has {count}")
    if entered is not None:
        raise UserError(
            "no-such-point", f"nothing is performed from `{state}` on, so there is nothing to fork"
        )
    raise _no_such_state(recording, state or "", iteration)


def is_entry(kind: str, fields: dict[str, Any], state: str | None, iteration: int | None) -> bool:
    """Whether a note is of entering a state, in that iteration if one is given."""
    if kind != kinds.StateEnter.name:
        return False
    entry = kinds.StateEnter.of(fields)
    return state in (entry.state, entry.shown_state) and iteration in (None, entry.iteration)


def _no_such_state(recording: Recording, state: str, iteration: int | None) -> UserError:
    entered: dict[str, list[Any]] = {}
    for event in recording.events:
        if isinstance(event, Note) and event.kind == kinds.StateEnter.name:
            entry = kinds.StateEnter.of(event.fields)
            entered.setdefault(str(entry.shown_state), []).append(entry.iteration)
    if state in entered:
        known = ", ".join(map(str, dict.fromkeys(entered[state])))
        return UserError(
            "no-such-point", f"`{state}` was not entered in iteration {iteration}", f"it was in: {known}"
        )
    return UserError(
        "no-such-point", f"the run entered no state `{state}`", suggest(state, entered, "it entered")
    )


def _changed(recording: Recording, point: Point, changes: Values, about: dict[str, Any]) -> Image:
    """The changed program, if the shared history is the same under it; `about` gets its options."""
    overrides = recorded_options(recording.about.get("overrides"))
    for name, value in vars(changes).items():
        if name != "target" and value:
            is_pairs = isinstance(value, tuple) and name in ("context", "arguments")
            overrides[name] = (*overrides.get(name, ()), *value) if is_pairs else value
    path = resolve_loop(changes.target) if changes.target else str(about.get("path") or "")
    if not path or not files.exists(path):
        raise UserError(
            "no-source",
            f"the source of {recording.name} is not there, so nothing in it can be changed",
            "name a program with --with",
        )
    image = load_program(path, Values(path, **overrides), lambda text: None)
    shared = recording.given[: point.answers]
    past = Recording(
        recording.name,
        recording.about,
        recording.fetch,
        recording.events[: shared[-1] if shared else 0],
        recording.answers[: point.answers],
        shared,
    )
    comparison = diff.compare(past, image)
    if comparison.difference is not None:
        shown = (
            diff_text.describe(comparison.difference.recorded),
            diff_text.describe(comparison.difference.now),
        )
        raise Failure(
            "incompatible-fork",
            f"with these changes the run would not have come there: event {comparison.difference.number} "
            f"was {shown[0]} and is {shown[1]}",
            "fork earlier, or begin a new run",
        )
    about["path"] = path
    about.pop("expression", None)
    about["overrides"] = {name: value for name, value in overrides.items() if value}
    return image


# --- the new run ------------------------------------------------------------------------------


def _create(run_files: RunFiles, image: Image, point: Point, about: dict[str, Any]) -> RunFolder:
    """The folder of the new run: its program, its journal and what that refers to."""
    folder, lock = locks.start(ROOT, image.name, (), {"program": image.name, "path": about.get("path")})
    try:
        shared = _Shared(run_files.journal, point.answers)
        beginning = _beginning(folder, run_files, image, point, about)
        texts = _texts_of(beginning)
        for event in shared:
            texts |= _texts_of(event.wire)
            if isinstance(event, kinds.ProgramChanged):
                folder.write(event.image, program_file.of(run_files.load_program(event.image)))
        _share_texts(texts, run_files.outputs, folder.outputs)
        folder.write(folder.image_name, program_file.of(image))
        wires = chain((beginning,), (event.wire for event in shared))
        journals.write_file(folder.journal, map(journals.seal, wires), mode=0o600)
        folder.sync()
    except BaseException:
        folder.discard()
        raise
    finally:
        lock.close()
    return folder


def _beginning(
    folder: RunFolder, run_files: RunFiles, image: Image, point: Point, about: dict[str, Any]
) -> dict[str, Any]:
    """The `run_start` of the new run. Its time is its parent's: the past is its own too."""
    start = {name: value for name, value in about.items() if name not in RESERVED}
    start |= {
        "run": folder.id,
        "program": image.name,
        "program_hash": image.program_hash,
        "llc": __version__,
        "forked_from": {"run": run_files.name, "at": point.seq, TIME: timestamp(clock.time())},
    }
    # Values were unpacked when they were read, and options may hold secrets.
    packed = {name: journals.pack(value, str) for name, value in start.items()}
    return {KIND: kinds.RunStart.name, **packed, TIME: about.get(TIME)}


class _Shared:
    """The events up to the last of the results that the new run shares, read again each time."""

    def __init__(self, journal: str, answers: int) -> None:
        self._journal = journal
        self._finished: set[int] = set()
        # Where the last one begins.
        self._last = -1
        if not answers:
            return
        for event in read(journal):
            match event:
                case kinds.EffectFinished(seq=seq, result=dict()) if seq not in self._finished:
                    self._finished.add(seq)
                    self._last = event.offset
            if len(self._finished) == answers:
                break

    def __iter__(self) -> Iterator[kinds.Event]:
        for event in read(self._journal):
            if isinstance(event, Damage):
                continue
            if event.offset > self._last:
                return
            if isinstance(event, kinds.EffectStarted | kinds.EffectFinished | kinds.AgentActed):
                # Performed again, if it had no result there. Trees stay with the run that has them.
                if event.seq in self._finished:
                    yield event
            elif isinstance(event, (kinds.NoteEvent, *_KEPT)):
                yield event.of({name: value for name, value in event.wire.items() if name != "doubtful"})


def _texts_of(wire: dict[str, Any]) -> set[str]:
    """The names of the long texts that an event refers to."""
    names = set()
    stack: list[Any] = [wire]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            if isinstance(item.get("$blob"), str):
                names.add(os.path.basename(item["$blob"]))
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
    return names


def _share_texts(names: set[str], source: str, target: str) -> None:
    """Link long texts; copies where links cannot be made."""
    if not names:
        return
    files.mkdir(target, 0o700)
    for name in sorted(names):
        there, here = os.path.join(source, name), os.path.join(target, name)
        try:
            files.link(there, here)
        except OSError:
            try:
                files.copyfile(there, here)
                files.chmod(here, 0o600)
            except OSError:
                raise Failure("damaged-record", f"a text that the run shares is lost: {there}") from None
    files.sync_names(target)
