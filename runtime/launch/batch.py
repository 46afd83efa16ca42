"""Batch: several jobs in one process, each a run.

Owns the order of the runs: jobs with overlapping scopes run one after another, in their order; all others run
concurrently (`scheduler`). All jobs are checked before the first one starts.
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
from ..runs.run_lock import is_driven
from ..runs.scope_conflicts import resolve_scope
from . import failures, resume, run
from .command import Command
from .jobs import Job
from .report import Report

# Limit of cached programs. Jobs of the same loop with different values have different programs.
_MAX_PROGRAMS = 256


class Claims:
    """Paths that the active runs have claimed."""

    def __init__(self) -> None:
        self._claims: Counter[str] = Counter()
        # By path: claims on the path itself and on paths below it.
        self._claims_below: Counter[str] = Counter()

    def overlap(self, paths: Iterable[str]) -> bool:
        """Return whether a path is claimed, is inside a claimed folder, or contains a claimed path."""
        return any(
            self._claims_below[path] > 0 or any(self._claims[folder] > 0 for folder in _with_parents(path))
            for path in paths
        )

    def add(self, paths: Iterable[str], count: int = 1) -> None:
        for path in paths:
            self._claims[path] += count
            for folder in _with_parents(path):
                self._claims_below[folder] += count

    def remove(self, paths: Iterable[str]) -> None:
        self.add(paths, -1)


def _with_parents(path: str) -> list[str]:
    """A path and all folders that contain it, innermost first."""
    paths = [path]
    while (parent := os.path.dirname(path)) != path:
        path = parent
        paths.append(path)
    return paths


class PendingRun:
    """A run of the batch that has not started.

    subject: the job, or the run to resume. paths: its scope, absolute. begin: sets the steps of the
    scheduled run.
    """

    def __init__(
        self, subject: Job | RunFolder, paths: Iterable[str], begin: Callable[[ScheduledRun], None]
    ) -> None:
        self.subject = subject
        self.paths = tuple(paths)
        self.begin = begin
        self.index = 0
        self.command: Command


class Batch:
    """A batch of runs: `add_jobs` and `add_unfinished`, then `execute`.

    base: template command with the shared settings. at_once: limit of concurrent actions. interrupt: stops
    all runs. on_end(subject, outcome): called when a run has ended. `pending`: runs that did not start.
    """

    def __init__(
        self,
        base: Command,
        at_once: int,
        interrupt: Interrupt,
        on_end: Callable[[Job | RunFolder, Outcome], object],
    ) -> None:
        # A queue for each scope; and a heap of the first run of each queue, by index.
        self._queues: dict[tuple[str, ...], deque[PendingRun]] = {}
        self._heads: list[tuple[int, PendingRun]] = []
        self._base = base
        self._at_once = at_once
        self._interrupt = interrupt
        self._on_end = on_end
        self._claims = Claims()
        # All pending runs conflict with active ones; cleared when a run ends.
        self._is_blocked = False
        self._internal_error: BaseException | None = None
        self._programs: dict[Any, tuple[str, Image]] = {}
        self.scheduler: Scheduler | None = None
        self.total = 0

    # --- adding runs ----------------------------------------------------------------------------

    def add_jobs(self, jobs: Iterable[Job]) -> None:
        """Add new runs. Raises CompileError with the diagnostics of all invalid jobs."""
        errors: list[Diagnostic] = []
        sources: list[Any] = []
        # Scopes by program; None for a program with an error.
        scopes: dict[Any, tuple[str, ...] | None] = {}
        jobs = list(jobs)
        for job in jobs:
            if job.values.budget:
                try:
                    self._budget(job)
                except UserError as error:
                    errors.append(_locate(Diagnostic(error.id, error.message, help=error.help), job))
            key = _program_key(job.values)
            if key not in scopes:
                scopes[key] = None
                try:
                    _, image = self.program(job.values)
                    if not job.values.script:
                        self._base.check(image)
                except CompileError as error:
                    errors += [_locate(diagnostic, job) for diagnostic in error.diagnostics]
                    sources += error.sources
                except UserError as error:
                    errors.append(_locate(Diagnostic(error.id, error.message, help=error.help), job))
                else:
                    scopes[key] = tuple(resolve_scope(image.meta["scope"], ROOT))
            scope = scopes[key]
            if scope is None:
                continue
            if job.values.script:
                scope = ()
            elif job.scope is not None:
                scope = tuple(resolve_scope(job.scope, ROOT))
            self._add(PendingRun(job, scope, self._begin))
        if errors:
            files = {job.source for job in jobs if job.source is not None}
            raise CompileError(list(dict.fromkeys(errors)), [*dict.fromkeys(sources), *files])

    def add_unfinished(self, folders: Iterable[RunFolder]) -> None:
        """Add unfinished runs, to be resumed."""
        for folder in folders:
            scope = folder.about().get("scope")
            paths = scope if isinstance(scope, list) else resolve_scope(["."], ROOT)
            self._add(PendingRun(folder, map(str, paths), self._resume))

    def _add(self, pending: PendingRun) -> None:
        pending.index = self.total
        self.total += 1
        queue = self._queues.setdefault(pending.paths, deque())
        if not queue:
            heapq.heappush(self._heads, (pending.index, pending))
        queue.append(pending)

    @property
    def pending(self) -> list[Job | RunFolder]:
        """Subjects of the runs that did not start, in the order in which they were added."""
        runs = sorted((run for queue in self._queues.values() for run in queue), key=lambda run: run.index)
        return [run.subject for run in runs]

    def program(self, values: Values) -> tuple[str, Image]:
        """Path and image of a job's program. Raises CompileError and UserError."""
        key = _program_key(values)
        program = self._programs.get(key)
        if program is None:
            path = resolve_loop(values.target, ROOT)
            program = path, load_program(path, values, self._base.warn)
            if len(self._programs) >= _MAX_PROGRAMS:
                del self._programs[next(iter(self._programs))]
            self._programs[key] = program
        return program

    # --- execution ------------------------------------------------------------------------------

    def execute(self, on_wait: Callable[[], float]) -> None:
        """Execute all runs, or until the interrupt. Raises an internal error after all runs have ended.

        on_wait: see `Scheduler.go`.
        """
        width = concurrent_run_limit(self.total, self._at_once)
        if width < 1 and self.total:
            raise Failure(
                "too-few-descriptors",
                f"the limit of open files is too low for {self._at_once} concurrent actions",
                "raise the limit with `ulimit -n`, or use a smaller --at-once",
            )
        locks.sweep(ROOT)
        retention.clean(ROOT, None, *self._base.retention, dry_run=False)
        self.scheduler = scheduler = Scheduler(
            self._at_once, width, self._interrupt, self._start_next, self._ended
        )
        if not self._base.report.is_silent:
            gc.freeze()  # as in `Command.drive`
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
        if self._internal_error is not None:
            raise self._internal_error

    def _start_next(self) -> bool:
        """Start the first run that conflicts neither with an active run nor with an earlier pending one.

        Returns False if there is none now.
        """
        if self._is_blocked:
            return False
        earlier, skipped = Claims(), []
        chosen: PendingRun | None = None
        while self._heads and chosen is None:
            head = heapq.heappop(self._heads)
            paths = head[1].paths
            if self._claims.overlap(paths) or earlier.overlap(paths):
                earlier.add(paths)
                skipped.append(head)
            else:
                chosen = head[1]
        for head in skipped:
            heapq.heappush(self._heads, head)
        if chosen is None:
            self._is_blocked = True
            return False
        queue = self._queues[chosen.paths]
        queue.popleft()
        if queue:
            heapq.heappush(self._heads, (queue[0].index, queue[0]))
        else:
            del self._queues[chosen.paths]
        self._claims.add(chosen.paths)
        self._start(chosen)
        return True

    def _start(self, pending: PendingRun) -> None:
        assert self.scheduler is not None
        base = self._base
        values = pending.subject.values if isinstance(pending.subject, Job) else base.values
        values.no_input = base.values.no_input
        report = Report(values, is_silent=True, errors=base.report.errors)
        command = Command(values, report, scheduler=self.scheduler)
        command.retention, command.tier = base.retention, base.tier
        command.bounds, command.budget, command.settings = base.bounds, base.budget, base.settings
        command.record_files, command.checked = base.record_files, base.checked
        pending.command = command
        scheduled = ScheduledRun(command, pending)
        try:
            pending.begin(scheduled)
        except Exception as error:
            self._ended(scheduled, error)
        else:
            self.scheduler.add(scheduled)

    def _budget(self, job: Job) -> dict[str, float]:
        """Budget of a job. Raises UserError."""
        return self._base.budget_of(job.values, self._base.budget)

    def _begin(self, scheduled: ScheduledRun) -> None:
        job: Job = scheduled.about.subject
        command: Command = scheduled.about.command
        if job.values.budget:
            command.budget = self._budget(job)
        path, image = self.program(job.values)
        scheduled.steps = run.start(command, path, image, scheduled.interrupt, job.scope)

    def _resume(self, scheduled: ScheduledRun) -> None:
        assert self.scheduler is not None
        folder: RunFolder = scheduled.about.subject
        self.scheduler.ours.add(folder.id)
        scheduled.steps = resume.resume_run(scheduled.about.command, folder, scheduled.interrupt)

    def _ended(self, scheduled: ScheduledRun, result: Outcome | BaseException) -> None:
        run: PendingRun = scheduled.about
        self._claims.remove(run.paths)
        self._is_blocked = False
        if isinstance(result, Outcome):
            outcome = result
        else:
            outcome = run.command.failure_outcome(result)
            if failures.is_internal(result):
                self._internal_error = self._internal_error or result
        self._on_end(run.subject, outcome)


def _locate(diagnostic: Diagnostic, job: Job) -> Diagnostic:
    """The diagnostic; without a span of its own, it gets the span of the job."""
    if diagnostic.span is not None or job.span is None:
        return diagnostic
    return attrs.evolve(diagnostic, span=job.span, label="here")


def _program_key(values: Values) -> Any:
    """Cache key of a program: the loop and the options that affect its compilation."""
    return values.target, compile_options(values).key()


def unfinished_runs(targets: Iterable[str]) -> list[RunFolder]:
    """Unfinished runs that no process drives, oldest first. Raises UserError.

    targets: loop names or run ids; empty for all runs.
    """
    targets = list(targets)
    unfinished = [run for run in runs.runs_in(ROOT) if not run.is_unrecorded() and not is_driven(run)]
    if not targets:
        return unfinished[::-1]
    chosen: list[RunFolder] = []
    for target in targets:
        matching = [run for run in unfinished if run.id == target or is_run_of(run, target)]
        if not matching:
            find_unfinished(
                target, ROOT
            )  # raises an error that lists the unfinished runs, unless it finds one
            raise Failure("run-is-live", f"all runs of `{target}` are running")
        chosen += matching
    return sorted(dict.fromkeys(chosen), key=lambda run: run.id[-20:])
