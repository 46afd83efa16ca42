"""DBOS in a worker: takes segments from the queue and calls `drive(run, n)` for each in a thread.

The only module that touches private names of DBOS, which `check_hooks` looks at before the launch: labels,
capacity and waking a worker are not in its public interface (`spec/cluster.md`). They fit the pinned
version.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Sequence
from typing import Any

import dbos
import sqlalchemy

from ..host import clock, threads
from ..host.errors import Failure
from .connection import Address, connect, refusals
from .segments import APPLICATION, CHANNEL, QUEUES, VERSION, WORKFLOW, dbos_schema, queue_of

# Seconds between two looks at the queue if no notification arrives.
POLL_S = 10.0
# Seconds between two looks at what llc does not use: DBOS's own queue, schedules, other queues. They are as
# often as DBOS wants until the queue of llc is found; shorter waits are not for a look.
_REST_S = 60.0
_REST_LEAST_S = 0.5
# What the name of the thread of DBOS begins with that looks at the queue.
POLLER = f"queue-worker-{QUEUES}"


class Engine:
    """The queue of one worker. project, labels: which runs it takes; capacity: how many segments at once."""

    def __init__(
        self,
        address: Address,
        executor: str,
        project: str,
        labels: Sequence[str],
        capacity: int,
        drive: Callable[[str, int], str],
    ) -> None:
        self._address = address
        self._executor = executor
        self._project = project
        self._queue = queue_of(project)
        self._labels = list(labels)
        self._capacity = capacity
        self._wake = _Wake()
        self._is_closed = False
        logger = logging.getLogger("dbos")
        logger.handlers[:] = [logging.NullHandler()]
        self._dbos: Any = dbos.DBOS(
            config={
                "name": APPLICATION,
                "system_database_url": address.url,
                "dbos_system_schema": dbos_schema(address),
                "executor_id": executor,
                "application_version": VERSION,
                "run_migrations": False,
                "log_level": "CRITICAL",
                "sys_db_pool_size": 5,
                "max_executor_threads": capacity + 4,
            }
        )
        logger.handlers[:] = [logging.NullHandler()]

        def segment(run: str, number: int) -> str:
            return drive(run, number)

        dbos.DBOS.workflow(name=WORKFLOW, max_recovery_attempts=None)(segment)
        # Before the launch: a thread that waits already would be deaf for its first ten seconds.
        self._dbos.background_thread_stop_events = Events(self._wake)
        dbos.DBOS.listen_queues([self._queue])
        with refusals(address):
            dbos.DBOS.launch()
            self._hook()
            dbos.DBOS.register_queue(
                self._queue,
                worker_concurrency=_MOST,
                polling_interval_sec=POLL_S,
                on_conflict="always_update",
            )
        threads.Thread(target=self._listen, name="llc-listen", daemon=True).start()

    def _hook(self) -> None:
        """Labels, capacity and the wake-up in private names of DBOS. Raises UserError if they do not fit."""
        store, active = self._dbos._sys_db, self._dbos._active_workflows_set
        check_hooks(store, active, self._dbos)
        due = sqlalchemy.text(
            f"{self._address.schema}.is_due(workflow_uuid, :llc_project, :llc_labels, :llc_worker)"
        )
        gate = due.bindparams(llc_project=self._project, llc_labels=self._labels, llc_worker=self._executor)
        count = active.count_for_queue
        store._claim_gate = lambda queue, partition: [gate] if queue == self._queue else []
        active.count_for_queue = lambda queue: (
            count(queue) + (_MOST - self._capacity if queue == self._queue else 0)
        )
        # They end delays and time limits of workflows, which segments do not have.
        self._dbos._background_jobs_stop_event.set()

    def poll(self) -> None:
        """Look at the queue now."""
        self._wake.set()

    def _listen(self) -> None:
        """In a thread: look at the queue whenever something was put into it."""
        while not self._is_closed:
            try:
                with connect(self._address) as connection:
                    connection.execute(f"listen {CHANNEL}")
                    self.poll()
                    while not self._is_closed:
                        for notice in connection.notifies(timeout=1.0, stop_after=1):
                            if notice.payload == self._queue:
                                self.poll()
            except Exception:  # the server is away; the heartbeat reports it
                clock.sleep(0.2)

    def drain(self) -> None:
        """Take nothing more."""
        self._capacity = 0

    def close(self) -> None:
        """Take nothing more and wait for the segments in progress, which must be ending."""
        self.drain()
        self._is_closed = True
        dbos.DBOS.destroy(workflow_completion_timeout_sec=10)


# Limit that the queue has in the database; each worker subtracts what it has not.
_MOST = 1_000_000


class _Wake:
    """Replaces `wait` of the events that DBOS waits for.

    It shortens the wait between two looks at the queue of llc, and lengthens the others once that is found.
    """

    def __init__(self) -> None:
        self._asked = threads.Semaphore(0)
        self._is_polled = False

    def set(self) -> None:
        self._asked.release()

    def attach(self, event: Any) -> None:
        is_stopped, asked = event.wait, self._asked

        def wait(timeout: float | None = None) -> bool:
            if timeout is None or timeout < _REST_LEAST_S:
                return bool(is_stopped(timeout))
            if not threads.current_thread().name.startswith(POLLER):
                return bool(is_stopped(max(timeout, _REST_S) if self._is_polled else timeout))
            self._is_polled = True
            end = clock.monotonic() + timeout
            while (left := end - clock.monotonic()) > 0:
                if event.is_set():
                    return True
                if asked.acquire(timeout=min(left, 0.5)):
                    while asked.acquire(blocking=False):
                        pass
                    return bool(event.is_set())
            return bool(event.is_set())

        event.wait = wait


class Events(list[Any]):
    """Events that threads of DBOS wait for; each gets the wait of `_Wake` before its thread begins."""

    def __init__(self, wake: _Wake) -> None:
        super().__init__()
        self._wake = wake

    def append(self, event: Any) -> None:
        self._wake.attach(event)
        super().append(event)


def check_hooks(store: Any, active: Any, engine: Any) -> None:
    """That the private names of DBOS are as they were when this was written. Raises UserError."""
    try:
        gate = list(inspect.signature(store._claim_gate).parameters)
        count = list(inspect.signature(active.count_for_queue).parameters)
        fits = gate == ["queue_name", "partition_key"] and count == ["queue_name"]
        fits = fits and callable(engine._background_jobs_stop_event.set)
        fits = fits and len(engine.background_thread_stop_events) > 0
    except (AttributeError, TypeError, ValueError):
        fits = False
    if not fits:
        raise Failure(
            "missing-package",
            f"this version of the package `dbos` does not fit: {getattr(dbos, '__version__', 'unknown')}",
            "in a checkout of llc: pip install '.[cluster]'",
        )
