"""A run of a cluster's queue: how a worker's scheduler begins it, and a process of its own for a workspace.

A run with a workspace is performed in its checkout. All runs of a process have one working directory, so such
a run gets a process (`Checkout`), started by the worker (`main` is the other side). It borrows the identity
of the worker: the claim, the heartbeat and the death of a worker apply to both. It ends when the worker
does, because its standard input is closed then; the fence of the journal holds in any case.
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
from .resume import take_up

# Errors after which the run is another worker's, or over.
_NOT_OURS = frozenset(("run-is-live", "run-ended", "no-database"))
NOT_OURS, FAILED, LACKS = "not ours", "failed", "refused"
# A run that has waited for this many seconds, and will wait as long again, uses no place.
PARK_S = 2.0


def base_command(store: DatabaseStore) -> Command:
    """The command whose settings the runs of a worker have. Raises UserError."""
    ledgers.shared = SharedLedger(store.address, store.project, store.owner.id, store.cache)
    values = Values("", queue=True, quiet=True)
    base = Command(values, Report(values, is_silent=True))
    base.configure()
    return base


def begin(
    scheduler: Scheduler,
    base: Command,
    store: DatabaseStore,
    run_id: str,
    about: Any,
    ended: Callable[[ScheduledRun, Outcome | BaseException], object],
) -> None:
    """Add a run to a scheduler; `ended` is called if it cannot begin."""
    command = Command(base.values, Report(base.values, is_silent=True), scheduler=scheduler)
    command.retention, command.budget = base.retention, base.budget
    command.settings, command.record_files = base.settings, base.record_files
    command.store = store
    scheduled = ScheduledRun(command, about)
    try:
        if run_id in store.claims:
            # The queue gave it out twice; for the database both would be this owner.
            raise Failure("run-is-live", f"{run_id} is running here")
        folder = store.cached(run_id)
        folder.trees = TreeUploader(folder)
        scheduler.ours.add(run_id)
        scheduled.steps = take_up(command, folder, scheduled.interrupt)
    except Exception as error:
        ended(scheduled, error)
    else:
        scheduler.add(scheduled)


def result_of(came: Outcome | BaseException) -> tuple[str, str]:
    """What came of a segment: one word, and for people why it failed."""
    if isinstance(came, Outcome):
        return PARKED if came.terminated_by == PARKED else came.status, ""
    if isinstance(came, Fenced) or (isinstance(came, UserError) and came.id in _NOT_OURS):
        return NOT_OURS, ""
    if isinstance(came, UserError) and came.id == "preflight":
        return LACKS, came.message
    return FAILED, str(came) or type(came).__name__


def park(scheduler: Scheduler, store: DatabaseStore) -> None:
    """Have the runs parked that only wait."""

    def prepare(run: ScheduledRun) -> None:
        claim = store.claims.get(run.run_id or "")
        if claim is not None:
            claim.status = "queued"  # if it turns out to have something to do

    scheduler.park(PARK_S, prepare)


# --- the worker's side ----------------------------------------------------------------------------


class Checkout:
    """The process of a run with a workspace. folder: its copy of the run's record."""

    def __init__(self, store: DatabaseStore, run_id: str) -> None:
        self.run_id = run_id
        self._cache = f"{store.cache}-{run_id}"
        self._requests = 0
        self.folder = RunFolder(self._cache, os.path.join(self._cache, RUNNING, run_id))
        # A process that was killed has left events there that are on no record.
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
        """As `result_of`, or what came of its files, when it has ended; None if it was killed."""
        assert self._process.stdout is not None
        told = self._process.stdout.read()
        code = self._process.wait()
        try:
            result, why = json.loads(told)
        except ValueError:
            return None if code < 0 else (FAILED, f"its process ended with {code}")
        return str(result), str(why)

    def stop(self) -> None:
        """Stop the run, as `llc stop` does."""
        self._process.send_signal(signals.SIGINT)

    def drain(self, request: int) -> None:
        """Have the run returned to the queue; by the second request its actions are stopped."""
        while self._requests < request:
            self._requests += 1
            self._process.send_signal(signals.SIGTERM if self._requests == 1 else signals.SIGHUP)

    def leave(self) -> None:
        """Have its actions killed: another worker continues."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def deliver(self, name: str, data: bytes) -> None:
        """Put an answer where the run finds it; nothing while it has no record here."""
        if files.exists(self.folder.journal):
            deliver_answer(self.folder.place(name), data)


# --- the other side -------------------------------------------------------------------------------


class _Borrowed:
    """The identity of the worker that started this process."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.is_dead = False

    def close(self) -> None:
        """Nothing: the worker lives on."""


class _Store(DatabaseStore):
    """The store of a run with a workspace: the claim is followed by the checkout."""

    # The next owner makes the files again as they were before the action.
    keeps_actions = False
    facts: dict[str, Any]
    workspace: Workspace | None = None

    def returned(self) -> str:
        """What came of the files, for people."""
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
    """The one run of this process."""

    def __init__(self, facts: dict[str, Any]) -> None:
        address = Address(facts["url"], facts["schema"])
        self._owner = _Borrowed(facts["owner"])
        self._store = _Store(address, self._owner, facts["project"], facts["cache"])
        self._store.facts = facts
        self._run = facts["run"]
        self._interrupt = Interrupt()
        self._is_stopped = self._is_drained = False
        self.came: Outcome | BaseException | None = None
        concurrent_run_limit(1, 1)
        self._scheduler = Scheduler(JOBS, 1, self._interrupt, lambda: False, self._ended)
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
        """In a thread: when the worker has ended, kill the actions and leave."""
        while files.read(0, 4096):
            pass
        self._owner.is_dead = True
        for claim in list(self._store.claims.values()):
            claim.run.epoch = -1  # nothing is recorded any more, nor is the run released
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

    def _ended(self, scheduled: ScheduledRun, came: Outcome | BaseException) -> None:
        self.came = came

    def go(self) -> tuple[str, str]:
        base = base_command(self._store)
        begin(self._scheduler, base, self._store, self._run, None, self._ended)
        self._scheduler.go(self._on_wait)
        self._store.close()
        self._scheduler.close()
        assert self.came is not None
        result, why = result_of(self.came)
        return result, why or self._store.returned()


def main() -> None:
    """Drive one run in its workspace. Standard input has its facts, standard output gets the result."""
    out = sys.stdout
    sys.stdout = sys.stderr
    facts = json.loads(sys.stdin.readline())
    out.write(json.dumps(_Process(facts).go()))
    out.flush()
    processes.exit_now(0)  # a thread waits for the end of the worker
