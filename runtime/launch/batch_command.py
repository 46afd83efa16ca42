"""`llc batch` and `run_many`: a batch from its options or arguments, and its report."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from ..execution.driver import JOBS
from ..host import secrets
from ..host.errors import EXIT_FAILURE, EXIT_HANGUP, EXIT_INTERRUPTED, EXIT_OK, UserError
from ..host.screen import Screen
from ..journal.codec import json_text
from ..journal.outcome import Outcome
from ..journal.run_folder import RunFolder
from ..project.limits import Bounds
from ..project.options import OVERRIDES, Values
from ..terminal.batch_progress import BatchLines
from . import jobs as wanted
from .batch import Batch, unfinished
from .command import Command
from .jobs import Job
from .report import Report
from .stop_signals import StopSignals, ctrl_c

# What goes from the batch to each of its jobs.
_OF_JOBS = (*OVERRIDES, "budget", "script")


def batch(values: Values, targets: list[str], is_resuming: bool) -> int:
    """`llc batch`; the exit code."""
    codes: list[int] = []

    def go(command: Command) -> None:
        codes.append(_batch(command, values, targets, is_resuming))

    base = base_values(values)
    code = Command(base, Report(base)).execute(go)
    return code or codes[0]


def _batch(command: Command, values: Values, targets: list[str], is_resuming: bool) -> int:
    if not targets and not is_resuming:
        raise UserError("bad-option", "name what is to be run", "loops, a file of jobs (.jsonl), or --resume")
    prepare(command, values)
    screen = Screen(sys.stderr) if values.json else Screen(sys.stdout)
    answers = Screen(sys.stdout)
    lines: BatchLines

    def told(what: Job | RunFolder, outcome: Outcome) -> None:
        lines.show_outcome(what.values.target if isinstance(what, Job) else what.id, outcome)
        if values.json:
            job = {"job": what.number, "loop": what.values.target} if isinstance(what, Job) else {}
            answer = secrets.known.mask_all(job | outcome.to_json())
            text = json_text(answer)
            answers.write_bytes((text + "\n").encode("utf-8", "replace"))
        statuses.append(outcome.status)

    def on_wait() -> float:
        assert found.scheduler is not None
        return lines.update_count(len(found.scheduler), found.scheduler.pool.working)

    statuses: list[str] = []
    with StopSignals(is_silent=False) as interrupt:
        found = Batch(command, values.at_once or JOBS, interrupt, told)
        if is_resuming:
            found.want_runs(unfinished(targets))
        else:
            found.want_jobs(jobs_of(values, targets))
        if not found.total:
            if not values.quiet:
                screen.write("no run is unfinished\n" if is_resuming else "there are no jobs\n")
            return EXIT_OK
        lines = BatchLines(screen, found.total, values.quiet)
        found.go(on_wait)
    left = len(found.left)
    lines.end(left)
    if "interrupted" in statuses:
        command.warn("Resume with: llc batch --resume")
    if interrupt.count:
        return EXIT_HANGUP if interrupt.is_hangup else EXIT_INTERRUPTED
    return EXIT_OK if all(status == "success" for status in statuses) and not left else EXIT_FAILURE


def outcomes(jobs: Iterable[str | Mapping[str, Any]], at_once: int) -> list[Outcome]:
    """What `run_many` gives."""
    values = Values("", quiet=True)
    base = base_values(values)
    command = Command(base, Report(base, is_silent=True))
    prepare(command, values)
    asked = wanted.from_data(jobs)
    found: dict[int, Outcome] = {}

    def told(what: Job | RunFolder, outcome: Outcome) -> None:
        assert isinstance(what, Job)
        found[what.number] = outcome

    with StopSignals(is_silent=True) as interrupt:
        batch = Batch(command, at_once, interrupt, told)
        batch.want_jobs(asked)
        with ctrl_c(interrupt):
            batch.go(lambda: float("inf"))
    if interrupt.count:
        raise KeyboardInterrupt
    return [found[job.number] for job in asked]


def base_values(values: Values) -> Values:
    """The values of the command that the runs are made like."""
    given = dict(vars(values))
    del given["target"]
    return Values("", **{**given, "queue": True, "quiet": True})


def jobs_of(values: Values, targets: list[str]) -> list[Job]:
    """The jobs of a command line. Raises CompileError and UserError."""
    return wanted.named(targets, {name: getattr(values, name) for name in _OF_JOBS})


def prepare(command: Command, values: Values) -> None:
    """Take what holds for all runs, once. Raises UserError."""
    if values.script:
        from ..effects.script_reader import load_world

        load_world(values.script)  # each run has its own, but what is wrong with it is said once
    command.bounds = Bounds.of_options(values)
    command.bounds.apply()
    command.choose_tier()
    command.configure()
    command.budget = command.budget_of(values, command.budget)
