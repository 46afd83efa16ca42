"""The journal of a run: a write-ahead log of one checksummed JSON object per line.

Owns the file (`spec/events.md`): what is durable when, how large strings are stored next to it, and what a
damaged one still holds. The form of an event on its line belongs to `codec`, the meaning of events for a run
to `run_history`.
"""

from __future__ import annotations

import os.path

from ...ir.python_internals import sha256, suppress
from ..host import files, processes
from ..host.errors import reason, refuse_transient
from ..host.paths import read_regular, regular_handle
from .codec import (
    BLOB_LIMIT,
    CRC_END,
    RESERVED,
    is_same,
    needs_packing,
    pack,
    seal,
    seal_plain,
    to_json,
    unpack,
    unseal,
    whole_event,
)
from .events import Event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, ClassVar, Self

    from ...ir.diagnostics import DiagnosticId
    from .events import Written


__all__ = [
    "BLOB_LIMIT",
    "BlobError",
    "Blobs",
    "Journal",
    "JournalError",
    "is_same",
    "pack",
    "seal",
    "set_aside",
    "to_json",
    "unpack",
    "unseal",
    "write_file",
]

FORMAT = 1
# Bytes of notes that are buffered before they are written.
BUFFER_LIMIT = 64 * 1024
# Events that are kept for the history of a checkpoint; it is read from the file where there are more.
_MOST_RECENT = 4096
# Bytes that must be free before a run is resumed: without room for its result, the interrupted action would
# be performed again by each resume.
ROOM = 1 << 20


class JournalError(Exception):
    """The journal cannot be written, or not be read; `message` says why and nothing recorded so far is lost.

    id: the kind of error in diagnostics.
    """

    id: DiagnosticId = "cannot-write"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class BlobError(Exception):
    """A string that was kept in its own file is missing or damaged."""


# --- blobs ------------------------------------------------------------------------------------


# From this number of bytes on, OpenSSL is faster in total, the time to load it included.
_MUCH = 1 << 19
_digested = 0


def _digest(data: bytes) -> str:
    global _digested
    _digested += len(data)
    if _digested < _MUCH:
        return sha256(data).hexdigest()
    import hashlib

    return hashlib.sha256(data).hexdigest()


class Blobs:
    """Strings kept by the hash of their content in a folder, each once; durable after `sync`.

    elsewhere(path): fetches a file that is missing from where its run is stored, if it is there.
    """

    elsewhere: ClassVar[Callable[[str], bool] | None] = None

    def __init__(self, folder: str) -> None:
        self.folder = folder
        # Whether one was stored here; `RunFolder.settle` syncs the names that another process has left.
        self._is_unsynced = False

    def store(self, text: str) -> dict[str, Any]:
        """Store `text` and return the reference to it. Raises JournalError."""
        data = text.encode("utf-8", "surrogatepass")
        name = _digest(data)
        path = os.path.join(self.folder, name)
        if not self._holds(path, len(data)):
            write_file(path, data, mode=0o600)
            self._is_unsynced = True
        return {"$blob": name, "size": len(data)}

    def sync(self) -> None:
        """Make the names of what was stored durable. Raises OSError."""
        if self._is_unsynced:
            files.sync_names(self.folder)
            files.sync_names(os.path.dirname(self.folder))
            self._is_unsynced = False

    def fetch(self, name: str, size: int) -> str:
        """The text kept as `name`. Raises BlobError where it is missing or not what was kept.

        Raises UserError where it cannot be read now: what is not lost must not be made again.
        """
        if len(name) != 64 or not all(ch in "0123456789abcdef" for ch in name):
            raise BlobError("a recorded output has no usable name")
        path = os.path.join(self.folder, name)
        if Blobs.elsewhere is not None and not files.exists(path):
            Blobs.elsewhere(path)
        try:
            data = read_regular(path)
        except OSError as error:
            refuse_transient(error, os.path.join(self.folder, name))
            raise BlobError(f"recorded output {name[:12]}… cannot be read: {reason(error)}") from None
        if _digest(data) != name:
            raise BlobError(f"recorded output {name[:12]}… is damaged")
        return data.decode("utf-8", "surrogatepass")

    def known(self, text: str) -> dict[str, Any] | None:
        """The reference to `text` if it is stored already, else None."""
        data = text.encode("utf-8", "surrogatepass")
        name = _digest(data)
        known = self._holds(os.path.join(self.folder, name), len(data))
        return {"$blob": name, "size": len(data)} if known else None

    @staticmethod
    def _holds(path: str, size: int) -> bool:
        try:
            return files.stat(path).st_size == size
        except OSError:
            return False


