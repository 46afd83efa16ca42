"""Index of a project's files: a SQLite database with full-text tables, updated for changed files.

    files       one row for each examined file: the facts that detect a change, a digest of its content, and
    its
                compressed terms, because a contentless full-text table needs the original terms to delete a
                row
    contents    full-text: path, text
    metadata    full-text: path, name, about (titles, leading comment), symbols (defined names)

The file is `.loops/.cache/memory.sqlite` and can be deleted at any time. Readers and the one writer do not
wait for each other (WAL). Writers take turns, one batch of files each, and check each file again under the
lock, so a file is read only once. Committed batches of a killed writer remain. All processes that have the
database open hold a lock file shared; deleting a damaged database holds it exclusively.
"""

from __future__ import annotations

import contextlib
import os.path
import sqlite3
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Any, NamedTuple

from ..host import clock, files
from ..host.paths import LOOPS, make_private
from .ignore import MAX_FILE_BYTES, Entry, Listing, read_entry
from .terms import term_text

FOLDER = os.path.join(LOOPS, ".cache")
FILE = "memory.sqlite"
LOCK = "memory.lock"
# Version of tables, terms and outlines; an index of another version is rebuilt.
FORMAT = 1
_APPLICATION = 0x6C6C634D
# A batch is committed after this many bytes or files.
_BATCH_BYTES = 4 << 20
_BATCH_FILES = 500
# A file that changed this recently may change again within the resolution of its modification time. Its row
# gets an unknown modification time, so that the next update examines the file again.
_MTIME_RESOLUTION_NS = 2_000_000_000
_UNKNOWN_MTIME = -1
# Interval of checks, in instructions of SQLite's virtual machine.
_CHECK_INTERVAL = 20_000
# Seconds between two attempts to get a lock.
_RETRY_INTERVAL = 0.02
# Seconds to wait for other writers, whose batches take a few seconds.
_WRITER_TIMEOUT = 30.0
# Seconds to wait for readers before deleting the database.
_READER_TIMEOUT = 5.0

TABLES = {"contents": ("path", "text"), "metadata": ("path", "name", "about", "symbols")}
_SCHEMA = f"""
CREATE TABLE files (
  id INTEGER PRIMARY KEY, path BLOB NOT NULL UNIQUE, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL,
  inode INTEGER NOT NULL, digest BLOB NOT NULL, reason TEXT, terms BLOB NOT NULL, seal INTEGER NOT NULL);
CREATE VIRTUAL TABLE contents USING fts5(path, text, content='', tokenize='ascii');
CREATE VIRTUAL TABLE metadata USING fts5(path, name, about, symbols, content='', tokenize='ascii');
CREATE VIRTUAL TABLE contents_words USING fts5vocab(contents, row);
CREATE VIRTUAL TABLE metadata_words USING fts5vocab(metadata, row);
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {FORMAT};
"""
# Error codes of SQLite that do not indicate a damaged database.
_NO_DAMAGE = frozenset(
    {
        sqlite3.SQLITE_PERM, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY, sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL,
    }
)  # fmt: skip
_LOCKED = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
# Change of a file by (whether its text was indexed before, whether its text is indexed now).
_CHANGES = {(False, True): "new", (True, True): "changed", (True, False): "removed", (False, False): "same"}
_KEY_MARKS = (b"PRIVATE KEY-----", b"-----BEGIN PGP PRIVATE")


class Damaged(Exception):
    """The database is corrupt or has another format."""


class Unusable(Exception):
    """The database cannot be opened or written; the message states the reason."""


class Update(NamedTuple):
    """Result of an update of the index. left_out: (path, reason) of each excluded file, by path."""

    files: int
    new: int
    changed: int
    removed: int
    left_out: list[tuple[bytes, str]]
    seconds: float

    @property
    def reasons(self) -> Counter[str]:
        """Number of excluded files by reason."""
        return Counter(reason for _, reason in self.left_out)


