"""Threads, locks and queues."""

from __future__ import annotations

from . import load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from queue import Empty, SimpleQueue
    from threading import Lock, Semaphore, Thread, current_thread
    from typing import Any
else:
    # Same function as `threading.Lock`: importing `threading` takes a millisecond, and every run needs a
    # lock.
    from _thread import allocate_lock as Lock

    def __getattr__(name: str) -> Any:
        return load(globals(), _DEFERRED, name)


_DEFERRED = {"queue": ("Empty", "SimpleQueue"), "threading": ("Semaphore", "Thread", "current_thread")}
