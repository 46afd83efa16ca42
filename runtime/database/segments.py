"""Segments: the durable queue of managed runs, in tables of DBOS Transact.

A run is a chain of segments; each segment is a DBOS workflow `<run>/<n>`. The queue assigns segments to
workers; the journal records everything that happens inside a segment. DBOS has its tables in a separate
schema. SQL functions in llc's schema (`installation`) enqueue and requeue segments. Therefore this happens in
the transaction that changes the run, and clients do not need DBOS.
"""

from __future__ import annotations

from .connection import Address, Connection

# These constants must not change: a worker takes only segments with the same application and version.
APPLICATION = "llc"
VERSION = "llc-segments-1"
WORKFLOW = "segment"
CHANNEL = "llc_work"
# Prefix of queue names.
QUEUE_PREFIX = "llc:"


def queue_name(project: str) -> str:
    """Return the name of a project's queue.

    Each project has one, so workers never scan segments of others.
    """
    return QUEUE_PREFIX + project


def dbos_schema(address: Address) -> str:
    """Return the name of the schema with the tables of DBOS."""
    return f"{address.schema}_dbos"


def enqueue(connection: Connection, run_id: str) -> int:
    """Enqueue the next segment of a run in the caller's transaction; return its number."""
    return int(connection.execute("select enqueue_segment(%s)", [run_id]).fetchone()[0])


class Deliveries:
    """Segments that this worker executes, and detection of segments that were assigned but never started.

    DBOS marks a segment as taken, commits, and then starts it. If the reply to the commit is lost, the
    segment is marked but never started. Such a segment returns to the queue when two consecutive checks have
    found it.
    """

    def __init__(self, address: Address, worker: str) -> None:
        self._worker = worker
        self._started: set[str] = set()
        self._missing: set[str] = set()
        table = f"{dbos_schema(address)}.workflow_status"
        self._select_taken = (
            f"select workflow_uuid from {table} where status = 'PENDING' and executor_id = %s"
        )
        self._requeue = (
            f"update {table} set status = 'ENQUEUED', owner_xid = null, started_at_epoch_ms = null "
            "where workflow_uuid = any(%s) and status = 'PENDING' and executor_id = %s and exists "
            "(select 1 from runs where id = split_part(workflow_uuid, '/', 1) and status = 'queued')"
        )

    def begin(self, run: str, number: int) -> None:
        self._started.add(f"{run}/{number}")

    def end(self, run: str, number: int) -> None:
        self._started.discard(f"{run}/{number}")

    def return_missing(self, connection: Connection) -> None:
        """Return segments that never started to the queue. The caller repeats this every few seconds."""
        taken = {name for (name,) in connection.execute(self._select_taken, [self._worker]).fetchall()}
        missing = taken - self._started
        lost, self._missing = missing & self._missing, missing - self._missing
        if lost:
            connection.execute(self._requeue, [sorted(lost), self._worker])
