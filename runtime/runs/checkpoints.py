"""Checkpoint writer: snapshots of a run at a position of its journal, which limit the replay of a resume.

Owns the files `checkpoint-1` and `checkpoint-2`, which are written alternately, and the decision when a
checkpoint is worth its cost. Some snapshots are also appended to the file `waypoints`, so that any point of a
long run can be shown without executing everything before it. The journal remains the source of truth: a
checkpoint states up to which byte it covers the journal. The reader is a separate module
(`checkpoint_reader`), because a new run does not need it. See `spec/events.md`, Checkpoints.
"""

from __future__ import annotations

import zlib
from binascii import b2a_base64

from ...ir.python_internals import import_module, suppress
from ..host import clock
from ..journal import journal as journals
from ..journal.journal import Journal, JournalError, seal
from ..journal.run_folder import RunFolder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..journal.run_history import Checkpoint, RunHistory

FORMAT = 1
COUNT = 2
# File with the history of a long run that has ended: a checkpoint without a snapshot.
HISTORY = "history"
# Minimum journal size, in bytes, for writing that file if the history was not folded before: some 5,000
# steps.
HISTORY_SPACE = 1 << 20
# Minimum growth of the journal between two checkpoints, in bytes: about a hundred steps, replayed in about
# 10 ms. After a larger checkpoint the journal must first grow by the size of the checkpoint, so that all
# checkpoints ever written are never larger than the journal.
SPACE = 64 * 1024
# Writing checkpoints may take 1/SHARE of a run's time.
SHARE = 20
WAYPOINTS = "waypoints"
# Minimum growth of the journal between two waypoints, in bytes: some 1,500 steps, executed again in 50 ms.
# After a large waypoint it is WAYPOINT_SHARE times its size, so that all waypoints are at most
# 1/WAYPOINT_SHARE of the journal.
WAYPOINT_SPACE = 1 << 20
WAYPOINT_SHARE = 16
# Parts of a checkpoint that executing again from a waypoint requires.
POINT = ("image", "progress", "snapshot")


class Checkpoints:
    """Writer of a run's checkpoints. base: the newest existing checkpoint, which is overwritten last."""

    def __init__(self, run: RunFolder, base: Checkpoint | None = None) -> None:
        self._run = run
        self._blobs = run.blobs
        self._size = 0 if base is None else base.offset
        self._space = SPACE
        self._not_before = 0.0
        self._turn = 0 if base is None else (base.turn + 1) % COUNT
        self._next_waypoint = self._size + WAYPOINT_SPACE
        # History, folded up to a position of the journal; not stored if the journal has damage.
        self._base = base
        self._history: RunHistory | None = None
        self._folded = (0, 0)
        self._is_damaged = False

    def is_due(self, size: int) -> bool:
        """Whether the journal, now of `size` bytes, has grown enough for a checkpoint."""
        return size - self._size >= self._space and clock.monotonic() >= self._not_before

    def keep_up(self, journal: Journal) -> None:
        """Fold the recent events of the journal before it keeps too many of them in memory."""
        if self._history is not None and journal.keeps_many:
            self._fold_recent(self._history, journal)

    def write(self, journal: Journal, facts: dict[str, Any]) -> None:
        """Write a checkpoint with `facts` at the end of the journal, unless the journal has not grown.

        Raises JournalError if the journal cannot be written. Errors in writing the checkpoint are ignored.
        """
        journal.flush()
        if journal.size == self._size:
            return
        history = self._fold(journal)
        started_at = clock.monotonic()
        # The journal must be on disk first: a resume does not read the part before the checkpoint, and a
        # crash may lose an earlier write and keep a later one.
        journal.sync()
        facts = {name: journals.pack(value, self._keep) for name, value in facts.items()}
        if journal.size >= self._next_waypoint and history is not None:
            point = {name: facts[name] for name in POINT}
            counts = {"results": history["results"], "seq": point["snapshot"]["seq"]}
            self._add_waypoint(journal, counts, point)
        self._space = max(SPACE, self._write(file_name(self._turn), journal, {**facts, "history": history}))
        self._turn = (self._turn + 1) % COUNT
        self._size = journal.size
        self._not_before = started_at + (clock.monotonic() - started_at) * (1 + SHARE)

    def finish(self, journal: Journal) -> None:
        """Remove the checkpoints at the end of the run, and store its history if reading it saves time."""
        if self._history is not None or journal.size >= HISTORY_SPACE:
            with suppress(JournalError):
                self._write(HISTORY, journal, {"history": self._fold(journal)})
        self.discard()

    def _add_waypoint(self, journal: Journal, counts: dict[str, Any], facts: dict[str, Any]) -> None:
        """Append a waypoint. counts: number of results so far, and highest effect number."""
        packed = b2a_base64(zlib.compress(journals.to_json(facts), 1), newline=False).decode()
        line = seal({**self._about("waypoint", journal), **counts, "facts": packed})
        self._next_waypoint = journal.size + max(WAYPOINT_SPACE, WAYPOINT_SHARE * len(line))
        with suppress(JournalError):
            self._run.add_to(WAYPOINTS, line)

    def _about(self, event: str, journal: Journal) -> dict[str, Any]:
        place = {"offset": journal.size, "lines": journal.lines, "crc": journal.last_crc}
        return {"event": event, "format": FORMAT, "run": self._run.id, "journal": place}

    def _write(self, name: str, journal: Journal, facts: dict[str, Any]) -> int:
        """Write a checkpoint file, ignoring errors; return its size in bytes."""
        data = zlib.compress(seal({**self._about("checkpoint", journal), **facts}), 1)
        with suppress(JournalError):
            self._run.write(name, data, durable=False)
        return len(data)

    def _fold(self, journal: Journal) -> dict[str, Any] | None:
        """Fold the history up to the end of the journal to plain data; None if the journal is damaged."""
        history = self._history
        if history is None:
            # Imported here, because a short run does not need it.
            module = import_module(f"{Journal.__module__.rpartition('.')[0]}.run_history")
            base = self._base if self._base is not None and self._base.is_whole else None
            history = self._history = module.RunHistory(base)
            self._folded = (0, 0) if base is None else (base.offset, base.lines)
        self._fold_recent(history, journal)
        return None if self._is_damaged else history.to_data()

    def _fold_recent(self, history: RunHistory, journal: Journal) -> None:
        recent = journal.take_recent(self._folded[1])
        if recent is not None:
            history.add_own(recent)
        elif not self._is_damaged:
            journal.flush()
            read = import_module(f"{Journal.__module__.rpartition('.')[0]}.reader").read
            for entry in read(journal.path, *self._folded):
                history.add(entry)
        self._folded = journal.size, journal.lines
        self._is_damaged = bool(history.damage)

    def _keep(self, text: str) -> Any:
        """Replace a long text by its reference if it is already stored as a blob."""
        return self._blobs.known(text) or text

    def discard(self) -> None:
        """Remove all checkpoints."""
        for turn in range(COUNT):
            with suppress(OSError):
                self._run.remove(file_name(turn))


def file_name(turn: int) -> str:
    """Return the name of a checkpoint file in the folder of its run."""
    return f"checkpoint-{turn + 1}"
