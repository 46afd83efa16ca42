"""Live output: publishes the current output of a run's actions to observers on other machines.

A worker publishes the live files of watched runs only. The table is unlogged: after a crash of the server it
is empty until the next output.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from functools import partial

from ..host import clock, files, threads
from ..host.errors import UserError
from .connection import Address, Connection, Session

# Interval between two copies, and time after which a run is no longer considered watched. In seconds.
PUBLISH_INTERVAL_S = 0.25
WATCHED_S = 5
WATCH = "update runs set watched = clock_timestamp() where id = any(%s) and status = 'running'"
READ = "select run, data from live where run = any(%s)"
_WRITE = "insert into live values (%s, %s) on conflict (run) do update set data = excluded.data"


class Publisher:
    """Thread that copies live files to the database.

    path_of: returns the live file of a run; None if this process does not drive the run.
    """

    def __init__(self, address: Address, path_of: Callable[[str], str | None]) -> None:
        self._path_of = path_of
        self._watched: tuple[str, ...] = ()
        self._sent: dict[str, bytes] = {}
        self._is_closed = False
        self._session = Session(address, lambda: True)
        threads.Thread(target=self._publish, name="llc-live", daemon=True).start()

    def watch(self, runs: Iterable[str]) -> None:
        """Set the runs that are watched now."""
        self._watched = tuple(runs)

    def _publish(self) -> None:
        while not self._is_closed:
            for run in self._watched:
                data = self._read(run)
                if data != self._sent.get(run, b""):
                    with contextlib.suppress(UserError):  # an outage; the next iteration tries again
                        self._session.do(partial(self._write, run=run, data=data))
                        self._sent[run] = data
            for run in self._sent.keys() - set(self._watched):
                del self._sent[run]
            clock.sleep(PUBLISH_INTERVAL_S)
        self._session.close()

    def _read(self, run: str) -> bytes:
        path = self._path_of(run)
        try:
            with files.open(path or "", "rb") as file:
                data: bytes = file.read()
                return data
        except OSError:
            return b""  # no action has written anything

    @staticmethod
    def _write(connection: Connection, *, run: str, data: bytes) -> None:
        if data:
            connection.execute(_WRITE, [run, data])
        else:
            connection.execute("delete from live where run = %s", [run])

    def close(self) -> None:
        self._is_closed = True
