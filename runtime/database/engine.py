"""Queue engine of a worker: takes segments from the queue of DBOS and calls `drive(run, n)` in threads.

This is the only module that uses private names of DBOS, because its public interface does not support labels,
capacity and the wake-up of a worker (`spec/cluster.md`). The names are those of the pinned version of DBOS;
`check_hooks` verifies them.
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
from .connection import Address, connect, translated_errors
from .segments import APPLICATION, CHANNEL, QUEUE_PREFIX, VERSION, WORKFLOW, dbos_schema, queue_name

# Polling interval of the queue, in seconds, if no notification arrives.
POLL_S = 10.0
# Polling interval, in seconds, for features of DBOS that llc does not use: internal queue, schedules, other
# queues. It applies once the thread of llc's queue runs; before, DBOS polls as often as by default. Waits
# below the second value are not for polling and remain unchanged.
_UNUSED_POLL_S = 60.0
_MIN_POLL_S = 0.5
# Limit of concurrent segments that the queue has in the database; each worker reduces it to its capacity.
_QUEUE_CONCURRENCY = 1_000_000
# Prefix of the name of the DBOS thread that polls the queue.
POLLER = f"queue-worker-{QUEUE_PREFIX}"


class Engine:
    """Queue engine of one worker. project, labels: the runs that it takes; capacity: concurrent segments."""

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
        self._queue = queue_name(project)
        self._labels = list(labels)
        self._capacity = capacity
        self._wake_up = _WakeUp()
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
        # Before the launch: a thread that already waits would miss wake-ups during its first ten seconds.
        self._dbos.background_thread_stop_events = StopEvents(self._wake_up)
        dbos.DBOS.listen_queues([self._queue])
        with translated_errors(address):
            dbos.DBOS.launch()
            self._hook()
            dbos.DBOS.register_queue(
                self._queue,
                worker_concurrency=_QUEUE_CONCURRENCY,
                polling_interval_sec=POLL_S,
                on_conflict="always_update",
            )
        threads.Thread(target=self._listen, name="llc-listen", daemon=True).start()

    def _hook(self) -> None:
        """Install labels, capacity and the wake-up in DBOS. Raises UserError if DBOS has another version."""
        store, active = self._dbos._sys_db, self._dbos._active_workflows_set
        check_hooks(store, active, self._dbos)
        due = sqlalchemy.text(
            f"{self._address.schema}.is_due(workflow_uuid, :llc_project, :llc_labels, :llc_worker)"
        )
        gate = due.bindparams(llc_project=self._project, llc_labels=self._labels, llc_worker=self._executor)
        count = active.count_for_queue
        store._claim_gate = lambda queue, partition: [gate] if queue == self._queue else []
        active.count_for_queue = lambda queue: (
            count(queue) + (_QUEUE_CONCURRENCY - self._capacity if queue == self._queue else 0)
        )
        # These background jobs end delays and time limits of workflows, which segments do not have.
        self._dbos._background_jobs_stop_event.set()

    def poll(self) -> None:
        """Poll the queue now."""
        self._wake_up.set()

    def _listen(self) -> None:
        """Thread: poll the queue after each notification."""
        while not self._is_closed:
            try:
                with connect(self._address) as connection:
                    connection.execute(f"listen {CHANNEL}")
                    self.poll()
                    while not self._is_closed:
                        for notice in connection.notifies(timeout=1.0, stop_after=1):
                            if notice.payload == self._queue:
                                self.poll()
            except Exception:  # the server is not available; the heartbeat thread reports it
                clock.sleep(0.2)

    def drain(self) -> None:
        """Take no more segments."""
        self._capacity = 0

    def close(self) -> None:
        """Take no more segments and wait for those in progress, which must already be ending."""
        self.drain()
        self._is_closed = True
        dbos.DBOS.destroy(workflow_completion_timeout_sec=10)


class _WakeUp:
    """Replacement for `wait` of the events on which the threads of DBOS sleep.

    A call of `set` ends the wait of the thread that polls the queue of llc. Once that thread has started, the
    waits of all other polling threads are lengthened.
    """

    def __init__(self) -> None:
        self._requests = threads.Semaphore(0)
        self._is_polled = False

    def set(self) -> None:
        self._requests.release()

    def attach(self, event: Any) -> None:
        wait_for_stop, requests = event.wait, self._requests

        def wait(timeout: float | None = None) -> bool:
            if timeout is None or timeout < _MIN_POLL_S:
                return bool(wait_for_stop(timeout))
            if not threads.current_thread().name.startswith(POLLER):
                return bool(wait_for_stop(max(timeout, _UNUSED_POLL_S) if self._is_polled else timeout))
            self._is_polled = True
            deadline = clock.monotonic() + timeout
            while (remaining := deadline - clock.monotonic()) > 0:
                if event.is_set():
                    return True
                if requests.acquire(timeout=min(remaining, 0.5)):
                    while requests.acquire(blocking=False):
                        pass
                    return bool(event.is_set())
            return bool(event.is_set())

        event.wait = wait


class StopEvents(list[Any]):
    """List of the stop events of DBOS threads; replaces `wait` of each event before its thread starts."""

    def __init__(self, wake_up: _WakeUp) -> None:
        super().__init__()
        self._wake_up = wake_up

    def append(self, event: Any) -> None:
        self._wake_up.attach(event)
        super().append(event)


def check_hooks(store: Any, active: Any, engine: Any) -> None:
    """Check that DBOS has the private names and signatures that this module uses. Raises UserError."""
    try:
        gate = list(inspect.signature(store._claim_gate).parameters)
        count = list(inspect.signature(active.count_for_queue).parameters)
        is_compatible = gate == ["queue_name", "partition_key"] and count == ["queue_name"]
        is_compatible = is_compatible and callable(engine._background_jobs_stop_event.set)
        is_compatible = is_compatible and len(engine.background_thread_stop_events) > 0
    except (AttributeError, TypeError, ValueError):
        is_compatible = False
    if not is_compatible:
        raise Failure(
            "missing-package",
            f"the installed version of `dbos` is not supported: {getattr(dbos, '__version__', 'unknown')}",
            "in a checkout of llc: pip install '.[cluster]'",
        )
