"""From a command to a driven run: `run` and `resume`, whatever the command line is made of.

Owns the order: program, world, folder and lock, journal, driver; and saying how it ended. Heavy
parts are imported where they are needed: a run of a cached loop imports neither the compiler nor
the command-line library.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from time import monotonic

from .. import early
from ..compilation.programs import load_expression, load_program
from ..effects.world import Interrupted, timestamp
from ..errors import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE, UserError
from ..inspection.live import LiveDisplay, LiveFile
from ..options import OVERRIDES
from ..store import journal as journals
from ..store import kept_image, locks, masking, runs
from ..store.checkpoint import Checkpoints
from ..store.journal import Journal, JournalError
from ..store.runs import ROOT
from ..terminal.display import Display, ProgressDisplay, QuietDisplay, limits_of
from ..terminal.screen import Screen
from ..waiting import Apart, alone
from .bounding import Bounds, keeping
from .driver import Driver
from .outcome import Outcome
from .signals import Stopping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ...ir.diagnostics import CompileError, Diagnostic
    from ...vm.image import Image
    from ...vm.machine import Machine
    from ..effects.world import Interrupt, WorldLike
    from ..options import Values
    from ..store.locks import Lock
    from ..store.resumption import Resumption
    from ..store.runs import RunFolder
    from ..waiting import Steps
    from .background import Leaving
    from .many import Many
    from .profiling import Meter
    from .progress import Progress
    from .spending import Spending


# What a lock file tells of the process that holds it, and not of its run.
_OF_HOLDER = (
    *("run", "pid", "start_time", "since", "scope", "parent", "background", "host"),
    *("queued", "ticket", "waits_for"),
)


def run(values: Values) -> int:
    """`llc run`; the exit code."""
    return start(values, Command.run)


def resume(values: Values) -> int:
    """`llc resume`; the exit code."""
    return start(values, Command.resume)


def fork(values: Values, make: Callable[[], RunFolder]) -> int:
    """`llc resume` of a new run that `make` makes; the exit code."""
    return start(values, lambda command: command.fork(make))


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
        self.keep = runs.KEPT
        self.older_than: int | None = None
        self.bounds = Bounds()
        self.budget: dict[str, float] = {}
        self.is_scripted = False
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
        self.begun = monotonic()

    def find_streams(self) -> None:
        is_silent = self.is_silent
        self.errors = Screen(None if is_silent else sys.stderr)
        self.screen = self.errors if self.as_json or is_silent else Screen(sys.stdout)

    def configure(self) -> None:
        """Take what the project says about all its loops."""
        secrets: tuple[str, ...] = ()
        if os.path.lexists(os.path.join(ROOT, runs.LOOPS, runs.CONFIG)):
            from .. import configuration

            told = configuration.load(ROOT)
            secrets, self.keep, self.older_than = told.secrets, told.keep, told.older_than
            self.budget = told.budget
        masking.begin(secrets)

    # --- the two commands -----------------------------------------------------------------

    def run(self) -> Outcome | None:
        values = self.values
        self.bounds = Bounds.asked(values)
        self.bounds.apply()
        self.choose_tier()
        self.configure()
        if values.budget:
            from . import spending

            self.budget = spending.asked(values.budget, self.budget)
        if values.record:
            from ..records import cases, making

            making.refuse_taken(cases.case_path(values.record))
        if values.dry_run and self.is_background:
            raise UserError("bad-option", "--dry-run runs nothing, so there is nothing for the background")
        path, image = self.load()
        if values.dry_run:
            from ..compilation.plan import dry_run

            Screen(sys.stdout).deliver(masking.masked(dry_run(image, values.json)).encode("utf-8", "replace"))
            return None
        with Stopping(self.is_silent, self.is_background) as interrupt:
            ended = alone(self.begin(path, image, interrupt))
        if values.record:
            self.record(ended)
        return ended

    def begin(
        self, path: str, image: Image, interrupt: Interrupt, scope: list[str] | None = None
    ) -> Steps[Outcome]:
        """A new run of `image`, from its folder to its end; it works on `scope`, or what its program says."""
        self.image = image
        script = self.values.script
        world, refusals = self.world(script)
        about: dict[str, Any] = {"program": image.name, "path": path, **self.held_by()}
        if script:
            about["script"] = os.path.abspath(script)
        wanted = [] if script else image.meta["scope"] if scope is None else scope
        facts = {"scope": scope} if scope is not None else {}
        return (yield from self.start(image, world, refusals, about, wanted, interrupt, facts))

    def load(self) -> tuple[str, Image]:
        """The path of what is run, '' where it has none, and its image."""
        values = self.values
        if values.expression is not None:
            return "", load_expression(values.expression, values, self.warn)
        path = runs.resolve(values.target, ROOT)
        return path, load_program(path, values, self.warn)

    def record(self, ended: Outcome) -> None:
        """Make a test case of the run, which has ended; that it could not be made is shown."""
        from ..records import case_writer, cases, making, recorded

        assert self.folder is not None
        if ended.status == "interrupted":
            self.warn("note: the run was interrupted, so no case is recorded")
            return
        try:
            path = cases.case_path(self.values.record)
            case, notices = making.make(recorded.RunFiles.of(self.folder), path)
            case_writer.write(case)
        except (UserError, JournalError) as error:
            self.is_unrecorded = True
            shown = error if isinstance(error, UserError) else UserError("cannot-write", error.message)
            self.show(as_diagnostics(shown))
            return
        for notice in notices:
            self.warn(f"note: {notice}")
        if not self.values.quiet:
            self.warn(f"recorded {case.path}")

    def start(
        self,
        image: Image,
        world: WorldLike,
        refusals: tuple[type[Exception], ...],
        about: dict[str, Any],
        scope: list[str],
        interrupt: Interrupt,
        more: dict[str, Any],
    ) -> Steps[Outcome]:
        """A folder, a lock and a journal for a new run, and then the run.

        more: what the journal's beginning tells beside the rest.
        """
        facts = {**about, "started_at": timestamp(world.time())}
        queue, ours = self.queue(interrupt), self.many.ours if self.many is not None else None
        self.folder, lock = yield from locks.starting(ROOT, image.name, scope, facts, queue, ours)
        folder = self.folder
        if self.many is not None:
            self.many.ours.add(folder.id)
        begun = timestamp(world.time())
        journal = None
        try:
            if self.many is None or not self.many.link_program(image, folder):
                kept_image.keep(folder.image, image)
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
        self.leave(folder)
        display = self.display(image)
        display.begin(folder.id, image.name)
        from ...vm.machine import Machine

        machine, measured = self.measured(Machine(image, tier=self.tier), world, journal)
        self.driver = driver = Driver(
            machine,
            world,
            measured,
            folder,
            display,
            interrupt,
            begun=begun,
            refusals=refusals,
            jobs=self.values.jobs,
            pool=self.many.pool if self.many is not None else None,
            checkpoints=Checkpoints(folder),
            fuel=self.bounds.fuel,
            spending=self.spending(),
        )
        return (yield from self.drive(driver.steps(), world, journal, lock))

    def fork(self, make: Callable[[], RunFolder]) -> Outcome | None:
        """Go on with a new run that has its past; one that may not is none, unless it is to wait."""
        self.choose_tier()
        self.configure()
        if self.values.budget:
            from . import spending

            spending.asked(self.values.budget, {})
        with Stopping(self.is_silent) as interrupt:
            made = make()
            if interrupt.count:
                made.discard()
                raise Interrupted
        self.values.target = made.id
        try:
            return self.resume()
        except UserError as error:
            if error.id != locks.CONFLICT:
                made.discard()
                self.folder = None
            raise

    def resume(self) -> Outcome | None:
        from ..store.unknown import POLICIES

        values = self.values
        self.choose_tier()
        self.configure()
        if values.on_unknown not in (None, *POLICIES):
            raise UserError("bad-option", f"--on-unknown is one of {', '.join(POLICIES)}")
        folder = runs.find(values.target, ROOT)
        with Stopping(self.is_silent, self.is_background) as interrupt:
            return alone(self.take_up(folder, interrupt))

    def take_up(self, folder: RunFolder, interrupt: Interrupt) -> Steps[Outcome]:
        """A run that was cut off, from where it stands to its end."""
        values = self.values
        self.folder = folder
        start = folder.start()
        if not start:
            raise _no_record(folder)
        self.bounds = Bounds.recorded(start, values.fuel)
        self.bounds.apply()
        self.budget = {}
        if values.budget or "budget" in start:
            from . import spending

            self.budget = spending.recorded(start, values.budget)
        from ..store import changes, own_program

        self.image = image = own_program.load(folder.id, folder.journal, folder.image_name, self.warn)
        from ..store.resumption import Resumption

        about = {name: value for name, value in folder.about().items() if name not in _OF_HOLDER}
        about |= self.held_by()
        script = start.get("script")
        scope = [] if script else changes.scopes(folder, image, start if values.accept_changes else None)
        ours = self.many.ours if self.many is not None else None
        lock = yield from locks.taking_over(folder, scope, about, self.queue(interrupt), ours)
        try:
            resumption = Resumption(folder, self.warn, self.tier)
            if resumption.history.end is not None:
                ended = self.recorded(resumption.history.end)
                resumption.tidy_up()
                folder.finish()
                self.warn(f"note: {folder.id} had ended already; this is how")
                return ended
            world, refusals = self.world(script)
            self.prepare(folder)
            return (yield from self.go_on(image, world, refusals, resumption, lock, interrupt))
        finally:
            lock.close()

    def held_by(self) -> dict[str, Any]:
        """What a run's lock file tells of the process that runs it."""
        if self.many is not None:
            return self.many.held_by()
        return {"background": True} if self.is_background else {}

    def recorded(self, end: dict[str, Any]) -> Outcome:
        """How a run ended that was cut off before it was put away."""
        assert self.image is not None
        assert self.folder is not None
        try:
            end = journals.unpack(end, journals.Blobs(self.folder.outputs).fetch)
        except journals.BlobError as error:
            self.warn(f"warning: {error}")
        return Outcome.of_event(self.folder.id, self.image.name, self.image.meta["kind"], end)

    def go_on(
        self,
        image: Image,
        world: WorldLike,
        refusals: tuple[type[Exception], ...],
        resumption: Resumption,
        lock: Lock,
        interrupt: Interrupt,
    ) -> Steps[Outcome]:
        """Replay what is on record, and go on from there."""
        from ...vm.machine import TIERS
        from ..store import changes
        from ..store.unknown import RESULT, Unknown

        folder = self.folder
        assert folder is not None
        position = resumption.come_back(image, world)
        machine, history, progress = position.machine, resumption.history, position.progress
        for sentence in position.lost:
            self.warn(f"warning: {folder.journal}: {sentence}")
        change = changes.find(folder.start(), machine.image, folder.outputs)
        is_accepted = change is not None and self.values.accept_changes
        if change is not None:
            if change.image is not None or not is_accepted:
                self.warn(change.text(folder.id, progress.state, is_accepted))
            if is_accepted:
                machine, dropped = changes.accept(folder, machine, change)
                for name in dropped:
                    self.warn(f"note: the new program has no `{name}`; what the run had there is dropped")
        self.image = image = machine.image
        unknown = Unknown(
            folder.id, position, machine.waiting, self.values.on_unknown, self.errors, interrupt
        )
        policies = unknown.settle()
        kept = journals.set_aside(folder.journal, position.cut) if position.cut is not None else None
        if kept is not None:
            self.warn(f"note: what was cut from the journal is kept in {kept}")
        if is_accepted:
            changes.keep(folder, image)
        journal = Journal.append(folder.journal, lambda: timestamp(world.time()), history.lines)
        journal.write(
            "run_resume",
            {
                "state": progress.state,
                "iteration": progress.iteration,
                "elapsed_ms": history.active_ms,
                "unknown": {str(seq): policy for seq, policy in policies.items()},
                "lost": position.lost,
                "set_aside": kept,
                **({"doubtful": position.marks()} if position.doubtful else {}),
            },
        )
        if is_accepted:
            facts = {"program_hash": image.program_hash, "image": folder.image_name, "state": progress.state}
            journal.write("program_changed", facts)
        journal.sync()
        self.leave(folder)
        display = self.display(image)
        display.resume(folder.id, image.name, progress.state, progress.iteration)
        if machine.direct is None:
            machine.warm = TIERS[self.tier]
        machine, measured = self.measured(machine, world, journal, progress)
        self.driver = driver = Driver(
            machine,
            world,
            measured,
            folder,
            display,
            interrupt,
            progress=progress,
            base_ms=history.active_ms,
            begun=history.begun,
            refusals=refusals,
            settle=unknown.settle_again,
            jobs=self.values.jobs,
            pool=self.many.pool if self.many is not None else None,
            checkpoints=resumption.checkpoints(),
            doubtful=position.marks,
            fuel=self.bounds.fuel,
            spending=self.spending(is_begun=True),
        )
        answers = {seq: RESULT for seq, policy in policies.items() if policy == "fail"}
        steps = driver.steps(position.outcome, position.notes, answers, position.places)
        return (yield from self.drive(steps, world, journal, lock))

    def drive(self, steps: Steps[Outcome], world: WorldLike, journal: Journal, lock: Lock) -> Steps[Outcome]:
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
                    from ..store import cleaning

                    cleaning.after(self.folder, self.keep, self.older_than)
            return ended
        finally:
            world.close()
            try:
                journal.close()
            finally:
                lock.close()

    # --- parts ----------------------------------------------------------------------------

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
        if self.values.tier is not None or os.environ.get("LLC_TIER"):
            from . import tiers

            self.tier = tiers.asked(self.values.tier)

    def measured(
        self, machine: Machine, world: WorldLike, journal: Journal, progress: Progress | None = None
    ) -> tuple[Machine, Journal]:
        """What the driver works with, so that its time is taken where a profile was asked for.

        The time of a scripted world passes in the journal alone, so there that is read at the end.
        """
        self.machine = machine
        if self.values.profile or self.values.flame:
            from ..effects.world import World

            assert self.folder is not None
            if isinstance(world, World):
                from .profiling import Meter

                self.meter = meter = Meter(self.folder.id, machine.image.name)
                meter.profile.places.stand(progress.loops if progress is not None else ())
                return meter.machine(machine), meter.journal(journal)
        return machine, journal

    def world(self, script: str | None) -> tuple[WorldLike, tuple[type[Exception], ...]]:
        """The world to perform in, and what it raises when it will not perform an effect."""
        if script is None:
            from ..effects.world import World

            return World() if self.many is None else World(shared=self.many.models), ()
        from ..effects.script import NoRule, ScriptedWorld

        self.is_scripted = True
        return ScriptedWorld.load(script), (NoRule,)

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
        from . import spending

        # A scripted world asks no model.
        found = spending.Spending(self.budget, None if self.is_scripted else spending.unpriced)
        if is_begun:
            from ..inspection.summary import Follower

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
            shown = ProgressDisplay(self.screen, limits_of(image.meta), self.values.verbose)
        if self.folder is not None:
            shown = LiveDisplay(shown, LiveFile(self.folder.live))
        if masking.known:
            from ..terminal.masked import MaskedDisplay

            shown = MaskedDisplay(shown)
        return shown

    def say_where_time_went(self) -> None:
        """The profile of what was driven, shown and written as asked for; with `--verbose`, the tier."""
        if self.values.verbose and self.machine is not None:
            from . import tiers

            self.warn(f"note: {tiers.told(self.machine, self.tier)}")
        if not (self.values.profile or self.values.flame) or self.folder is None:
            return
        from ..inspection import profiles

        profile = (
            self.meter.profile if self.meter else profiles.of_record(self.folder.id, self.folder.journal)
        )
        if self.values.profile:
            self.warn(profiles.as_text(profile, self.errors).rstrip("\n"))
            self.profile = profiles.as_json(profile)
        if self.values.flame:
            profiles.write_flame(profile, self.values.flame)

    # --- how it ended ---------------------------------------------------------------------

    def warn(self, text: str) -> None:
        self.errors.write(text + "\n")

    def guarded(self, action: Callable[[Command], Outcome | None]) -> int:
        """Do it and answer; what the user or the system did wrong is shown, what we did is raised."""
        try:
            outcome = action(self)
        except (KeyboardInterrupt, Interrupted):
            if self.driver is None:
                self.warn(early.SAID)
            return self.refuse("interrupt", "interrupted", [], EXIT_INTERRUPTED)
        except UserError as error:
            self.show(as_diagnostics(error))
            return self.refuse(error.id, error.message, [], error.exit_code, error.help)
        except JournalError as error:
            return self.refuse_journal(error)
        except RecursionError:
            raise
        except Exception as error:
            found = _compile_error(error)
            if found is None:
                self.refuse("internal", "internal error", [], EXIT_FAILURE)
                raise
            self.show(found.diagnostics, found.sources)
            count = sum(diagnostic.is_error for diagnostic in found.diagnostics)
            place = found.sources[0].path if found.sources else self.values.target or "the expression"
            message = f"{count} error{'' if count == 1 else 's'} in {place}"
            return self.refuse("invalid-loop", message, found.diagnostics, EXIT_USAGE)
        if outcome is None:
            return EXIT_OK
        try:
            self.say_where_time_went()
        except UserError as error:
            self.show(as_diagnostics(error))
            self.is_unrecorded = True
        if outcome.error is not None:
            self.show_error(outcome)
        if outcome.status == "interrupted" and outcome.terminated_by not in ("fuel", "budget"):
            self.warn(f"Resume with: llc resume {outcome.run}")
        return self.answer(outcome, outcome.exit_code or (EXIT_FAILURE if self.is_unrecorded else EXIT_OK))

    def refuse_journal(self, error: JournalError) -> int:
        help = self.journal_help
        refusal = UserError("journal", error.message, help, EXIT_FAILURE)
        self.show(as_diagnostics(refusal))
        return self.refuse("journal", error.message, [], EXIT_FAILURE, help)

    @property
    def journal_help(self) -> str | None:
        """What to do where a journal cannot be written."""
        if self.folder is None:
            return None
        return f"nothing recorded is lost; when that is mended: llc resume {self.folder.id}"

    def refuse(
        self, kind: str, message: str, diagnostics: Any, exit_code: int, help: str | None = None
    ) -> int:
        """Answer for a run that did not come to an end, or did not begin."""
        status = "interrupted" if exit_code == EXIT_INTERRUPTED else "error"
        outcome = self.not_ended(kind, message, status, help)
        if diagnostics:
            from ...ir.diagnostics import in_order, to_json

            assert outcome.error is not None
            outcome.error["diagnostics"] = [to_json(diagnostic) for diagnostic in in_order(diagnostics)]
        return self.answer(outcome, exit_code)

    def not_ended(self, kind: str, message: str, status: str, help: str | None = None) -> Outcome:
        """The outcome of a run that did not come to an end, or did not begin."""
        if self.driver is not None:
            outcome = self.driver.outcome(status)
        else:
            program = self.image.name if self.image is not None else None
            outcome = Outcome(self.folder.id if self.folder else None, program, "loop", status)
            outcome.duration_ms = int((monotonic() - self.begun) * 1000)
        outcome.terminated_by = "interrupt" if status == "interrupted" else "error"
        outcome.error = {"kind": kind, "message": message, "span": None, "help": help}
        return outcome

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
            self.show(as_diagnostics(error))
            return exit_code or error.exit_code
        return exit_code

    def show(self, diagnostics: Any, sources: Any = ()) -> None:
        from ...ir.diagnostics import render_all

        self.errors.write(render_all(diagnostics, sources, self.errors.color) + "\n")

    def show_error(self, outcome: Outcome) -> None:
        """The error a run ended with, at its place in the source."""
        from ...ir.diagnostics import Diagnostic
        from ...ir.spans import Source, Span

        error = outcome.error or {}
        span = Span(*outcome.place) if outcome.place else None
        sources = (
            [Source(source.path, source.sha256, source.text) for source in self.image.sources]
            if self.image
            else []
        )
        diagnostic = Diagnostic(
            str(error.get("kind")),
            str(error.get("message")),
            span,
            label="here" if span else "",
            help=error.get("help"),
        )
        self.show([diagnostic], sources)
        trace = error.get("backtrace") or []
        if len(trace) > 1:
            self.errors.write("".join(f"  {line}\n" for line in trace))


