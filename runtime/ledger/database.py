"""The user's database of calls: its location, its tables, and its transactions.

The file is `llc/ledger.sqlite` in `XDG_DATA_HOME` (`~/.local/share`), readable by its owner only. A
connection exists for one transaction only. Therefore no connection is open while an agent works or while a
process is forked. `ledger` reads and writes the rows. See `spec/budget.md`.
"""

from __future__ import annotations

import contextlib
import os.path
import sqlite3
from collections.abc import Iterator

from ..host import environment, files, processes
from ..host.errors import Failure, reason
from ..journal.run_folder import RunFolder

FILE = "ledger.sqlite"
FORMAT = 1
# Timeout in seconds for the transactions of other processes.
LOCK_TIMEOUT_S = 10.0
# Marker file that exists while the database contains a limit, for runs that cannot read the database.
_LIMITS_MARKER = "ledger.limits"
_SCHEMA = f"""
CREATE TABLE limits (
  scope TEXT NOT NULL, name TEXT NOT NULL, period TEXT NOT NULL, unit TEXT NOT NULL,
  amount REAL NOT NULL CHECK (amount >= 0), PRIMARY KEY (scope, name, period, unit)) WITHOUT ROWID;
CREATE TABLE calls (
  id INTEGER PRIMARY KEY, project TEXT NOT NULL, run TEXT NOT NULL, seq INTEGER NOT NULL, day TEXT NOT NULL,
  account TEXT NOT NULL, agent TEXT NOT NULL, model TEXT NOT NULL,
  usd REAL NOT NULL DEFAULT 0 CHECK (usd >= 0), tokens INTEGER NOT NULL DEFAULT 0 CHECK (tokens >= 0),
  calls INTEGER NOT NULL DEFAULT 0, seconds REAL NOT NULL DEFAULT 0 CHECK (seconds >= 0),
  unknown INTEGER NOT NULL DEFAULT 0,
  held_usd REAL, held_tokens REAL, held_calls REAL, held_seconds REAL, pid INTEGER, started TEXT);
CREATE INDEX calls_of_day ON calls (day);
CREATE INDEX calls_of_project ON calls (project, day);
CREATE INDEX calls_of_account ON calls (account, day);
CREATE INDEX calls_open ON calls (project, run) WHERE pid IS NOT NULL;
PRAGMA user_version = {FORMAT};
"""
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_READ_ONLY = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM)


class LedgerError(Failure):
    """Error: the database cannot be used."""

    def __init__(self, message: str, help: str) -> None:
        super().__init__("unusable-ledger", message, help)


class Tables:
    """Interface of tables outside of the file: those of a cluster, implemented by `database.shared_ledger`.

    project: the name of the project in these tables.
    """

    project: str

    @property
    def place(self) -> str:
        """Location of the tables, for messages."""
        raise NotImplementedError  # `database.shared_ledger` implements it

    def transaction(self, is_writing: bool) -> contextlib.AbstractContextManager[sqlite3.Connection]:
        """Open a transaction; a writing transaction is exclusive. Raises `LedgerError`."""
        raise NotImplementedError  # `database.shared_ledger` implements it

    def has_limits(self) -> bool:
        """Whether a limit is set; True if the tables cannot be read."""
        raise NotImplementedError  # `database.shared_ledger` implements it

    def holder(self) -> tuple[int, str]:
        """Return the identification of this process for `is_alive`."""
        raise NotImplementedError  # `database.shared_ledger` implements it

    def is_alive(self, run: str, pid: int, started: str) -> bool:
        """Whether the process with this identification still drives the run."""
        raise NotImplementedError  # `database.shared_ledger` implements it

    def folder(self, project: str, run: str) -> RunFolder | None:
        """Return the record of a run; None if it does not exist."""
        raise NotImplementedError  # `database.shared_ledger` implements it


# Tables that this process uses instead of the file, while it drives runs of a cluster.
shared: Tables | None = None


def place() -> str:
    """Return the path of the database, or the location of the shared tables."""
    if shared is not None:
        return shared.place
    return os.path.join(_folder(), FILE)


def has_limits() -> bool:
    """Whether the database contains a limit; works also if the database cannot be read."""
    if shared is not None:
        return shared.has_limits()
    return files.lexists(os.path.join(_folder(), _LIMITS_MARKER))


