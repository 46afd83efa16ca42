"""Shared ledger: the tables of `runtime/ledger` in the database of the cluster, one ledger for all workers.

The statements of `runtime/ledger` are valid in SQLite and PostgreSQL; this module translates their
placeholders and values. A writing transaction holds one exclusive lock, as in SQLite, so that concurrent
workers cannot exceed a limit.
"""

from __future__ import annotations

import contextlib
import os.path
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

from ..host import environment, files
from ..host.errors import UserError
from ..journal.run_folder import RunFolder
from ..ledger import database
from . import schema
from .connection import Address, Connection, Session, client_cursor, is_database_error
from .owner import is_dead
from .stored_run import DatabaseRun

_LOCK = "select pg_advisory_xact_lock(hashtextextended('llc ledger', 0))"
_SELECT_OWNER = "select owner from runs where id = %s and status = 'running'"


class SharedLedger(database.Tables):
    """Ledger of a cluster.

    owner: owner id for calls of this process. cache: folder for runs that are read.
    """

    def __init__(self, address: Address, project: str, owner: str = "", cache: str = "") -> None:
        self.address = address
        self.project = project
        self._owner = owner
        self._cache = cache

    @property
    def place(self) -> str:
        return str(self.address)

    @contextlib.contextmanager
    def transaction(self, is_writing: bool) -> Iterator[Any]:
        session = Session(self.address)
        try:
            with session.do(lambda connection: connection).transaction() as transaction:
                if is_writing:
                    transaction.connection.execute(_LOCK)
                yield _Statements(transaction.connection)
        except UserError as error:
            raise database.LedgerError(
                f"the ledger cannot be used: {error.message}", str(error.help)
            ) from None
        except Exception as error:
            if not is_database_error(error):
                raise
            message = f"the ledger in {self.address} cannot be used: {error}"
            raise database.LedgerError(message, "llc db check") from None
        finally:
            session.close()

    def has_limits(self) -> bool:
        try:
            with self.transaction(False) as db:
                return db.execute("SELECT 1 FROM limits LIMIT 1").fetchone() is not None
        except database.LedgerError:
            return True

    def holder(self) -> tuple[int, str]:
        return 0, self._owner

    def is_alive(self, run: str, pid: int, started: str) -> bool:
        session = Session(self.address)
        try:
            return session.do(lambda connection: _is_owner(connection, run, started))
        finally:
            session.close()

    def folder(self, project: str, run: str) -> RunFolder | None:
        if not self._cache:
            return None
        session = Session(self.address)
        stored_run = DatabaseRun.cached(os.path.join(self._cache, "ledger"), run, session)
        stored_run.refresh()
        session.close()
        return stored_run if files.getsize(stored_run.journal) else None


def _is_owner(connection: Connection, run: str, owner: str) -> bool:
    row = connection.execute(_SELECT_OWNER, [run]).fetchone()
    return row is not None and row[0] == owner and not is_dead(connection, owner)


class _Statements:
    """Connection with the subset of the sqlite3 interface that `runtime/ledger` uses."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def execute(self, statement: str, values: Sequence[Any] = ()) -> _Rows:
        cursor = client_cursor(self._connection)
        converted = [int(value) if isinstance(value, bool) else value for value in values]
        cursor.execute(statement.replace("?", "%s"), converted)
        return _Rows(self._connection, cursor)


class _Rows:
    """Result of a statement, with the number types of SQLite (int and float, no Decimal)."""

    def __init__(self, connection: Connection, cursor: Any) -> None:
        self._connection = connection
        self._cursor = cursor
        self.rowcount: int = cursor.rowcount

    @property
    def lastrowid(self) -> int:
        return int(self._connection.execute("select lastval()").fetchone()[0])

    def fetchone(self) -> tuple[Any, ...] | None:
        row = self._cursor.fetchone()
        return None if row is None else _convert_row(row)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return map(_convert_row, self._cursor.fetchall())


def _convert_row(row: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(_convert_decimal(value) if isinstance(value, Decimal) else value for value in row)


def _convert_decimal(value: Decimal) -> float | int:
    return int(value) if value == value.to_integral_value() else float(value)


def use(url: str) -> None:
    """Make the ledger of a database the ledger of this process. Raises UserError."""
    address = Address.parse(url)
    session = Session(address, lambda: True)
    session.do(lambda connection: schema.check(connection, address))
    session.close()
    database.shared = SharedLedger(address, os.path.basename(files.realpath(environment.getcwd())))
