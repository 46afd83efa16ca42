"""Index of a project's files: a SQLite database with full-text tables, updated for changed files.

    files       one row for each examined file: the facts by which a change is detected, a digest of its
                content, and its terms, packed, because a contentless full-text table deletes a row only
                if it gets the original terms again
    contents    full-text: path, text
    metadata    full-text: path, name, about (titles, leading comment), symbols (names that it defines)

The file is `.loops/.cache/memory.sqlite` and can be deleted at any time. Readers and the one writer do not
wait for each other (WAL). Writers alternate, one batch of files each, and check each file again under the
lock, so a file is read only once. Committed batches of a killed writer remain. A lock file is held shared by
all processes that have the database open, and exclusively to delete a damaged one.
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
from .ignore import LARGEST_FILE, Entry, Listing, read_entry
from .terms import term_text

FOLDER = os.path.join(LOOPS, ".cache")
FILE = "memory.sqlite"
LOCK = "memory.lock"
# Version of tables, terms and outlines: an index of another version is rebuilt.
FORMAT = 1
_APPLICATION = 0x6C6C634D
# A batch is committed after this many bytes or files.
_BATCH_BYTES = 4 << 20
_BATCH_FILES = 500
# A file that changed this recently may change again within the resolution of its time stamp.
_GRAIN_NS = 2_000_000_000
_UNSURE = -1
# Interval of checks in steps of SQLite's machine, and the pause between attempts in seconds.
_STEPS = 20_000
_PAUSE = 0.02
# Seconds to wait for other writers, whose batches take a few seconds; a slower one has stopped.
_TURNS = 30.0
# Seconds to wait for readers before deleting the database.
_PATIENCE = 5.0

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
# What SQLite may answer that is no sign of damage.
_SOUND = frozenset(
    {
        sqlite3.SQLITE_PERM, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY, sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL,
    }
)  # fmt: skip
_WAITING = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
# What became of a file's text: whether it was indexed before, and is now.
_NEWS = {(False, True): "new", (True, True): "changed", (True, False): "removed", (False, False): "same"}
_KEYS = (b"PRIVATE KEY-----", b"-----BEGIN PGP PRIVATE")


class Damaged(Exception):
    """The database is not what it was when it was written."""


class Unusable(Exception):
    """The database cannot be kept where it should be; the text says why."""


class Update(NamedTuple):
    """What bringing the index up to date came to. left_out: (path, reason), by path."""

    files: int
    new: int
    changed: int
    removed: int
    left_out: list[tuple[bytes, str]]
    seconds: float

    @property
    def reasons(self) -> Counter[str]:
        """Reason → how many files are left out for it."""
        return Counter(reason for _, reason in self.left_out)


class Index:
    """The database, open. check: called often, raises to stop what is under way."""

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
        with self.guarded():
            if path is not None:
                _create(path)
            self.connection = sqlite3.connect(
                path or ":memory:", timeout=0, isolation_level=None, check_same_thread=False
            )
            self.connection.set_progress_handler(self._on_steps, _STEPS)
            self.execute("PRAGMA cache_size = -32000")
            self.execute("PRAGMA journal_mode = WAL" if path else "PRAGMA journal_mode = MEMORY")
            # A commit is lost with the power, never torn; the index is made again from the files.
            self.execute("PRAGMA synchronous = NORMAL")
            self._make_tables()

    def _make_tables(self) -> None:
        if self._is_empty():
            with self.writing():
                if self._is_empty():  # no other process was faster
                    for statement in _SCHEMA.strip().split(";\n"):
                        self.execute(statement)
        made = [self.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
        if made != [_APPLICATION, FORMAT]:
            raise Damaged(f"it is of format {made[1]}, not {FORMAT}")

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

    def _on_steps(self) -> int:
        try:
            self._check()
        except BaseException as stop:
            self._stopped = stop
            return 1
        return 0

    def execute(self, statement: str, values: tuple[Any, ...] = ()) -> sqlite3.Cursor:
        """Execute a statement, waiting for its lock. Raises `Unusable` if it does not get the lock."""
        end = clock.monotonic() + _TURNS
        while True:
            try:
                return self.connection.execute(statement, values)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF not in _WAITING:
                    raise
            self._check()
            if clock.monotonic() > end:
                raise Unusable(f"another process has had it locked for {_TURNS:g} s")
            clock.sleep(_PAUSE)

    @contextlib.contextmanager
    def guarded(self) -> Iterator[None]:
        """What SQLite says as `Damaged` or `Unusable`; what `check` raised as it was."""
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
            stop, self._stopped = self._stopped, None
            if stop is not None and code == sqlite3.SQLITE_INTERRUPT:
                raise stop from None
            raise (Unusable if code in _SOUND else Damaged)(str(error)) from error
        except (zlib.error, UnicodeError, OverflowError, MemoryError) as error:
            raise Damaged(str(error) or type(error).__name__) from error

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """A transaction that holds the lock for writing."""
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
        """A transaction that sees one state of the index, whatever others write."""
        with self.guarded():
            self.execute("BEGIN")
            try:
                yield
            finally:
                with contextlib.suppress(sqlite3.Error):
                    self.connection.execute("COMMIT")

    # --- bringing up to date --------------------------------------------------------------------

    def update(self, listing: Listing, on_file: Callable[[int, int], object] | None = None) -> Update:
        """Update the index to the listed files. on_file: called with (done, total) after each file."""
        began = clock.monotonic()
        with self.guarded():
            rows = self.execute("SELECT path, size, mtime_ns, inode FROM files NOT INDEXED").fetchall()
            known = {row[0]: row[1:] for row in rows}
            if len(known) < len(rows):
                raise Damaged("a path stands twice")
            if any(type(path) is not bytes for path in known):
                raise Damaged("a path is no path")
            todo: list[Entry | bytes] = [
                entry for entry in listing.entries if known.get(entry[0]) != entry[1:]
            ]
            todo += sorted(known.keys() - {entry.path for entry in listing.entries})
            counts: Counter[str] = Counter()
            done = 0
            while done < len(todo):
                done = self._write_batch(todo, done, counts, on_file)
            unfit = self.execute("SELECT path, reason FROM files WHERE reason IS NOT NULL").fetchall()
            files = self.execute("SELECT count(*) FROM files WHERE reason IS NULL").fetchone()[0]
            left_out = sorted([*listing.left_out, *unfit])
        seconds = clock.monotonic() - began
        return Update(files, counts["new"], counts["changed"], counts["removed"], left_out, seconds)

    def _write_batch(
        self,
        todo: list[Entry | bytes],
        start: int,
        counts: Counter[str],
        on_file: Callable[[int, int], object] | None,
    ) -> int:
        room = _BATCH_BYTES
        batch: Counter[str] = Counter()
        with self.writing():
            done = start
            while done < len(todo) and done - start < _BATCH_FILES and room > 0:
                self._check()
                item = todo[done]
                if isinstance(item, Entry):
                    batch[self._put(item)] += 1
                    room -= item.size
                else:
                    batch[self._remove(item)] += 1
                done += 1
                if on_file is not None:
                    on_file(done, len(todo))
        counts.update(batch)
        return done

    def _put(self, entry: Entry) -> str:
        """Index a file; what that is to those who search, one of `_NEWS`."""
        row = self.execute(
            "SELECT id, size, mtime_ns, inode, digest, reason, terms, seal FROM files WHERE path = ?",
            (entry.path,),
        ).fetchone()
        if row is not None and row[1:4] == entry[1:]:
            return "same"  # another process was quicker
        looked = clock.time_ns()
        data = read_entry(self._root, entry.path)
        if data is None:
            return "same" if row is None else self._remove(entry.path)
        mtime_ns = entry.mtime_ns if abs(looked - entry.mtime_ns) > _GRAIN_NS else _UNSURE
        state = (entry.size, mtime_ns, entry.inode)
        digest = blake2b(data, digest_size=16).digest()
        if row is not None and row[4] == digest:
            seal = _seal(entry.path, digest, row[6])
            self.execute("UPDATE files SET size = ?, mtime_ns = ?, inode = ? WHERE id = ?", (*state, row[0]))
            if seal != row[7]:
                raise Damaged("a row is not as it was written")
            return "same"
        if row is not None:
            self._forget(entry.path, row[0], *row[4:])
        reason = unfit(data)
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
        return _NEWS[row is not None and row[5] is None, reason is None]

    def _remove(self, path: bytes) -> str:
        row = self.execute(
            "SELECT id, digest, reason, terms, seal FROM files WHERE path = ?", (path,)
        ).fetchone()
        if row is None:
            return "same"
        self._forget(path, *row)
        return _NEWS[row[2] is None, False]

    def _forget(
        self, path: bytes, number: int, digest: bytes, reason: str | None, packed: bytes, seal: int
    ) -> None:
        """Take a file out of all tables; the full-text ones must be told what they were given."""
        if type(digest) is not bytes or type(packed) is not bytes or seal != _seal(path, digest, packed):
            raise Damaged("a row is not as it was written")
        fields = zlib.decompress(packed).decode().split("\n")
        if reason is None:
            own, name, about, symbols, text = fields
            self.execute(
                "INSERT INTO contents (contents, rowid, path, text) VALUES ('delete', ?, ?, ?)",
                (number, own, text),
            )
            self.execute(
                "INSERT INTO metadata (metadata, rowid, path, name, about, symbols) "
                "VALUES ('delete', ?, ?, ?, ?, ?)",
                (number, own, name, about, symbols),
            )
        self.execute("DELETE FROM files WHERE id = ?", (number,))

    def verify(self) -> None:
        """Look at all of it; raises `Damaged`."""
        with self.guarded():
            if self.execute("PRAGMA integrity_check(1)").fetchone()[0] != "ok":
                raise Damaged("its pages are damaged")
            for table in TABLES:
                self.execute(f"INSERT INTO {table} ({table}) VALUES ('integrity-check')")
            for path, digest, packed, seal in self.execute("SELECT path, digest, terms, seal FROM files"):
                if seal != _seal(path, digest, packed):
                    raise Damaged("a row is not as it was written")


def unfit(data: bytes) -> str | None:
    """Why a file's content is left out, None where it is text."""
    if len(data) > LARGEST_FILE:
        return "large"
    head = data[:8192]
    if any(mark in head for mark in _KEYS):
        return "secret"
    if b"\0" in head and not head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "binary"
    return None