class Index:
    """The open database.

    root: folder of the project. check: called often; may raise to stop. path: path of the database; None for
    a database in memory.
    """

    def __init__(self, root: str, check: Callable[[], object], path: str | None) -> None:
        self._root = root
        self._check = check
        self._stopped: BaseException | None = None
        self._lock = -1
        self._path = path
        self.connection: sqlite3.Connection
        if path is not None:
            self._lock = _shared_lock(path)
        try:
            self._connect(path)
        except BaseException:
            self.close()
            raise

    def _connect(self, path: str | None) -> None:
        with self.translating_errors():
            if path is not None:
                _create(path)
            self.connection = sqlite3.connect(
                path or ":memory:", timeout=0, isolation_level=None, check_same_thread=False
            )
            self.connection.set_progress_handler(self._on_progress, _CHECK_INTERVAL)
            self.execute("PRAGMA cache_size = -32000")
            self.execute("PRAGMA journal_mode = WAL" if path else "PRAGMA journal_mode = MEMORY")
            # A power failure may lose a commit but never corrupts the database; the next update repeats it.
            self.execute("PRAGMA synchronous = NORMAL")
            self._create_tables()

    def _create_tables(self) -> None:
        if self._is_empty():
            with self.writing():
                if self._is_empty():  # another process may have created them before the lock
                    for statement in _SCHEMA.strip().split(";\n"):
                        self.execute(statement)
        ids = [self.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
        if ids != [_APPLICATION, FORMAT]:
            raise Damaged(f"it is of format {ids[1]}, not {FORMAT}")

    def _is_empty(self) -> bool:
        return not self.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]

    def close(self) -> None:
        connection = getattr(self, "connection", None)
        if connection is not None:
            connection.set_progress_handler(None, 0)
            with contextlib.suppress(sqlite3.Error):
                connection.close()
        if self._lock >= 0:
            files.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Index:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # --- statements -----------------------------------------------------------------------------

    def _on_progress(self) -> int:
        try:
            self._check()
        except BaseException as stop:
            self._stopped = stop
            return 1
        return 0

    def execute(self, statement: str, values: tuple[Any, ...] = ()) -> sqlite3.Cursor:
        """Execute a statement, waiting for its lock. Raises `Unusable` if it does not get the lock."""
        deadline = clock.monotonic() + _WRITER_TIMEOUT
        while True:
            try:
                return self.connection.execute(statement, values)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF not in _LOCKED:
                    raise
            self._check()
            if clock.monotonic() > deadline:
                raise Unusable(f"another process has had it locked for {_WRITER_TIMEOUT:g} s")
            clock.sleep(_RETRY_INTERVAL)

    @contextlib.contextmanager
    def translating_errors(self) -> Iterator[None]:
        """Context manager: converts SQLite errors to `Damaged` or `Unusable`; re-raises errors of `check`."""
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
            stop, self._stopped = self._stopped, None
            if stop is not None and code == sqlite3.SQLITE_INTERRUPT:
                raise stop from None
            raise (Unusable if code in _NO_DAMAGE else Damaged)(str(error)) from error
        except (zlib.error, UnicodeError, OverflowError, MemoryError) as error:
            raise Damaged(str(error) or type(error).__name__) from error

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Context manager: a transaction that holds the write lock."""
        self.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self.connection.execute("ROLLBACK")
            raise

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Context manager: a read transaction, which sees a consistent state of the index."""
        with self.translating_errors():
            self.execute("BEGIN")
            try:
                yield
            finally:
                with contextlib.suppress(sqlite3.Error):
                    self.connection.execute("COMMIT")

    # --- update ---------------------------------------------------------------------------------

    def update(self, listing: Listing, on_file: Callable[[int, int], object] | None = None) -> Update:
        """Update the index to the listed files. on_file: called with (done, total) after each file."""
        started_at = clock.monotonic()
        with self.translating_errors():
            rows = self.execute("SELECT path, size, mtime_ns, inode FROM files NOT INDEXED").fetchall()
            known = {row[0]: row[1:] for row in rows}
            if len(known) < len(rows):
                raise Damaged("a path occurs twice")
            if any(type(path) is not bytes for path in known):
                raise Damaged("a path has the wrong type")
            todo: list[Entry | bytes] = [
                entry for entry in listing.entries if known.get(entry[0]) != entry[1:]
            ]
            todo += sorted(known.keys() - {entry.path for entry in listing.entries})
            counts: Counter[str] = Counter()
            done = 0
            while done < len(todo):
                done = self._write_batch(todo, done, counts, on_file)
            excluded = self.execute("SELECT path, reason FROM files WHERE reason IS NOT NULL").fetchall()
            files = self.execute("SELECT count(*) FROM files WHERE reason IS NULL").fetchone()[0]
            left_out = sorted([*listing.left_out, *excluded])
        seconds = clock.monotonic() - started_at
        return Update(files, counts["new"], counts["changed"], counts["removed"], left_out, seconds)

    def _write_batch(
        self,
        todo: list[Entry | bytes],
        start: int,
        counts: Counter[str],
        on_file: Callable[[int, int], object] | None,
    ) -> int:
        """Process the entries from `start` on in one transaction; return the number of processed entries."""
        remaining_bytes = _BATCH_BYTES
        batch: Counter[str] = Counter()
        with self.writing():
            done = start
            while done < len(todo) and done - start < _BATCH_FILES and remaining_bytes > 0:
                self._check()
                item = todo[done]
                if isinstance(item, Entry):
                    batch[self._put(item)] += 1
                    remaining_bytes -= item.size
                else:
                    batch[self._remove(item)] += 1
                done += 1
                if on_file is not None:
                    on_file(done, len(todo))
        counts.update(batch)
        return done

    def _put(self, entry: Entry) -> str:
        """Index a file; return the change, a value of `_CHANGES`."""
        row = self.execute(
            "SELECT id, size, mtime_ns, inode, digest, reason, terms, seal FROM files WHERE path = ?",
            (entry.path,),
        ).fetchone()
        if row is not None and row[1:4] == entry[1:]:
            return "same"  # another process has indexed the file
        examined_at = clock.time_ns()
        data = read_entry(self._root, entry.path)
        if data is None:
            return "same" if row is None else self._remove(entry.path)
        is_settled = abs(examined_at - entry.mtime_ns) > _MTIME_RESOLUTION_NS
        mtime_ns = entry.mtime_ns if is_settled else _UNKNOWN_MTIME
        state = (entry.size, mtime_ns, entry.inode)
        digest = blake2b(data, digest_size=16).digest()
        if row is not None and row[4] == digest:
            seal = _seal(entry.path, digest, row[6])
            self.execute("UPDATE files SET size = ?, mtime_ns = ?, inode = ? WHERE id = ?", (*state, row[0]))
            if seal != row[7]:
                raise Damaged("a row has a wrong checksum")
            return "same"
        if row is not None:
            self._delete(entry.path, row[0], *row[4:])
        reason = exclusion_reason(data)
        fields = [""] * 5 if reason else _fields(entry.path, decode(data))
        packed = zlib.compress("\n".join(fields).encode(), 1)
        number = row[0] if row is not None else None
        number = self.execute(
            "INSERT INTO files VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (number, entry.path, *state, digest, reason, packed, _seal(entry.path, digest, packed)),
        ).lastrowid
        if reason is None:
            path, name, about, symbols, text = fields
            self.execute("INSERT INTO contents (rowid, path, text) VALUES (?, ?, ?)", (number, path, text))
            self.execute(
                "INSERT INTO metadata (rowid, path, name, about, symbols) VALUES (?, ?, ?, ?, ?)",
                (number, path, name, about, symbols),
            )
        return _CHANGES[row is not None and row[5] is None, reason is None]

    def _remove(self, path: bytes) -> str:
        row = self.execute(
            "SELECT id, digest, reason, terms, seal FROM files WHERE path = ?", (path,)
        ).fetchone()
        if row is None:
            return "same"
        self._delete(path, *row)
        return _CHANGES[row[2] is None, False]

    def _delete(
        self, path: bytes, number: int, digest: bytes, reason: str | None, packed: bytes, seal: int
    ) -> None:
        """Delete a file from all tables; the full-text tables need the original terms for this."""
        if type(digest) is not bytes or type(packed) is not bytes or seal != _seal(path, digest, packed):
            raise Damaged("a row has a wrong checksum")
        fields = zlib.decompress(packed).decode().split("\n")
        if reason is None:
            path_terms, name, about, symbols, text = fields
            self.execute(
                "INSERT INTO contents (contents, rowid, path, text) VALUES ('delete', ?, ?, ?)",
                (number, path_terms, text),
            )
            self.execute(
                "INSERT INTO metadata (metadata, rowid, path, name, about, symbols) "
                "VALUES ('delete', ?, ?, ?, ?, ?)",
                (number, path_terms, name, about, symbols),
            )
        self.execute("DELETE FROM files WHERE id = ?", (number,))

    def verify(self) -> None:
        """Check the integrity of the whole database. Raises `Damaged`."""
        with self.translating_errors():
            if self.execute("PRAGMA integrity_check(1)").fetchone()[0] != "ok":
                raise Damaged("its pages are damaged")
            for table in TABLES:
                self.execute(f"INSERT INTO {table} ({table}) VALUES ('integrity-check')")
            for path, digest, packed, seal in self.execute("SELECT path, digest, terms, seal FROM files"):
                if seal != _seal(path, digest, packed):
                    raise Damaged("a row has a wrong checksum")


