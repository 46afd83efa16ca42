"""Segments: the durable queue of runs that workers drive, in tables of DBOS Transact.

A run is a chain of segments, each a DBOS workflow `<run>/<n>`. The queue decides which worker takes a
segment; everything inside a segment belongs to the journal. DBOS has its tables in a schema of its own,
next to ours; functions of our schema (`installation`) enqueue and requeue segments, so that this happens in
the transaction that changes the run and needs no DBOS in the client.
"""

from __future__ import annotations

from .connection import Address, Connection

# Constants of all versions of llc: a worker takes only segments with its own.
APPLICATION = "llc"
VERSION = "llc-segments-1"
WORKFLOW = "segment"
CHANNEL = "llc_work"
# What the names of queues begin with.
QUEUES = "llc:"


def queue_of(project: str) -> str:
    """The queue of a project: what others have queued costs its workers nothing."""
    return QUEUES + project


def dbos_schema(address: Address) -> str:
    """The schema with the tables of DBOS."""
    return f"{address.schema}_dbos"


def enqueue(connection: Connection, run_id: str) -> int:
    """Queue the next segment of a run; its number. Part of the caller's transaction."""
    return int(connection.execute("select enqueue_segment(%s)", [run_id]).fetchone()[0])


class Deliveries:
    """The segments that this worker performs, and those of the queue that never arrived.

    DBOS marks a segment as taken, commits, and then starts it. If the answer to the commit is lost, the
    segment is marked but not performed: it goes back to the queue once it was seen so twice.
    """

    def __init__(self, address: Address, worker: str) -> None:
        self._worker = worker
        self._here: set[str] = set()
        self._missing: set[str] = set()
        where = f"{dbos_schema(address)}.workflow_status"
        self._marked = f"select workflow_uuid from {where} where status = 'PENDING' and executor_id = %s"
        self._return = (
            f"update {where} set status = 'ENQUEUED', owner_xid = null, started_at_epoch_ms = null "
            "where workflow_uuid = any(%s) and status = 'PENDING' and executor_id = %s and exists "
            "(select 1 from runs where id = split_part(workflow_uuid, '/', 1) and status = 'queued')"
        )

    def begin(self, run: str, number: int) -> None:
        self._here.add(f"{run}/{number}")

    def end(self, run: str, number: int) -> None:
        self._here.discard(f"{run}/{number}")

    def return_missing(self, connection: Connection) -> None:
        """To be called every few seconds."""
        marked = {name for (name,) in connection.execute(self._marked, [self._worker]).fetchall()}
        missing = marked - self._here
        lost, self._missing = missing & self._missing, missing - self._missing
        if lost:
            connection.execute(self._return, [sorted(lost), self._worker])
