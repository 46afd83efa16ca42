"""`llc run`: a new run, from its options to its outcome.

Owns the order of the steps: program, world, folder and lock, journal, then the steps of any run (`command`).
"""

from __future__ import annotations

import os.path
import sys

from ... import __version__
from ...vm.code.image import Image
from ...vm.tiered import Machine
from ..host import secrets
from ..host.clock import timestamp
from ..host.coroutines import Apart, Steps, alone
from ..host.effect_context import Interrupt
from ..host.errors import UserError, refuse_missing_folder
from ..host.paths import ROOT
from ..host.screen import Screen
from ..journal import journal as journals
from ..journal.events import ABSENT, RunStart
from ..journal.journal import Journal
from ..journal.outcome import Outcome
from ..journal.run_folder import RunFolder
from ..project.limits import Bounds, restoring_bounds
from ..project.load import load_expression, load_program
from ..project.options import OVERRIDES, Values
from ..runs import program_file, runs
from ..runs.checkpoints import Checkpoints
from ..runs.loop_names import resolve_loop
from ..runs.run_lock import is_driven
from .command import Command, execute
from .report import Report
from .stop_signals import StopSignals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def run(values: Values) -> int:
    """Execute `llc run`; return the exit code."""
    return execute(values, new_run)


def outcome(values: Values) -> Outcome:
    """As `run`, but without output and signal handlers; returns the outcome and raises exceptions."""
    with restoring_bounds():
        result = new_run(Command(values, Report(values, is_silent=True)))
    if result is None:
        raise ValueError("a dry run has no outcome")
    return result


def load_target(command: Command) -> tuple[str, Image]:
    """Path ('' for an expression) and image of the program that the options name."""
    values = command.values
    if values.expression is not None:
        return "", load_expression(values.expression, values, command.warn)
    path = resolve_loop(values.target, ROOT)
    return path, load_program(path, values, command.warn)


def new_run(command: Command, load: Callable[[Command], tuple[str, Image]] = load_target) -> Outcome | None:
    """Run the program that `load` returns, with the options of the command; None for a dry run."""
    values = command.values
    command.bounds = Bounds.of_options(values)
    command.bounds.apply()
    command.choose_tier()
    command.configure()
    if values.flame:
        refuse_missing_folder(values.flame)
    command.budget = command.budget_of(values, command.budget)
    if values.record:
        from . import record_case

        record_case.refuse_taken(values.record)
    if values.dry_run and command.is_background:
        raise UserError("bad-option", "--dry-run executes nothing, so it cannot run in the background")
    path, image = load(command)
    if not (values.dry_run or values.script):
        command.check(image)
    if values.dry_run:
        from ..project.dry_run import dry_run

        Screen(sys.stdout).deliver(secrets.masked(dry_run(image, values.json)).encode("utf-8", "replace"))
        return None
    with StopSignals(command.report.is_silent, command.is_background) as interrupt:
        result = alone(start(command, path, image, interrupt))
    if values.record:
        record_case.record(command, result)
    return result


def start(
    command: Command, path: str, image: Image, interrupt: Interrupt, scope: list[str] | None = None
) -> Steps[Outcome]:
    """Create the folder, the lock and the journal of a new run, and drive it.

    path: file of the program; '' for an expression. scope: paths to lock; None for the scope of the program.
    """
    command.image = image
    script = command.values.script
    command.open_world(script)
    about: dict[str, Any] = {"program": image.name, "path": path, **command.holder_fields()}
    if script:
        # Relative inside the project, like the program's path, so that the project can be moved.
        relative = os.path.relpath(script)
        about["script"] = os.path.abspath(script) if relative.startswith("..") else relative
    locked_paths = [] if script else image.meta["scope"] if scope is None else scope
    scheduler, world = command.scheduler, command.world

    def now() -> str:
        return timestamp(world.time())

    facts = {**about, "started_at": now()}
    folder, lock = yield from command.store.starting(
        ROOT, image.name, locked_paths, facts, command.queue(interrupt), command.ours
    )
    command.folder = folder
    if scheduler is not None:
        scheduler.ours.add(folder.id)
    started_at = now()
    journal = None
    try:
        if scheduler is None or not scheduler.link_program(image, folder):
            folder.write(folder.image_name, program_file.encode(image))
        journal = folder.create_journal(now)
        journal.record(_start_event(command, folder, image, about, scope), started_at)
        command.prepare(folder)
        yield Apart(lambda: _sync(journal, folder))
    except BaseException:
        if journal is not None:
            journal.close()
        folder.discard()
        lock.close()
        command.folder = None
        raise
    if not (command.report.is_silent or command.report.as_json or command.values.quiet):
        _mention_unfinished(command, folder, path)
    command.detach(folder)
    display = command.display(image)
    display.begin(folder.id, image.name)
    machine = Machine(image, tier=command.tier)
    checkpoints = Checkpoints(folder)
    return (
        yield from command.drive(
            machine, journal, display, interrupt, checkpoints, lock, started_at=started_at
        )
    )


def _start_event(
    command: Command, folder: RunFolder, image: Image, about: dict[str, Any], scope: list[str] | None
) -> RunStart:
    values = command.values
    overrides = {name: value for name in OVERRIDES if (value := getattr(values, name))}
    return RunStart(
        format=journals.FORMAT,
        run=folder.id,
        program=image.name,
        program_hash=image.program_hash,
        llc=__version__,
        path=about["path"],
        script=about.get("script", ABSENT),
        expression=ABSENT if values.expression is None else values.expression,
        overrides=overrides or ABSENT,
        limits=command.bounds.as_record() or ABSENT,
        budget=command.budget or ABSENT,
        scope=ABSENT if scope is None else scope,
    )


def _sync(journal: Journal, folder: RunFolder) -> None:
    """Make the start of a run durable, so that it survives a power failure."""
    journal.sync()
    folder.sync()


def _mention_unfinished(command: Command, folder: RunFolder, path: str) -> None:
    """Show a note if the previous run of the same program is unfinished."""
    previous = runs.unfinished_before(folder)
    if previous is None or not path or previous.start().get("path") != path or is_driven(previous):
        return
    command.warn(f"note: {previous.id} is unfinished; to resume it: llc resume {previous.id}")
