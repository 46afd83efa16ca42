"""A real PostgreSQL server under the simulation: its connections, its clock and its failures are simulated.

Each statement is a call of the host, at which other threads may run, faults may happen and the process may
die. The time functions of the server return virtual time. A statement that waits for a lock of another
connection waits in virtual time. One server serves all histories, one after the other.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.pq import PGconn, TransactionStatus

from llc.runtime.database import connection as connections
from llc.runtime.database import installation
from llc.runtime.database.connection import Address

from .host import EPOCH, Machine
from .scheduler import Killed, Process

# Real seconds after which a statement without an answer is checked for a lock that it waits for.
_LOOK_S = 0.002
# Maximum lag of the server's clock, in virtual seconds.
_CLOCK_S = 0.02
# Virtual seconds until a process notices that the server does not answer, and until the server notices that a
# process is unreachable.
SILENCE_S, KEEPALIVE_S = 10.0, 60.0
_TIME = """
create schema sim;
create table sim.clock (at timestamptz not null, started timestamptz not null);
insert into sim.clock values (now(), now());
create function sim.now() returns timestamptz language sql volatile as 'select at from sim.clock';
create function sim.clock_timestamp() returns timestamptz language sql volatile as 'select at from sim.clock';
create function sim.pg_postmaster_start_time() returns timestamptz language sql volatile as
  'select started from sim.clock';
"""
# An oracle: appends to a journal in an epoch other than that of the run.
_STALE = """
create table sim.stale (run text not null, epoch bigint not null, at bigint not null);
create function sim.watch() returns trigger language plpgsql as $$
begin
  insert into sim.stale select new.run, new.epoch, new.position from llc.runs
  where id = new.run and epoch <> new.epoch;
  return null;
