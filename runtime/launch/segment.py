"""Segment: one execution of a queued run by a worker, in its scheduler or in a separate process.

A run with a workspace works in its checkout. All runs of a process share one working directory, so the worker
starts a process for such a run (`Checkout`; `main` is its entry point). The process uses the identity of the
worker: the claim, the heartbeat and the death of a worker apply to both. It ends with the worker, which
closes its standard input; the fence of the journal protects the record in any case.
"""

from __future__ import annotations

import json
import os.path
import sys
from collections.abc import Callable
from typing import Any

from ..database.connection import Address
from ..database.shared_ledger import SharedLedger
from ..database.store import Claim, DatabaseStore
from ..database.stored_run import DatabaseRun, Fenced, deliver_answer
from ..execution.driver import JOBS
from ..execution.scheduler import ScheduledRun, Scheduler, concurrent_run_limit
from ..host import environment, files, processes, signals, threads
from ..host.coroutines import Steps
from ..host.effect_context import Interrupt
from ..host.errors import Failure, UserError
from ..host.paths import RUNNING
from ..journal.events import PARKED
from ..journal.outcome import Outcome
from ..journal.run_folder import RunFolder
from ..ledger import database as ledgers
from ..models.helper_process import command_of
from ..project.options import Values
from ..trees.tree_upload import TreeUploader
from ..trees.workspace import Workspace
from .command import Command
from .report import Report
from .resume import resume_run

# Errors that mean that the run has another owner or has ended.
_NOT_OURS = frozenset(("run-is-live", "run-ended", "no-database"))
# Results of a segment: another owner has the run; an error; this worker lacks a program or key.
NOT_OURS, FAILED, REFUSED = "not ours", "failed", "refused"
# A run is parked after waiting for this many seconds, if it will wait as long again.
PARK_S = 2.0


def base_command(store: DatabaseStore) -> Command:
    """Template command with the settings of all runs of a worker. Raises UserError."""
    ledgers.shared = SharedLedger(store.address, store.project, store.owner.id, store.cache)
    values = Values("", queue=True, quiet=True)
    base = Command(values, Report(values, is_silent=True))
    base.configure()
    return base


def start(
    scheduler: Scheduler,
    base: Command,
    store: DatabaseStore,
    run_id: str,
    about: Any,
    on_end: Callable[[ScheduledRun, Outcome | BaseException], object],
) -> None:
    """Add a run to a scheduler.

    Args:
        scheduler: drives the run.
        base: template command with the settings.
        store: run store.
        run_id: id of the queued run.
        about: value for `ScheduledRun.about`.
        on_end: called if the run cannot start.
    """
    command = Command(base.values, Report(base.values, is_silent=True), scheduler=scheduler)
    command.retention, command.budget = base.retention, base.budget
    command.settings, command.record_files = base.settings, base.record_files
    command.store = store
    scheduled = ScheduledRun(command, about)
    try:
        if run_id in store.claims:
            # The queue delivered the run twice; for the database both have this owner.
            raise Failure("run-is-live", f"{run_id} is running here")
        folder = store.cached(run_id)
        folder.trees = TreeUploader(folder)
        scheduler.ours.add(run_id)
        scheduled.steps = resume_run(command, folder, scheduled.interrupt)
    except Exception as error:
        on_end(scheduled, error)
    else:
        scheduler.add(scheduled)


def result_of(ended: Outcome | BaseException) -> tuple[str, str]:
    """Result of a segment: a status, and the reason for a failure ('' for none)."""
    if isinstance(ended, Outcome):
        return PARKED if ended.terminated_by == PARKED else ended.status, ""
    if isinstance(ended, Fenced) or (isinstance(ended, UserError) and ended.id in _NOT_OURS):
        return NOT_OURS, ""
    if isinstance(ended, UserError) and ended.id == "preflight":
        return REFUSED, ended.message
    return FAILED, str(ended) or type(ended).__name__


def park(scheduler: Scheduler, store: DatabaseStore) -> None:
    """Park the runs that only wait."""

    def prepare(run: ScheduledRun) -> None:
        claim = store.claims.get(run.run_id or "")
        if claim is not None:
            claim.status = "queued"  # in case the run has work when it stops

    scheduler.park(PARK_S, prepare)


# --- the worker's side ----------------------------------------------------------------------------