def write_file(
    path: str, data: bytes | Iterable[bytes], durable: bool = True, mode: int | None = None
) -> None:
    """Write a file so that it is there whole or not at all, with permissions. Raises JournalError.

    data: its content, or parts of it that are written as they come.
    """
    folder, name = os.path.split(path)
    flags = files.O_WRONLY | files.O_CREAT | files.O_TRUNC
    first_mode = 0o666 if mode is None else 0o600
    scratch = os.path.join(folder, f".{name[:100]}.{processes.getpid()}.new")
    try:
        try:
            fd = files.open_handle(scratch, flags, first_mode)
        except FileNotFoundError:
            files.makedirs(folder, 0o777 if mode is None else 0o700, exist_ok=True)
            fd = files.open_handle(scratch, flags, first_mode)
        try:
            if mode is not None:
                files.fchmod(fd, mode)
            for part in (data,) if isinstance(data, bytes) else data:
                _write_all(fd, part)
            if durable:
                files.fdatasync(fd)
        finally:
            files.close(fd)
        files.replace(scratch, path)
    except OSError as error:
        with suppress(OSError):
            files.unlink(scratch)
        raise JournalError(f"cannot write {path}: {reason(error)}") from None


def _write_all(fd: int, data: bytes) -> None:
    done = files.write(fd, data)
    while done < len(data):
        done += files.write(fd, memoryview(data)[done:])


def check_room(folder: str) -> None:
    """Raise JournalError unless the disk of a folder has room for `ROOM` bytes.

    They are written and removed: free space as reported says nothing about quotas.
    """
    path = os.path.join(folder, f".room.{processes.getpid()}.new")
    try:
        write_file(path, bytes(ROOM), durable=False, mode=0o600)
    finally:
        with suppress(OSError):
            files.unlink(path)


# --- writing ----------------------------------------------------------------------------------


