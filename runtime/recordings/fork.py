"""`llc fork`: a new run that shares the history of another run up to a point.

Owns the copy of the shared history: the events up to the point are copied to the journal of the new run, and
long texts are linked, so that the new run stays complete when its parent is removed. Then the new run is
resumed like a run that crashed at this point (`launch.resume`).
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
from ..host.screen import counted
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

# Events of the driver that determine the active time and the programs of the new run.
_COPIED_DRIVER_EVENTS = (kinds.RunInterrupted, kinds.RunResume, kinds.ProgramChanged)


@frozen
class Point:
    """The point of a fork. answers: number of shared results. seq: the first effect that is not shared."""

    answers: int
    seq: int
    state: str | None
    iteration: int

    def __str__(self) -> str:
        where = f" in `{self.state}`, iteration {self.iteration}" if self.state is not None else ""
        return f"before effect {self.seq}{where}"


@frozen
class Forked:
    """The new run, the name of its parent, and the point of the fork. left_out: as in `Recording`."""

    run: RunFolder
    parent: str
    point: Point
    left_out: str = ""

    def __str__(self) -> str:
        count = self.point.answers
        shared = f"{counted(count, 'result')} shared"
        note = f"note: {self.left_out}\n" if self.left_out else ""
        return f"{note}{self.run.id} is forked from {self.parent} {self.point}, {shared}"


def fork(
    target: str, at: int | None, state: str | None, iteration: int | None, changes: Values | None
) -> Forked:
    """Create a new run from a point of another run, ready to be resumed.

    Args:
        target: the id, folder or loop of the parent.
        at: the effect before which the runs diverge; None to use `state`.
        state: the state on whose entry the runs diverge.
        iteration: the iteration of this entry; None for the first entry.
        changes: another program (`target`), or options that override those of the parent; the shared history
            must be the same with them.

    Raises UserError, CompileError and JournalError, and removes the new run in this case.
    """
    run_files = find_run(target)
    recording, image = run_files.recording(), run_files.load_image()
    if (at is None) == (state is None):
        raise UserError(
            "bad-option",
            "no point of the fork is given; use either --at N or --state NAME",
            f"to see the effects and states: llc trace {target}",
        )
    if iteration is not None and state is None:
        raise UserError("bad-option", "--iteration requires --state")
    point = find_point(recording, image, at, state, iteration)
    about = dict(recording.about)
    if changes is not None:
        if recording.changes:
            raise Failure(
                "several-programs",
                f"the program of {run_files.name} changed during the run, so a fork cannot change it again",
                "fork without changes",
            )
        image = _changed(recording, point, changes, about)
    run = _create(run_files, image, point, about)
    return Forked(run, run_files.name, point, recording.left_out)


def find_point(
    recording: Recording, image: Image, at: int | None, state: str | None, iteration: int | None
) -> Point:
    """The point before effect `at`, or at the entry of `state`. Raises UserError if there is none."""
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
        total = execution.machine.seq
        count = counted(total, "effect")
        raise UserError(
            "no-such-point", f"there is no effect {at} in {recording.name}", f"the run has {count}"
        )
    if entered is not None:
        raise UserError(
            "no-such-point", f"no effect follows the entry of `{state}`, so there is nothing to fork"
        )
    raise _no_such_state(recording, state or "", iteration)


def is_entry(kind: str, fields: dict[str, Any], state: str | None, iteration: int | None) -> bool:
    """Whether a note is the entry of a state, in the given iteration (None: any)."""
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
            "no-such-point", f"`{state}` was not entered in iteration {iteration}", f"iterations: {known}"
        )
    return UserError(
        "no-such-point", f"the run entered no state `{state}`", suggest(state, entered, "it entered")
    )


def _changed(recording: Recording, point: Point, changes: Values, about: dict[str, Any]) -> Image:
    """Compile the changed program and check that the shared history is the same; updates `about`."""
    overrides = recorded_options(recording.about.get("overrides"))
    for name, value in vars(changes).items():
        if name != "target" and value:
            is_pairs = isinstance(value, tuple) and name in ("context", "arguments")
            overrides[name] = (*overrides.get(name, ()), *value) if is_pairs else value
    path = resolve_loop(changes.target) if changes.target else str(about.get("path") or "")
    if not path or not files.exists(path):
        raise UserError(
            "no-source",
            f"the source of {recording.name} does not exist, so it cannot be compiled with changes",
            "give a program with --with",
        )
    image = load_program(path, Values(path, **overrides), lambda text: None)
    shared = recording.events_before[: point.answers]
    shared_part = Recording(
        recording.name,
        recording.about,
        recording.fetch,
        recording.events[: shared[-1] if shared else 0],
        recording.answers[: point.answers],
        shared,
    )
    difference = diff.compare(shared_part, image).difference
    if difference is not None:
        raise Failure(
            "incompatible-fork",
            f"with these changes the run does not reach this point: event {difference.number} "
            f"was {diff_text.describe(difference.recorded)} and is now {diff_text.describe(difference.now)}",
            "fork at an earlier point, or start a new run",
        )
    about["path"] = path
    about.pop("expression", None)
    about["overrides"] = {name: value for name, value in overrides.items() if value}
    return image


# --- the new run ------------------------------------------------------------------------------


def _create(run_files: RunFiles, image: Image, point: Point, about: dict[str, Any]) -> RunFolder:
    """Create the folder of the new run: its programs, its journal, and the long texts of the journal."""
    folder, lock = locks.start(ROOT, image.name, (), {"program": image.name, "path": about.get("path")})
    try:
        shared = _SharedEvents(run_files.journal, point.answers)
        start = _run_start(folder, run_files, image, point, about)
        texts = _texts_of(start)
        for event in shared:
            texts |= _texts_of(event.wire)
            if isinstance(event, kinds.ProgramChanged):
                folder.write(event.image, program_file.encode(run_files.load_program(event.image)))
        _share_texts(texts, run_files.outputs, folder.outputs)
        folder.write(folder.image_name, program_file.encode(image))
        wires = chain((start,), (event.wire for event in shared))
        journals.write_file(folder.journal, map(journals.seal, wires), mode=0o600)
        folder.sync()
    except BaseException:
        folder.discard()
        raise
    finally:
        lock.close()
    return folder


def _run_start(
    folder: RunFolder, run_files: RunFiles, image: Image, point: Point, about: dict[str, Any]
) -> dict[str, Any]:
    """The `run_start` of the new run, with the time of its parent: the shared history belongs to both."""
    start = {name: value for name, value in about.items() if name not in RESERVED}
    start |= {
        "run": folder.id,
        "program": image.name,
        "program_hash": image.program_hash,
        "llc": __version__,
        "forked_from": {"run": run_files.name, "at": point.seq, TIME: timestamp(clock.time())},
    }
    # `about` is unpacked, and its options may contain secrets.
    packed = {name: journals.pack(value, str) for name, value in start.items()}
    return {KIND: kinds.RunStart.name, **packed, TIME: about.get(TIME)}


class _SharedEvents:
    """The events up to the last shared result; each iteration reads the journal again."""

    def __init__(self, journal: str, answers: int) -> None:
        self._journal = journal
        self._finished: set[int] = set()
        self._last_offset = -1
        if not answers:
            return
        for event in read(journal):
            match event:
                case kinds.EffectFinished(seq=seq, result=dict()) if seq not in self._finished:
                    self._finished.add(seq)
                    self._last_offset = event.offset
            if len(self._finished) == answers:
                break

    def __iter__(self) -> Iterator[kinds.Event]:
        for event in read(self._journal):
            if isinstance(event, Damage):
                continue
            if event.offset > self._last_offset:
                return
            if isinstance(event, kinds.EffectStarted | kinds.EffectFinished | kinds.AgentActed):
                # The new run performs an effect without a shared result again. File trees are not shared.
                if event.seq in self._finished:
                    yield event
            elif isinstance(event, (kinds.NoteEvent, *_COPIED_DRIVER_EVENTS)):
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
    """Link long texts; copy them if the file system does not support links."""
    if not names:
        return
    files.mkdir(target, 0o700)
    for name in sorted(names):
        original, copy = os.path.join(source, name), os.path.join(target, name)
        try:
            files.link(original, copy)
        except OSError:
            try:
                files.copyfile(original, copy)
                files.chmod(copy, 0o600)
            except OSError:
                raise Failure("damaged-record", f"a text of the shared history is lost: {original}") from None
    files.sync_names(target)