def exclusion_reason(data: bytes) -> str | None:
    """Why a file's content is excluded; None if it is indexed."""
    if len(data) > MAX_FILE_BYTES:
        return "large"
    head = data[:8192]
    if any(mark in head for mark in _KEY_MARKS):
        return "secret"
    if b"\0" in head and not head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "binary"
    return None


def decode(data: bytes) -> str:
    """A file's text, from UTF-8, or from UTF-16 with a byte order mark; replaces invalid bytes."""
    is_wide = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    return data.decode("utf-16" if is_wide else "utf-8-sig", "replace")


def _fields(path: bytes, text: str) -> list[str]:
    """The terms of a file: path, name, about, symbols, text."""
    # Imported here: compiling its patterns takes longer than an update without changes.
    from .outline import outline

    path_text = files.fsdecode(path)
    about, symbols = outline(path_text, text)
    return [term_text(part) for part in (path_text, path_text.rpartition("/")[2], about, symbols, text)]


def _seal(path: bytes, digest: bytes, packed: bytes) -> int:
    """Checksum of a row."""
    return zlib.crc32(packed, zlib.crc32(digest, zlib.crc32(path)))


# --- the file ---------------------------------------------------------------------------------


def index_path(root: str) -> str:
    """The path of a project's index; creates its folder. Raises `Unusable`."""
    folder = os.path.join(root, FOLDER)
    try:
        make_private(folder)
    except OSError as error:
        raise Unusable(error.strerror or str(error)) from None
    return os.path.join(folder, FILE)


