"""Owner: a process that drives runs of the database, and how others learn that it is dead.

The session of an owner holds an advisory lock, which the server releases when the process ends. A restart
of the server releases all locks at once, so a free lock proves a death only if the server is the one that
granted it; otherwise the heartbeat decides. After an outage all heartbeats are old, so they count from when
one of those owners came back that have one again, and until then no owner is dead: the session of a watch
may be back before any of them (`spec/cluster.md`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Protocol

from ..host import clock, environment, files, processes, threads
from ..host.errors import UserError
from .connection import Address, Connection, Session

# Seconds between two heartbeats, after which the last one shows no more that the database is available, and
# after which an owner counts as dead; the shortest pause.
BEAT_S = 1.0
_FRESH_S = 2 * BEAT_S
LEASE_S = 5.0
_SHORTEST_S = 0.1

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
    where beat > clock_timestamp() - interval '{_FRESH_S} seconds'
  )) < clock_timestamp() - make_interval(secs => %(lease)s))
"""
_IS_THIS_DEAD = f"select {_IS_DEAD} from workers where id = %(id)s"
_BURY = "select bury(%s)"
_BURY_DEAD = f"select id, bury(id) from workers where state <> 'dead' and id <> %(id)s and {_IS_DEAD}"


class Identity(Protocol):
    """Who owns runs. is_dead: another process has declared it dead."""

    id: str
    is_dead: bool

    def close(self) -> None:
        """Leave."""


class Owner:
    """This process as an owner of runs. labels, capacity: which runs it takes, and how many at once.

    machine: names the files that its runs work on; by default this host and the working directory.

    on_beat(connection): called after each heartbeat, in its thread; the seconds until the next one if that is
    to be sooner. on_death(): another process has declared this one dead. on_outage(why): the database is not
    available.
    """

    def __init__(
        self,
        address: Address,
        labels: Sequence[str] = (),
        capacity: int = 1,
        on_beat: Callable[[Connection], float | None] = lambda connection: None,
        on_death: Callable[[], object] = lambda: None,
        on_outage: Callable[[str], object] = lambda why: None,
        machine: str | None = None,
    ) -> None:
        pid = processes.getpid()
        name = environment.node()
        self.id = f"{name}-{pid}-{environment.urandom(4).hex()}"
        self.address = address
        self.is_dead = False
        self.machine = machine or f"{name}:{files.realpath(environment.getcwd())}"
        self._facts = {
            "id": self.id,
            "labels": list(labels),
            "capacity": capacity,
            "machine": self.machine,
        }
        self._on_beat = on_beat
        self._on_death = on_death
        self._is_closed = self._is_locked = False
        self._session = Session(address, self._is_over, on_outage, self._register)
        self._turn = threads.Lock()
        self._session.do(lambda connection: None)
        threads.Thread(target=self._live, name="llc-heartbeat", daemon=True).start()

    def _is_over(self) -> bool:
        return self._is_closed

    def _register(self, connection: Connection, is_new: bool = True) -> None:
        """Take the lock of this owner and state since when it holds. is_new: with this connection."""
        # The lock may still belong to a session of ours that the server has not missed yet, or to a watcher.
        # Then a free lock proves nothing: the heartbeat decides until we have it.
        self._is_locked = bool(connection.execute(_LOCK, [self.id]).fetchone()[0])
        connection.execute(_REGISTER, {**self._facts, "locked": self._is_locked, "new": is_new})

    def _live(self) -> None:
        pause = BEAT_S
        while not self._is_closed and not self.is_dead:
            try:
                with self._turn:
                    if not self._is_closed:
                        pause = self._session.do(self._beat)
            except UserError:
                return
            clock.sleep(pause)

    def _beat(self, connection: Connection) -> float:
        """Write a heartbeat; the seconds until the next one."""
        if not self._is_locked:
            self._register(connection, is_new=False)
        row = connection.execute(_BEAT, [self.id]).fetchone()
        if row is None or row[0] == "dead":
            self.is_dead = True
            self._on_death()
            return BEAT_S
        sooner = self._on_beat(connection)
        return BEAT_S if sooner is None else min(max(sooner, _SHORTEST_S), BEAT_S)

    def _leave(self, connection: Connection) -> None:
        bury(connection, self.id)
        connection.execute("delete from workers where id = %s", [self.id])

    def close(self) -> None:
        """Leave: others need not wait for the heartbeat, and no row stays of each client that there was."""
        self._is_closed = True
        with self._turn:
            if not self.is_dead:
                session = Session(self.address, lambda: True)
                with contextlib.suppress(UserError):  # the lock and the heartbeat tell the same
                    session.do(self._leave)
                session.close()
            self._session.close()


def is_dead(connection: Connection, owner: str) -> bool:
    """Whether an owner has ended or does not react any more."""
    row = connection.execute(_IS_THIS_DEAD, {"lease": LEASE_S, "id": owner}).fetchone()
    return row is None or bool(row[0])


def bury(connection: Connection, owner: str) -> int:
    """Declare an owner dead and give up its runs; the number of runs."""
    return int(connection.execute(_BURY, [owner]).fetchone()[0])


def bury_dead(connection: Connection, but: str = "") -> list[str]:
    """Declare every owner dead that is; their ids."""
    rows = connection.execute(_BURY_DEAD, {"lease": LEASE_S, "id": but}).fetchall()
    return [owner for owner, _ in rows]
