"""Live data of one run: its updates so far, merged for each viewer into what is new to it.

All viewers of a run share one `RunModel`, so a journal is read once, however many pages show it.
"""

from __future__ import annotations

from typing import Any

from ..host import clock, environment, files
from ..host.paths import ROOT
from ..journal.codec import strict_json
from ..journal.run_folder import RunFolder
from ..recordings.find import RunFiles
from ..report.model import RunModel, as_data
from ..runs.locks import is_live

# Seconds after which the bars of the effects that work are drawn up to now.
_TICK_S = 1.0


class Feed:
    """The data of a run at each of its versions, which count from 1. Close it.

    stamp: names this feed, since versions of another one mean something else. Raises ReadError where the
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
        # The diagram as it was drawn last, after the program, and the version that has it.
        self._svg = 0, ""
        # Of each version the first position that changed, and the number of values before it.
        self._begins: list[tuple[int, int]] = []
        self._size = -1
        self._read_at = 0.0
        # Updates to the version now as JSON, by the version before: most viewers have the same one.
        self._updates: dict[int, bytes] = {}

    def close(self) -> None:
        self._model.close()

    @property
    def version(self) -> int:
        return len(self._begins)

    @property
    def is_live(self) -> bool:
        """Whether a process executed the run when it was read last."""
        return bool(self._head["run"]["status"] == "running")

    @property
    def is_there(self) -> bool:
        """Whether the run is where it was last."""
        return files.isdir(self._model.run.folder)

    def refresh(self) -> None:
        """Read what is new, if the run changed or time has passed in it. Raises JournalError."""
        self.used_at = clock.monotonic()
        # In this order: a run that has released its lock writes nothing more.
        alive = is_live(RunFolder(ROOT, self._model.run.folder))
        try:
            size = files.stat(self._model.run.journal).st_size
        except OSError:  # the folder is being moved to the history
            size = -1
        is_late = self.used_at - self._read_at >= _TICK_S if alive else bool(self._begins) and self.is_live
        if size != self._size or is_late:
            self._size, self._read_at = size, self.used_at
            self._add(self._model.update())

    def _add(self, update: dict[str, Any]) -> None:
        self._updates.clear()
        self._begins.append((update["from"], len(self._values)))
        self._program = update.pop("program", self._program)
        del self._steps[update["from"] :]
        self._steps += update.pop("steps")
        self._values += update.pop("values")
        if "svg" in update:
            self._svg = self.version, update.pop("svg")
        self._head = update

    def since(self, version: int) -> dict[str, Any]:
        """The update from an earlier version to this one, as `RunModel.update` gives it; 0 is before all."""
        first, count = len(self._steps), len(self._values)
        if version < self.version:
            first = min(begin for begin, _ in self._begins[version:])
            count = self._begins[version][1]
        found = {**self._head, "from": first, "steps": self._steps[first:]}
        found |= {"first_value": count, "values": self._values[count:]}
        since, svg = self._svg
        newer = {"svg": svg} if version < since else {}
        return {**found, **newer} if version else {**found, "program": {**self._program, **newer}}

    def json_since(self, version: int) -> bytes:
        """The update from an earlier version as JSON, values included."""
        if version not in self._updates:
            self._updates[version] = strict_json(as_data(self.since(version)))
        return self._updates[version]
