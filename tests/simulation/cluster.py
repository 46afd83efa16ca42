"""Histories of runs in a database: clients submit, workers drive, and the server fails as well.

`Queue` replaces the queue of DBOS and takes segments from its tables by the same rules; it notices new
segments immediately, late, or only at its next poll.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any

import postgres

from llc.runtime.database.connection import Address, Connection, Session
from llc.runtime.database.segments import queue_name
from llc.runtime.database.store import open_store
from llc.runtime.host import threads
from llc.runtime.host.coroutines import alone
from llc.runtime.host.errors import UserError
from llc.runtime.host.paths import HISTORY
from llc.runtime.launch import failures, worker
from llc.runtime.launch.report import Report
from llc.runtime.launch.run import start
from llc.runtime.launch.stop_signals import StopSignals
from llc.runtime.launch.submission import Submission
from llc.runtime.launch.worker import Worker
from llc.runtime.ledger import database as ledgers
from llc.runtime.project.options import Values

from .scheduler import Killed, Process
from .server import Server
from .simulation import (
    MOMENTS,
    SECRET,
    Action,
    Fault,
    RequestedRun,
    Simulation,
    Violation,
    cached_unseal,
    host,
    perform,
)

URL = "postgresql://llc@database/llc"
WORKERS = 3
# The share of segments that the queue starts late, and the maximum delay in seconds.
LATE_SHARE, MAX_DELAY_S = 0.3, 15.0
KINDS = (
    *["kill"] * 6,
    *["freeze"] * 3,
    *["cut"] * 3,
    *["restart"] * 2,
    *["lost-answer"] * 4,
    "power",
    "terminate",
    "clock",
    "slow",
)
_TAKE = """
update llc_dbos.workflow_status set status = 'PENDING', executor_id = %(worker)s
where workflow_uuid in (
  select workflow_uuid from llc_dbos.workflow_status
  where queue_name = %(queue)s and status = 'ENQUEUED'
    and is_due(workflow_uuid, %(project)s, '{}', %(worker)s)
  order by created_at, workflow_uuid limit %(count)s for update skip locked)