def decode(data: bytes) -> str:
    """A file's text; what is not UTF-8, or UTF-16 that says so, becomes replacement characters."""
    is_wide = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    return data.decode("utf-16" if is_wide else "utf-8-sig", "replace")


def _fields(path: bytes, text: str) -> list[str]:
    """The terms of a file: path, name, about, symbols, text."""
    # Its patterns take longer to compile than an update takes where nothing changed.
    from .outline import outline

    shown = files.fsdecode(path)
    about, symbols = outline(shown, text)
    return [term_text(part) for part in (shown, shown.rpartition("/")[2], about, symbols, text)]


def _seal(path: bytes, digest: bytes, packed: bytes) -> int:
    """What tells a row that is as it was written."""
    return zlib.crc32(packed, zlib.crc32(digest, zlib.crc32(path)))


# --- the file ---------------------------------------------------------------------------------


def index_path(root: str) -> str:
    """Where a project's index stands, its folder made. Raises `Unusable`."""
    folder = os.path.join(root, FOLDER)
    try:
        make_private(folder)
    except OSError as error:
        raise Unusable(error.strerror or str(error)) from None
    return os.path.join(folder, FILE)


def _create(path: str) -> None:
    """Create the file with access for its owner only; SQLite copies its mode to related files."""
    try:
        files.close(files.open_handle(path, files.O_RDWR | files.O_CREAT | files.O_NOFOLLOW, 0o600))
    except OSError as error:
        raise Unusable(error.strerror or str(error)) from None