end $$;
create trigger watch after insert on llc.journal for each row execute function sim.watch();
"""
# Another oracle: segments that a worker still has after the statement that declared it dead.
_HELD = """
select workflow_uuid from llc_dbos.workflow_status where status = 'PENDING' and executor_id = any(%s)
"""
_DEFAULTS = """
select table_name, column_name, column_default from information_schema.columns
where table_schema = 'llc' and column_default in ('now()', 'clock_timestamp()')
"""
_BLOCKERS = "select pg_blocking_pids(%s)"
_TABLES = "runs, journal, documents, workers, live, limits, calls, breakers, stale"


class SimulatedConnection(psycopg.Connection[Any]):
    """A connection of a simulated process."""

    server: Server
    process: Process
    handle: int
    lock_timeout: float | None = None
    is_lost = False
    is_watched = True

    def wait(self, gen: Any, interval: float = 0.0, timeout: float | None = None) -> Any:
        return self.server.perform(self, gen) if self.is_watched else super().wait(gen)

    def execute(self, query: Any, params: Any = None, **more: Any) -> Any:
        if query.startswith("select set_config('search_path'"):
            params = [f"sim, pg_catalog, {params[0]}", *params[1:]]
        elif query.startswith("set lock_timeout"):
            self.lock_timeout = float(query.split("'")[1].removesuffix("s"))
            return None
        elif "epoch = epoch + 1" in query:
            self.server.on_claim()
        cursor = super().execute(query, params, **more)
        if "bury(" in query:
            dead = params if query.startswith("select bury") else [row[0] for row in cursor]
            self._check_buried(list(dead))
            if cursor.rownumber:
                cursor.scroll(0, "absolute")
        return cursor

    def _check_buried(self, dead: list[str]) -> None:
        """The segments of workers just declared dead are in the queue, where other workers find them."""
        self.is_watched = False
        try:
            held = super().execute(_HELD, [dead]).fetchall()
        finally:
            self.is_watched = True
        if held:
            self.server.on_problem(f"{dead} were declared dead and still have the segments {held}")

    def close(self) -> None:
        """Close all connections."""
        if not self._closed and self.process.handles.get(self.handle) is self:
            del self.process.handles[self.handle]
        self.release()

    def release(self) -> None:
        """Closed by the process or by its end."""
        if not self._closed:
            self._closed = True
            self.server.closed(self)


class Server:
    """url: of an empty database on a real server. statements: number of statements so far.

    on_claim: called when a run is about to change its owner. on_problem: called with an error in the tables.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.statements = 0
        self.machine: Machine
        self.on_claim: Callable[[], None] = lambda: None
        self.on_problem: Callable[[str], object] = str
        # The virtual time until which all connections are refused, and the processes without a connection.
        self.down_until = 0.0
        self._open: list[SimulatedConnection] = []
        self._idle: list[PGconn] = []
        # Connections that their process has lost, unnoticed by the server.
        self._lost: list[PGconn] = []
        self._shown = 0.0
        self._handles = 0
        self._none = PGconn.connect(url.encode())
        self._none.finish()
        self._connect = psycopg.Connection.connect
        installation.initialise(Address(url))
        self.admin = self._connect(url, autocommit=True)
        self.admin.execute(_TIME)
        self.admin.execute(_STALE)
        for table, column, default in self.admin.execute(_DEFAULTS).fetchall():
            self.admin.execute(f"alter table llc.{table} alter column {column} set default sim.{default}")
        self.admin.execute("set search_path = sim, pg_catalog, llc")
        self.admin.execute("alter system set deadlock_timeout = '20ms'")
        self.admin.execute("alter system set synchronous_commit = off")
        self.admin.execute("select pg_reload_conf()")

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Inside, llc connects to this server."""
        library = connections.psycopg
        before, library.connect = library.connect, self.connect
        try:
            yield
        finally:
            library.connect = before

    def begin(self, machine: Machine) -> None:
        """Start another history, with empty tables."""
        self._release()
        self.machine = machine
        self.down_until, self._shown = 0.0, -1.0
        self.statements = 0
        self.admin.execute(f"truncate {_TABLES} restart identity")
        self.admin.execute("truncate llc_dbos.workflow_status cascade")
        self._show_time()
        self.admin.execute("update sim.clock set started = at")

    def close(self) -> None:
        """End all connections."""
        self._release()
        for pgconn in self._idle:
            pgconn.finish()
        self.admin.close()

    def _release(self) -> None:
        """End all sessions, so that no lock of the last history remains in the next one."""
        for connection in list(self._open):
            connection.release()
        for pgconn in list(self._lost):
            self._end(pgconn)

    def _show_time(self) -> None:
        now = self.machine.scheduler.now
        if abs(now - self._shown) > _CLOCK_S:
            self._shown = now
            self.admin.execute("update sim.clock set at = to_timestamp(%s)", [EPOCH + now])

    # --- connections of processes ---------------------------------------------------------------

    def connect(self, url: str, **options: Any) -> SimulatedConnection:
        """Like `psycopg.connect`, for the current process."""
        scheduler, process = self.machine.scheduler, self.machine.process
        scheduler.point()
        if self._is_cut(process):
            scheduler.wait(lambda: not self._is_cut(process), SILENCE_S)
            if self._is_cut(process):
                raise psycopg.OperationalError("connection timeout expired")
        if scheduler.now < self.down_until:
            raise psycopg.OperationalError("connection refused")
        pgconn = self._idle.pop() if self._idle else self._new()
        made = SimulatedConnection(pgconn)
        made._autocommit = True
        made.server, made.process = self, process
        self._handles += 1
        made.handle = 1000 + self._handles
        process.handles[made.handle] = made
        self._open.append(made)
        return made

    def _new(self) -> PGconn:
        """A connection of libpq, without the Python object, which would warn at its end."""
        around = self._connect(self.url, autocommit=True)
        pgconn, around.pgconn = around.pgconn, self._none
        return pgconn

    def _is_cut(self, process: Process) -> bool:
        return bool(self.machine.scheduler.now < process.about.get("cut", 0.0))

    def perform(self, connection: SimulatedConnection, gen: Any) -> Any:
        """Let the server perform the requests of a psycopg generator."""
        scheduler, process = self.machine.scheduler, connection.process
        if not process.is_alive:
            raise Killed
        scheduler.point()
        if self._is_cut(process):
            scheduler.wait(lambda: not self._is_cut(process), SILENCE_S)
            if self._is_cut(process):
                self._lose(connection)
        if connection.pgconn is self._none:
            raise psycopg.OperationalError("the connection is lost")
        self._show_time()
        began = scheduler.now
        try:
            wanted = next(gen)
            while True:
                wanted = gen.send(self._ready(connection, wanted, began))
        except StopIteration as end:
            result = end.value
        finally:
            self.statements += 1
        if connection.is_lost:
            self._lose(connection)
        return result

    def _pids(self) -> list[int]:
        """The server sessions of processes."""
        held = [connection.pgconn for connection in self._open] + self._lost
        return [pgconn.backend_pid for pgconn in held if pgconn.status == 0]

    def _ready(self, connection: SimulatedConnection, wanted: int, began: float) -> int:
        """Wait until the socket of a connection is ready, in virtual time if it waits for a lock."""
        scheduler = self.machine.scheduler
        socket = [connection.pgconn.socket]
        pid = connection.pgconn.backend_pid
        was_blocked = False
        while True:
            can_read, can_write, _ = select.select(
                socket if wanted & 1 else [], socket if wanted & 2 else [], [], 0 if was_blocked else _LOOK_S
            )
            if can_read or can_write:
                return (1 if can_read else 0) | (2 if can_write else 0)
            blockers = [] if scheduler.current is None else self.admin.execute(_BLOCKERS, [pid]).fetchone()[0]  # type: ignore[index]
            if not blockers or set(blockers) - set(self._pids()):
                was_blocked = False  # or by a session that is about to end, in real time
                continue
            was_blocked = True
            seen = self.statements
            left = None
            if connection.lock_timeout is not None:
                left = began + connection.lock_timeout - scheduler.now
                if left <= 0:
                    self.admin.execute("select pg_cancel_backend(%s)", [pid])
                    connection.lock_timeout, left = None, None
                    raise _timeout(connection)
            scheduler.wait(lambda seen=seen: self.statements != seen, left)

    # --- failures ---------------------------------------------------------------------------------

    def closed(self, connection: SimulatedConnection) -> None:
        """Close a connection. The server notices unless the statement waits for a lock."""
        pgconn, connection.pgconn = connection.pgconn, self._none
        self._open.remove(connection)
        self.statements += 1
        self._end(pgconn)

    def _end(self, pgconn: PGconn) -> None:
        if pgconn in self._lost:
            self._lost.remove(pgconn)
        if pgconn is self._none or pgconn.status != 0:
            return
        if pgconn.transaction_status == TransactionStatus.ACTIVE:
            self._finish(pgconn)
            return
        if pgconn.transaction_status != TransactionStatus.IDLE:
            pgconn.exec_(b"rollback")
        if pgconn.status == 0:
            pgconn.exec_(b"discard all")
        if pgconn.transaction_status == TransactionStatus.IDLE and pgconn.status == 0:
            self._idle.append(pgconn)
        else:
            self._finish(pgconn)

    def _finish(self, pgconn: PGconn) -> None:
        pid = pgconn.backend_pid if pgconn.status == 0 else 0
        pgconn.finish()
        # The process of the statement is gone; a statement that waits for a lock would be performed later.
        self.admin.execute("select pg_terminate_backend(%s)", [pid])
        self._await_end([pid])

    def _await_end(self, pids: list[int]) -> None:
        while self.admin.execute("select 1 from pg_stat_activity where pid = any(%s)", [pids]).fetchone():
            pass

    def _lose(self, connection: SimulatedConnection) -> None:
        """The process believes that its connection is closed; the server notices that later."""
        connection.is_lost = False
        pgconn, connection.pgconn = connection.pgconn, self._none
        if self._is_cut(connection.process):
            self._lost.append(pgconn)
            self.machine.scheduler.after(KEEPALIVE_S, lambda: self._end(pgconn))
        else:
            self._end(pgconn)
        self.statements += 1
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    def restart(self, seconds: float) -> None:
        """All connections are lost, and refused for some time."""
        scheduler = self.machine.scheduler
        pids = self._pids()
        self.admin.execute("select pg_terminate_backend(pid) from unnest(%s::integer[]) as pid", [pids])
        self._await_end(pids)
        self.statements += 1
        self.down_until = scheduler.now + seconds
        self._show_time()
        self.admin.execute("update sim.clock set started = at")

    def lose_answer(self, process: Process) -> None:
        """The next statement of a process is performed, and its answer is lost."""
        for connection in self._open:
            if connection.process is process:
                connection.is_lost = True


def _timeout(connection: SimulatedConnection) -> psycopg.Error:
    while (result := connection.pgconn.get_result()) is not None:
        del result
    return psycopg.errors.LockNotAvailable("canceling statement due to lock timeout")
