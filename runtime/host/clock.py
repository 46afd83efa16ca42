"""Time: wall clock, monotonic clock, sleep, and their text forms."""

from __future__ import annotations

from time import (
    gmtime,
    localtime,
    monotonic,
    monotonic_ns,
    perf_counter,
    sleep,
    strftime,
    strptime,
    time,
    time_ns,
)

__all__ = [
    "gmtime",
    "localtime",
    "monotonic",
    "monotonic_ns",
    "perf_counter",
    "sleep",
    "strftime",
    "strptime",
    "time",
    "time_ns",
    "timestamp",
]


def timestamp(seconds: float) -> str:
    """A time since 1970 as journals have it: UTC, ISO 8601 with milliseconds."""
    whole, ms = divmod(int(seconds * 1000), 1000)
    return f"{strftime('%Y-%m-%dT%H:%M:%S', gmtime(whole))}.{ms:03}Z"
