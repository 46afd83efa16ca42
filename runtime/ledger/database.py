"""The user's database of calls: where it is, its tables, and transactions on it.

The file is `llc/ledger.sqlite` in `XDG_DATA_HOME` (`~/.local/share`), readable by its owner only. A
connection lives for one transaction: nothing is open while an agent works, and processes can be forked.
The rows are read and written by `ledger`. See `spec/budget.md`.
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
# Seconds to wait for the transactions of other processes.
PATIENCE = 10.0
# Present while the database contains a limit, for runs that cannot read the database.
_MARK = "ledger.limits"
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
    """The database cannot be used: why, and what to do."""

    def __init__(self, message: str, help: str) -> None:
        super().__init__("unusable-ledger", message, help)


class Tables:
    """Tables in another place: those of a cluster, which all its workers share."""

    # The name of the project in them, and the place for people.
    project: str

    @property
    def place(self) -> str:
        raise NotImplementedError  # `shared_ledger` has it

    def transaction(self, is_writing: bool) -> contextlib.AbstractContextManager[sqlite3.Connection]:
        """A transaction; one that writes is alone. Raises `LedgerError`."""
        raise NotImplementedError  # `shared_ledger` has it

    def has_limits(self) -> bool:
        """Whether there is a limit, also where that cannot be read."""
        raise NotImplementedError  # `shared_ledger` has it

    def holder(self) -> tuple[int, str]:
        """How this process marks its calls, as `is_alive` understands it."""
        raise NotImplementedError  # `shared_ledger` has it

    def is_alive(self, run: str, pid: int, started: str) -> bool:
        """Whether the process that marked a call still drives the run."""
        raise NotImplementedError  # `shared_ledger` has it

    def folder(self, project: str, run: str) -> RunFolder | None:
        """The record of a run; None if there is none."""
        raise NotImplementedError  # `shared_ledger` has it


# Where this process drives runs of a cluster.
shared: Tables | None = None


def place() -> str:
    """The path of the database."""
    if shared is not None:
        return shared.place
    return os.path.join(_folder(), FILE)


def has_limits() -> bool:
    """Whether the database contains a limit, also if it cannot be read."""
    if shared is not None:
        return shared.has_limits()
    return files.lexists(os.path.join(_folder(), _MARK))


def mark_limits(has_any: bool) -> None:
    """Record whether the database contains a limit. Raises OSError."""
    if shared is not None:
        return
    path = os.path.join(_folder(), _MARK)
    if has_any:
        files.close(files.open_handle(path, files.O_WRONLY | files.O_CREAT, 0o600))
    else:
        with contextlib.suppress(FileNotFoundError):
            files.unlink(path)


def exists() -> bool:
    """Whether there is a database."""
    return shared is not None or files.exists(place())


@contextlib.contextmanager
def transaction(is_writing: bool = True) -> Iterator[sqlite3.Connection]:
    """A transaction on the database, which is created if it does not exist. Raises `LedgerError`."""
    if shared is not None:
        with shared.transaction(is_writing) as db:
            yield db
        return
    path = place()
    try:
        files.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        # Created here for its mode: SQLite would let other users read it.
        files.close(files.open_handle(path, files.O_RDWR | files.O_CREAT, 0o600))
    except OSError as error:
        help = "make the folder writable, or set XDG_DATA_HOME to another one"
        raise LedgerError(f"the ledger {path} cannot be opened: {reason(error)}", help) from None
    connection: sqlite3.Connection | None = None
    try:
        connection = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None)
        _prepare(connection, path)
        connection.execute("BEGIN IMMEDIATE" if is_writing else "BEGIN")
        yield connection
        connection.execute("COMMIT")
    except UnicodeEncodeError as error:
        help = "name agents, models and accounts with characters that UTF-8 has"
        raise LedgerError(f"the ledger {path} cannot store a name: {error.reason}", help) from None
    except sqlite3.Error as error:
        raise _refusal(path, error) from None
    finally:
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()


def has_breakers(db: sqlite3.Connection) -> bool:
    """Whether there is a table of circuit breakers."""
    query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'breakers'"
    return shared is not None or db.execute(query).fetchone() is not None


def holder() -> tuple[int, str]:
    """How this process marks its calls, as `is_alive` understands it."""
    pid = processes.getpid()
    return shared.holder() if shared is not None else (pid, processes.start_time(pid))


def is_alive(run: str, pid: int, started: str) -> bool:
    """Whether the process that marked a call is there."""
    return processes.is_alive(pid, started) if shared is None else shared.is_alive(run, pid, started)


def _prepare(connection: sqlite3.Connection, path: str) -> None:
    """Create the tables in a new file, and check the format of any other."""
    format = connection.execute("PRAGMA user_version").fetchone()[0]
    if format == 0:
        with contextlib.suppress(sqlite3.OperationalError):  # another process does the same now
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("BEGIN IMMEDIATE")
        format = connection.execute("PRAGMA user_version").fetchone()[0]
        if format == 0:
            for statement in _SCHEMA.strip().split(";\n"):
                connection.execute(statement)
            format = FORMAT
        connection.execute("COMMIT")
    if format != FORMAT:
        what = f"the ledger {path} has format {format}; this llc reads format {FORMAT}"
        raise LedgerError(what, "update llc, or set XDG_DATA_HOME to another folder")


def _refusal(path: str, error: sqlite3.Error) -> LedgerError:
    """What is wrong with the file, for an error of SQLite."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in _BUSY:
        what = f"the ledger {path} is locked by another process"
        return LedgerError(what, "try again; `fuser` shows which process has opened it")
    if code in _READ_ONLY:
        return LedgerError(f"the ledger {path} cannot be written", f"make it writable: chmod u+w {path}")
    if code == sqlite3.SQLITE_FULL:
        return LedgerError(f"the ledger {path} cannot be written: the disk is full", "make room")
    what = f"the ledger {path} is damaged: {error}"
    help = f"move it away, and set the limits again with `llc budget set`: mv {path} {path}.damaged"
    return LedgerError(what, help)


def _folder() -> str:
    home = environment.environ.get("XDG_DATA_HOME") or ""
    if not os.path.isabs(home):  # as the specification of XDG requires
        home = os.path.join(os.path.expanduser("~"), ".local", "share")
    return os.path.join(home, "llc")
