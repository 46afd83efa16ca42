"""`llc batch` and `run_many`: creation of a batch from options or arguments, and its output."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import FrameType
from typing import Any

from ..execution.driver import JOBS
from ..host import secrets, signals
from ..host.effect_context import Interrupt
from ..host.errors import EXIT_FAILURE, EXIT_HANGUP, EXIT_INTERRUPTED, EXIT_OK, UserError
from ..host.screen import Screen
from ..journal.codec import json_text
from ..journal.outcome import Outcome
from ..journal.run_folder import RunFolder
from ..project.limits import Bounds
from ..project.options import OVERRIDES, Values
from ..terminal.batch_progress import BatchLines
from . import jobs as job_files
from .batch import Batch, unfinished_runs
from .command import Command
from .jobs import Job
from .report import Report
from .stop_signals import StopSignals

# Options of the batch that apply to each job.
_JOB_OPTIONS = (*OVERRIDES, "budget", "script")


def batch(values: Values, targets: list[str], is_resuming: bool) -> int:
    """Execute `llc batch`; return the exit code."""
    codes: list[int] = []

    def action(command: Command) -> None:
        codes.append(_batch(command, values, targets, is_resuming))

    base = base_values(values)
    code = Command(base, Report(base)).execute(action)
    return code or codes[0]


def _batch(command: Command, values: Values, targets: list[str], is_resuming: bool) -> int:
    if not targets and not is_resuming:
        raise UserError("bad-option", "no job is named", "name loops or a job file (.jsonl), or use --resume")
    prepare(command, values)
    screen = Screen(sys.stderr) if values.json else Screen(sys.stdout)
    output = Screen(sys.stdout)
    lines: BatchLines

    def on_end(subject: Job | RunFolder, outcome: Outcome) -> None:
        lines.show_outcome(subject.values.target if isinstance(subject, Job) else subject.id, outcome)
        if values.json:
            job = {"job": subject.number, "loop": subject.values.target} if isinstance(subject, Job) else {}
            text = json_text(secrets.known.mask_all(job | outcome.to_json()))
            output.write_bytes((text + "\n").encode("utf-8", "replace"))
        statuses.append(outcome.status)

    def on_wait() -> float:
        assert runs.scheduler is not None
        return lines.update_count(len(runs.scheduler), runs.scheduler.pool.working)

    statuses: list[str] = []
    with StopSignals(is_silent=False) as interrupt:
        runs = Batch(command, values.at_once or JOBS, interrupt, on_end)
        if is_resuming:
            runs.add_unfinished(unfinished_runs(targets))
        else:
            runs.add_jobs(jobs_of(values, targets))
        if not runs.total:
            if not values.quiet:
                screen.write("no run is unfinished\n" if is_resuming else "there are no jobs\n")
            return EXIT_OK
        lines = BatchLines(screen, runs.total, values.quiet)
        runs.execute(on_wait)
    pending = len(runs.pending)
    lines.end(pending)
    if "interrupted" in statuses:
        command.warn("Resume with: llc batch --resume")
    if interrupt.count:
        return EXIT_HANGUP if interrupt.is_hangup else EXIT_INTERRUPTED
    return EXIT_OK if all(status == "success" for status in statuses) and not pending else EXIT_FAILURE


def outcomes(jobs: Iterable[str | Mapping[str, Any]], at_once: int) -> list[Outcome]:
    """Run jobs for `run_many`; return their outcomes in the order of `jobs`."""
    values = Values("", quiet=True)
    base = base_values(values)
    command = Command(base, Report(base, is_silent=True))
    prepare(command, values)
    requested = job_files.from_data(jobs)
    ended: dict[int, Outcome] = {}

    def on_end(subject: Job | RunFolder, outcome: Outcome) -> None:
        assert isinstance(subject, Job)
        ended[subject.number] = outcome

    with StopSignals(is_silent=True) as interrupt:
        batch = Batch(command, at_once, interrupt, on_end)
        batch.add_jobs(requested)
        with _redirect_ctrl_c(interrupt):
            batch.execute(lambda: float("inf"))
    if interrupt.count:
        raise KeyboardInterrupt
    return [ended[job.number] for job in requested]


@contextlib.contextmanager
def _redirect_ctrl_c(interrupt: Interrupt) -> Iterator[None]:
    """Forward the first two Ctrl-C to `interrupt`, if Ctrl-C would raise KeyboardInterrupt."""

    def handle(number: int, frame: FrameType | None) -> None:
        if interrupt.count >= 2:
            signals.default_int_handler(number, frame)
        interrupt.set()

    is_default = signals.getsignal(signals.SIGINT) is signals.default_int_handler
    try:
        if is_default:
            signals.signal(signals.SIGINT, handle)
    except ValueError:  # not the main thread: it gets no KeyboardInterrupt
        is_default = False
    try:
        yield
    finally:
        if is_default:
            signals.signal(signals.SIGINT, signals.default_int_handler)


def base_values(values: Values) -> Values:
    """Options of the template command whose settings all runs share."""
    options = dict(vars(values))
    del options["target"]
    return Values("", **{**options, "queue": True, "quiet": True})


def jobs_of(values: Values, targets: list[str]) -> list[Job]:
    """The jobs of a command line. Raises CompileError and UserError."""
    return job_files.of_targets(targets, {name: getattr(values, name) for name in _JOB_OPTIONS})


def prepare(command: Command, values: Values) -> None:
    """Read the settings that all runs share. Raises UserError."""
    if values.script:
        from ..effects.script_reader import load_world

        load_world(values.script)  # each run loads its own copy; here, report errors in it only once
    command.bounds = Bounds.of_options(values)
    command.bounds.apply()
    command.choose_tier()
    command.configure()
    command.budget = command.budget_of(values, command.budget)
