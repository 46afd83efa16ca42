"""`llc fork`: a new run that shares another's past up to a point, and goes on from there.

Owns what of a journal is shared and how: the results given before the point, in lines of the new run's
own journal, long texts as links to the same files, so that removing the parent leaves the child whole.
From then on the child is a run that was cut off there: `launch` resumes it.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterator
from typing import Any

import attrs

from ...ir.records import frozen
from ...vm.code.image import Image
from ...vm.machine.outcomes import Effect
from ..host import clock, files
from ..host.clock import timestamp
from ..host.errors import EXIT_FAILURE, UserError
from ..host.paths import ROOT
from ..journal import journal as journals
from ..journal.events import OWN
from ..journal.position import state_shown
from ..journal.recording import Note, Recording, RunFiles, bounded, find_run
from ..journal.run_folder import RunFolder
from ..project.load import load_program
from ..project.options import OVERRIDES, Values, given
from ..runs import locks, program_file
from ..runs.loops import resolve_loop
from . import diff
from .re_execution import Retelling

_STARTS = ("action_start", "effect_start")
_ENDS = ("action_complete", "effect_complete")
# Of what the driver tells, what says how long the run was active, and in which program.
_KEPT = ("run_interrupted", "run_resume", "program_changed")


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
            raise UserError(
                "several-programs",
                f"{run_files.name} went on with another program, so nothing can be changed in its past",
                "fork it as it is",
                EXIT_FAILURE,
            )
        image = _changed(recording, point, changes, about)
    run = _create(run_files, recording, image, point, about)
    return Forked(run, run_files.name, point, recording.left_out)


def find_point(
    recording: Recording, image: Image, at: int | None, state: str | None, iteration: int | None
) -> Point:
    """The point of a run before effect `at`, or where `state` is entered. Raises UserError for none."""
    with bounded(recording.about):
        retelling = Retelling(image, recording=recording)
        entered: Point | None = None
        for answer in (*recording.answers, None):
            for event in retelling.events():
                progress = retelling.progress
                if isinstance(event, Effect):
                    if entered is not None or event.seq == at:
                        where = entered or Point(
                            retelling.answers, event.seq, progress.state, progress.iteration
                        )
                        return attrs.evolve(where, seq=event.seq)
                elif (
                    entered is None
                    and event[0] == "state_enter"
                    and state in (event[1].get("state"), state_shown(event[1]))
                    and iteration in (None, event[1].get("iteration"))
                ):
                    entered = Point(retelling.answers, 0, progress.state, progress.iteration)
            if answer is None or answer.seq not in retelling.machine.waiting:
                break
            retelling.give(answer.seq, recording.result(answer))
    if at is not None:
        asked = retelling.machine.seq
        count = f"{asked} effect{'' if asked == 1 else 's'}"
        raise UserError("no-such-point", f"there is no effect {at} in {recording.name}", f"it has {count}")
    if entered is not None:
        raise UserError(
            "no-such-point", f"nothing is performed from `{state}` on, so there is nothing to fork"
        )
    raise _no_such_state(recording, state or "", iteration)


def _no_such_state(recording: Recording, state: str, iteration: int | None) -> UserError:
    from ...ir.diagnostics import suggest

    entered: dict[str, list[Any]] = {}
    for event in recording.events:
        if isinstance(event, Note) and event.kind == "state_enter":
            entered.setdefault(str(state_shown(event.fields)), []).append(event.fields.get("iteration"))
    if state in entered:
        known = ", ".join(map(str, dict.fromkeys(entered[state])))
        return UserError(
            "no-such-point", f"`{state}` was not entered in iteration {iteration}", f"it was in: {known}"
        )
    return UserError(
        "no-such-point", f"the run entered no state `{state}`", suggest(state, entered, "it entered")
    )


def _changed(recording: Recording, point: Point, changes: Values, about: dict[str, Any]) -> Image:
    """The program with what is changed, if the shared past is the same under it; `about` is told of it."""
    overrides = given(recording.about.get("overrides"))
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
    image = load_program(path, Values(OVERRIDES, path, **overrides), lambda text: None)
    past = Recording(recording.name, recording.about, recording.fetch)
    past.answers = recording.answers[: point.answers]
    past.given = recording.given[: point.answers]
    past.events = recording.events[: past.given[-1] if past.given else 0]
    comparison = diff.compare(past, image)
    if comparison.difference is not None:
        shown = (
            diff.describe(comparison.difference.recorded),
            diff.describe(comparison.difference.now),
        )
        raise UserError(
            "incompatible-fork",
            f"with these changes the run would not have come there: event {comparison.difference.number} "
            f"was {shown[0]} and is {shown[1]}",
            "fork earlier, or begin a new run",
            EXIT_FAILURE,
        )
    about["path"] = path
    about.pop("expression", None)
    about["overrides"] = {name: value for name, value in overrides.items() if value}
    return image


# --- the new run ------------------------------------------------------------------------------


def _create(
    run_files: RunFiles, recording: Recording, image: Image, point: Point, about: dict[str, Any]
) -> RunFolder:
    """The folder of the new run: its program, its journal and what that refers to."""
    folder, lock = locks.start(ROOT, image.name, (), {"program": image.name, "path": about.get("path")})
    try:
        events = [_beginning(folder, run_files, image, point, about), *_past(run_files, point)]
        _share_texts(events, run_files.outputs, folder.outputs)
        for event in events:
            if event["event"] == "program_changed":
                name = str(event.get("image"))
                program_file.keep(os.path.join(folder.path, name), run_files.load_program(name))
        program_file.keep(folder.image, image)
        data = b"".join(journals.seal(event) for event in events)
        journals.write_file(folder.journal, data, mode=0o600)
        journals.sync_folder(folder.path)
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
    from ... import __version__

    event = {name: value for name, value in about.items() if name not in ("event", "ts", "crc")}
    event |= {
        "run": folder.id,
        "program": image.name,
        "program_hash": image.program_hash,
        "llc": __version__,
        "forked_from": {"run": run_files.name, "at": point.seq, "ts": timestamp(clock.time())},
    }
    # What was taken apart when it was read is packed again: options may hold secrets.
    packed = {name: journals.pack(value, _as_it_is) for name, value in event.items()}
    return {"event": "run_start", **packed, "ts": about.get("ts")}


def _as_it_is(text: str) -> Any:
    return text


def _past(run_files: RunFiles, point: Point) -> Iterator[dict[str, Any]]:
    """The events that are shared: what the program did up to the last shared result, and the results."""
    if not point.answers:
        return
    events = []
    finished: set[int] = set()
    for record in journals.read(run_files.journal):
        event = record.event
        if event is None or event["event"] == "run_start":
            continue
        events.append(event)
        if event["event"] in _ENDS and isinstance(event.get("seq"), int):
            finished.add(event["seq"])
            if len(finished) == point.answers:
                break
    for event in events:
        kind = event["event"]
        if kind in _STARTS or kind in _ENDS:
            # What was asked for and had no result yet is performed anew.
            if event.get("seq") in finished:
                yield event
        elif kind not in OWN:
            yield event
        elif kind in _KEPT:
            yield {name: value for name, value in event.items() if name != "doubtful"}


def _share_texts(events: list[dict[str, Any]], source: str, target: str) -> None:
    """Link the long texts that events refer to; copies where links cannot be made."""
    names = set()
    stack: list[Any] = list(events)
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            if isinstance(item.get("$blob"), str):
                names.add(os.path.basename(item["$blob"]))
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
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
                raise UserError(
                    "damaged-record", f"a text that the run shares is lost: {there}", exit_code=EXIT_FAILURE
                ) from None
    journals.sync_folder(target)