class Checkout:
    """The process of a run with a workspace. folder: the local copy of the run's record."""

    def __init__(self, store: DatabaseStore, run_id: str) -> None:
        self.run_id = run_id
        self._cache = f"{store.cache}-{run_id}"
        self._requests = 0
        self.folder = RunFolder(self._cache, os.path.join(self._cache, RUNNING, run_id))
        # A killed process may have left events there that the database does not have.
        files.rmtree(self._cache, ignore_errors=True)
        facts = {
            "url": store.address.url,
            "schema": store.address.schema,
            "owner": store.owner.id,
            "project": store.project,
            "run": run_id,
            "cache": self._cache,
            "repositories": os.path.join(os.path.dirname(store.cache), "repositories"),
            "checkout": os.path.join(store.cache, "checkouts", run_id),
        }
        self._process = processes.Popen(
            command_of(__name__),
            stdin=processes.PIPE,
            stdout=processes.PIPE,
            start_new_session=True,  # Ctrl-C at the terminal is the worker's to handle
        )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(facts).encode() + b"\n")
        self._process.stdin.flush()

    def wait(self) -> tuple[str, str] | None:
        """Wait for the end of the process; return its result as `result_of`. None if it was killed.

        For a run that did not fail, the reason describes what happened to the files of its workspace.
        """
        assert self._process.stdout is not None
        output = self._process.stdout.read()
        code = self._process.wait()
        try:
            result, reason = json.loads(output)
        except ValueError:
            return None if code < 0 else (FAILED, f"its process exited with {code}")
        return str(result), str(reason)

    def stop(self) -> None:
        """Stop the run, as `llc stop` does."""
        self._process.send_signal(signals.SIGINT)

    def drain(self, request: int) -> None:
        """Return the run to the queue; request 2 also stops its actions."""
        while self._requests < request:
            self._requests += 1
            self._process.send_signal(signals.SIGTERM if self._requests == 1 else signals.SIGHUP)

    def leave(self) -> None:
        """Kill the actions and end the process: another worker continues the run."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def deliver(self, name: str, data: bytes) -> None:
        """Write an answer to the folder of the run; without a local record, do nothing."""
        if files.exists(self.folder.journal):
            deliver_answer(self.folder.place(name), data)


# --- the process of the run -----------------------------------------------------------------------


class _WorkerIdentity:
    """Identity of the worker that started this process."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.is_dead = False

    def close(self) -> None:
        """Do nothing: the worker continues."""


class _Store(DatabaseStore):
    """Run store for a run with a workspace: after the claim, creates the checkout."""

    # The next owner restores the files as they were before the action.
    keeps_actions = False
    facts: dict[str, Any]
    workspace: Workspace | None = None

    def workspace_outcome(self) -> str:
        """Text about what happened to the files of the workspace."""
        return self.workspace.outcome if self.workspace is not None else ""

    def taking_over(self, run: RunFolder, *others: Any, **more: Any) -> Steps[Claim]:
        claim = yield from super().taking_over(run, *others, **more)
        assert isinstance(run, DatabaseRun)
        try:
            run.files = self.workspace = workspace = Workspace(
                run, self.facts["repositories"], self.facts["checkout"]
            )
            environment.chdir(workspace.folder)
        except BaseException:
            claim.close()
            raise
        return claim


class _Process:
    """This process, which drives one run."""

    def __init__(self, facts: dict[str, Any]) -> None:
        address = Address(facts["url"], facts["schema"])
        self._owner = _WorkerIdentity(facts["owner"])
        self._store = _Store(address, self._owner, facts["project"], facts["cache"])
        self._store.facts = facts
        self._run = facts["run"]
        self._interrupt = Interrupt()
        self._is_stopped = self._is_drained = False
        self.ended: Outcome | BaseException | None = None
        concurrent_run_limit(1, 1)
        self._scheduler = Scheduler(JOBS, 1, self._interrupt, lambda: False, self._on_end)
        for number in (signals.SIGTERM, signals.SIGINT, signals.SIGHUP):
            signals.signal(number, self._on_signal)
        threads.Thread(target=self._watch, name="llc-watch", daemon=True).start()

    def _on_signal(self, number: int, frame: Any) -> None:
        """SIGTERM drains, SIGINT stops the run, SIGHUP stops its actions."""
        self._is_drained |= number == signals.SIGTERM
        self._is_stopped |= number == signals.SIGINT
        if number == signals.SIGHUP:
            self._interrupt.set()
        self._scheduler.pool.wake()

    def _watch(self) -> None:
        """Wait for the end of the worker, then kill the actions and leave. Runs in a thread."""
        while files.read(0, 4096):
            pass
        self._owner.is_dead = True
        for claim in list(self._store.claims.values()):
            claim.run.epoch = -1  # from now on, neither record events nor release the run
        self._interrupt.set()
        self._interrupt.set()
        self._scheduler.pool.wake()

    def _on_wait(self) -> float:
        if self._is_stopped:
            self._scheduler.stop(self._run)
        if self._is_drained:
            self._store.status_after = "queued"
            for claim in list(self._store.claims.values()):
                claim.status = "queued"
            self._scheduler.drain()
        else:
            park(self._scheduler, self._store)
        return 0.5

    def _on_end(self, scheduled: ScheduledRun, ended: Outcome | BaseException) -> None:
        self.ended = ended

    def drive(self) -> tuple[str, str]:
        """Drive the run; return the result for `Checkout.wait`."""
        base = base_command(self._store)
        start(self._scheduler, base, self._store, self._run, None, self._on_end)
        self._scheduler.go(self._on_wait)
        self._store.close()
        self._scheduler.close()
        assert self.ended is not None
        result, reason = result_of(self.ended)
        return result, reason or self._store.workspace_outcome()


def main() -> None:
    """Drive one run in its workspace: read facts from standard input, write the result to standard output."""
    out = sys.stdout
    sys.stdout = sys.stderr
    facts = json.loads(sys.stdin.readline())
    out.write(json.dumps(_Process(facts).drive()))
    out.flush()
    processes.exit_now(0)  # the thread that waits for the worker would delay a normal exit
