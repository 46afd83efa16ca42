"""Journal of a run: a write-ahead log with one checksummed JSON object per line.

Owns writing the file (`spec/events.md`): durability, storage of large strings as blobs next to it, and repair
after damage. Must not contain: the encoding of a line (`codec`) or the meaning of events (`run_history`).
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
from .events import Event, Written

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, ClassVar, Self

    from ...ir.diagnostics import DiagnosticId


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
# Maximum number of bytes of notes in the buffer.
BUFFER_LIMIT = 64 * 1024
# Maximum number of recent events in memory for the next checkpoint; more events are read from the file
# instead.
_MAX_RECENT_EVENTS = 4096
# Free bytes that a resume requires: without space for its result, the interrupted action would be performed
# again by each resume.
ROOM = 1 << 20


class JournalError(Exception):
    """The journal cannot be written or read. Recorded events are not lost.

    message: the reason. id: id of the diagnostic.
    """

    id: DiagnosticId = "cannot-write"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class BlobError(Exception):
    """A string that was stored in its own file is missing or damaged."""


# --- blobs ------------------------------------------------------------------------------------


# Total number of hashed bytes above which OpenSSL is faster, including the time to load it.
_OPENSSL_MIN_BYTES = 1 << 19
_digested = 0


def _digest(data: bytes) -> str:
    global _digested
    _digested += len(data)
    if _digested < _OPENSSL_MIN_BYTES:
        return sha256(data).hexdigest()
    import hashlib

    return hashlib.sha256(data).hexdigest()


class Blobs:
    """Content-addressed store of strings in a folder; durable after `sync`.

    elsewhere: function that fetches a missing file from the store of its run to the path, if it exists there.
    """

    elsewhere: ClassVar[Callable[[str], bool] | None] = None

    def __init__(self, folder: str) -> None:
        self.folder = folder
        # Whether this object has stored a blob; `RunFolder.settle` syncs names that another process left
        # unsynced.
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
        """Make the file names of stored blobs durable. Raises OSError."""
        if self._is_unsynced:
            files.sync_names(self.folder)
            files.sync_names(os.path.dirname(self.folder))
            self._is_unsynced = False

    def fetch(self, name: str, size: int) -> str:
        """Return the text with this name. Raises BlobError if it is missing or damaged.

        Raises UserError if it cannot be read now, because its effect must not be performed again.
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
        """Return the reference to `text` if it is already stored, else None."""
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
    """Write a file atomically. Raises JournalError.

    data: content, as a whole or in parts. mode: permissions; None: default of the system.
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
    """Raise JournalError if the disk of a folder has fewer than `ROOM` free bytes.

    The bytes are written and removed, because the reported free space does not include quotas.
    """
    path = os.path.join(folder, f".room.{processes.getpid()}.new")
    try:
        write_file(path, bytes(ROOM), durable=False, mode=0o600)
    finally:
        with suppress(OSError):
            files.unlink(path)


# --- writing ----------------------------------------------------------------------------------


class Journal:
    """Open journal for appending.

    `write` buffers an event. After `flush` the event is in the file, and kill -9 does not lose it. After
    `sync` it is on disk, and a power failure does not lose it. `sync_later` marks events that must be on disk
    before anything that depends on them; `settle` syncs them. Often one sync then covers the result of an
    action and the start of the next one. Each method raises JournalError; the file then ends with its last
    complete line.
    now: returns a timestamp. size, lines: length in bytes and in lines, including the buffer.
    """

    def __init__(self, fd: int, path: str, now: Callable[[], str], lines: int = 0) -> None:
        self._fd = fd
        self._is_unsynced = False
        # Length in bytes, including the buffer; and without the buffer.
        self.size = self._size = files.fstat(fd).st_size
        self._synced = (0, 0)
        self.lines = lines
        self._last = b""
        self._buffer: list[bytes] = []
        self._recent: list[Written] | None = None
        self.path = path
        self.now = now
        self.blobs = Blobs(os.path.join(os.path.dirname(path), "outputs"))

    @classmethod
    def create(cls, path: str, now: Callable[[], str]) -> Self:
        """Create a journal; the file must not exist. Raises JournalError."""
        return cls._open(path, files.O_CREAT | files.O_EXCL, now)

    @classmethod
    def append(cls, path: str, now: Callable[[], str], lines: int = 0) -> Self:
        """Open an existing journal with `lines` lines for appending. Raises JournalError."""
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
        """Append an event with this kind and these fields, which must not change afterwards."""
        if not RESERVED.isdisjoint(fields):
            fields = {name: value for name, value in fields.items() if name not in RESERVED}
        ts = ts or self.now()
        line = seal_plain(kind, fields, ts)
        if line is None:
            if needs_packing(fields):
                fields = {name: pack(value, self.blobs.store) for name, value in fields.items()}
            line = seal(whole_event(kind, fields, ts))
        offset = self.size
        if self._recent is not None:
            self._recent.append((kind, fields, ts, offset))
        self._last = line
        self._buffer.append(line)
        self.lines += 1
        self.size = size = offset + len(line)
        if size - self._size > BUFFER_LIMIT:
            self.flush()

    def take_recent(self, after: int) -> list[Written] | None:
        """Return the events since line `after`; None if not all of them are in memory.

        `after` must be the line count at the previous call. Events are kept in memory from the first call on.
        """
        recent, self._recent = self._recent, []
        return recent if recent is not None and len(recent) == self.lines - after else None

    @property
    def keeps_many(self) -> bool:
        """Whether the events in memory exceed half of their limit, so that `take_recent` should be called."""
        return self._recent is not None and len(self._recent) > _MAX_RECENT_EVENTS // 2

    @property
    def last_crc(self) -> str:
        """Checksum of the last line that this object has written."""
        return self._last[-CRC_END:-3].decode()

    def synced(self) -> tuple[int, int]:
        """Return the bytes and lines that are on disk; 0 until the first `sync`."""
        return self._synced

    def flush(self) -> None:
        """Write the buffer to the file."""
        if not self._buffer:
            return
        data = b"".join(self._buffer)
        self._wake()
        try:
            _write_all(self._fd, data)
        except OSError as error:
            self._cut()
            raise JournalError(f"cannot write {self.path}: {reason(error)}") from None
        self._size = self.size
        if self._recent is not None and len(self._recent) > _MAX_RECENT_EVENTS:
            self._recent = None
        self._buffer.clear()

    def sync(self) -> None:
        """Write the buffer to the file and sync it to disk."""
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
        """Write the buffer to the file; the next `settle` or `sync` syncs it to disk.

        recorded: called when the death of this process no longer loses the events.
        """
        self.flush()
        self._is_unsynced = True
        recorded()

    def settle(self) -> None:
        """Write the buffer to the file, and sync if `sync_later` was called."""
        if self._is_unsynced:
            self.sync()
        else:
            self.flush()

    def _wake(self) -> None:
        """Open the file again if it is closed."""
        if self._fd < 0:
            try:
                self._fd = regular_handle(self.path, files.O_WRONLY | files.O_APPEND)
            except OSError as error:
                raise JournalError(f"cannot write {self.path}: {reason(error)}") from None

    def _cut(self) -> None:
        """Remove a partly written line from the file after a failed write, and clear the buffer."""
        self._recent = None
        self._buffer.clear()
        self.size = self._size
        with suppress(OSError):  # the reader drops a torn tail
            files.ftruncate(self._fd, self._size)

    def close(self) -> None:
        """Settle and close the file; a later write opens it again."""
        try:
            self.settle()
        finally:
            if self._fd >= 0:
                files.close(self._fd)
                self._fd = -1


# --- repair ----------------------------------------------------------------------------------


def set_aside(path: str, offset: int) -> str | None:
    """Truncate a journal at `offset` and save the rest in a file next to it; return the path of that file.

    Returns None if there was nothing to cut. Raises JournalError.
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
