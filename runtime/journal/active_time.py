"""Active time of a run: the time during which a process executed the run.

Each result in the journal contains the active time. Between two events the file `active` in the folder of the
run is rewritten several times a second, so that a kill during a long action does not lose the time of the
action. The file also contains the durable length of the journal, updated before each action and when the run
stops or
ends: a shorter journal was truncated. The file is optional; without it the journal alone is used.
"""

from __future__ import annotations

import os.path

from ...ir.light_records import LightRecord
from ...ir.python_internals import suppress
from ..host import clock, files
from ..host.paths import open_regular, regular_handle
from .codec import seal_json, unseal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

FILE = "active"
# Seconds between two writes of the file.
WRITE_INTERVAL_S = 0.25
_MAX_FILE_BYTES = 256


class ActiveTime(LightRecord):
    """Active time from the events of a journal: recorded values, otherwise differences of timestamps."""

    _ms: int = 0
    _since: float | None = None
    _until: float | None = None

    def set(self, ms: int, moment: float | None) -> None:
        """Set the active time at a moment."""
        self._ms = max(self._ms, ms)
        self._since = self._until = moment

    def stop(self) -> None:
        """Exclude the time until the next event: the run was resumed there."""
        self._ms = self.total()
        self._since = None

    def reach(self, moment: float | None, active_ms: int | None = None) -> None:
        """Add an event. active_ms: active time recorded in the event, or None."""
        if active_ms is not None:
            self.set(active_ms, moment)
        elif moment is not None:
            self._since = moment if self._since is None else self._since
            self._until = moment

    def total(self, now: float | None = None) -> int:
        """Return the milliseconds until the last event, or until `now` for an active run."""
        until = self._until if now is None else now
        if self._since is None or until is None:
            return self._ms
        return self._ms + max(0, round((until - self._since) * 1000))


_LINE = b'{"event":"active","elapsed_ms":%d,"size":%d,"lines":%d'


class ActiveFile:
    """Writer of the file `active`: active time of a live run, and durable length of its journal.

    elapsed_ms: returns the active time. synced: returns the bytes and lines of the journal that are on disk.
    Write errors are ignored.
    """

    def __init__(
        self, folder: str, elapsed_ms: Callable[[], int], synced: Callable[[], tuple[int, int]]
    ) -> None:
        self._path = os.path.join(folder, FILE)
        self._elapsed_ms = elapsed_ms
        self._synced = synced
        self._fd = -1
        self._next = clock.monotonic() + WRITE_INTERVAL_S

    def tick(self) -> None:
        """Write the file if it is due; the driver calls this several times a second."""
        if clock.monotonic() >= self._next:
            self.write()

    def write(self) -> None:
        """Write the file now."""
        self._next = clock.monotonic() + WRITE_INTERVAL_S
        size, lines = self._synced()
        # The numbers never decrease, so the new line overwrites the old line completely. The JSON encoder is
        # not used, because the file is written before each action.
        line = seal_json(_LINE % (self._elapsed_ms(), size, lines))
        with suppress(OSError):
            if self._fd < 0:
                self._fd = regular_handle(self._path, files.O_WRONLY | files.O_CREAT)
            files.pwrite(self._fd, line, 0)

    def close(self) -> None:
        if self._fd >= 0:
            files.close(self._fd)
            self._fd = -1

    def finish(self) -> None:
        """Write the file for the last time, after the whole journal is on disk, and close it."""
        self.write()
        self.close()


def discard(folder: str) -> None:
    """Remove the file in the folder of a run, because its journal will be shortened."""
    with suppress(OSError):
        files.unlink(os.path.join(folder, FILE))


class Saved(LightRecord):
    """Contents of the file: active time in milliseconds, bytes and lines of the journal; 0: unknown."""

    ms: int = 0
    size: int = 0
    lines: int = 0


def read(folder: str) -> Saved:
    """Read the file in the folder of a run; all values are 0 if it is missing or damaged."""
    try:
        with open_regular(os.path.join(folder, FILE)) as file:
            event = unseal(file.read(_MAX_FILE_BYTES).partition(b"\n")[0])
    except OSError:
        return Saved()
    if event is None or event["event"] != FILE:
        return Saved()
    numbers = (event.get(name) for name in ("elapsed_ms", "size", "lines"))
    return Saved(*(number if type(number) is int and 0 <= number < 1e15 else 0 for number in numbers))