def mark_limits(has_any: bool) -> None:
    """Record whether the database contains a limit. Raises OSError."""
    if shared is not None:
        return
    path = os.path.join(_folder(), _LIMITS_MARKER)
    if has_any:
        files.close(files.open_handle(path, files.O_WRONLY | files.O_CREAT, 0o600))
    else:
        with contextlib.suppress(FileNotFoundError):
            files.unlink(path)


def exists() -> bool:
    """Whether the database exists."""
    return shared is not None or files.exists(place())


@contextlib.contextmanager
def transaction(is_writing: bool = True) -> Iterator[sqlite3.Connection]:
    """Open a transaction; create the database if it does not exist. Raises `LedgerError`."""
    if shared is not None:
        with shared.transaction(is_writing) as db:
            yield db
        return
    path = place()
    try:
        files.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        # Create the file with a private mode; SQLite would make it readable for other users.
        files.close(files.open_handle(path, files.O_RDWR | files.O_CREAT, 0o600))
    except OSError as error:
        help = "make the folder writable, or set XDG_DATA_HOME to another folder"
        raise LedgerError(f"the ledger {path} cannot be opened: {reason(error)}", help) from None
    connection: sqlite3.Connection | None = None
    try:
        connection = sqlite3.connect(path, timeout=LOCK_TIMEOUT_S, isolation_level=None)
        _prepare(connection, path)
        connection.execute("BEGIN IMMEDIATE" if is_writing else "BEGIN")
        yield connection
        connection.execute("COMMIT")
    except UnicodeEncodeError as error:
        help = "use only valid UTF-8 in the names of agents, models and accounts"
        raise LedgerError(f"the ledger {path} cannot store a name: {error.reason}", help) from None
    except sqlite3.Error as error:
        raise _ledger_error(path, error) from None
    finally:
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()


def has_breakers(db: sqlite3.Connection) -> bool:
    """Whether the table of circuit breakers exists."""
    query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'breakers'"
    return shared is not None or db.execute(query).fetchone() is not None


def holder() -> tuple[int, str]:
    """Return the identification of this process for `is_alive`: pid and start time."""
    pid = processes.getpid()
    return shared.holder() if shared is not None else (pid, processes.start_time(pid))


def is_alive(run: str, pid: int, started: str) -> bool:
    """Whether the process with this identification is alive."""
    return processes.is_alive(pid, started) if shared is None else shared.is_alive(run, pid, started)


def _prepare(connection: sqlite3.Connection, path: str) -> None:
    """Create the tables in a new file; check the format of an existing file."""
    format = connection.execute("PRAGMA user_version").fetchone()[0]
    if format == 0:
        with contextlib.suppress(sqlite3.OperationalError):  # another process does this at the same time
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("BEGIN IMMEDIATE")
        format = connection.execute("PRAGMA user_version").fetchone()[0]
        if format == 0:
            for statement in _SCHEMA.strip().split(";\n"):
                connection.execute(statement)
            format = FORMAT
        connection.execute("COMMIT")
    if format != FORMAT:
        message = f"the ledger {path} has format {format}; this llc reads format {FORMAT}"
        raise LedgerError(message, "update llc, or set XDG_DATA_HOME to another folder")


def _ledger_error(path: str, error: sqlite3.Error) -> LedgerError:
    """Convert an error of SQLite."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in _BUSY:
        message = f"the ledger {path} is locked by another process"
        return LedgerError(message, "try again; `fuser` shows which process has opened it")
    if code in _READ_ONLY:
        return LedgerError(f"the ledger {path} cannot be written", f"make it writable: chmod u+w {path}")
    if code == sqlite3.SQLITE_FULL:
        return LedgerError(f"the ledger {path} cannot be written: the disk is full", "free disk space")
    message = f"the ledger {path} is damaged: {error}"
    help = f"move it away (mv {path} {path}.damaged), and set the limits again with `llc budget set`"
    return LedgerError(message, help)


def _folder() -> str:
    home = environment.environ.get("XDG_DATA_HOME") or ""
    if not os.path.isabs(home):  # the XDG specification says to ignore relative paths
        home = os.path.join(os.path.expanduser("~"), ".local", "share")
    return os.path.join(home, "llc")
