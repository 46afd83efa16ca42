"""Connections to the database of a cluster: its address, retries, and errors that say what to do.

The address is a URL of PostgreSQL. One parameter is ours: `schema=NAME`, by default `llc`, names the schema
that holds the tables; every connection has it as its search path. See `spec/cluster.md`.
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

# Loaded when it is first used: commands that read runs need it for errors only (`libpq`).
psycopg: Any = DeferredModule("psycopg")
Result = TypeVar("Result")
# A connection of psycopg, which an installation without the extra lacks.
Connection = Any

SCHEMA = "llc"
# Seconds to wait for the server when a connection is opened, and when a lost one is opened again: an attempt
# that a stopping server has left without an answer must not take as long as an owner counts as alive.
PATIENCE_S = 10
_PATIENCE_AGAIN_S = 2
# First and longest pause in seconds before a lost connection is opened again.
_PAUSES = 0.05, 1.0
# Seconds after which the server ends a session that is silent within a transaction: a process that is
# suspended there would hold its locks.
SILENCE_S = 15
_SETTINGS = (
    "select set_config('search_path', %s, false), "
    "set_config('idle_in_transaction_session_timeout', %s, false)"
)
_PREFIXES = "postgresql://", "postgres://"
# What libpq takes for the end of a user and a password.
_UNENCODED = re.compile(r"[/?@]|%(?![0-9a-fA-F]{2})")


class Address:
    """The address of a database. url: as libpq reads it, without our parameter."""

    __slots__ = ("schema", "url")

    def __init__(self, url: str, schema: str = SCHEMA) -> None:
        self.url = url
        self.schema = schema

    @classmethod
    def of(cls, text: str) -> Address:
        """The address in a URL. Raises UserError."""
        if not text.startswith(_PREFIXES):
            raise UserError(
                "bad-option",
                "the address of a database begins with `postgresql://`",
                "such as postgresql://user@host:5432/llc",
            )
        user, at, _ = text.partition("://")[2].rpartition("@")
        if at and _UNENCODED.search(user):
            raise UserError(
                "bad-option",
                "in the database's address, a character of the user or password must be written as its code",
                "`%40` for `@`, `%2F` for `/`, `%3F` for `?`, `%25` for `%`; a file ~/.pgpass "
                "keeps the password out of the address",
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
                    f"`{clean(value, 80)}` cannot be the name of a schema",
                    "use lower-case letters, digits and underscores",
                )
        return cls(url + ("?" + "&".join(kept) if kept else ""), schema)

    @classmethod
    def find(cls, option: str | None) -> Address:
        """The address that the option, else the environment variable gives. Raises UserError."""
        text = option or environment.environ.get(VARIABLE)
        if not text:
            raise UserError(
                "no-database",
                "no database is named",
                f"say --db postgresql://user@host/name, set {VARIABLE}, or `database:` in .loops/config.yaml",
            )
        return cls.of(text)

    def __str__(self) -> str:
        """For people: host, port and name, without the password."""
        try:
            parts = psycopg.conninfo.conninfo_to_dict(self.url)
        except Exception:  # psycopg is missing, or cannot read it
            return "the database"
        host, port = parts.get("host", "this machine"), parts.get("port", 5432)
        return f"{parts.get('dbname', 'the default database')} at {host}, port {port}"


def connect(address: Address, patience_s: int = PATIENCE_S) -> Connection:
    """A connection in autocommit mode, with the schema as its search path. Raises UserError and Lost."""
    try:
        opened = psycopg.connect
    except ImportError as error:
        raise Failure(
            "missing-package",
            f"the package `psycopg` is missing ({error})",
            "in a checkout of llc: pip install '.[cluster]'",
        ) from None
    try:
        connection = opened(
            address.url,
            autocommit=True,
            connect_timeout=patience_s,
            application_name="llc",
        )
    except psycopg.OperationalError as error:
        raise _refusal(address, error) from None
    except (psycopg.Error, ValueError) as error:
        why, password = _text(error), password_in(address.url)
        why = why.replace(password, MASK) if password else why
        raise UserError("bad-option", f"the address of the database cannot be read: {why}") from None
    try:
        connection.execute(_SETTINGS, _settings(address))
    except psycopg.Error as error:
        connection.close()
        raise Lost(address, _text(error)) from None
    return connection


def _settings(address: Address) -> list[str]:
    return [address.schema, f"{SILENCE_S}s"]


@contextlib.contextmanager
def connected(address: Address) -> Iterator[Connection]:
    """A connection for one request, which is not repeated. Raises UserError, and Lost wherever it is lost."""
    connection = connect(address)
    with refusals(address), connection:
        yield connection


@contextlib.contextmanager
def refusals(address: Address) -> Iterator[None]:
    """Context in which refusals of the server become UserErrors, also those that SQLAlchemy has wrapped."""
    try:
        yield
    except Exception as error:
        cause = getattr(error, "orig", error)
        if isinstance(cause, psycopg.errors.InsufficientPrivilege):
            raise forbidden(address, cause) from None
        if isinstance(cause, _lost_errors()):
            raise Lost(address, _text(cause)) from None
        raise


def forbidden(address: Address, error: Exception) -> UserError:
    """The error that a user of the database has no right to something."""
    help = "connect as the user who owns the schema; `llc db init` needs the right to create one"
    return Failure("database-refused", f"{address} refuses a statement: {_text(error)}", help)


def _lost_errors() -> tuple[type[Exception], ...]:
    """The errors after which a connection is gone, or a statement may be repeated."""
    gone: type[Exception] = psycopg.errors.IdleInTransactionSessionTimeout
    return psycopg.OperationalError, psycopg.InterfaceError, gone


class Lost(Failure):
    """The database is away, or its disk is full; it may be available later."""

    def __init__(self, address: Address, why: str) -> None:
        super().__init__(
            "no-database",
            f"{address} is not available: {why}",
            "check that the server runs with room on its disk, and that the address is right: llc db check",
        )


def _refusal(address: Address, error: Exception) -> UserError:
    """Why a connection was refused."""
    why = _text(error)
    low = why.lower()
    if "password" in low or "authentication" in low or "no pg_hba.conf entry" in low:
        help = "correct the user or the password in the URL; a file ~/.pgpass keeps it out of command lines"
        return Failure("database-refused", f"{address} refuses the login: {why}", help)
    if "does not exist" in low:
        help = "create the database and the user first: createdb NAME"
        return Failure("database-refused", f"{address} refuses the login: {why}", help)
    return Lost(address, why)


def _text(error: BaseException) -> str:
    """What the server says, or libpq without its questions, in one line."""
    told = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    if told:
        return clean(told, 300)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    marks = [(line, mark) for mark in ("FATAL:", " failed: ") for line in lines if mark in line]
    line, mark = marks[0] if marks else (lines[-1] if lines else type(error).__name__, "")
    return clean(line.rpartition(mark)[2].strip() if mark else line, 300)


def client_cursor(connection: Connection) -> Any:
    """A cursor that puts the values into the text of a statement, so that they take the types of columns."""
    return psycopg.ClientCursor(connection)


def is_database_error(error: Exception) -> bool:
    """Whether the server or the connection caused an exception."""
    return isinstance(error, psycopg.Error)


def is_misfit(error: Exception) -> bool:
    """Whether a statement does not fit the tables that are there."""
    wrong = psycopg.ProgrammingError, psycopg.DataError
    return isinstance(error, wrong) and not isinstance(error, psycopg.errors.InsufficientPrivilege)


def is_timeout(error: Exception) -> bool:
    """Whether a statement waited for a lock longer than it may."""
    return isinstance(error, psycopg.errors.LockNotAvailable)


class Session:
    """A connection that is opened again when it was lost; for one thread.

    is_over(): whether to give up waiting for the database. on_outage(why): called once for each outage.
    on_connect(connection): called for each new connection. connection: one that `take` has returned before.
    is_light: the actions only read a little, so the first connection is one of `libpq`.
    """

    def __init__(
        self,
        address: Address,
        is_over: Callable[[], bool] = lambda: False,
        on_outage: Callable[[str], object] = lambda why: None,
        on_connect: Callable[[Connection], object] = lambda connection: None,
        connection: Connection | None = None,
        is_light: bool = False,
    ) -> None:
        self.address = address
        self._is_light = is_light
        self._is_over = is_over
        self._on_outage = on_outage
        self._on_connect = on_connect
        self._connection = connection
        # It may have been lost while it was not used, which is no outage.
        self._is_stale = connection is not None

    def take(self) -> Connection | None:
        """The open connection, if there is one, which this session does not use any more."""
        connection, self._connection = self._connection, None
        return connection

    def do(self, action: Callable[[Connection], Result]) -> Result:
        """`action(connection)`, from its beginning again after a lost connection or a deadlock.

        The action must therefore be right when it is repeated although its transaction was committed. Raises
        Lost when `is_over`, and UserError where the login is refused.
        """
        (pause, longest), patience_s = _PAUSES, PATIENCE_S
        is_told, self._is_stale = self._is_stale, False
        while True:
            begun = clock.monotonic()
            try:
                if self._connection is None:
                    self._connection = self._connect(patience_s)
                    self._on_connect(self._connection)
                return action(self._connection)
            except libpq.Unable:
                self._is_light = False
                self.close()
                continue
            except psycopg.errors.InsufficientPrivilege as error:
                raise forbidden(self.address, error) from None
            except Lost as error:
                lost = error
            except _lost_errors() as error:
                lost = Lost(self.address, _text(error))
            self.close()
            if self._is_over():
                raise lost
            # Longer after each attempt without an answer, for a server that is far away or slow.
            if not is_told:
                patience_s = _PATIENCE_AGAIN_S
            elif clock.monotonic() - begun >= patience_s:
                patience_s = min(2 * patience_s, PATIENCE_S)
            if not is_told:
                self._on_outage(lost.message)
                is_told = True
            clock.sleep(pause)
            pause = min(2 * pause, longest)

    def _connect(self, patience_s: int) -> Connection:
        if not self._is_light:
            return connect(self.address, patience_s)
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