returning workflow_uuid
"""
_DONE = "update llc_dbos.workflow_status set status = 'SUCCESS' where workflow_uuid = %s and executor_id = %s"
_JOURNAL = "select position, size, data from journal where run = %s order by position"
_DOCUMENTS = "select name, data from documents where run = %s"
_STALE = "select run, epoch, at from stale"
_RUNS = "select id, status, outcome from runs where id like %s order by ticket"


class Queue:
    """Simulated replacement of `database.engine.Engine` for a worker."""

    def __init__(
        self,
        address: Address,
        executor: str,
        project: str,
        labels: Sequence[str],
        capacity: int,
        drive: Callable[[str, int], str],
    ) -> None:
        self._executor = executor
        self._project = project
        self._capacity = capacity
        self._drive = drive
        self._active = 0
        self._is_asked = self._is_closed = False
        self._session = Session(address, lambda: self._is_closed)
        threads.Thread(target=self._take, daemon=True).start()

    def poll(self) -> None:
        self._is_asked = True

    def _take(self) -> None:
        scheduler = host.machine.scheduler
        while not self._is_closed:
            self._is_asked = False
            values = {
                "worker": self._executor,
                "queue": queue_name(self._project),
                "project": self._project,
                "count": max(0, self._capacity - self._active),
            }

            def take(connection: Connection, values: dict[str, Any] = values) -> list[Any]:
                return connection.execute(_TAKE, values).fetchall()  # type: ignore[no-any-return]

            try:
                taken = self._session.do(take) if values["count"] else []
            except UserError:
                return
            for (name,) in taken:
                self._active += 1
                threads.Thread(target=self._perform, args=(name,), daemon=True).start()
            scheduler.wait(lambda: self._is_asked, scheduler.random.choice((0.05, 0.5, 10.0)))

    def _perform(self, name: str) -> None:
        run, _, number = name.rpartition("/")
        scheduler = host.machine.scheduler
        # Threads of the pool may be busy for so long that the worker returns the segment as lost.
        if scheduler.random.random() < LATE_SHARE:
            scheduler.wait(lambda: False, scheduler.random.random() * MAX_DELAY_S)
        try:
            self._drive(run, int(number))
            session = Session(self._session.address, lambda: False)
            session.do(lambda connection: connection.execute(_DONE, [name, self._executor]))
            session.close()
        finally:
            self._active -= 1

    def drain(self) -> None:
        self._capacity = 0

    def close(self) -> None:
        self.drain()
        self._is_closed = True
        host.machine.scheduler.wait(lambda: not self._active, 10.0)


class ClusterSimulation(Simulation):
    """server: has the tables of a cluster; it belongs to this history until the next one starts."""

    kinds, moments = KINDS, (*MOMENTS, *MOMENTS[1:2] * 2)
    kept_histories = 1

    def __init__(
        self,
        server: Server,
        seed: int,
        enabled_faults: Sequence[int] | None = None,
        reference_program: str = "",
    ) -> None:
        self.server = server
        self._submitted: set[str] = set()
        super().__init__(seed, enabled_faults, reference_program)
        server.begin(self.machine)
        server.on_claim = lambda: self._reach_moment("a run changes hands")
        server.on_problem = self._fails

    def _plan(self, random: Random) -> list[Fault]:
        return [Fault(fault.at * 2, fault.kind, fault.amount) for fault in super()._plan(random)]

    # --- clients and supervisors ------------------------------------------------------------------

    def _advance(self, run: RequestedRun) -> None:
        state = self._state(run)
        busy = any(process.about.get("run") is run for process in self.scheduler.living())
        if state is None:
            if run.actions:
                raise self._fails(f"{run.name} is lost, although it has acted")
            if not busy:
                self._start_process(run, "submit", self._submit)
        elif state[1] == "ended":
            self._check_reported(run)
            run.used |= {action.key for action in run.actions}
            run.is_over = not self.faults
        elif state[1] == "stopped":
            raise self._fails(f"{run.name} has stopped without a request: {state[2]}")

    def _supervise(self) -> None:
        workers = [process for process in self.scheduler.living() if "worker" in process.about]
        if len(workers) < WORKERS:
            process = self._new_process(f"llc worker #{self.scheduler.calls}")
            process.about["worker"] = process
            self._log(f"start {process.name} (pid {process.pid})")
            self._reach_moment("llc starts")
            self.scheduler.start(process, lambda: self._work(process))

    def _start_process(
        self, run: RequestedRun, what: str, action: Callable[[Process, RequestedRun], int]
    ) -> None:
        run.attempts += 1
        process = self._new_process(f"llc {what} {run.name} #{run.attempts}")
        process.about["run"] = run
        self._log(f"start {process.name} (pid {process.pid})")
        self.scheduler.start(process, lambda: self._guarded(process, lambda: action(process, run)))

    def _guarded(self, process: Process, body: Callable[[], int]) -> int:
        try:
            return body()
        except Killed:
            raise
        except Violation as error:
            self._problem = error
        except BaseException as error:
            shown = failures.of_run(error, None) if isinstance(error, Exception) else error
            self._log(f"{process.name} failed: {type(shown).__name__}: {shown}")
            if failures.is_internal(shown):
                error.add_note(f"in {process.name}")
                self._problem = self._problem or error
        return 1

    def _submit(self, process: Process, run: RequestedRun) -> int:
        values = Values(run.name, quiet=True)
        store = open_store(Address(URL))
        try:
            store.managed = True
            store.sweep()
            command = Submission(values, Report(values, is_silent=True))
            command.store = store
            with StopSignals(False) as interrupt:
                command.configure()
                alone(start(command, "", run.image, interrupt))
            self._log(f"{run.name} is in the queue")
            self._submitted.add(run.name)
        finally:
            store.close()
        return 0

    def _work(self, process: Process) -> int:
        def body() -> int:
            made = Worker(Address(URL), (), 4, 30.0, None)
            code = made.work()
            self._log(f"{process.name} ended with {code}")
            return code

        return self._guarded(process, body)

    # --- faults -----------------------------------------------------------------------------------

    def _inject(self, fault: Fault) -> None:
        random, now = fault.amount, self.scheduler.now
        drivers = [process for process in self.scheduler.living() if self.drives(process)]
        target = drivers[int(random * len(drivers))] if drivers else None
        if fault.kind in ("freeze", "cut") and target is not None:
            # Its actions may continue concurrently with those of its successor.
            target.about["is_suspect"] = True
        if fault.kind == "restart":
            self.injected += 1
            self._log(f"fault: {fault}")
            self.server.restart(random * 20)
        elif fault.kind in ("cut", "lost-answer"):
            self.injected += 1
            if target is not None:
                self._log(f"fault: {fault}, {target.name}")
                if fault.kind == "cut":
                    target.about["cut"] = now + random * 40
                else:
                    self.server.lose_answer(target)
        else:
            super()._inject(fault)

    @staticmethod
    def drives(process: Process) -> bool:
        return "run" in process.about or "worker" in process.about

    # --- oracles ----------------------------------------------------------------------------------

    def _state(self, run: RequestedRun) -> tuple[str, str, str] | None:
        """Id, status and outcome of a run in the database; None for a run without a record."""
        stale = self.server.admin.execute(_STALE).fetchone()
        if stale is not None:
            raise self._fails(
                f"a replaced owner has appended to {stale[0]} in epoch {stale[1]} at {stale[2]}"
            )
        rows = self.server.admin.execute(_RUNS, [f"{run.name}-2%"]).fetchall()
        recorded = [row for row in rows if self._journal_of(row[0])]
        if len(recorded) > 1:
            raise self._fails(f"{run.name} exists {len(recorded)} times")
        if recorded:
            return recorded[0]  # type: ignore[return-value]
        if any(row[1] != "stopped" for row in rows):
            return rows[-1]  # type: ignore[return-value]
        return None

    def _journal_of(self, run_id: str) -> bytes:
        parts = self.server.admin.execute(_JOURNAL, [run_id], binary=True).fetchall()
        data = b""
        for position, size, part in parts:
            if position != len(data) or size != len(part):
                raise self._fails(f"the journal of {run_id} has a gap at {len(data)}")
            data += part
        return data

    def _check_spawn(self, process: Process) -> None:
        """The database has the start of the action, and all results before it."""
        effect = process.env.get(b"LLC_EFFECT_ID", b"").decode()
        run_id, _, seq = effect.rpartition("/")
        run = next(run for run in self.runs if run_id.startswith(run.name))
        data = self._journal_of(run_id)
        durable = run.durable.get(run_id, b"")
        if not data.startswith(durable):
            raise self._fails(f"what was committed of the journal of {run_id} has changed")
        run.durable[run_id] = data
        lines = [cached_unseal(line) for line in data.split(b"\n")[:-1]]
        if None in lines:
            raise self._fails(f"the journal of {run_id} is damaged when effect {effect} starts")
        kinds = [(line["event"], line.get("seq")) for line in lines if line is not None]
        if ("action_start", int(seq)) not in kinds:
            raise self._fails(f"effect {effect} starts, and its start is not committed")
        owner = process.parent
        is_fenced = owner is not None and owner.about.get("is_suspect")
        if ("action_complete", int(seq)) in kinds and not is_fenced:
            raise self._fails(f"effect {effect} starts, and its result is in the journal")

    def _check_write(self, process: Process | None, node: object) -> None:
        """A cache needs no check."""

    def _note_sync(self, node: object) -> None:
        """A cache needs no check."""

    def _check_names(self, process: Process | None, changes: object) -> None:
        """A cache needs no check."""

    def _check_disk(self) -> None:
        """The disk needs no check, since the database has the record."""

    def _check_reported(self, run: RequestedRun) -> None:
        state = self._state(run)
        if state is None or b'{"event":"run_end"' not in self._journal_of(state[0]):
            raise self._fails(f"{run.name} has ended, and that is not in its journal")

    def _may_repeat(self, process: Process, run: RequestedRun) -> bool:
        """Once: its driver had recorded the start, and was suspended before it started the action."""
        driver = process.parent
        if driver is None or not driver.about.get("is_suspect") or ("strayed", run.name) in driver.about:
            return False
        driver.about["strayed", run.name] = True
        return True

    def _is_alone(self, action: Action) -> bool:  # type: ignore[override]
        return self._is_driven(action)

    @staticmethod
    def _is_driven(action: Action) -> bool:
        parent = action.process.parent
        return action.process.is_alive and parent is not None and not parent.about.get("is_suspect")

    def _check_end(self) -> None:
        admin = self.server.admin
        for table in ("journal", "documents"):
            where = f"select run from {table} where position(%s::bytea in data) > 0"
            if admin.execute(where, [SECRET.encode()]).fetchone():
                raise Violation(f"the table {table} contains a secret")
        self._store_records()
        super()._check_end()

    def _store_records(self) -> None:
        """Write the records of all runs to the folder of ended runs."""
        for run in self.runs:
            state = self._state(run)
            assert state is not None
            folder = f"{HISTORY}/{state[0]}"
            host.files.makedirs(f"{folder}/outputs", exist_ok=True)
            found = self.server.admin.execute(_DOCUMENTS, [state[0]], binary=True).fetchall()
            for name, data in [*found, (f"{run.name}.events.jsonl", self._journal_of(state[0]))]:
                with host.files.open(f"{folder}/{name}", "wb") as file:
                    file.write(data)


@contextmanager
def installed(server: Server) -> Iterator[None]:
    """Within `simulation.installed`: llc uses this server, and workers use the simulated queue."""
    shared = ledgers.shared  # workers change it
    before, worker.Engine = worker.Engine, Queue  # type: ignore[assignment,misc]
    try:
        with server.installed():
            yield
    finally:
        worker.Engine = before  # type: ignore[misc]
        ledgers.shared = shared


@contextmanager
def clustered() -> Iterator[Callable[[int, Sequence[int] | None], Simulation]]:
    """Within `simulation.installed`: function that simulates the history of a seed, with its own server."""
    running = os.environ.get("LLC_TEST_DATABASE_URL")
    own = None if running else postgres.Server()
    try:
        server = Server(postgres.new_database(running or own.url("postgres")))  # type: ignore[union-attr]
        with installed(server):
            yield lambda seed, enabled_faults=None: perform(ClusterSimulation(server, seed, enabled_faults))
        server.close()
    finally:
        if own is not None:
            own.close()
