"""Time: wall clock, monotonic clock, sleep, and their text forms."""

from __future__ import annotations

from time import (
    gmtime,
    localtime,
    mktime,
    monotonic,
    monotonic_ns,
    perf_counter,
    sleep,
    strftime,
    strptime,
    time,
    time_ns,
)

# Cache of the last second and its text: formatting the second is the main cost of a timestamp.
_second = -1, ""
# Cache of the last time and its timestamp: a scripted clock does not advance between two results.
_latest = -1.0, ""


def timestamp(seconds: float) -> str:
    """Format seconds since 1970 as ISO 8601 in UTC with milliseconds: `2024-01-15T10:30:00.000Z`."""
    global _second, _latest
    if seconds == _latest[0]:
        return _latest[1]
    whole, milli = divmod(int(seconds * 1000), 1000)
    second, text = _second
    if second != whole:
        text = strftime("%Y-%m-%dT%H:%M:%S", gmtime(whole))
        _second = whole, text
    _latest = seconds, f"{text}.{milli:03d}Z"
    return _latest[1]
