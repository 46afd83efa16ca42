"""Journal reader: the events of a journal in order, and its damaged parts.

Owns reading the journal file, once or while a run appends to it. Must not contain: the meaning of events
(`run_history`).
"""

from __future__ import annotations

import os.path

from ..host import files
from ..host.errors import reason
from ..host.paths import open_regular
from . import active_time
from .codec import unseal
from .events import Event, read_event
from .journal import JournalError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Iterator


# Maximum length of a line in bytes. llc does not write longer lines; the rest of the journal after one is not
# read.
LINE_LIMIT = 256 * 1024 * 1024
_TAIL = 4096
# Block size in bytes for reading backwards from the end of a journal.
_BLOCK = 64 * 1024


class ReadError(JournalError):
    """The journal cannot be read."""

    id = "no-record"


class Damage:
    """Consecutive lines of a journal without a readable event.

    Args:
        offset: position of the first line.
        size: length in bytes.
        at_end: no event follows.
        torn: the last line is incomplete, as after a crash during a write.
        missing: number of following bytes that were on disk before and no longer exist.
    """

    def __init__(self, first_line: int, offset: int) -> None:
        self.first_line = first_line
        self.last_line = first_line
        self.offset = offset
        self.size = 0
        self.at_end = False
        self.torn = False
        self.missing = 0

    @property
    def is_torn_line(self) -> bool:
        """Whether only the last line is incomplete, as after a crash; then no event is lost."""
        return self.at_end and self.torn and self.first_line == self.last_line and not self.missing

    @property
    def line_count(self) -> int:
        return self.last_line - self.first_line + 1

    def __str__(self) -> str:
        where = f"line {self.first_line}"
        if self.last_line > self.first_line:
            where = f"lines {self.first_line} to {self.last_line}"
        if self.missing:
            return f"{where} {'is' if self.first_line == self.last_line else 'are'} missing"
        if self.torn and self.first_line == self.last_line:
            return f"{where} is incomplete"
        return f"{where} {'is' if self.first_line == self.last_line else 'are'} damaged"


class JournalReader:
    """Reader of the events of a journal in order; each `read` continues after the previous one.

    offset, lines: bytes and lines to skip. damaged_lines: number of damaged lines so far. Raises ReadError if
    the file cannot be opened. The file stays open, so the folder of the run may move.
    """

    def __init__(self, path: str, offset: int = 0, lines: int = 0) -> None:
        try:
            self._file = open_regular(path)
        except OSError as error:
            raise ReadError(f"cannot read {path}: {reason(error)}") from error
        self._file.seek(offset)
        self._offset = offset
        self._line = lines
        self._rest = b""
        self._damage: Damage | None = None
        self.damaged_lines = 0

    def read(self) -> Iterator[Event | Damage]:
        """Yield the events of new complete lines, and damaged parts that are followed by an event."""
        if files.fstat(self._file.fileno()).st_size < self._file.tell():
            # The journal was repaired; the removed part has already been read.
            self._offset = self._file.seek(0, files.SEEK_END)
            self._rest = b""
        while data := self._file.readline(LINE_LIMIT):
            line = self._rest + data if self._rest else data
            if not line.endswith(b"\n") and len(line) < LINE_LIMIT:
                self._rest = line
                return
            self._rest = b""
            self._line += 1
            if len(line) >= LINE_LIMIT:
                end = self._file.seek(0, files.SEEK_END)
                self._add_damage(end - self._offset)
                self._offset = end
                return
            wire = unseal(line[:-1])
            if wire is None:
                self._add_damage(len(line))
            else:
                if self._damage is not None:
                    yield self._damage
                    self._damage = None
                yield read_event(wire, self._offset, self._line)
            self._offset += len(line)

    def finish(self, synced: tuple[int, int] = (0, 0)) -> Iterator[Damage]:
        """Yield the damaged part at the end of the journal, if any. Call it after the last `read`.

        synced: bytes and lines that were on disk (minimum length of the journal).
        """
        missing = synced[0] - self._offset - len(self._rest)
        if self._rest:
            self._line += 1
            self._add_damage(len(self._rest), is_torn=True)
            self._rest = b""
        if missing > 0:
            damage = self._damage = self._damage or Damage(self._line + 1, self._offset)
            damage.last_line = max(damage.last_line, synced[1])
            damage.missing = missing
        if self._damage is not None:
            self._damage.at_end = True
            yield self._damage
            self._damage = None

    def _add_damage(self, size: int, is_torn: bool = False) -> None:
        damage = self._damage = self._damage or Damage(self._line, self._offset)
        damage.last_line = self._line
        damage.size += size
        damage.torn = is_torn
        self.damaged_lines += not damage.torn

    def close(self) -> None:
        self._file.close()


