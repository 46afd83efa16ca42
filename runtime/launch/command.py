"""From a command to a driven run, whatever the command line is made of.

Owns the order: program, world, folder and lock, journal, driver, and the value in the end. What goes on
with a run is in `resuming`, what is told of its end besides in `ending`. Heavy parts are imported where
they are needed: a run of a cached loop imports neither the compiler nor the command-line library.
"""

from __future__ import annotations

import gc
import json
import os.path
import sys

from ..execution.driver import Driver
from ..execution.observer import Display, QuietDisplay
from ..host import clock, environment, files
from ..host import secrets as masking
from ..host.clock import timestamp
from ..host.coroutines import Apart, alone
from ..host.errors import EXIT_FAILURE, EXIT_OK, UserError, refuse_missing_folder
from ..host.paths import CONFIG, KEPT, LOOPS, ROOT
from ..host.screen import Screen
from ..journal import journal as journals
from ..journal.journal import Journal
from ..journal.outcome import Outcome
from ..project.limits import Bounds, keeping
from ..project.load import load_expression, load_program
from ..project.options import OVERRIDES
from ..runs import locks, program_file, runs
from ..runs.checkpoints import Checkpoints
from ..runs.loops import resolve_loop
from ..terminal.live_tail import LiveDisplay, LiveFile
from .signals import Stopping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ...vm.code.image import Image
    from ...vm.machine.machine import Machine
    from ..execution.profiler import Meter
    from ..execution.scheduler import Many
    from ..host.context import Interrupt, WorldLike
    from ..host.coroutines import Steps
    from ..journal.position import Progress
    from ..journal.run_folder import RunFolder
    from ..project.budget import Spending
    from ..project.options import Values
    from ..runs.locks import Lock
    from .background import Leaving


def run(values: Values) -> int:
    """`llc run`; the exit code."""
    return start(values, Command.run)


def resume(values: Values) -> int:
    """`llc resume`; the exit code."""
    from . import resume as resuming

    return start(values, resuming.resume)


def fork(values: Values, make: Callable[[], RunFolder]) -> int:
    """`llc resume` of a new run that `make` makes; the exit code."""
    from . import resume as resuming

    return start(values, lambda command: resuming.fork(command, make))


def start(
    values: Values,
    action: Callable[[Command], Outcome | None],
    made: Callable[[Leaving | None], Command] | None = None,
) -> int:
    """Do what a command does, in the background if that is asked for; the exit code.

    made: the command, by what it leaves its caller with, None where it stays.
    """
    if made is None:

        def made(leaving: Leaving | None) -> Command:
            return Command(values, leaving=leaving)

    if not values.background:
        return made(None).guarded(action)
    from . import background

    try:
        return background.start(values, lambda leaving: made(leaving).guarded(action))
    except UserError as error:
        lost = error

    def refuse(command: Command) -> None:
        raise lost

    return made(None).guarded(refuse)


def outcome(values: Values) -> Outcome:
    """As `run`, but shows nothing, leaves signals alone and raises what goes wrong."""
    with keeping():
        ended = Command(values, is_silent=True).run()
    if ended is None:
        raise ValueError("a dry run has no outcome")
    return ended


