"""Live data of one run: versions of its model, and the update from any earlier version to the current one.

All viewers of a run share one `RunModel`, so that its journal is read only once.
"""

from __future__ import annotations

from typing import Any

from ..host import clock, environment, files
from ..host.paths import ROOT
from ..journal.codec import strict_json
from ..journal.run_folder import RunFolder
from ..recordings.find import RunFiles
from ..report.model import RunModel, as_data
from ..runs.run_lock import is_live

# Interval in seconds of updates without new events, which extend the bars of active effects.
_TICK_S = 1.0


class Feed:
    """The data of a run in all its versions, numbered from 1. Must be closed.

    stamp: id of this feed; the version numbers of another feed have another meaning. Raises ReadError if the
    journal cannot be opened.
    """

    def __init__(self, run: RunFolder) -> None:
        self.stamp = environment.urandom(8).hex()
        self.used_at = 0.0
        self._model = RunModel(RunFiles.of(run))
        self._steps: list[dict[str, Any]] = []
        self._values: list[bytes] = []
        self._head: dict[str, Any] = {}
        self._program: dict[str, Any] = {}
        # The version with the last drawing of the diagram, and the drawing.
        self._svg = 0, ""
        # By version: the first changed position, and the number of values before the version.
        self._changes: list[tuple[int, int]] = []
        self._size = -1
        self._read_at = 0.0
        # Updates to the current version as JSON, by old version: most viewers have the same old version.
        self._updates: dict[int, bytes] = {}

    def close(self) -> None:
        self._model.close()

    @property
    def version(self) -> int:
        return len(self._changes)

    @property
    def is_live(self) -> bool:
        """Whether a process drove the run at the last refresh."""
        return bool(self._head["run"]["status"] == "running")

    @property
    def has_folder(self) -> bool:
        """Whether the folder of the run still exists at its last path."""
        return files.isdir(self._model.run.folder)

    def refresh(self) -> None:
        """Add a version if the journal has grown or a tick has passed. Raises JournalError."""
        self.used_at = clock.monotonic()
        # Check the lock before the size: a run that has released its lock writes nothing more.
        alive = is_live(RunFolder(ROOT, self._model.run.folder))
        try:
            size = files.stat(self._model.run.journal).st_size
        except OSError:  # the folder is being moved to the history
            size = -1
        if alive:
            is_due = self.used_at - self._read_at >= _TICK_S
        else:  # the run has ended since the last refresh
            is_due = bool(self._changes) and self.is_live
        if size != self._size or is_due:
            self._size, self._read_at = size, self.used_at
            self._add(self._model.update())

    def _add(self, update: dict[str, Any]) -> None:
        self._updates.clear()
        self._changes.append((update["from"], len(self._values)))
        self._program = update.pop("program", self._program)
        del self._steps[update["from"] :]
        self._steps += update.pop("steps")
        self._values += update.pop("values")
        if "svg" in update:
            self._svg = self.version, update.pop("svg")
        self._head = update

    def since(self, version: int) -> dict[str, Any]:
        """The update from an earlier version to the current one, in the form of `RunModel.update`.

        version: 0 for all data.
        """
        first, count = len(self._steps), len(self._values)
        if version < self.version:
            first = min(position for position, _ in self._changes[version:])
            count = self._changes[version][1]
        update = {**self._head, "from": first, "steps": self._steps[first:]}
        update |= {"first_value": count, "values": self._values[count:]}
        drawn_version, svg = self._svg
        drawing = {"svg": svg} if version < drawn_version else {}
        return {**update, **drawing} if version else {**update, "program": {**self._program, **drawing}}

    def json_since(self, version: int) -> bytes:
        """The update from an earlier version as JSON, values included."""
        if version not in self._updates:
            self._updates[version] = strict_json(as_data(self.since(version)))
        return self._updates[version]
