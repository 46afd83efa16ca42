"""Everything the driver writes about a run: journal, checkpoints, state file and active time.

The only way from the driver to the run store: which files there are, and when they are open, is decided here.
When a record must be on disk is decided by the driver. `spec/events.md`.
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
from ..runs.checkpoints import Checkpoints
from ..runs.state_file import EVERY, StateFile
from ..trees.recorder import FOLDER
from .effect_log import EffectLog

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# Longest interval in seconds at which an idle run that shares its process updates its files.
_SELDOM = 30.0


class RunRecord:
    """The record of one run.

    effects: the events of effects. begun: when the run started, by default now. checkpoints: where to keep
    them, None for nowhere. doubtful(): what `Position.marks` gives. elapsed_ms(): the active time of the run.
    """

    def __init__(
        self,
        run: RunFolder,
        journal: Journal,
        machine: Machine,
        progress: Progress,
        effects: EffectLog,
        begun: str | None,
        checkpoints: Checkpoints | None,
        doubtful: Callable[[], list[list[Any]]],
        elapsed_ms: Callable[[], int],
    ) -> None:
        self._run = run
        self._journal = journal
        self._machine = machine
        self._progress = progress
        self._begun = begun or journal.now()
        self._state_file = StateFile(run, machine, progress, self._begun, journal.now)
        self._active = ActiveFile(run.path, elapsed_ms, journal.synced)
        self._checkpoints = checkpoints
        self._doubtful = doubtful
        self._elapsed_ms = elapsed_ms
        self._pace = EVERY
        self.effects = effects
        self.sync, self.sync_later, self.settle = journal.sync, journal.sync_later, journal.settle
        # Whether the journal has a result that is not on disk yet.
        self.is_unsynced = False

    def note(self, kind: str, fields: dict[str, Any]) -> dict[str, Any]:
        """Record a note of the program; its fields as recorded."""
        fields = event_fields(kind, fields)
        self._journal.write(kind, fields)
        self._state_file.is_old = True
        return fields

    def change_program(self, machine: Machine, event: Event) -> None:
        """The run continues with another program, which its folder has."""
        self._machine = self._state_file.machine = machine
        self._journal.record(event)

    def changed(self) -> None:
        """The state file is out of date."""
        self._state_file.is_old = True

    def save_length(self) -> None:
        """Keep the length of the journal, which is on disk now, apart from it."""
        self._active.write()

    def effect_started(self) -> None:
        """An effect that takes time starts: update the state file if it is due."""
        if self._state_file.is_due:
            self._state_file.save()

    def flush(self) -> None:
        self._journal.flush()

    # --- time -----------------------------------------------------------------------------------

    def tick(self) -> None:
        """Update the active time, while the program computes."""
        self._active.tick()

    def refresh(self) -> None:
        """Update the files that other processes read."""
        if self._state_file.is_old:
            self._state_file.save()
        self._active.tick()

    def next_refresh(self) -> float:
        """Close the files of a run that shares its process; seconds until the next refresh."""
        self._active.close()
        self._pace = min(2 * self._pace, _SELDOM)
        return self._pace

    def close_files(self) -> float | None:
        """Keep nothing open but the lock while the run waits; seconds until a refresh if one is needed."""
        self._journal.close()
        self._active.close()
        if not self._state_file.is_old:
            return None
        self._pace = EVERY
        return EVERY

    def close(self) -> None:
        self._active.close()

    # --- checkpoints and the end ----------------------------------------------------------------

    def evidence(self) -> dict[str, Any] | None:
        """By what the run shows that its work is done; None where no agent worked, or nothing shows it."""
        if not files.exists(os.path.join(self._run.path, FOLDER)):
            return None
        self._journal.flush()
        evidence = import_module(f"{__package__.rpartition('.')[0]}.journal.evidence")
        found: dict[str, Any] | None = evidence.read_evidence(self._journal.path)
        return found

    def checkpoint_if_due(self, save_world: Callable[[], Any]) -> None:
        if self._checkpoints is not None:
            if self._checkpoints.is_due(self._journal.size):
                self.checkpoint(save_world)
            else:
                self._checkpoints.keep_up(self._journal)

    def checkpoint(self, save_world: Callable[[], Any]) -> None:
        """Write a checkpoint: between two steps of the machine, with all notes recorded."""
        if self._checkpoints is None or self._machine.ended:
            return
        self._checkpoints.write(
            self._journal,
            {
                "image": self._run.image_name,
                "begun": self._begun,
                "ts": self._journal.now(),
                "active_ms": self._elapsed_ms(),
                **self.effects.under_way(),
                "doubtful": self._doubtful(),
                "progress": self._progress.to_data(),
                "world": save_world(),
                "snapshot": self._machine.snapshot(),
            },
        )

    def last_event(self, event: Event) -> None:
        self._journal.record(event)

    def ended(self, status: str) -> None:
        """The run has ended and its last event is on disk: remove what only a resume needs."""
        if self._checkpoints is not None:
            self._checkpoints.finish(self._journal)
        self._active.finish()
        self._state_file.save(status)

    def interrupted(self, save_world: Callable[[], Any], has_checkpoint: bool) -> None:
        """The run was interrupted and its last event is on disk: write what a resume needs.

        has_checkpoint: not where the machine was given up between two of its steps.
        """
        if has_checkpoint:
            self.checkpoint(save_world)
        self._active.finish()
        self._state_file.save("interrupted")