class Command:
    """One `run` or `resume`: where it shows what, and how it answers."""

    def __init__(
        self,
        values: Values,
        is_silent: bool = False,
        leaving: Leaving | None = None,
        many: Many | None = None,
    ) -> None:
        self.values = values
        self.many = many
        self.is_silent = is_silent
        self.leaving = leaving
        self.is_background = leaving is not None
        self.as_json: bool = values.json
        self.keep = KEPT
        self.older_than: int | None = None
        self.bounds = Bounds()
        self.budget: dict[str, float] = {}
        self.is_scripted = False
        self.world: WorldLike
        self.refusals: tuple[type[Exception], ...] = ()
        self.find_streams()
        self.image: Image | None = None
        self.folder: RunFolder | None = None
        self.queued: RunFolder | None = None
        self.driver: Driver | None = None
        self.is_unrecorded = False
        self.tier = "auto"
        self.meter: Meter | None = None
        self.machine: Machine | None = None
        self.profile: dict[str, Any] | None = None
        self.begun = clock.monotonic()

    def find_streams(self) -> None:
        is_silent = self.is_silent
        self.errors = Screen(None if is_silent else sys.stderr)
        self.screen = self.errors if self.as_json or is_silent else Screen(sys.stdout)

    def configure(self) -> None:
        """Take what the project says about all its loops."""
        secrets: tuple[str, ...] = ()
        if files.lexists(os.path.join(ROOT, LOOPS, CONFIG)):
            from ..project import configuration

            told = configuration.load(ROOT)
            secrets, self.keep, self.older_than = told.secrets, told.keep, told.older_than
            self.budget = told.budget
        masking.begin(secrets)

    # --- a new run ------------------------------------------------------------------------

    def run(self) -> Outcome | None:
        values = self.values
        self.bounds = Bounds.asked(values)
        self.bounds.apply()
        self.choose_tier()
        self.configure()
        if values.flame:
            refuse_missing_folder(values.flame)
        if values.budget:
            from ..project import budget

            self.budget = budget.asked(values.budget, self.budget)
        if values.record:
            from ..recordings import cases, make_case

            make_case.refuse_taken(cases.case_path(values.record))
        if values.dry_run and self.is_background:
            raise UserError("bad-option", "--dry-run runs nothing, so there is nothing for the background")
        path, image = self.load()
        if values.dry_run:
            from ..project.dry_run import dry_run

            Screen(sys.stdout).deliver(masking.masked(dry_run(image, values.json)).encode("utf-8", "replace"))
            return None
        with Stopping(self.is_silent, self.is_background) as interrupt:
            ended = alone(self.begin(path, image, interrupt))
        if values.record:
            from . import report

            report.record(self, ended)
        return ended

    def begin(
        self, path: str, image: Image, interrupt: Interrupt, scope: list[str] | None = None
    ) -> Steps[Outcome]:
        """A new run of `image`, from its folder to its end; it works on `scope`, or what its program says."""
        self.image = image
        script = self.values.script
        self.open_world(script)
        about: dict[str, Any] = {"program": image.name, "path": path, **self.held_by()}
        if script:
            about["script"] = os.path.abspath(script)
        wanted = [] if script else image.meta["scope"] if scope is None else scope
        facts = {"scope": scope} if scope is not None else {}
        return (yield from self.start(image, about, wanted, interrupt, facts))

    def load(self) -> tuple[str, Image]:
        """The path of what is run, '' where it has none, and its image."""
        values = self.values
        if values.expression is not None:
            return "", load_expression(values.expression, values, self.warn)
        path = resolve_loop(values.target, ROOT)
        return path, load_program(path, values, self.warn)

    def start(
        self,
        image: Image,
        about: dict[str, Any],
        scope: list[str],
        interrupt: Interrupt,
        more: dict[str, Any],
    ) -> Steps[Outcome]:
        """A folder, a lock and a journal for a new run, and then the run.

        more: what the journal's beginning tells beside the rest.
        """
        world = self.world
        facts = {**about, "started_at": timestamp(world.time())}
        queue = self.queue(interrupt)
        self.folder, lock = yield from locks.starting(ROOT, image.name, scope, facts, queue, self.ours)
        folder = self.folder
        if self.many is not None:
            self.many.ours.add(folder.id)
        begun = timestamp(world.time())
        journal = None
        try:
            if self.many is None or not self.many.link_program(image, folder):
                program_file.keep(folder.image, image)
            journal = Journal.create(folder.journal, lambda: timestamp(world.time()))
            journal.write("run_start", {**self.start_fields(about), **more}, begun)
            self.prepare(folder)
            yield Apart(lambda: _put_on_disk(journal, folder))
        except BaseException:
            if journal is not None:
                journal.close()
            folder.discard()
            lock.close()
            self.folder = None
            raise
        if not (self.is_silent or self.as_json or self.values.quiet):
            self.tell_of_unfinished(folder, about["path"])
        self.leave(folder)
        display = self.display(image)
        display.begin(folder.id, image.name)
        from ...vm.jit.runtime.tiered import Machine

        machine = Machine(image, tier=self.tier)
        driver = self.driven(machine, journal, display, interrupt, Checkpoints(folder), begun=begun)
        return (yield from self.drive(driver.steps(), journal, lock))

    # --- any run --------------------------------------------------------------------------

    def driven(
        self,
        machine: Machine,
        journal: Journal,
        display: Display,
        interrupt: Interrupt,
        checkpoints: Checkpoints,
        **past: Any,
    ) -> Driver:
        """The driver of the run; past: what it has to know of a run that goes on."""
        assert self.folder is not None
        progress = past.get("progress")
        machine, measured = self.measured(machine, journal, progress)
        self.driver = Driver(
            machine,
            self.world,
            measured,
            self.folder,
            display,
            interrupt,
            refusals=self.refusals,
            jobs=self.values.jobs,
            pool=self.many.pool if self.many is not None else None,
            checkpoints=checkpoints,
            fuel=self.bounds.fuel,
            spending=self.spending(is_begun=progress is not None),
            **past,
        )
        return self.driver

    def drive(self, steps: Steps[Outcome], journal: Journal, lock: Lock) -> Steps[Outcome]:
        """Drive to the end and put everything away; a run that has ended goes to the history."""
        if not self.is_silent:
            # What there is by now stays to the end (`entry`); only what the run makes is looked through.
            gc.freeze()
            gc.enable()
        try:
            ended = yield from steps
            if ended.status != "interrupted" and self.folder is not None:
                self.folder.finish()
                lock.close()
                # A batch has cleared away before it began: what it ran can be looked at.
                if self.many is None and runs.count_past(ROOT, self.folder.name) > self.keep:
                    from ..runs import retention

                    retention.after(self.folder, self.keep, self.older_than)
            return ended
        finally:
            self.world.close()
            try:
                journal.close()
            finally:
                lock.close()

    # --- parts ----------------------------------------------------------------------------

    def tell_of_unfinished(self, folder: RunFolder, path: str) -> None:
        """Say that the run of the same program before was cut off, and can go on."""
        before = runs.unfinished_before(folder)
        if before is not None and path and before.start().get("path") == path and not locks.is_live(before):
            self.warn(f"note: {before.id} has not ended; to go on with it: llc resume {before.id}")

    def held_by(self) -> dict[str, Any]:
        """What a run's lock file tells of the process that runs it."""
        if self.many is not None:
            return self.many.held_by()
        return {"background": True} if self.is_background else {}

    @property
    def ours(self) -> set[str] | None:
        """The runs of this process, where there are many."""
        return None if self.many is None else self.many.ours

    def queue(self, interrupt: Interrupt) -> locks.Queue | None:
        """How to wait for other runs, where that was asked for."""
        if not self.values.queue:
            return None

        def on_wait(run: RunFolder, others: list[locks.Holder]) -> None:
            self.queued = run
            holder = others[-1]
            more = f" and {len(others) - 1} more" if len(others) > 1 else ""
            if not self.values.quiet:
                self.warn(f"{run.id} waits for {holder.run.id} (pid {holder.pid}){more}")
            self.prepare(run)
            self.leave(run)

        return locks.Queue(interrupt, on_wait)

    def prepare(self, folder: RunFolder) -> None:
        """Open what the background needs, where the run is to go there."""
        if self.leaving is not None:
            self.leaving.prepare(folder)

    def leave(self, folder: RunFolder) -> None:
        """Go on in the background, where that was asked for: the run is on record, or in the queue."""
        if self.leaving is not None:
            self.leaving.leave(folder)
            self.leaving = None
            self.as_json = False  # the caller has its object
            self.find_streams()

    def choose_tier(self) -> None:
        if self.values.tier is not None or environment.environ.get("LLC_TIER"):
            from ..execution import tier_choice

            self.tier = tier_choice.asked(self.values.tier)

    def measured(
        self, machine: Machine, journal: Journal, progress: Progress | None
    ) -> tuple[Machine, Journal]:
        """What the driver works with, so that its time is taken where a profile was asked for.

        The time of a scripted world passes in the journal alone, so there that is read at the end.
        """
        self.machine = machine
        if self.values.profile or self.values.flame:
            from ..effects.world import World

            assert self.folder is not None
            if isinstance(self.world, World):
                from ..execution.profiler import Meter

                self.meter = meter = Meter(self.folder.id, machine.image.name)
                meter.profile.places.stand(progress.loops if progress is not None else ())
                return meter.machine(machine), meter.journal(journal)
        return machine, journal

    def open_world(self, script: str | None) -> None:
        """The world to perform in, and what it raises when it will not perform an effect."""
        if script is None:
            from ..effects.world import World

            self.world = World() if self.many is None else World(shared=self.many.models)
            return
        from ..effects.scripted_world import NoRule, ScriptedWorld

        self.is_scripted = True
        self.world, self.refusals = ScriptedWorld.load(script), (NoRule,)

    def start_fields(self, about: dict[str, Any]) -> dict[str, Any]:
        from ... import __version__

        assert self.image is not None
        assert self.folder is not None
        given = {row.name: value for row in OVERRIDES if (value := getattr(self.values, row.name, None))}
        return {
            "format": journals.FORMAT,
            "run": self.folder.id,
            "program": self.image.name,
            "program_hash": self.image.program_hash,
            "llc": __version__,
            "path": about["path"],
            **({"script": about["script"]} if "script" in about else {}),
            **({"expression": self.values.expression} if self.values.expression is not None else {}),
            **({"overrides": given} if given else {}),
            **({"limits": limits} if (limits := self.bounds.as_record()) else {}),
            **({"budget": self.budget} if self.budget else {}),
        }

    def spending(self, is_begun: bool = False) -> Spending | None:
        """What the run may spend and, where it goes on, what it has spent; None for what it likes."""
        if not self.budget:
            return None
        from ..project import budget

        # A scripted world asks no model.
        found = budget.Spending(self.budget, None if self.is_scripted else budget.unpriced)
        if is_begun:
            from ..journal.summary import Follower

            assert self.folder is not None
            follower = Follower(self.folder)
            try:
                found.take_events(follower.events())
            finally:
                follower.close()
        return found

    def display(self, image: Image) -> Display:
        if self.values.quiet:
            shown: Display = QuietDisplay(self.errors)
        else:
            from ..terminal.progress import ProgressDisplay, limits_of

            shown = ProgressDisplay(self.screen, limits_of(image.meta), self.values.verbose)
        if self.folder is not None:
            shown = LiveDisplay(shown, LiveFile(self.folder.live))
        if masking.known:
            from ..terminal.redaction import MaskedDisplay

            shown = MaskedDisplay(shown)
        return shown

    # --- how it ended ---------------------------------------------------------------------

    def warn(self, text: str) -> None:
        self.errors.write(text + "\n")

    def guarded(self, action: Callable[[Command], Outcome | None]) -> int:
        """Do it and answer; what the user or the system did wrong is shown, what we did is raised."""
        try:
            outcome = action(self)
        except (Exception, KeyboardInterrupt) as error:
            from . import report

            return report.refuse(self, error)
        if outcome is None:
            return EXIT_OK
        values = self.values
        if values.verbose or values.profile or values.flame:
            from . import report

            try:
                report.say_where_time_went(self)
            except UserError as error:
                report.show_error(self, error)
                self.is_unrecorded = True
        if outcome.error is not None:
            from . import report

            report.show_fault(self, outcome)
        if outcome.status == "interrupted" and outcome.terminated_by not in ("fuel", "budget"):
            self.warn(f"Resume with: llc resume {outcome.run}")
        return self.answer(outcome, outcome.exit_code or (EXIT_FAILURE if self.is_unrecorded else EXIT_OK))

    def answer(self, outcome: Outcome, exit_code: int) -> int:
        """The one JSON object, where it was asked for; the exit code, or that it could not be written."""
        try:
            if self.as_json:
                told = outcome.to_json() | ({"profile": self.profile} if self.profile else {})
                text = json.dumps(masking.known.mask_all(told), ensure_ascii=False, default=str)
                Screen(sys.stdout).deliver((text + "\n").encode("utf-8", "replace"))
            elif outcome.kind != "loop" and outcome.value is not None and not self.values.quiet:
                text = json.dumps(masking.known.mask_all(outcome.value), indent=2, ensure_ascii=False)
                self.screen.deliver(self.screen.encode(text + "\n"))
        except BrokenPipeError:
            pass  # the run's work is not its display
        except UserError as error:
            from . import report

            report.show_error(self, error)
            return exit_code or error.exit_code
        return exit_code


def _put_on_disk(journal: Journal, folder: RunFolder) -> None:
    """Let a run that begins outlast a power cut."""
    journal.sync()
    journals.sync_folder(folder.path)
    journals.sync_folder(os.path.dirname(folder.path))
