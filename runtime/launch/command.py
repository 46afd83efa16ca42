"""Commands that drive runs: settings and steps shared by `run`, `resume`, `fork`, `task` and `batch`.

Owns the execution of a command from its options to the exit code: in the background if requested, with
reports of failures and of the result. `run` starts a new run, `resume` continues an unfinished one. Heavy
modules are imported where they are needed: a run of a cached program imports neither the compiler nor Typer.
"""

from __future__ import annotations

import gc
import os.path

from ...ir.effects import STALL_ROUNDS
from ...vm.code.image import Image
from ...vm.machine.machine import TIERS, Machine
from ..effects.world import World
from ..execution.driver import Driver
from ..execution.observer import Display, QuietDisplay
from ..host import clock, environment, files, keeper, secrets
from ..host.coroutines import Steps
from ..host.effect_context import Interrupt, WorldLike
from ..host.errors import EXIT_FAILURE, EXIT_OK, UserError
from ..host.paths import CONFIG, KEPT, LOOPS, ROOT
from ..journal.events import ProgramChanged
from ..journal.journal import Journal
from ..journal.outcome import Outcome
from ..journal.position import Progress
from ..journal.run_folder import RunFolder
from ..project.limits import Bounds, iteration_limits
from ..project.options import Values
from ..runs import locks, runs
from ..runs.checkpoints import Checkpoints
from ..runs.scope_conflicts import Holder
from ..terminal.live_tail import LiveDisplay, LiveFile
from .report import Report

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from ..execution.profiler import Meter
    from ..execution.scheduler import Scheduler
    from ..journal.totals import Used
    from ..project.budget import Spending
    from ..project.settings import Configuration
    from ..runs.store import Lookup, Ownership, Scopes
    from .background import Detachment

    Action = Callable[["Command"], Outcome | None]


def execute(values: Values, action: Action, report: Report | None = None) -> int:
    """Execute a command, in the background with `--background`; return the exit code."""
    report = report or Report(values)
    if not values.background:
        return Command(values, report).execute(action)
    from . import background

    def child(detachment: Detachment) -> int:
        return Command(values, report, detachment).execute(action)

    try:
        return background.start(values, child)
    except UserError as error:
        return Command(values, report).fail(error)


