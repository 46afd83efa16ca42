"""Record of a run: journal, checkpoints, state file and active time.

The driver accesses the run store only through this module. Owns the choice of files and when they are open.
The driver decides when a record must be on disk. `spec/events.md`.
"""

from __future__ import annotations

import os.path

from ...ir.python_internals import import_module
from ...vm.machine.machine import Machine
from ..host import files
from ..journal.active_time import ActiveFile
from ..journal.events import Event
from ..journal.journal import Journal
from ..journal.position import Progress, event_fields
from ..journal.run_folder import RunFolder
from ..runs import checkpoints
from ..runs.checkpoints import Checkpoints
from ..runs.state_file import WRITE_INTERVAL_S, StateFile
from ..trees.recorder import FOLDER
from .effect_log import EffectLog

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

# Maximum interval, in seconds, between file updates of an idle run that shares its process.
_MAX_REFRESH_INTERVAL = 30.0
# Number of checks whether a checkpoint is due while the journal grows by the space between two checkpoints.
_CHECKS = 16


class RunRecord:
    """The record of one run.

    Args:
        run: its folder.
        journal: its journal, open for writing.
        machine: its machine.
        progress: its progress.
        effects: writes the events of effects.
        started_at: its start time; None for now.
        checkpoints: the writer of checkpoints; None to write none.
        doubtful: returns the marks of doubtful effects, as `Position.marks`.
        elapsed_ms: returns the active time of the run.
    """

    def __init__(
        self,
        run: RunFolder,
        journal: Journal,
        machine: Machine,
        progress: Progress,
        effects: EffectLog,
        started_at: str | None,
        checkpoints: Checkpoints | None,
        doubtful: Callable[[], list[list[Any]]],
        elapsed_ms: Callable[[], int],
    ) -> None:
        self._run = run
        self._journal = journal
        self._machine = machine
        self._progress = progress
        self._started_at = started_at or journal.now()
        self._state_file = StateFile(run, machine, progress, self._started_at, journal.now)
        self._active = ActiveFile(run.path, elapsed_ms, journal.synced)
        self._checkpoints = checkpoints
        self._doubtful = doubtful
        self._elapsed_ms = elapsed_ms
        self._refresh_interval = WRITE_INTERVAL_S
        self.effects = effects
        self.sync, self.sync_later, self.settle = journal.sync, journal.sync_later, journal.settle
        self._next_check = 0
        # Whether the journal has a result that is not on disk yet.
        self.is_unsynced = False

    def notes(
        self, notes: Iterable[tuple[str, dict[str, Any]]], show: Callable[[str, dict[str, Any]], object]
    ) -> None:
        """Record notes of the program, and call `show` with each and its recorded fields."""
        ts, write = self._journal.now(), self._journal.write
        for kind, fields in notes:
            fields = event_fields(kind, fields)
            write(kind, fields, ts)
            show(kind, fields)
        self._state_file.is_stale = True

    def change_program(self, machine: Machine, event: Event) -> None:
        """Record that the run continues with another program, whose file is in its folder."""
        self._machine = self._state_file.machine = machine
        self._journal.record(event)

    def changed(self) -> None:
        """Mark the state file as out of date."""
        self._state_file.is_stale = True

    def save_length(self) -> None:
        """Save the length of the journal in another file, after a sync, to detect truncation."""
        self._active.write()

    def effect_started(self) -> None:
        """Update the state file if it is due, at the start of an effect that waits."""
        if self._state_file.is_due:
            self._state_file.save()

    def flush(self) -> None:
        self._journal.flush()

    # --- time -----------------------------------------------------------------------------------

    def tick(self) -> None:
        """Update the active time while the program computes."""
        self._active.tick()

    def refresh(self) -> None:
        """Update the files that other processes read."""
        if self._state_file.is_stale:
            self._state_file.save()
        self._active.tick()

    def next_refresh(self) -> float:
        """Close the files of a run that shares its process; returns the seconds until its next refresh."""
        self._active.close()
        self._refresh_interval = min(2 * self._refresh_interval, _MAX_REFRESH_INTERVAL)
        return self._refresh_interval

    def close_files(self) -> float | None:
        """Close all files but the lock while the run waits.

        Returns the seconds until the next refresh; None if none is necessary.
        """
        self._journal.close()
        self._active.close()
        if not self._state_file.is_stale:
            return None
        self._refresh_interval = WRITE_INTERVAL_S
        return WRITE_INTERVAL_S

    def close(self) -> None:
        self._active.close()

    # --- checkpoints and the end ----------------------------------------------------------------

    def evidence(self) -> dict[str, Any] | None:
        """The evidence that the work of the run is done; None without agents, or if there is none."""
        if not files.exists(os.path.join(self._run.path, FOLDER)):
            return None
        self._journal.flush()
        module = import_module(f"{__package__.rpartition('.')[0]}.journal.evidence")
        evidence: dict[str, Any] | None = module.read_evidence(self._journal.path)
        return evidence

    def checkpoint_if_due(self, save_world: Callable[[], Any]) -> None:
        """Write a checkpoint if it is due; checked each time the journal has grown by some events."""
        if self._journal.size < self._next_check:
            return
        self._next_check = self._journal.size + checkpoints.SPACE // _CHECKS
        if self._checkpoints is not None:
            if self._checkpoints.is_due(self._journal.size):
                self.checkpoint(save_world)
            else:
                self._checkpoints.keep_up(self._journal)

    def checkpoint(self, save_world: Callable[[], Any]) -> None:
        """Write a checkpoint. Must be called between two steps of the machine, with all notes recorded."""
        if self._checkpoints is None or self._machine.ended:
            return
        self._checkpoints.write(
            self._journal,
            {
                "image": self._run.image_name,
                "begun": self._started_at,
                "ts": self._journal.now(),
                "active_ms": self._elapsed_ms(),
                **self.effects.running_effects(),
                "doubtful": self._doubtful(),
                "progress": self._progress.to_data(),
                "world": save_world(),
                "snapshot": self._machine.snapshot(),
            },
        )

    def last_event(self, event: Event) -> None:
        self._journal.record(event)

    def ended(self, status: str) -> None:
        """Remove the files that only a resume needs, after the last event of a finished run is on disk."""
        if self._checkpoints is not None:
            self._checkpoints.finish(self._journal)
        self._active.finish()
        self._state_file.save(status)

    def interrupted(self, save_world: Callable[[], Any], has_checkpoint: bool) -> None:
        """Write the files that a resume needs, after the last event of an interrupted run is on disk.

        has_checkpoint: write a checkpoint; False if the machine was abandoned in the middle of a step.
        """
        if has_checkpoint:
            self.checkpoint(save_world)
        self._active.finish()
        self._state_file.save("interrupted")
