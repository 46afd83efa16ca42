"""Journal follower: reads the journal of a run, once or continuously while the run appends to it."""

from __future__ import annotations

import os.path

from ...ir.python_internals import suppress
from ..host.errors import Failure
from ..host.paths import HISTORY
from ..host.secrets import hidden
from ..journal.codec import unpack
from ..journal.events import Event
from ..journal.journal import BlobError, Blobs
from ..journal.reader import Damage, JournalReader, ReadError, missing_bytes
from ..journal.run_folder import RunFolder
from ..journal.run_history import RunHistory
from . import checkpoint_reader
from .run_lock import is_live

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


def damage_notes(journal: str, lines: int = 0) -> str:
    """Return notes about the damage of a journal. lines: number of damaged lines. "" if it has no damage."""
    notes = ""
    if lines:
        which = "1 line is" if lines == 1 else f"{lines} lines are"
        notes = f"note: {journal}: {which} damaged and left out\n"
    missing = missing_bytes(journal)
    return notes + (f"note: {journal} is truncated: {missing} bytes are missing\n" if missing else "")


class Follower:
    """Iterator over the events of a run: the existing events, then appended ones.

    offset, lines: bytes and lines to skip. Raises UserError if the journal cannot be read, except for a
    queued run, which has no journal yet.
    """

    def __init__(self, run: RunFolder, offset: int = 0, lines: int = 0) -> None:
        self._run = run
        self._offset, self._lines = offset, lines
        self._reader = self._open()

    def _open(self) -> JournalReader | None:
        try:
            return JournalReader(self._run.journal, self._offset, self._lines)
        except ReadError as error:
            if isinstance(error.__cause__, FileNotFoundError) and is_live(self._run):
                return None
            raise Failure("no-record", error.message) from None

    @property
    def damaged(self) -> int:
        """Number of damaged lines so far."""
        return 0 if self._reader is None else self._reader.damaged_lines

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()

    def events(self) -> Iterator[Event]:
        """Yield the new events without damaged lines."""
        self._reader = self._reader or self._open()
        if self._reader is not None:
            yield from (entry for entry in self._reader.read() if not isinstance(entry, Damage))

    def expand(self, value: Any) -> Any:
        """Return a value of an event for display: long texts resolved, secrets masked."""
        return unpack(value, self._fetch, hidden)

    def _fetch(self, name: str, size: int) -> str:
        run = self._run
        for folder in (run.outputs, os.path.join(run.root, HISTORY, run.id, "outputs")):
            with suppress(BlobError):
                return Blobs(folder).fetch(name, size)
        return f"[{size} bytes, lost]"


def follow(run: RunFolder) -> tuple[RunHistory, Follower]:
    """Return the history up to the newest checkpoint, and a follower for later events. Raises UserError."""
    history = checkpoint_reader.history(run)
    checkpoint = history.checkpoint
    place = () if checkpoint is None else (checkpoint.offset, checkpoint.lines)
    return history, Follower(run, *place)


def load_history(run: RunFolder) -> RunHistory:
    """Load the history of a run up to the end of its journal. Raises UserError."""
    history, follower = follow(run)
    try:
        for event in follower.events():
            history.add(event)
        return history
    finally:
        follower.close()