class Command:
    """State of one command that drives a run.

    detachment: detaches a background run from the caller once it is recorded; None in the foreground.
    scheduler: drives the run concurrently with others; None for a single run.
    """

    # Run store; defaults to the file store.
    store: Scopes = locks
    # Lookup of an unfinished run in the store; None for the file store.
    find: Lookup | None = None

    def __init__(
        self,
        values: Values,
        report: Report,
        detachment: Detachment | None = None,
        scheduler: Scheduler | None = None,
    ) -> None:
        self.values = values
        self.report = report
        self.warn = report.warn
        self.scheduler = scheduler
        self.detachment = detachment
        # Message to show once nothing can refuse the run any more.
        self.announcement = ""
        self.is_background = detachment is not None
        self.retention: tuple[int, int | None, int | None] = (KEPT, None, None)
        self.bounds = Bounds()
        self.budget: dict[str, float] = {}
        self.settings: Configuration | None = None
        self.record_files = ("agents", False)
        # Hashes of the programs that passed the preflight checks.
        self.checked: set[str] = set()
        self.tier = "auto"
        self.is_scripted = False
        self.world: WorldLike
        self.refusals: tuple[type[Exception], ...] = ()
        self.image: Image | None = None
        self.iteration_limits: dict[str, int | None] = {}
        self.folder: RunFolder | None = None
        self.queued: RunFolder | None = None
        self.driver: Driver | None = None
        self.machine: Machine | None = None
        self.meter: Meter | None = None
        self.profile: dict[str, Any] | None = None
        # An additional output that was requested (test case, profile) could not be written.
        self.has_output_failed = False
        self.started_at = clock.monotonic()

    # --- execution ------------------------------------------------------------------------------

    def execute(self, action: Action) -> int:
        """Perform the action and report its result; return the exit code. Re-raises an internal error."""
        try:
            outcome = action(self)
        except (Exception, KeyboardInterrupt) as error:
            return self.fail(error)
        if outcome is None:
            return EXIT_OK
        values, report = self.values, self.report
        if values.verbose or values.profile or values.flame:
            try:
                self._report_profile()
            except UserError as error:
                report.show_failure(error)
                self.has_output_failed = True
        if outcome.error is not None:
            report.show_fault(outcome, self.image)
        if outcome.status == "interrupted" and outcome.terminated_by not in ("fuel", "budget"):
            self.warn(f"Resume with: llc resume {outcome.run}")
        code = outcome.exit_code or (EXIT_FAILURE if self.has_output_failed else EXIT_OK)
        return report.answer(outcome, code, self.profile)

    def fail(self, error: BaseException) -> int:
        """Report a failure; return the exit code. Re-raises an internal error, after the JSON object."""
        failures = _failures()
        if isinstance(error, RecursionError):
            raise error
        error = failures.of_run(error, self.folder)
        self.report.show_failure(error, self.driver is not None)
        code = EXIT_FAILURE if failures.is_internal(error) else failures.exit_code(error)
        code = self.report.answer(self.failure_outcome(error), code)
        if failures.is_internal(error):
            raise error
        return code

    def failure_outcome(self, error: BaseException) -> Outcome:
        """Outcome of a run that this exception ended, or prevented from starting."""
        failures = _failures()
        error = failures.of_run(error, self.folder)
        details = failures.as_error(error, self.values.target or "the expression")
        status = "interrupted" if details["kind"] == "interrupt" else "error"
        if self.driver is not None:
            outcome = self.driver.outcome(status)
        else:
            program = self.image.name if self.image is not None else None
            outcome = Outcome(self.folder.id if self.folder else None, program, "loop", status)
            outcome.duration_ms = int((clock.monotonic() - self.started_at) * 1000)
        outcome.terminated_by = "interrupt" if status == "interrupted" else "error"
        outcome.error = details
        return outcome

    def _report_profile(self) -> None:
        """Show and write the requested profile, and with `--verbose` the tier. Raises UserError."""
        values, folder = self.values, self.folder
        if values.verbose and self.machine is not None:
            from ..execution import tier_choice

            self.warn(f"note: {tier_choice.describe_tier(self.machine, self.tier)}")
        if not (values.profile or values.flame) or folder is None:
            return
        from ..inspection import profile_report

        profile = self.meter.profile if self.meter else profile_report.of_record(folder.id, folder.journal)
        if values.profile:
            self.warn(profile_report.as_text(profile, self.report.errors).rstrip("\n"))
            self.profile = profile_report.as_json(profile)
        if values.flame:
            profile_report.write_flame(profile, values.flame)

    # --- settings -------------------------------------------------------------------------------

    def configure(self) -> None:
        """Read the project's configuration."""
        names: tuple[str, ...] = ()
        if files.lexists(os.path.join(ROOT, LOOPS, CONFIG)):
            from ..project import configuration

            self.settings = settings = configuration.load(ROOT)
            names, self.retention, self.budget = settings.secrets, settings.retention, settings.budget
            self.record_files = settings.record_files, settings.tasks.runner == "agent"
        secrets.begin(names)

    def choose_tier(self) -> None:
        if self.values.tier is not None or environment.environ.get("LLC_TIER"):
            from ..execution import tier_choice

            self.tier = tier_choice.requested_tier(self.values.tier)

    def budget_of(self, values: Values, default: dict[str, float]) -> dict[str, float]:
        """Budget set by `--budget`, else the default. Raises UserError."""
        if not values.budget:
            return default
        from ..project import budget

        return budget.limits_of_options(values.budget, default)

    def check(self, image: Image) -> None:
        """Run the preflight checks of a program. Raises UserError if one fails."""
        names = image.constants
        if self.values.no_preflight or image.program_hash in self.checked:
            return
        if "agent" in names or "task" in names or "max_tokens" in names:
            from . import preflight  # only for programs with agents or models

            for check in preflight.refuse(image, "usd" in self.budget):
                self.warn(f"warning: {check.subject} {check.message}; {check.help}")
        self.checked.add(image.program_hash)

    def open_world(self, script: str | None) -> None:
        """Open the world that performs effects: a scripted one if `script` is given, else the real one."""
        if script is None:
            world = World() if self.scheduler is None else World(workers=self.scheduler.models)
            world.record_files(*self.record_files)
            if self.image is not None and self.image.meta["paradigm"] not in (None, "fsm"):
                world.detect_stalls(STALL_ROUNDS)
            self.world = world
            return
        from ..effects.script_reader import load_world
        from ..effects.scripted_world import NoRule

        self.is_scripted = True
        self.world, self.refusals = load_world(script), (NoRule,)

    # --- the run lock and the background ----------------------------------------------------------

    def holder_fields(self) -> dict[str, Any]:
        """Fields about this process for the lock file of the run."""
        if self.scheduler is not None:
            return self.scheduler.held_by()
        return {"background": True} if self.is_background else {}

    @property
    def ours(self) -> set[str] | None:
        """Ids of the runs of this process; None if it drives a single run."""
        return None if self.scheduler is None else self.scheduler.ours

    def queue(self, interrupt: Interrupt) -> locks.Queue | None:
        """Queue for conflicting runs with `--queue`, else None."""
        if not self.values.queue:
            return None

        def on_wait(run: RunFolder, others: list[Holder]) -> None:
            self.queued = run
            holder = others[-1]
            more = f" and {len(others) - 1} more" if len(others) > 1 else ""
            self.announce()
            if not self.values.quiet:
                self.warn(f"{run.id} waits for {holder.run.id} (pid {holder.pid}){more}")
            self.prepare(run)
            self.detach(run)

        return locks.Queue(interrupt, on_wait)

    def prepare(self, folder: RunFolder) -> None:
        """Open the files that a background run needs. Raises UserError."""
        if self.detachment is not None:
            self.detachment.prepare(folder)

    def announce(self) -> None:
        """Show the announcement: nothing can refuse the run any more."""
        if self.announcement and not self.values.quiet:
            self.warn(self.announcement)
        self.announcement = ""

    def detach(self, folder: RunFolder) -> None:
        """Detach a background run from the caller; it is recorded, or queued."""
        if self.detachment is not None:
            self.detachment.leave(folder)
            self.detachment = None
            self.report.detach()

    # --- driving --------------------------------------------------------------------------------

    def display(self, image: Image) -> Display:
        """Observer of the run: progress for the user, and output tails for `attach` and `status`."""
        # Start-up time: import a display only if it is used.
        if self.values.quiet:
            display: Display = QuietDisplay(self.report.errors)
        else:
            from ..terminal.progress import ProgressDisplay

            self.iteration_limits = iteration_limits(image.meta)
            display = ProgressDisplay(self.report.screen, self.iteration_limits, self.values.verbose)
        if self.folder is not None and not self.is_scripted:  # a scripted action ends at once
            display = LiveDisplay(display, LiveFile(self.folder.live))
        if secrets.known:
            from ..terminal.redaction import MaskedDisplay

            display = MaskedDisplay(display)
        return display

    def drive(
        self,
        machine: Machine,
        journal: Journal,
        display: Display,
        interrupt: Interrupt,
        checkpoints: Checkpoints,
        lock: Ownership,
        start: tuple[Any, ...] = (),
        used: Used | None = None,
        **past: Any,
    ) -> Steps[Outcome]:
        """Drive the run to its end, then close it; a finished run moves to the history.

        Args:
            machine: machine at the position where the run starts or continues.
            journal: open journal of the run.
            display: observer of the run.
            interrupt: requests to stop.
            checkpoints: checkpoint store of the run.
            lock: ownership of the run, released at the end.
            start: arguments of `Driver.steps`.
            used: consumption of a resumed run so far.
            past: further arguments of `Driver`.
        """
        assert self.folder is not None
        progress = past.get("progress")
        machine, measured = self._measured(machine, journal, progress)
        self.driver = Driver(
            machine,
            self.world,
            measured,
            self.folder,
            display,
            interrupt,
            refusals=self.refusals,
            jobs=self.values.jobs,
            pool=self.scheduler.pool if self.scheduler is not None else None,
            checkpoints=checkpoints,
            fuel=self.bounds.fuel,
            has_input=not self.values.no_input,
            spending=lambda: self._spending(used),
            link=lambda args: self._linked(args, journal),
            **past,
        )
        if not self.report.is_silent:
            # All objects that exist now live until the end (`entry`): collect only objects of the run.
            gc.freeze()
            gc.enable()
        keeper.guard(self.folder.path, lock.fileno())
        try:
            ended = yield from self.driver.steps(*start)
            if ended.status != "interrupted":
                self.folder.finish()
                lock.close()
                # A batch applies the retention before it starts, so that its own runs can be inspected.
                kept, _, size = self.retention
                if self.scheduler is None and (size or runs.count_finished(ROOT, self.folder.name) > kept):
                    from ..runs import retention

                    retention.apply_after_run(self.folder, *self.retention)
            return ended
        finally:
            keeper.unguard(self.folder.path)
            self.world.close()
            try:
                journal.close()
            finally:
                lock.close()

    def _measured(
        self, machine: Machine, journal: Journal, progress: Progress | None
    ) -> tuple[Machine, Journal]:
        """The machine and the journal for the driver, wrapped by a meter if a profile is requested.

        The time of a scripted world exists only in the journal, so its profile is computed from the journal.
        """
        self.machine = machine
        if (self.values.profile or self.values.flame) and not self.is_scripted:
            from ..execution.profiler import Meter

            assert self.folder is not None
            self.meter = meter = Meter(self.folder.id, machine.image.name)
            meter.profile.states.restore(progress.loops if progress is not None else ())
            return meter.machine(machine), meter.journal(journal)
        return machine, journal

    def _linked(self, args: dict[str, Any], journal: Journal) -> tuple[Machine, ProgramChanged] | str:
        """The machine in a program extended by the loop that a `link` effect names, and the event to record.

        Returns an error message if the loop cannot be linked.
        """
        from ..project import linking  # only for loops with computed names

        assert self.folder is not None
        assert self.machine is not None
        assert self.driver is not None
        journal.flush()  # linking reads the earlier links from the journal
        state = self.driver.outcome("interrupted").final_state
        linked = linking.link(self.folder, self.machine, args, state)
        if isinstance(linked, str):
            return linked
        machine, event = linked
        self.image = machine.image
        self.iteration_limits |= iteration_limits(machine.image.meta)
        if machine.direct is None:
            machine.warm = TIERS[self.tier]
        try:
            self.check(machine.image)
        except UserError as error:
            return error.message
        self.machine = machine
        return (self.meter.machine(machine) if self.meter is not None else machine), event

    def _spending(self, used: Used | None) -> Spending:
        """Budget and ledgers of the run. used: consumption of a resumed run so far."""
        from ..project import budget

        if self.is_scripted:  # a scripted world asks no model
            return budget.Spending(self.budget, None, used)
        from ..project.run_ledgers import RunLedgers

        assert self.folder is not None
        ledgers = RunLedgers(self.folder.id, self.settings, self.warn)
        return budget.Spending(self.budget, budget.unpriced_model, used, ledgers)


def _failures() -> ModuleType:
    from . import failures  # only after a failure

    return failures
