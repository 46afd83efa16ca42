"""Batch: many jobs in one process, each a run.

Owns which run starts when: jobs that work on the same paths run one after another, in their order; all
others run concurrently (`scheduler`). All jobs are checked before the first one starts.
"""

from __future__ import annotations

import gc
import heapq
import os.path
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Any

import attrs

from ...ir.diagnostics import CompileError, Diagnostic
from ...vm.code.image import Image
from ..execution.scheduler import ScheduledRun, Scheduler, concurrent_run_limit
from ..host.effect_context import Interrupt
from ..host.errors import Failure, UserError
from ..host.paths import ROOT
from ..journal.outcome import Outcome
from ..journal.run_folder import RunFolder
from ..project.limits import restoring_bounds
from ..project.load import compile_options, load_program
from ..project.options import Values
from ..runs import locks, retention, runs
from ..runs.lookup import find_unfinished, is_run_of
from ..runs.loop_names import resolve_loop
from . import failures, resume, run
from .command import Command
from .jobs import Job
from .report import Report

# Programs that are kept at once: jobs that give their loop other values are other programs.
_PROGRAMS = 256


class Claims:
    """The paths that runs have claimed."""

    def __init__(self) -> None:
        self._held: Counter[str] = Counter()
        self._above: Counter[str] = Counter()

    def overlap(self, paths: Iterable[str]) -> bool:
        """Whether one of the paths is held, or lies in one that is, or one that is lies in it."""
        return any(
            self._above[path] > 0 or any(self._held[place] > 0 for place in _upwards(path)) for path in paths
        )

    def add(self, paths: Iterable[str], count: int = 1) -> None:
        for path in paths:
            self._held[path] += count
            for place in _upwards(path):
                self._above[place] += count

    def remove(self, paths: Iterable[str]) -> None:
        self.add(paths, -1)


def _upwards(path: str) -> list[str]:
    """A path and the folders that it is in."""
    found = [path]
    while (above := os.path.dirname(path)) != path:
        path = above
        found.append(path)
    return found


class Wanted:
    """A run to start: its paths, and how. about: the job, or the run to resume."""

    def __init__(
        self, about: Job | RunFolder, paths: Iterable[str], begin: Callable[[ScheduledRun], None]
    ) -> None:
        self.about = about
        self.paths = tuple(paths)
        self.begin = begin
        self.index = 0
        self.command: Command


