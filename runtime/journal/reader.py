"""Reading a journal: its events in order, and the stretches of it that are damaged.

Owns the journal file as it is read, at once or while a run appends to it. What the events of a run amount to
belongs to `run_history`.
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


# A line that is longer than this was not written by llc; what follows it is not read.
LINE_LIMIT = 256 * 1024 * 1024
_TAIL = 4096
# Bytes that are read at once from the end of a journal.
_BLOCK = 64 * 1024


class ReadError(JournalError):
    """The journal cannot be read."""

    id = "no-record"


class Damage:
    """Consecutive lines of a journal that hold no readable event.

    offset: where the first one begins. size: bytes. at_end: no event follows. torn: the last line has no end,
    as after a crash during writing. missing: bytes after it that were on disk and are not there any more.
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
        """Whether it is only the last line, incomplete, as a crash leaves it: no event is lost."""
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
    """Reads the events of a journal in order; each `read` continues where the one before stopped.

    offset, lines: bytes and lines to skip. damaged_lines: those found so far. Raises ReadError where the file
    cannot be opened. It stays open, so it is found when the folder of the run moves.
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
        """The new whole lines: their events, and each damaged stretch that an event follows."""
        if files.fstat(self._file.fileno()).st_size < self._file.tell():
            # The journal was repaired: what was cut from it was read before.
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
        """The damaged stretch at the end of the journal, if there is one; nothing is read after it.

        synced: bytes and lines that the journal had at least.
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
    """Bytes and lines that a journal had at least, by the file `active`; read it before the journal."""
    saved = active_time.read(os.path.dirname(path))
    return saved.size, saved.lines


def missing_bytes(path: str) -> int:
    """How many bytes of a journal were on disk and are not there any more."""
    size, _ = synced_length(path)
    try:
        return max(0, size - files.getsize(path))
    except OSError:
        return 0


def read(path: str, offset: int = 0, lines: int = 0) -> Iterator[Event | Damage]:
    """All events of a journal in order, and each damaged stretch. Values are as on the line (`codec.unpack`).

    offset, lines: bytes and lines to skip. Raises ReadError where the file cannot be read.
    """
    synced = synced_length(path)
    reader = JournalReader(path, offset, lines)
    try:
        yield from reader.read()
        yield from reader.finish(synced)
    finally:
        reader.close()


def whole_lines(path: str) -> Generator[bytes, None, None]:
    """The lines of a journal as they are, without a last one that has no end. Raises ReadError."""
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
    """Access to the events of a journal by the offsets of their lines.

    Raises ReadError where the file cannot be opened. It stays open, so it is found where it moves to.
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
        """The event whose line begins at `offset`. Raises ReadError where there is none any more."""
        self._file.seek(offset)
        wire = unseal(self._file.readline(LINE_LIMIT)[:-1])
        if wire is None:
            raise ReadError(f"{self._path} was changed while it was read")
        return read_event(wire, offset)


def tail_offset(path: str, count: int) -> int:
    """Where the last `count` whole lines of a journal begin; 0 where it has no more. Raises ReadError.

    0 also where a stretch without a line end is longer than any line.
    """
    try:
        with open_regular(path) as file:
            at = file.seek(0, files.SEEK_END)
            left = count + 1  # line ends: the first one ends the line before
            lowest = at - LINE_LIMIT
            while at > max(0, lowest):
                length = min(at, _BLOCK)
                at -= length
                file.seek(at)
                block = file.read(length)
                found = block.count(b"\n")
                if found < left:
                    left -= found
                    lowest = at - LINE_LIMIT if found else lowest
                    continue
                end = length
                for _ in range(left):
                    end = block.rindex(b"\n", 0, end)
                return at + end + 1
            return 0
    except OSError as error:
        raise ReadError(f"cannot read {path}: {reason(error)}") from error


def last_event(path: str) -> Event | None:
    """The event on the last line of a journal; None where the line is damaged or cannot be read."""
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
