"""Checkpoints: snapshots of a run at a position of its journal, so that a resume replays only what follows.

Owns the files (`checkpoint-1` and `checkpoint-2`, written alternately), and when one is worth its cost. Some
stay in the file `waypoints`, so that any point of a long run can be shown without all that is before it. The
journal remains the only truth: a checkpoint names the byte up to which it covers it. They are read by
`checkpoint_reader`, because a new run has none. See `spec/events.md`, Checkpoints.
"""

from __future__ import annotations

import zlib
from binascii import b2a_base64

from ...ir.python_internals import import_module, suppress
from ..host import clock
from ..journal import journal as journals
from ..journal.events import read_own
from ..journal.journal import Journal, JournalError, seal
from ..journal.run_folder import RunFolder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..journal.run_history import Checkpoint, RunHistory

FORMAT = 1
COUNT = 2
# The file with the history of a long run that has ended: a checkpoint that nothing is resumed from.
HISTORY = "history"
# Minimum bytes of the journal of a run that gets one though nothing was folded before: some 5,000 steps.
HISTORY_SPACE = 1 << 20
# Minimum bytes of journal between two checkpoints: about a hundred steps, replayed in about 10 ms. After a
# larger checkpoint the journal first grows by its size, so that all checkpoints ever written are never larger
# than the journal.
SPACE = 64 * 1024
# Writing them may take 1/SHARE of a run's time.
SHARE = 20
WAYPOINTS = "waypoints"
# Minimum bytes of journal between two waypoints: some 1,500 steps, executed again in 50 ms. After a large
# waypoint it is WAYPOINT_SHARE times its size, so that all of them are at most that part of the journal.
WAYPOINT_SPACE = 1 << 20
WAYPOINT_SHARE = 16
# What a point of the run can be told again from.
POINT = ("image", "progress", "snapshot")


class Checkpoints:
    """Writer of a run's checkpoints; base: the newest one that is there, which is written over last."""

    def __init__(self, run: RunFolder, base: Checkpoint | None = None) -> None:
        self._run = run
        self._blobs = run.blobs
        self._size = 0 if base is None else base.offset
        self._space = SPACE
        self._not_before = 0.0
        self._turn = 0 if base is None else (base.turn + 1) % COUNT
        self._next_waypoint = self._size + WAYPOINT_SPACE
        # The history so far, folded up to a position of the journal; a run whose record has damage has none.
        self._base = base
        self._history: RunHistory | None = None
        self._folded = (0, 0)
        self._is_damaged = False

    def is_due(self, size: int) -> bool:
        """Whether the journal, now of `size` bytes, has grown enough."""
        return size - self._size >= self._space and clock.monotonic() >= self._not_before

    def keep_up(self, journal: Journal) -> None:
        """Fold the events that the journal keeps in memory before it has too many of them."""
        if self._history is not None and journal.keeps_many:
            self._fold_recent(self._history, journal)

    def write(self, journal: Journal, facts: dict[str, Any]) -> None:
        """Write `facts` for the journal as it is now, unless nothing was added since.

        Raises JournalError if the journal cannot be written; a checkpoint that cannot be written is skipped.
        """
        journal.flush()
        if journal.size == self._size:
            return
        history = self._fold(journal)
        begun = clock.monotonic()
        # A disk may lose an earlier write and keep a later one, and a resume does not read what is before.
        journal.sync()
        facts = {name: journals.pack(value, self._keep) for name, value in facts.items()}
        if journal.size >= self._next_waypoint and history is not None:
            kept = {name: facts[name] for name in POINT}
            self._mark(journal, {"results": history["results"], "seq": kept["snapshot"]["seq"]}, kept)
        self._space = max(SPACE, self._write(file_name(self._turn), journal, {**facts, "history": history}))
        self._turn = (self._turn + 1) % COUNT
        self._size = journal.size
        self._not_before = begun + (clock.monotonic() - begun) * (1 + SHARE)

    def finish(self, journal: Journal) -> None:
        """The run has ended: keep its history, unless it is read as fast as written, and remove what only a
        resume needs."""
        if self._history is not None or journal.size >= HISTORY_SPACE:
            with suppress(JournalError):
                self._write(HISTORY, journal, {"history": self._fold(journal)})
        self.discard()

    def _mark(self, journal: Journal, reached: dict[str, Any], facts: dict[str, Any]) -> None:
        """Append a waypoint. reached: the results so far, and the highest number of an effect."""
        packed = b2a_base64(zlib.compress(journals.to_json(facts), 1), newline=False).decode()
        line = seal({**self._about("waypoint", journal), **reached, "facts": packed})
        self._next_waypoint = journal.size + max(WAYPOINT_SPACE, WAYPOINT_SHARE * len(line))
        with suppress(JournalError):
            self._run.add_to(WAYPOINTS, line)

    def _about(self, event: str, journal: Journal) -> dict[str, Any]:
        place = {"offset": journal.size, "lines": journal.lines, "crc": journal.last_crc}
        return {"event": event, "format": FORMAT, "run": self._run.id, "journal": place}

    def _write(self, name: str, journal: Journal, facts: dict[str, Any]) -> int:
        """Write the file of a checkpoint; its size. What cannot be written is left out."""
        data = zlib.compress(seal({**self._about("checkpoint", journal), **facts}), 1)
        with suppress(JournalError):
            self._run.write(name, data, durable=False)
        return len(data)

    def _fold(self, journal: Journal) -> dict[str, Any] | None:
        """The history up to the end of the journal as plain data; None where it is damaged."""
        history = self._history
        if history is None:
            # A short run needs none of this.
            found = import_module(f"{Journal.__module__.rpartition('.')[0]}.run_history")
            base = self._base if self._base is not None and self._base.is_whole else None
            history = self._history = found.RunHistory(base)
            self._folded = (0, 0) if base is None else (base.offset, base.lines)
        self._fold_recent(history, journal)
        return None if self._is_damaged else history.to_data()

    def _fold_recent(self, history: RunHistory, journal: Journal) -> None:
        line = self._folded[1]
        recent = journal.take_recent(line)
        if recent is not None:
            for event in read_own(recent, line + 1):
                history.add(event)
        elif not self._is_damaged:
            journal.flush()
            read = import_module(f"{Journal.__module__.rpartition('.')[0]}.reader").read
            for entry in read(journal.path, *self._folded):
                history.add(entry)
        self._folded = journal.size, journal.lines
        self._is_damaged = bool(history.damage)

    def _keep(self, text: str) -> Any:
        """A long text as a reference if the journal has stored it already, else the text."""
        return self._blobs.known(text) or text

    def discard(self) -> None:
        """Remove all of them."""
        for turn in range(COUNT):
            with suppress(OSError):
                self._run.remove(file_name(turn))


def file_name(turn: int) -> str:
    """The file of a checkpoint in the folder of its run."""
    return f"checkpoint-{turn + 1}"