class Batch:
    """Runs what is wanted. told(what, outcome): one is over; what did not begin is `left`."""

    def __init__(
        self,
        base: Command,
        at_once: int,
        interrupt: Interrupt,
        told: Callable[[Job | RunFolder, Outcome], object],
    ) -> None:
        # By what they work on, each in their order; and the first of each, the earliest first.
        self._left: dict[tuple[str, ...], deque[Wanted]] = {}
        self._first: list[tuple[int, Wanted]] = []
        self._base = base
        self._at_once = at_once
        self._interrupt = interrupt
        self._told = told
        self._claims = Claims()
        self._is_stuck = False
        self._crash: BaseException | None = None
        self._programs: dict[Any, tuple[str, Image]] = {}
        self.scheduler: Scheduler | None = None
        self.total = 0

    # --- what is wanted -------------------------------------------------------------------------

    def want_jobs(self, jobs: Iterable[Job]) -> None:
        """New runs. Raises CompileError with what is wrong with their programs, and UserError."""
        wrong: list[Diagnostic] = []
        sources: list[Any] = []
        known: dict[Any, tuple[str, ...] | None] = {}
        asked = list(jobs)
        for job in asked:
            if job.values.budget:
                try:
                    self._budget(job)
                except UserError as error:
                    wrong.append(_placed(Diagnostic(error.id, error.message, help=error.help), job))
            key = _key(job.values)
            if key not in known:
                known[key] = None
                try:
                    _, image = self.program(job.values)
                    if not job.values.script:
                        self._base.check(image)
                except CompileError as error:
                    wrong += [_placed(one, job) for one in error.diagnostics]
                    sources += error.sources
                except UserError as error:
                    wrong.append(_placed(Diagnostic(error.id, error.message, help=error.help), job))
                else:
                    known[key] = tuple(locks.resolve_scope(image.meta["scope"], ROOT))
            paths = known[key]
            if paths is not None:
                own = () if job.values.script else paths if job.scope is None else job.scope
                self._want(
                    Wanted(job, locks.resolve_scope(own, ROOT) if own is job.scope else own, self._begin)
                )
        if wrong:
            files = {job.source for job in asked if job.source is not None}
            raise CompileError(list(dict.fromkeys(wrong)), [*dict.fromkeys(sources), *files])

    def want_runs(self, found: Iterable[RunFolder]) -> None:
        """Request interrupted runs."""
        for folder in found:
            told = folder.about().get("scope")
            paths = told if isinstance(told, list) else locks.resolve_scope(["."], ROOT)
            self._want(Wanted(folder, map(str, paths), self._take_up))

    def _want(self, wanted: Wanted) -> None:
        wanted.index = self.total
        self.total += 1
        queue = self._left.setdefault(wanted.paths, deque())
        if not queue:
            heapq.heappush(self._first, (wanted.index, wanted))
        queue.append(wanted)

    @property
    def left(self) -> list[Job | RunFolder]:
        """What did not begin."""
        found = sorted((one for queue in self._left.values() for one in queue), key=lambda one: one.index)
        return [one.about for one in found]

    def program(self, values: Values) -> tuple[str, Image]:
        """The path of a job's program, and the program. Raises CompileError and UserError."""
        key = _key(values)
        found = self._programs.get(key)
        if found is None:
            path = resolve_loop(values.target, ROOT)
            found = path, load_program(path, values, self._base.warn)
            if len(self._programs) >= _PROGRAMS:
                del self._programs[next(iter(self._programs))]
            self._programs[key] = found
        return found

    # --- running --------------------------------------------------------------------------------

    def go(self, on_wait: Callable[[], float]) -> None:
        """Run all of it, or until it is interrupted. Raises what went wrong in llc itself, at the end."""
        width = concurrent_run_limit(self.total, self._at_once)
        if width < 1 and self.total:
            raise Failure(
                "too-few-descriptors",
                f"this process may not open files enough for {self._at_once} actions at once",
                "raise the limit with `ulimit -n`, or say a smaller --at-once",
            )
        locks.sweep(ROOT)
        retention.clean(ROOT, None, *self._base.retention, dry_run=False)
        self.scheduler = scheduler = Scheduler(
            self._at_once, width, self._interrupt, self._begin_one, self._ended
        )
        if not self._base.report.is_silent:
            gc.freeze()  # as where one run is driven
            gc.enable()
        try:
            with restoring_bounds():
                while True:
                    try:
                        scheduler.go(on_wait)
                        break
                    except KeyboardInterrupt:
                        self._interrupt.set()  # without signal handlers: stop all runs in an orderly way
        finally:
            scheduler.close()
        if self._crash is not None:
            raise self._crash

    def _begin_one(self) -> bool:
        """Start the first run without a conflict; False if there is none now."""
        if self._is_stuck:
            return False
        before, skipped = Claims(), []
        chosen: Wanted | None = None
        while self._first and chosen is None:
            first = heapq.heappop(self._first)
            paths = first[1].paths
            if self._claims.overlap(paths) or before.overlap(paths):
                before.add(paths)
                skipped.append(first)
            else:
                chosen = first[1]
        for first in skipped:
            heapq.heappush(self._first, first)
        if chosen is None:
            self._is_stuck = True
            return False
        queue = self._left[chosen.paths]
        queue.popleft()
        if queue:
            heapq.heappush(self._first, (queue[0].index, queue[0]))
        else:
            del self._left[chosen.paths]
        self._claims.add(chosen.paths)
        self._start(chosen)
        return True

    def _start(self, wanted: Wanted) -> None:
        assert self.scheduler is not None
        base = self._base
        values = wanted.about.values if isinstance(wanted.about, Job) else base.values
        values.no_input = base.values.no_input
        report = Report(values, is_silent=True, errors=base.report.errors)
        command = Command(values, report, scheduler=self.scheduler)
        command.retention, command.tier = base.retention, base.tier
        command.bounds, command.budget, command.settings = base.bounds, base.budget, base.settings
        command.record_files, command.checked = base.record_files, base.checked
        wanted.command = command
        scheduled = ScheduledRun(command, wanted)
        try:
            wanted.begin(scheduled)
        except Exception as error:
            self._ended(scheduled, error)
        else:
            self.scheduler.add(scheduled)

    def _budget(self, job: Job) -> dict[str, float]:
        """What a job may use up. Raises UserError."""
        return self._base.budget_of(job.values, self._base.budget)

    def _begin(self, scheduled: ScheduledRun) -> None:
        job: Job = scheduled.about.about
        command: Command = scheduled.about.command
        if job.values.budget:
            command.budget = self._budget(job)
        path, image = self.program(job.values)
        scheduled.steps = run.start(command, path, image, scheduled.interrupt, job.scope)

    def _take_up(self, scheduled: ScheduledRun) -> None:
        assert self.scheduler is not None
        folder: RunFolder = scheduled.about.about
        self.scheduler.ours.add(folder.id)
        scheduled.steps = resume.take_up(scheduled.about.command, folder, scheduled.interrupt)

    def _ended(self, scheduled: ScheduledRun, came: Outcome | BaseException) -> None:
        wanted: Wanted = scheduled.about
        self._claims.remove(wanted.paths)
        self._is_stuck = False
        if isinstance(came, Outcome):
            outcome = came
        else:
            outcome = wanted.command.failed(came)
            if failures.is_internal(came):
                self._crash = self._crash or came
        self._told(wanted.about, outcome)


def _placed(diagnostic: Diagnostic, job: Job) -> Diagnostic:
    """What is said of a job's program as a whole is said where the job stands."""
    if diagnostic.span is not None or job.span is None:
        return diagnostic
    return attrs.evolve(diagnostic, span=job.span, label="here")


def _key(values: Values) -> Any:
    """What a program depends on."""
    return values.target, compile_options(values).key()


def unfinished(targets: Iterable[str]) -> list[RunFolder]:
    """Interrupted runs, oldest first: all, or those of these loops or ids."""
    wanted = list(targets)
    found = [run for run in runs.runs_in(ROOT) if not run.is_husk() and not locks.is_driven(run)]
    if not wanted:
        return found[::-1]
    chosen: list[RunFolder] = []
    for target in wanted:
        some = [run for run in found if run.id == target or is_run_of(run, target)]
        if not some:
            find_unfinished(target, ROOT)  # says what there is instead
            raise Failure("run-is-live", f"all runs of `{target}` are running")
        chosen += some
    return sorted(dict.fromkeys(chosen), key=lambda run: run.id[-20:])
