"""The journal of a run in its folder, read once or followed while the run appends to it."""

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
from .locks import is_live

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


def left_out(journal: str, lines: int = 0) -> str:
    """The notes about a journal: its damaged lines, and its end if that is missing."""
    notes = ""
    if lines:
        which = "1 line is" if lines == 1 else f"{lines} lines are"
        notes = f"note: {journal}: {which} damaged and left out\n"
    missing = missing_bytes(journal)
    return notes + (f"note: {journal} is truncated: {missing} bytes that were on disk\n" if missing else "")


class Follower:
    """The events of a run: those in the journal, then those that are appended.

    offset, lines: bytes and lines to skip. Raises UserError where the journal cannot be read; a queued run
    has none yet.
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
        """The number of damaged lines so far."""
        return 0 if self._reader is None else self._reader.damaged_lines

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()

    def events(self) -> Iterator[Event]:
        """The events that are new; damaged lines are left out."""
        self._reader = self._reader or self._open()
        if self._reader is not None:
            yield from (entry for entry in self._reader.read() if not isinstance(entry, Damage))

    def whole(self, value: Any) -> Any:
        """A value of an event for people: with its long texts, and secrets masked."""
        return unpack(value, self._fetch, hidden)

    def _fetch(self, name: str, size: int) -> str:
        run = self._run
        for folder in (run.outputs, os.path.join(run.root, HISTORY, run.id, "outputs")):
            with suppress(BlobError):
                return Blobs(folder).fetch(name, size)
        return f"[{size} bytes, lost]"


def follow(run: RunFolder) -> tuple[RunHistory, Follower]:
    """The history of a run up to its newest checkpoint, and what follows. Raises UserError."""
    history = checkpoint_reader.history(run)
    checkpoint = history.checkpoint
    place = () if checkpoint is None else (checkpoint.offset, checkpoint.lines)
    return history, Follower(run, *place)


def history_of(run: RunFolder) -> RunHistory:
    """The history of a run as its journal is now. Raises UserError."""
    history, follower = follow(run)
    try:
        for event in follower.events():
            history.add(event)
        return history
    finally:
        follower.close()
