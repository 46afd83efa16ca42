"""`llc run --on`, `batch --on`, `fork --on`: compile, check and record runs here; workers drive them.

A new run enters the queue in one transaction, after its record is complete. If the client is killed before
that, workers take over the run (`database.segments`).
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from ...vm.machine.machine import Machine
from ..database import requests, schema
from ..database.connection import Address, Session, connected
from ..database.store import Claim, DatabaseStore, open_store
from ..database.stored_run import DatabaseRun
from ..execution.observer import Display
from ..host import secrets
from ..host.coroutines import Steps, alone
from ..host.errors import UserError
from ..host.paths import ROOT
from ..host.screen import Screen
from ..journal import run_history
from ..journal.codec import json_text
from ..journal.journal import Journal
from ..journal.outcome import Outcome
from ..journal.run_folder import RunFolder
from ..project.options import Values
from ..recordings.fork import Forked
from ..trees import workspace
from .batch import Batch
from .batch_command import base_values, jobs_of, prepare
from .command import Command
from .report import Report
from .run import new_run, start
from .stop_signals import StopSignals

# Options for the process that drives a run.
_DRIVER_OPTIONS = (
    "background",
    "no_input",
    "profile",
    "flame",
    "record",
    "queue",
    "jobs",
    "tier",
    "at_once",
    "on_unknown",
)


def submit(values: Values, url: str, labels: tuple[str, ...]) -> int:
    """Submit a new run; return the exit code. Raises UserError."""
    with _store(values, url, labels) as store:
        command = Submission(values, Report(values))
        command.store = store
        return command.execute(new_run)


def submit_fork(values: Values, url: str, make: Callable[[], Forked]) -> int:
    """Queue a fork of a run in the database; return the exit code.

    The working directory must contain the local copies of the runs. Raises UserError, CompileError and
    JournalError.
    """

    def action(command: Command) -> None:
        forked = make()
        address, run = Address.parse(url), forked.run
        session = Session(address, lambda: True)
        try:
            parent = DatabaseRun.cached(ROOT, forked.parent, session)
            kept = workspace.of_fork(parent, run_history.load(run.journal).order)
            session.do(lambda connection: requests.fork(connection, parent.id, run, kept))
        finally:
            session.close()
            run.discard()
        if values.json:
            _write(json_text({"run": run.id, "status": "queued", "forked_from": forked.parent}))
        else:
            if not values.quiet:
                Screen(sys.stderr).write(f"{forked}\n")
            _write(run.id)

    return Command(values, Report(values)).execute(action)


def submit_jobs(values: Values, targets: list[str], url: str, labels: tuple[str, ...]) -> int:
    """Submit the jobs of a batch, after a check of all programs; return the exit code. Raises UserError."""
    if not targets:
        raise UserError("bad-option", "no job is named", "name loops or a job file (.jsonl)")

    def action(base: Command) -> None:
        prepare(base, values)
        jobs = jobs_of(values, targets)
        with StopSignals(is_silent=False) as interrupt:
            batch = Batch(base, 1, interrupt, lambda job, outcome: None)
            batch.add_jobs(jobs)
            for job in jobs:
                if interrupt.count:
                    raise KeyboardInterrupt
                command = Submission(job.values, Report(job.values))
                command.report.as_json = values.json
                command.bounds, command.settings, command.store = base.bounds, base.settings, store
                command.budget = base.budget_of(job.values, base.budget) if job.values.budget else base.budget
                outcome = alone(start(command, *batch.program(job.values), interrupt, job.scope))
                if values.json:
                    result = {"job": job.number, "loop": job.values.target, **outcome.to_json()}
                    _write(json_text(secrets.known.mask_all(result)))

    with _store(values, url, labels) as store:
        base = base_values(values)
        return Command(base, Report(base)).execute(action)


@contextlib.contextmanager
def _store(values: Values, url: str, labels: tuple[str, ...]) -> Iterator[DatabaseStore]:
    """The store of new runs for workers. Raises UserError."""
    for name in _DRIVER_OPTIONS:
        if getattr(values, name):
            raise UserError("bad-option", f"`--{name.replace('_', '-')}` and `--on` exclude each other")
    address = Address.parse(url)
    with connected(address) as connection:
        schema.check(connection, address)
    store = open_store(address)
    try:
        store.managed, store.labels = True, labels
        store.sweep()
        yield store
    finally:
        store.close()


def _write(line: str) -> None:
    screen = Screen(sys.stdout)
    screen.deliver(screen.encode(line + "\n"))


class Submission(Command):
    """A command that queues its run instead of driving it."""

    def display(self, image: Any) -> Display:
        return Display()

    def prepare(self, folder: RunFolder) -> None:
        """Store the files that the run works on. Raises UserError."""
        if self.settings is not None and self.settings.workspace is not None:
            assert isinstance(folder, DatabaseRun)
            workspace.submit(folder, *self.settings.workspace, ROOT)

    def drive(self, machine: Machine, journal: Journal, *others: Any, **more: Any) -> Steps[Outcome]:
        """Add the run to the queue."""
        assert self.folder is not None
        (claim,) = (argument for argument in others if isinstance(argument, Claim))
        yield None
        journal.close()
        claim.status = "queued"
        claim.close()
        outcome = Outcome(self.folder.id, machine.image.name, machine.image.meta["kind"], "queued")
        if not self.report.as_json:
            _write(self.folder.id)
        return outcome