def _open_lock(path: str) -> int:
    try:
        return files.open_handle(
            os.path.join(os.path.dirname(path), LOCK),
            files.O_RDWR | files.O_CREAT | files.O_NOFOLLOW,
            0o600,
        )
    except OSError as error:
        raise Unusable(error.strerror or str(error)) from None


def _shared_lock(path: str) -> int:
    """Keep the file from being thrown away; waits only while that happens."""
    fd = _open_lock(path)
    try:
        files.flock(fd, files.LOCK_SH)
    except OSError as error:
        files.close(fd)
        raise Unusable(error.strerror or str(error)) from None
    return fd


def throw_away(path: str, check: Callable[[], object]) -> None:
    """Delete the database when no process has it open. Raises `Unusable`."""
    fd = _open_lock(path)
    try:
        end = clock.monotonic() + _PATIENCE
        while True:
            try:
                files.flock(fd, files.LOCK_EX | files.LOCK_NB)
                break
            except BlockingIOError:
                if clock.monotonic() > end:
                    raise Unusable("other processes are using it") from None
            check()
            clock.sleep(_PAUSE)
        for suffix in ("", "-wal", "-shm", "-journal"):
            with contextlib.suppress(FileNotFoundError):
                files.unlink(path + suffix)
    except OSError as error:
        raise Unusable(error.strerror or str(error)) from None
    finally:
        files.close(fd)
