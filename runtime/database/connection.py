"""Database connections of a cluster: the address, retries after an outage, and translation of errors.

The address is a PostgreSQL URL with one additional parameter: `schema=NAME` (default `llc`) names the schema
that holds the tables. Every connection uses this schema as its search path. See `spec/cluster.md`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from ...ir.python_internals import DeferredModule
from ..host import clock, environment
from ..host.errors import Failure, UserError, clean
from ..host.secrets import DATABASE as VARIABLE
from ..host.secrets import MASK, password_in
from . import libpq

# Imported at first use: commands that only read runs use `libpq` and need psycopg only for errors.
psycopg: Any = DeferredModule("psycopg")
Result = TypeVar("Result")
# A psycopg connection; `Any`, because psycopg is an optional dependency.
Connection = Any

SCHEMA = "llc"
# Timeouts in seconds for opening the first connection and for opening a lost connection again. A stopping
# server may never answer an attempt; the second timeout is shorter than the lease of an owner for this
# reason.
CONNECT_TIMEOUT_S = 10
_RECONNECT_TIMEOUT_S = 2
# First and longest back-off, in seconds, before a lost connection is opened again.
_MIN_BACKOFF_S = 0.05
_MAX_BACKOFF_S = 1.0
# Seconds after which the server ends a session that is idle within a transaction: a process that is suspended
# there would keep its locks.
IDLE_TRANSACTION_TIMEOUT_S = 15
_SETTINGS = (
    "select set_config('search_path', %s, false), "
    "set_config('idle_in_transaction_session_timeout', %s, false)"
)
_PREFIXES = "postgresql://", "postgres://"
# Characters that libpq interprets as the end of the user and password.
_UNENCODED = re.compile(r"[/?@]|%(?![0-9a-fA-F]{2})")


class Address:
    """Address of a database. url: URL for libpq, without the parameter `schema`."""

    __slots__ = ("schema", "url")

    def __init__(self, url: str, schema: str = SCHEMA) -> None:
        self.url = url
        self.schema = schema

    @classmethod
    def parse(cls, text: str) -> Address:
        """Parse the URL of a database. Raises UserError."""
        if not text.startswith(_PREFIXES):
            raise UserError(
                "bad-option",
                "the address of a database must begin with `postgresql://`",
                "for example postgresql://user@host:5432/llc",
            )
        user, at, _ = text.partition("://")[2].rpartition("@")
        if at and _UNENCODED.search(user):
            raise UserError(
                "bad-option",
                "a special character in the user or password of the database address must be percent-encoded",
                "write `%40` for `@`, `%2F` for `/`, `%3F` for `?`, `%25` for `%`; "
                "or store the password in ~/.pgpass",
            )
        url, mark, query = text.partition("?")
        schema, kept = SCHEMA, []
        for part in query.split("&") if mark else ():
            name, _, value = part.partition("=")
            if name != "schema":
                kept.append(part)
            elif value.isidentifier() and value.isascii() and value == value.lower() and len(value) <= 63:
                schema = value
            else:
                raise UserError(
                    "bad-option",
                    f"`{clean(value, 80)}` is not a valid schema name",
                    "use lower-case letters, digits and underscores",
                )
        return cls(url + ("?" + "&".join(kept) if kept else ""), schema)

    @classmethod
    def resolve(cls, option: str | None) -> Address:
        """Return the address in the option, or else in the environment variable. Raises UserError."""
        text = option or environment.environ.get(VARIABLE)
        if not text:
            raise UserError(
                "no-database",
                "no database is configured",
                f"use --db postgresql://user@host/name, {VARIABLE}, or `database:` in .loops/config.yaml",
            )
        return cls.parse(text)

    def __str__(self) -> str:
        """Host, port and database name for messages, without the password."""
        try:
            parts = psycopg.conninfo.conninfo_to_dict(self.url)
        except Exception:  # psycopg is missing or cannot parse the URL
            return "the database"
        host, port = parts.get("host", "this machine"), parts.get("port", 5432)
        return f"{parts.get('dbname', 'the default database')} at {host}, port {port}"


def connect(address: Address, timeout_s: int = CONNECT_TIMEOUT_S) -> Connection:
    """Open an autocommit connection with the schema as its search path.

    Raises UserError and DatabaseUnavailable.
    """
    try:
        open_connection = psycopg.connect
    except ImportError as error:
        raise Failure(
            "missing-package",
            f"the package `psycopg` is missing ({error})",
            "in a checkout of llc: pip install '.[cluster]'",
        ) from None
    try:
        connection = open_connection(
            address.url, autocommit=True, connect_timeout=timeout_s, application_name="llc"
        )
    except psycopg.OperationalError as error:
        raise _connection_error(address, error) from None
    except (psycopg.Error, ValueError) as error:
        reason, password = _one_line(error), password_in(address.url)
        reason = reason.replace(password, MASK) if password else reason
        raise UserError("bad-option", f"the address of the database is invalid: {reason}") from None
    try:
        connection.execute(_SETTINGS, _settings(address))
    except psycopg.Error as error:
        connection.close()
        raise DatabaseUnavailable(address, _one_line(error)) from None
    return connection


def _settings(address: Address) -> list[str]:
    return [address.schema, f"{IDLE_TRANSACTION_TIMEOUT_S}s"]


@contextlib.contextmanager
def connected(address: Address) -> Iterator[Connection]:
    """Open a connection for one request, without retries.

    Raises UserError, and DatabaseUnavailable after a loss.
    """
    connection = connect(address)
    with translated_errors(address), connection:
        yield connection


@contextlib.contextmanager
def translated_errors(address: Address) -> Iterator[None]:
    """Convert errors of the server to UserErrors, including errors that SQLAlchemy has wrapped."""
    try:
        yield
    except Exception as error:
        cause = getattr(error, "orig", error)
        if isinstance(cause, psycopg.errors.InsufficientPrivilege):
            raise _permission_error(address, cause) from None
        if isinstance(cause, _retryable_errors()):
            raise DatabaseUnavailable(address, _one_line(cause)) from None
        raise


def _permission_error(address: Address, error: Exception) -> UserError:
    help = "connect as the user who owns the schema; `llc db init` needs the right to create a schema"
    return Failure("database-refused", f"{address} refuses a statement: {_one_line(error)}", help)


def _retryable_errors() -> tuple[type[Exception], ...]:
    """Errors after which the connection is lost or the statement may be repeated."""
    timeout: type[Exception] = psycopg.errors.IdleInTransactionSessionTimeout
    return psycopg.OperationalError, psycopg.InterfaceError, timeout


class DatabaseUnavailable(Failure):
    """The database cannot be reached, or its disk is full. It may become available later."""

    def __init__(self, address: Address, reason: str) -> None:
        super().__init__(
            "no-database",
            f"{address} is not available: {reason}",
            "check that the server runs, has free disk space, and has this address: llc db check",
        )


def _connection_error(address: Address, error: Exception) -> UserError:
    """Return the UserError for a failed attempt to connect."""
    reason = _one_line(error)
    lower = reason.lower()
    if "password" in lower or "authentication" in lower or "no pg_hba.conf entry" in lower:
        help = "correct the user or the password in the URL; a file ~/.pgpass keeps it out of command lines"
        return Failure("database-refused", f"{address} refuses the login: {reason}", help)
    if "does not exist" in lower:
        help = "create the database and the user first: createdb NAME"
        return Failure("database-refused", f"{address} refuses the login: {reason}", help)
    return DatabaseUnavailable(address, reason)


def _one_line(error: BaseException) -> str:
    """Message of the server, or the relevant part of a message of libpq, in one line."""
    message = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    if message:
        return clean(message, 300)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    marks = [(line, mark) for mark in ("FATAL:", " failed: ") for line in lines if mark in line]
    line, mark = marks[0] if marks else (lines[-1] if lines else type(error).__name__, "")
    return clean(line.rpartition(mark)[2].strip() if mark else line, 300)


def client_cursor(connection: Connection) -> Any:
    """Return a cursor that inserts values into the statement text, so that they take the column types."""
    return psycopg.ClientCursor(connection)


def is_database_error(error: Exception) -> bool:
    """Whether the server or the connection caused an exception."""
    return isinstance(error, psycopg.Error)


def is_schema_mismatch(error: Exception) -> bool:
    """Whether a statement failed because the tables have another structure."""
    classes = psycopg.ProgrammingError, psycopg.DataError
    return isinstance(error, classes) and not isinstance(error, psycopg.errors.InsufficientPrivilege)


def is_lock_timeout(error: Exception) -> bool:
    """Whether a statement exceeded the timeout for acquiring a lock."""
    return isinstance(error, psycopg.errors.LockNotAvailable)


class Session:
    """Database session that reconnects after a lost connection. For use by one thread.

    Args:
        has_given_up: predicate; True: an operation fails instead of waiting for the database.
        on_outage: called once for each outage, with the reason.
        on_connect: called with each new connection.
        connection: an open connection to use first, from `detach` of another session.
        uses_libpq: start with a connection of `libpq`, for commands that only read a few rows.
    """

    def __init__(
        self,
        address: Address,
        has_given_up: Callable[[], bool] = lambda: False,
        on_outage: Callable[[str], object] = lambda reason: None,
        on_connect: Callable[[Connection], object] = lambda connection: None,
        connection: Connection | None = None,
        uses_libpq: bool = False,
    ) -> None:
        self.address = address
        self._uses_libpq = uses_libpq
        self._has_given_up = has_given_up
        self._on_outage = on_outage
        self._on_connect = on_connect
        self._connection = connection
        # An unused connection may have been lost before; losing it is not reported as an outage.
        self._is_stale = connection is not None

    def detach(self) -> Connection | None:
        """Return the open connection, if any; the session no longer uses it."""
        connection, self._connection = self._connection, None
        return connection

    def do(self, action: Callable[[Connection], Result]) -> Result:
        """Return `action(connection)`; restart the action after a lost connection or a deadlock.

        The action must be idempotent: it is repeated if the connection was lost after its commit. Raises
        DatabaseUnavailable if `has_given_up`, and UserError if the login is refused.
        """
        backoff_s, timeout_s = _MIN_BACKOFF_S, CONNECT_TIMEOUT_S
        is_reported, self._is_stale = self._is_stale, False
        while True:
            started_at = clock.monotonic()
            try:
                if self._connection is None:
                    self._connection = self._connect(timeout_s)
                    self._on_connect(self._connection)
                return action(self._connection)
            except libpq.Unsupported:
                self._uses_libpq = False
                self.close()
                continue
            except psycopg.errors.InsufficientPrivilege as error:
                raise _permission_error(self.address, error) from None
            except DatabaseUnavailable as error:
                outage = error
            except _retryable_errors() as error:
                outage = DatabaseUnavailable(self.address, _one_line(error))
            self.close()
            if self._has_given_up():
                raise outage
            # Increase the timeout after each attempt without an answer: the server may be far away or slow.
            if not is_reported:
                timeout_s = _RECONNECT_TIMEOUT_S
                self._on_outage(outage.message)
                is_reported = True
            elif clock.monotonic() - started_at >= timeout_s:
                timeout_s = min(2 * timeout_s, CONNECT_TIMEOUT_S)
            clock.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, _MAX_BACKOFF_S)

    def _connect(self, timeout_s: int) -> Connection:
        if not self._uses_libpq:
            return connect(self.address, timeout_s)
        connection = libpq.Connection(self.address.url)
        connection.execute(_SETTINGS, _settings(self.address))
        return connection

    def close(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(Exception):
                self._connection.close()
            self._connection = None

    def __del__(self) -> None:
        self.close()
