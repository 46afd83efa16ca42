"""Watch: detects the death of another owner immediately by waiting for the lock that its session holds.

The owners watch each other in a ring, so each needs only one connection. Waiting for an advisory lock
prevents the server from removing old row versions, so each wait is bounded and repeated.
"""

from __future__ import annotations

from collections.abc import Callable

from ..host import clock, threads
from ..host.errors import UserError
from .connection import Address, Connection, Session, is_lock_timeout
from .owner import Owner, declare_dead, declare_dead_owners

# Longest wait for a lock; pause before the next wait; pause if there is no other owner. In seconds.
WAIT_S = 5
_PAUSE_S = 0.2
_NO_OWNER_PAUSE_S = 1.0
_NEXT = """
select lock_key from workers where state <> 'dead' and id <> %(own)s order by (id > %(own)s) desc, id limit 1
"""


class Watch:
    """Thread that declares the next owner in the ring dead when it dies.

    on_death: called with the ids of the owners that were declared dead.
    """

    def __init__(self, address: Address, owner: Owner, on_death: Callable[[list[str]], object]) -> None:
        self._owner = owner
        self._on_death = on_death
        self._is_closed = False
        self._session = Session(address, self._has_ended, on_connect=self._prepare)
        threads.Thread(target=self._watch, name="llc-watch", daemon=True).start()

    def _has_ended(self) -> bool:
        return self._is_closed or self._owner.is_dead

    @staticmethod
    def _prepare(connection: Connection) -> None:
        connection.execute(f"set lock_timeout = '{WAIT_S}s'")
        declare_dead(connection, "")  # no owner; warm-up, because the first call in a session is slow

    def _watch(self) -> None:
        while not self._has_ended():
            try:
                pause = self._session.do(self._wait_for_lock)
            except UserError:
                return
            clock.sleep(pause)

    def _wait_for_lock(self, connection: Connection) -> float:
        """Wait for the lock of the next owner; return the seconds until the next wait."""
        row = connection.execute(_NEXT, {"own": self._owner.id}).fetchone()
        if row is None:
            return _NO_OWNER_PAUSE_S
        try:
            connection.execute("select pg_advisory_lock(%s)", row)
        except Exception as error:
            if is_lock_timeout(error):
                return 0.0
            raise
        dead = declare_dead_owners(connection, self._owner.id)
        connection.execute("select pg_advisory_unlock(%s)", row)
        if dead:
            self._on_death(dead)
            return 0.0
        return _PAUSE_S  # the server has restarted and the owner does not hold its lock again yet

    def close(self) -> None:
        self._is_closed = True
