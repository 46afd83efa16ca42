"""Waiting for a condition, and the state of processes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def wait_for(condition: Callable[[], T], *, interval_s: float = 0.01) -> T:
    """Call a condition until it is true, for at most two minutes; return its value."""
    deadline = time.monotonic() + 120
    while not (value := condition()):
        assert time.monotonic() < deadline, "timed out"
        time.sleep(interval_s)
    return value


def is_running(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