def synced_length(path: str) -> tuple[int, int]:
    """Return the minimum length of a journal in bytes and lines from the file `active`.

    Call before reading.
    """
    saved = active_time.read(os.path.dirname(path))
    return saved.size, saved.lines


def missing_bytes(path: str) -> int:
    """Return the number of bytes of a journal that were on disk and no longer exist."""
    size, _ = synced_length(path)
    try:
        return max(0, size - files.getsize(path))
    except OSError:
        return 0


def read(path: str, offset: int = 0, lines: int = 0) -> Iterator[Event | Damage]:
    """Yield all events of a journal in order, and damaged parts. Values are encoded (see `codec.unpack`).

    offset, lines: bytes and lines to skip. Raises ReadError if the file cannot be read.
    """
    synced = synced_length(path)
    reader = JournalReader(path, offset, lines)
    try:
        yield from reader.read()
        yield from reader.finish(synced)
    finally:
        reader.close()


def whole_lines(path: str) -> Generator[bytes, None, None]:
    """Yield the raw lines of a journal, without an incomplete last line. Raises ReadError."""
    try:
        file = open_regular(path)
    except OSError as error:
        raise ReadError(f"cannot read {path}: {reason(error)}") from error
    with file:
        while line := file.readline(LINE_LIMIT):
            if not line.endswith(b"\n"):
                return
            yield line


class EventFile:
    """Random access to the events of a journal by offset.

    Raises ReadError if the file cannot be opened. The file stays open, so the folder of the run may move.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            self._file = open_regular(path)
        except OSError as error:
            raise ReadError(f"cannot read {path}: {reason(error)}") from error

    def __del__(self) -> None:
        file = getattr(self, "_file", None)
        if file is not None:
            file.close()

    def at(self, offset: int) -> Event:
        """Return the event whose line begins at `offset`. Raises ReadError if the journal has changed."""
        self._file.seek(offset)
        wire = unseal(self._file.readline(LINE_LIMIT)[:-1])
        if wire is None:
            raise ReadError(f"{self._path} was changed while it was read")
        return read_event(wire, offset)


def tail_offset(path: str, count: int) -> int:
    """Return the offset of the last `count` complete lines of a journal. Raises ReadError.

    Returns 0 if the journal has no more lines, or contains a longer part without a line end than LINE_LIMIT.
    """
    try:
        with open_regular(path) as file:
            at = file.seek(0, files.SEEK_END)
            remaining = count + 1  # number of line ends to find; the first one ends the preceding line
            lowest = at - LINE_LIMIT
            while at > max(0, lowest):
                length = min(at, _BLOCK)
                at -= length
                file.seek(at)
                block = file.read(length)
                line_ends = block.count(b"\n")
                if line_ends < remaining:
                    remaining -= line_ends
                    lowest = at - LINE_LIMIT if line_ends else lowest
                    continue
                end = length
                for _ in range(remaining):
                    end = block.rindex(b"\n", 0, end)
                return at + end + 1
            return 0
    except OSError as error:
        raise ReadError(f"cannot read {path}: {reason(error)}") from error


def last_event(path: str) -> Event | None:
    """Return the event on the last line of a journal; None if the line is damaged or cannot be read."""
    try:
        with open_regular(path) as file:
            size = file.seek(0, files.SEEK_END)
            length = _TAIL
            while True:
                file.seek(max(0, size - length))
                tail = file.read(length)
                begin = tail.rfind(b"\n", 0, -1) + 1
                if begin or length >= size or length >= LINE_LIMIT:
                    wire = unseal(tail[begin:-1]) if tail.endswith(b"\n") else None
                    return None if wire is None else read_event(wire)
                length *= 16
    except OSError:
        return None
