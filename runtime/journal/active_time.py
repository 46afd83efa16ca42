"""Active time of a run: the time in which a process was executing it.

Each result in the journal says it. Between two events the file `active` in the run's folder is rewritten
with it several times a second, so that a kill during a long action loses none of its time. The file also
has the length of the journal that is on disk, before each action and when the run stops or ends: a journal
that is shorter was truncated. The file may be lost; the journal alone serves then.
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
EVERY = 0.25
_LONGEST = 256


class ActiveTime(LightRecord):
    """Active time by the events of a journal, added in order: what they say themselves, else time stamps."""

    _ms: int = 0
    _since: float | None = None
    _until: float | None = None

    def set(self, ms: int, moment: float | None) -> None:
        """At that moment the active time was `ms`."""
        self._ms = max(self._ms, ms)
        self._since = self._until = moment

    def stop(self) -> None:
        """The time up to the next event is not active: the run was resumed there."""
        self._ms = self.total()
        self._since = None

    def reach(self, moment: float | None, active_ms: int | None = None) -> None:
        """An event at that moment, which may say the active time itself."""
        if active_ms is not None:
            self.set(active_ms, moment)
        elif moment is not None:
            self._since = moment if self._since is None else self._since
            self._until = moment

    def total(self, now: float | None = None) -> int:
        """Milliseconds up to the last event, or up to `now` for a run that is active."""
        until = self._until if now is None else now
        if self._since is None or until is None:
            return self._ms
        return self._ms + max(0, round((until - self._since) * 1000))


_LINE = b'{"event":"active","elapsed_ms":%d,"size":%d,"lines":%d'


class ActiveFile:
    """The file with the active time of a live run between two events, and the length of its journal.

    elapsed_ms(): the time. synced(): bytes and lines of the journal that are on disk. Errors in writing it
    are ignored.
    """

    def __init__(
        self, folder: str, elapsed_ms: Callable[[], int], synced: Callable[[], tuple[int, int]]
    ) -> None:
        self._path = os.path.join(folder, FILE)
        self._elapsed_ms = elapsed_ms
        self._synced = synced
        self._fd = -1
        self._next = clock.monotonic() + EVERY

    def tick(self) -> None:
        """Write the file if it is due; the driver calls this several times a second."""
        if clock.monotonic() >= self._next:
            self.write()

    def write(self) -> None:
        """Write the file now."""
        self._next = clock.monotonic() + EVERY
        size, lines = self._synced()
        # The numbers only grow, so the new line covers the old one.
        # Without the JSON encoder: it is written before each action.
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
        """Write it for the last time: the whole journal is on disk."""
        self.write()
        self.close()


def discard(folder: str) -> None:
    """Remove the file in a run's folder: the journal may be shorter from now on."""
    with suppress(OSError):
        files.unlink(os.path.join(folder, FILE))


class Saved(LightRecord):
    """What the file has: the active time in milliseconds, bytes and lines of the journal; 0 for unknown."""

    ms: int = 0
    size: int = 0
    lines: int = 0


def read(folder: str) -> Saved:
    """The file of a run's folder; all is unknown where it is missing or damaged."""
    try:
        with open_regular(os.path.join(folder, FILE)) as file:
            event = unseal(file.read(_LONGEST).partition(b"\n")[0])
    except OSError:
        return Saved()
    if event is None or event["event"] != FILE:
        return Saved()
    numbers = (event.get(name) for name in ("elapsed_ms", "size", "lines"))
    return Saved(*(number if type(number) is int and 0 <= number < 1e15 else 0 for number in numbers))
