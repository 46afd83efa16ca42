"""Threads that do what they are given, and stay for a while.

To start a thread takes longer than a short action does, and to let one that sleeps go on does not. One
that had nothing to do for a while ends, so that a process that only waits has no thread but its own.
"""

from __future__ import annotations

import queue
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# For so many seconds a thread waits for more to do.
LINGER = 1.0


class Threads:
    """At most so many, as many as there is something to do for. What they do raises nothing."""

    def __init__(self, most: float = float("inf")) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._wanted: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._threads: set[threading.Thread] = set()
        # How many have nothing to do, less what nobody does yet.
        self._free = 0

    def do(self, work: Callable[[], object]) -> None:
        """Have it done, in the order of asking."""
        thread = None
        with self._lock:
            self._free -= 1
            if self._free < 0 and len(self._threads) < self._most:
                self._free += 1
                thread = threading.Thread(target=self._serve, daemon=True)
                self._threads.add(thread)
        self._wanted.put(work)
        if thread is not None:
            thread.start()

    def _serve(self) -> None:
        """In a thread."""
        while True:
            try:
                work = self._wanted.get(timeout=LINGER)
            except queue.Empty:
                with self._lock:
                    if self._free <= 0:  # there will be something in a moment
                        continue
                    self._free -= 1
                    self._threads.discard(threading.current_thread())
                    return
            if work is None:
                return
            work()
            del work
            with self._lock:
                self._free += 1

    def dismiss(self) -> list[threading.Thread]:
        """Nothing more is asked for: they end when what was is done. Does not wait for that."""
        with self._lock:
            threads = list(self._threads)
            self._free = 0
        for _ in threads:
            self._wanted.put(None)
        return threads

    def close(self) -> None:
        """Wait until all is done; nothing more is asked for."""
        for thread in self.dismiss():
            thread.join()
