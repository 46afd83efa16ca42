"""Checkpoints: snapshots of a run at a position of its journal, so that a resume replays only what follows.

Owns the files (`checkpoint-1` and `checkpoint-2`, written alternately), and when one is worth its cost. The
journal remains the only truth: a checkpoint names the byte up to which it covers it. They are read by
`recovery.checkpoint_reader`, because a new run has none. See `spec/events.md`, Checkpoints.
"""

from __future__ import annotations

import zlib

from ...ir.python_internals import suppress
from ..host import clock
from ..journal import journal as journals
from ..journal.journal import Journal, JournalError, seal
from ..journal.run_folder import RunFolder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FORMAT = 1
COUNT = 2
# Minimum bytes of journal between two checkpoints: about a hundred steps, replayed in about 10 ms. After a
# larger checkpoint the journal first grows by its size, so that all checkpoints ever written are never larger
# than the journal.
SPACE = 64 * 1024
# Writing them may take 1/SHARE of a run's time.
SHARE = 20


class Checkpoints:
    """Writer of a run's checkpoints; size: of the journal when the last one was written."""

    def __init__(self, run: RunFolder, size: int = 0, turn: int = 0) -> None:
        self._run = run
        self._blobs = run.blobs
        self._size = size
        self._space = SPACE
        self._not_before = 0.0
        self._turn = turn

    def is_due(self, size: int) -> bool:
        """Whether the journal, now of `size` bytes, has grown enough."""
        return size - self._size >= self._space and clock.monotonic() >= self._not_before

    def write(self, journal: Journal, facts: dict[str, Any]) -> None:
        """Write `facts` for the journal as it is now, unless nothing was added since.

        Raises JournalError if the journal cannot be written; a checkpoint that cannot be written is skipped.
        """
        journal.flush()
        if journal.size == self._size:
            return
        begun = clock.monotonic()
        line = seal(
            {
                "event": "checkpoint",
                "format": FORMAT,
                "run": self._run.id,
                "journal": {"offset": journal.size, "lines": journal.lines, "crc": journal.last_crc},
                **{name: journals.pack(value, self._keep) for name, value in facts.items()},
            }
        )
        with suppress(JournalError):
            line = zlib.compress(line, 1)
            self._run.write(file_name(self._turn), line, durable=False)
            self._turn = (self._turn + 1) % COUNT
        self._size = journal.size
        self._space = max(SPACE, len(line))
        self._not_before = begun + (clock.monotonic() - begun) * (1 + SHARE)

    def _keep(self, text: str) -> Any:
        """A long text as a reference if the journal has stored it already, else the text."""
        return self._blobs.known(text) or text

    def discard(self) -> None:
        """Remove all of them: the run has ended."""
        for turn in range(COUNT):
            with suppress(OSError):
                self._run.remove(file_name(turn))


def file_name(turn: int) -> str:
    """The file of a checkpoint in the folder of its run."""
    return f"checkpoint-{turn + 1}"