class Journal:
    """An open journal that is appended to.

    `write` keeps an event until `flush` (it is in the file: kill -9 loses nothing) or `sync` (it is
    on disk: a power cut loses nothing). `sync_later` is for what need not be on disk before something
    follows from it: `settle` comes before that, and often one sync does for what was done and for what
    is to be done next. Each raises JournalError; the file then ends with its last whole line. `now`
    gives the time stamp of an event. `lines` counts the lines.
    """

    def __init__(self, fd: int, path: str, now: Callable[[], str], lines: int = 0) -> None:
        self._fd = fd
        self._is_unsynced = False
        self._size = files.fstat(fd).st_size
        self._synced = (0, 0)
        self.lines = lines
        self._last = b""
        self._buffer: list[bytes] = []
        self._waiting = 0
        self._recent: list[Written] | None = None
        self.path = path
        self.now = now
        self.blobs = Blobs(os.path.join(os.path.dirname(path), "outputs"))

    @classmethod
    def create(cls, path: str, now: Callable[[], str]) -> Self:
        """A new journal; there must be none at `path` yet. Raises JournalError."""
        return cls._open(path, files.O_CREAT | files.O_EXCL, now)

    @classmethod
    def append(cls, path: str, now: Callable[[], str], lines: int = 0) -> Self:
        """An existing journal with that many lines, to append to; see `set_aside`. Raises JournalError."""
        return cls._open(path, files.O_CREAT, now, lines)

    @classmethod
    def _open(cls, path: str, flags: int, now: Callable[[], str], lines: int = 0) -> Self:
        try:
            fd = regular_handle(path, files.O_WRONLY | files.O_APPEND | flags)
        except OSError as error:
            raise JournalError(f"cannot write {path}: {reason(error)}") from None
        return cls(fd, path, now, lines)

    def record(self, event: Event, ts: str | None = None) -> None:
        """Append an event."""
        self.write(event.name, event.wire, ts)

    def write(self, kind: str, fields: dict[str, Any], ts: str | None = None) -> None:
        """As `record`, for the kind and the fields of a note."""
        if not RESERVED.isdisjoint(fields):
            fields = {name: value for name, value in fields.items() if name not in RESERVED}
        ts = ts or self.now()
        line = seal_plain(kind, fields, ts)
        if line is None:
            if needs_packing(fields):
                fields = {name: pack(value, self.blobs.store) for name, value in fields.items()}
            line = seal(whole_event(kind, fields, ts))
        self._last = line
        if self._recent is not None:
            self._recent.append((kind, fields, ts, self._size + self._waiting))
        self._buffer.append(line)
        self._waiting += len(line)
        self.lines += 1
        if self._waiting > BUFFER_LIMIT:
            self.flush()

    def take_recent(self, after: int) -> list[Written] | None:
        """The events since the last call, which was at line `after`; None if not all are known.

        From the first call on they are kept.
        """
        recent, self._recent = self._recent, []
        return recent if recent is not None and len(recent) == self.lines - after else None

    @property
    def keeps_many(self) -> bool:
        """Whether half as many events as it keeps at most wait for `take_recent`."""
        return self._recent is not None and len(self._recent) > _MOST_RECENT // 2

    @property
    def last_crc(self) -> str:
        """The checksum of the last line that was written here."""
        return self._last[-CRC_END:-3].decode()

    @property
    def size(self) -> int:
        """Its length in bytes with what is waiting."""
        return self._size + self._waiting

    def synced(self) -> tuple[int, int]:
        """Bytes and lines that are on disk; 0 until the first `sync`."""
        return self._synced

    def flush(self) -> None:
        """Put what is waiting into the file."""
        if not self._buffer:
            return
        data = b"".join(self._buffer)
        self._wake()
        try:
            _write_all(self._fd, data)
        except OSError as error:
            self._cut()
            raise JournalError(f"cannot write {self.path}: {reason(error)}") from None
        self._size += len(data)
        if self._recent is not None and len(self._recent) > _MOST_RECENT:
            self._recent = None
        self._buffer.clear()
        self._waiting = 0

    def sync(self) -> None:
        """Put what is waiting onto the disk."""
        self.flush()
        self._wake()
        length = self._size, self.lines
        try:
            self.blobs.sync()  # before the events that refer to them
            files.fdatasync(self._fd)
        except OSError as error:
            raise JournalError(f"cannot write {self.path}: {reason(error)}") from None
        self._synced = length
        self._is_unsynced = False

    def sync_later(self, recorded: Callable[[], object] = bool) -> None:
        """Put what is waiting into the file, and onto the disk with the next `settle` or `sync`.

        recorded(): called once the death of this process does not lose it.
        """
        self.flush()
        self._is_unsynced = True
        recorded()

    def settle(self) -> None:
        """Put what is waiting into the file, and onto the disk what was left for later."""
        if self._is_unsynced:
            self.sync()
        else:
            self.flush()

    def _wake(self) -> None:
        """Open the file again, if it is not."""
        if self._fd < 0:
            try:
                self._fd = regular_handle(self.path, files.O_WRONLY | files.O_APPEND)
            except OSError as error:
                raise JournalError(f"cannot write {self.path}: {reason(error)}") from None

    def _cut(self) -> None:
        """After a write that broke off: leave no half line behind, keep nothing for later."""
        self._recent = None
        self._buffer.clear()
        self._waiting = 0
        with suppress(OSError):  # the reader drops a torn tail
            files.ftruncate(self._fd, self._size)

    def close(self) -> None:
        """Write what is waiting and let go of the file; it is opened again where there is more to write."""
        try:
            self.settle()
        finally:
            if self._fd >= 0:
                files.close(self._fd)
                self._fd = -1


# --- repair ----------------------------------------------------------------------------------


def set_aside(path: str, offset: int) -> str | None:
    """Truncate a journal at `offset`; the rest goes to a file next to it, whose path is returned.

    None where there was nothing to cut. Raises JournalError.
    """
    try:
        with files.open(regular_handle(path, files.O_RDWR), "r+b") as file:
            file.seek(offset)
            rest = file.read()
            if not rest:
                return None
            number = 1
            while files.exists(f"{path}.damaged-{number}"):
                number += 1
            kept = f"{path}.damaged-{number}"
            write_file(kept, rest, mode=0o600)
            file.truncate(offset)
            files.fsync(file.fileno())
    except OSError as error:
        raise JournalError(f"cannot repair {path}: {reason(error)}") from None
    return kept
