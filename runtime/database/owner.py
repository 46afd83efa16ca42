"""Owner of runs: a process that drives runs of the database, and the detection of its death.

The session of an owner holds an advisory lock, which the server releases when the process ends. A restart of
the server releases all locks, so a free lock proves a death only if the server has not restarted since it
granted the lock. Otherwise the heartbeat decides. After an outage all heartbeats are old. Their age then
counts from the reconnection of the first owner that has a fresh heartbeat; until then no owner is considered
dead, because the session of a watch may reconnect before any owner (`spec/cluster.md`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Protocol

from ..host import clock, environment, files, processes, threads
from ..host.errors import UserError
from .connection import Address, Connection, Session

# Heartbeats, in seconds: interval; maximum age that proves the database available; maximum age of a living
# owner (lease); shortest interval.
BEAT_S = 1.0
_FRESH_BEAT_S = 2 * BEAT_S
LEASE_S = 5.0
_MIN_BEAT_S = 0.1

_REGISTER = """
insert into workers (id, labels, capacity, machine, lock_key, server_start)
values (%(id)s, %(labels)s, %(capacity)s, %(machine)s, hashtextextended(%(id)s, 0),
  case when %(locked)s then pg_postmaster_start_time() else '-infinity' end)
on conflict (id) do update set server_start = excluded.server_start, beat = clock_timestamp(),
  since = case when %(new)s then clock_timestamp() else workers.since end
"""
_LOCK = "select pg_try_advisory_lock(hashtextextended(%s, 0))"
_BEAT = "update workers set beat = clock_timestamp() where id = %s returning state"
_IS_DEAD = f"""
(state = 'dead'
  or (server_start = pg_postmaster_start_time() and pg_try_advisory_xact_lock(lock_key))
  or greatest(beat, (
    select coalesce(min(since), clock_timestamp()) from workers
    where beat > clock_timestamp() - interval '{_FRESH_BEAT_S} seconds'
  )) < clock_timestamp() - make_interval(secs => %(lease)s))
"""
_IS_THIS_DEAD = f"select {_IS_DEAD} from workers where id = %(id)s"
_BURY = "select bury(%s)"
_BURY_DEAD = f"select id, bury(id) from workers where state <> 'dead' and id <> %(id)s and {_IS_DEAD}"


class Identity(Protocol):
    """Interface of an owner. is_dead: another process has declared it dead."""

    id: str
    is_dead: bool

    def close(self) -> None:
        """Give up all runs and unregister the owner."""


class Owner:
    """Registration of this process as an owner of runs, with a heartbeat thread.

    Args:
        labels: labels of the runs that it takes.
        capacity: number of runs that it drives at the same time.
        on_beat: called with the connection after each heartbeat, in the heartbeat thread; returns the seconds
            until the next heartbeat, or None for the normal interval.
        on_death: called when another process has declared this one dead.
        on_outage: called with the reason when the database is not available.
        machine: identifies the files that its runs use; default: this host and the working directory.
    """

    def __init__(
        self,
        address: Address,
        labels: Sequence[str] = (),
        capacity: int = 1,
        on_beat: Callable[[Connection], float | None] = lambda connection: None,
        on_death: Callable[[], object] = lambda: None,
        on_outage: Callable[[str], object] = lambda reason: None,
        machine: str | None = None,
    ) -> None:
        pid = processes.getpid()
        name = environment.node()
        self.id = f"{name}-{pid}-{environment.urandom(4).hex()}"
        self.address = address
        self.is_dead = False
        self.machine = machine or f"{name}:{files.realpath(environment.getcwd())}"
        self._registration = {
            "id": self.id,
            "labels": list(labels),
            "capacity": capacity,
            "machine": self.machine,
        }
        self._on_beat = on_beat
        self._on_death = on_death
        self._is_closed = self._is_locked = False
        self._session = Session(address, self._is_over, on_outage, self._register)
        self._session_lock = threads.Lock()
        self._session.do(lambda connection: None)
        threads.Thread(target=self._send_heartbeats, name="llc-heartbeat", daemon=True).start()

    def _is_over(self) -> bool:
        return self._is_closed

    def _register(self, connection: Connection, is_new: bool = True) -> None:
        """Take the lock of this owner and write its row. is_new: the connection has just been opened."""
        # A lost session of this process, which the server still considers open, or a watcher may hold the
        # lock. Then a free lock proves nothing, and the heartbeat decides until this session holds the lock.
        self._is_locked = bool(connection.execute(_LOCK, [self.id]).fetchone()[0])
        connection.execute(_REGISTER, {**self._registration, "locked": self._is_locked, "new": is_new})

    def _send_heartbeats(self) -> None:
        pause = BEAT_S
        while not self._is_closed and not self.is_dead:
            try:
                with self._session_lock:
                    if not self._is_closed:
                        pause = self._session.do(self._beat)
            except UserError:
                return
            clock.sleep(pause)

    def _beat(self, connection: Connection) -> float:
        """Write a heartbeat; return the seconds until the next one."""
        if not self._is_locked:
            self._register(connection, is_new=False)
        row = connection.execute(_BEAT, [self.id]).fetchone()
        if row is None or row[0] == "dead":
            self.is_dead = True
            self._on_death()
            return BEAT_S
        requested_s = self._on_beat(connection)
        return BEAT_S if requested_s is None else min(max(requested_s, _MIN_BEAT_S), BEAT_S)

    def _unregister(self, connection: Connection) -> None:
        declare_dead(connection, self.id)
        connection.execute("delete from workers where id = %s", [self.id])

    def close(self) -> None:
        """Unregister, so that others need not wait for the heartbeat and no row of this owner remains."""
        self._is_closed = True
        with self._session_lock:
            if not self.is_dead:
                session = Session(self.address, lambda: True)
                with contextlib.suppress(UserError):  # the lock and the heartbeat show the death as well
                    session.do(self._unregister)
                session.close()
            self._session.close()


def is_dead(connection: Connection, owner: str) -> bool:
    """Whether an owner has ended or no longer responds."""
    row = connection.execute(_IS_THIS_DEAD, {"lease": LEASE_S, "id": owner}).fetchone()
    return row is None or bool(row[0])


def declare_dead(connection: Connection, owner: str) -> int:
    """Declare an owner dead and release its runs; return the number of runs."""
    return int(connection.execute(_BURY, [owner]).fetchone()[0])


def declare_dead_owners(connection: Connection, except_for: str = "") -> list[str]:
    """Find all dead owners and declare them dead; return their ids."""
    rows = connection.execute(_BURY_DEAD, {"lease": LEASE_S, "id": except_for}).fetchall()
    return [owner for owner, _ in rows]
