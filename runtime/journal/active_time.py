"""How long a run has been active; time in which nobody ran it does not count.

The journal tells it with each result. While nothing happens that it tells of, the file `active` in the
run's folder does, again and again, so that a kill in the middle of a long action gives none of its time
back. It may be lost: the journal's own account serves then.
"""

from __future__ import annotations

import contextlib
import os.path
import re
from functools import lru_cache

from ..host import clock, files
from .journal import seal, unseal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

FILE = "active"
# Seconds between two writes of the file.
EVERY = 0.25
_LONGEST = 256
_ENDS = ("action_complete", "effect_complete")
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d):(\d\d):(\d\d)\.(\d{3})Z")


class ActiveTime:
    """By a journal, whose events are added in their order: what they say themselves, else their times."""

    __slots__ = ("_ms", "_since", "_until")

    def __init__(self) -> None:
        self._ms = 0
        self._since: float | None = None
        self._until: float | None = None

    def known(self, ms: int, moment: float | None) -> None:
        """At that moment it had been active for so long."""
        self._ms = max(self._ms, ms)
        self._since = self._until = moment

    def add(self, event: dict[str, Any]) -> None:
        moment = seconds(event.get("ts"))
        if event["event"] == "run_resume":
            self._ms = self.total()
            self._since = None
        if moment is not None:
            self._since = moment if self._since is None else self._since
            self._until = moment
        ms = elapsed_of(event)
        if ms is not None:
            self.known(ms, moment)

    def total(self, now: float | None = None) -> int:
        """Milliseconds, up to the last event; up to `now` where the run goes on."""
        until = self._until if now is None else now
        if self._since is None or until is None:
            return self._ms
        return self._ms + max(0, round((until - self._since) * 1000))


def elapsed_of(event: dict[str, Any]) -> int | None:
    """The run's active time in milliseconds as an event tells it."""
    kind = event["event"]
    result = event.get("result")
    ms: Any = None
    if kind in _ENDS and isinstance(result, dict):
        ms = result.get("elapsed_ms")
    elif kind in ("run_interrupted", "run_end"):
        ms = event.get("duration_ms")
    elif kind == "run_resume":
        ms = event.get("elapsed_ms")
    return ms if type(ms) is int and 0 <= ms < 1e15 else None


def seconds(ts: Any) -> float | None:
    """Seconds since 1970 for a time stamp of a journal; None for what is none."""
    match = _TIME.fullmatch(ts) if isinstance(ts, str) else None
    if match is None:
        return None
    day = _day(match[1])
    if day is None:
        return None
    return day + int(match[2]) * 3600 + int(match[3]) * 60 + int(match[4]) + int(match[5]) / 1000


@lru_cache(16)
def _day(text: str) -> int | None:
    import calendar

    try:
        return calendar.timegm(clock.strptime(text, "%Y-%m-%d"))
    except (ValueError, OverflowError):
        return None


class ActiveFile:
    """What a living run says of its active time between two words of its journal; `elapsed_ms()` gives it.

    A file that cannot be written is done without.
    """

    __slots__ = ("_elapsed_ms", "_fd", "_next", "_path")

    def __init__(self, folder: str, elapsed_ms: Callable[[], int]) -> None:
        self._path = os.path.join(folder, FILE)
        self._elapsed_ms = elapsed_ms
        self._fd = -1
        self._next = clock.monotonic() + EVERY

    def tick(self) -> None:
        """Write it if that is due; to be called often."""
        now = clock.monotonic()
        if now < self._next:
            return
        self._next = now + EVERY
        # It only grows, so what is there is written over as a whole.
        line = seal({"event": FILE, "elapsed_ms": self._elapsed_ms()})
        with contextlib.suppress(OSError):
            if self._fd < 0:
                self._fd = files.open_handle(self._path, files.O_WRONLY | files.O_CREAT, 0o600)
            files.pwrite(self._fd, line, 0)

    def close(self) -> None:
        if self._fd >= 0:
            files.close(self._fd)
            self._fd = -1

    def discard(self) -> None:
        """Remove it: the run has ended."""
        self.close()
        discard(os.path.dirname(self._path))


def discard(folder: str) -> None:
    """Remove the file in a run's folder."""
    with contextlib.suppress(OSError):
        files.unlink(os.path.join(folder, FILE))


def told(folder: str) -> int:
    """What the file in a run's folder says; 0 where there is none to be trusted."""
    try:
        with files.open(os.path.join(folder, FILE), "rb") as file:
            event = unseal(file.read(_LONGEST).partition(b"\n")[0])
    except OSError:
        return 0
    ms = event.get("elapsed_ms") if event is not None and event["event"] == FILE else None
    return ms if type(ms) is int and 0 <= ms < 1e15 else 0