def _create(path: str) -> None:
    """Create the file with access for its owner only; SQLite copies the mode to the journal files."""
    try:
        files.close(files.open_handle(path, files.O_RDWR | files.O_CREAT | files.O_NOFOLLOW, 0o600))
    except OSError as error:
        raise Unusable(error.strerror or str(error)) from None


def _open_lock(path: str) -> int:
    try:
        return files.open_handle(
            os.path.join(os.path.dirname(path), LOCK), files.O_RDWR | files.O_CREAT | files.O_NOFOLLOW, 0o600
        )
    except OSError as error:
        raise Unusable(error.strerror or str(error)) from None


def _shared_lock(path: str) -> int:
    """Lock the database against deletion; waits only while it is being deleted."""
    fd = _open_lock(path)
    try:
        files.flock(fd, files.LOCK_SH)
    except OSError as error:
        files.close(fd)
        raise Unusable(error.strerror or str(error)) from None
    return fd


def delete_index(path: str, check: Callable[[], object]) -> None:
    """Delete the database once no process has it open. Raises `Unusable`."""
    fd = _open_lock(path)
    try:
        deadline = clock.monotonic() + _READER_TIMEOUT
        while True:
            try:
                files.flock(fd, files.LOCK_EX | files.LOCK_NB)
                break
            except BlockingIOError:
                if clock.monotonic() > deadline:
                    raise Unusable("other processes are using it") from None
            check()
            clock.sleep(_RETRY_INTERVAL)
        for suffix in ("", "-wal", "-shm", "-journal"):
            with contextlib.suppress(FileNotFoundError):
                files.unlink(path + suffix)
    except OSError as error:
        raise Unusable(error.strerror or str(error)) from None
    finally:
        files.close(fd)
