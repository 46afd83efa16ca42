"""Watch: learns of the death of another owner at once, by waiting for the lock that its session holds.

The owners watch each other in a ring, so one connection for each is enough. A wait for an advisory lock
keeps the server from removing old row versions, so it is bounded and repeated.
"""

from __future__ import annotations

from collections.abc import Callable

from ..host import clock, threads
from ..host.errors import UserError
from .connection import Address, Connection, Session, is_timeout
from .owner import Owner, bury, bury_dead

# Seconds of one wait, and between two searches for a worker to watch.
WAIT_S = 5
_PAUSE_S = 0.2
_ALONE_S = 1.0
_NEXT = """
select lock_key from workers where state <> 'dead' and id <> %(own)s order by (id > %(own)s) desc, id limit 1
"""


class Watch:
    """A thread that buries the next owner in the ring when it dies. on_death(ids): who was buried."""

    def __init__(self, address: Address, owner: Owner, on_death: Callable[[list[str]], object]) -> None:
        self._owner = owner
        self._on_death = on_death
        self._is_closed = False
        self._session = Session(address, self._is_over, on_connect=self._prepare)
        threads.Thread(target=self._watch, name="llc-watch", daemon=True).start()

    def _is_over(self) -> bool:
        return self._is_closed or self._owner.is_dead

    @staticmethod
    def _prepare(connection: Connection) -> None:
        connection.execute(f"set lock_timeout = '{WAIT_S}s'")
        bury(connection, "")  # no owner: the first call in a session takes longer than later ones

    def _watch(self) -> None:
        while not self._is_over():
            try:
                pause = self._session.do(self._once)
            except UserError:
                return
            clock.sleep(pause)

    def _once(self, connection: Connection) -> float:
        """Wait for one lock; the seconds until the next look."""
        row = connection.execute(_NEXT, {"own": self._owner.id}).fetchone()
        if row is None:
            return _ALONE_S
        try:
            connection.execute("select pg_advisory_lock(%s)", row)
        except Exception as error:
            if is_timeout(error):
                return 0.0
            raise
        dead = bury_dead(connection, self._owner.id)
        connection.execute("select pg_advisory_unlock(%s)", row)
        if dead:
            self._on_death(dead)
            return 0.0
        return _PAUSE_S  # the server has restarted and its owner has not locked again

    def close(self) -> None:
        self._is_closed = True