def usage_answer(message: str) -> None:
    """The one JSON object for words that cannot be read as a command."""
    ended = Outcome(None, None, "loop", "error")
    ended.terminated_by = "error"
    ended.error = {"kind": "usage", "message": message, "span": None}
    text = json.dumps(ended.to_json(), ensure_ascii=False)
    Screen(sys.stdout).deliver((text + "\n").encode("utf-8", "replace"))


def _no_record(folder: RunFolder) -> UserError:
    """A journal without its beginning: nothing says what was done, nor whether it was done for real."""
    if not os.path.exists(folder.journal):
        what = "is missing"
    else:
        what = "is empty" if not os.path.getsize(folder.journal) else "has lost its beginning"
    return UserError(
        "no-record",
        f"{folder.id} cannot go on: its journal {what}, so it is not known what was done already",
        f"nothing was performed; look at {folder.path}; to give it up: llc clean {folder.id} --unfinished",
        EXIT_FAILURE,
    )


def _put_on_disk(journal: Journal, folder: RunFolder) -> None:
    """Let a run that begins outlast a power cut."""
    journal.sync()
    journals.sync_folder(folder.path)
    journals.sync_folder(os.path.dirname(folder.path))


def _compile_error(error: Exception) -> CompileError | None:
    from ...ir.diagnostics import CompileError

    return error if isinstance(error, CompileError) else None


def as_diagnostics(error: UserError) -> list[Diagnostic]:
    from ...ir.diagnostics import Diagnostic

    return [Diagnostic(error.id, error.message, help=error.help)]
