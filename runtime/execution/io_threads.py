"""Thread pool: threads are reused, and end after some idle time.

Starting a thread takes longer than a short action; waking an idle one does not. Idle threads end after a
while, so that a process that only waits has only its main thread.
"""

from __future__ import annotations

from ..host import threads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# Seconds until an idle thread ends.
LINGER = 1.0


class Threads:
    """A pool of at most `max_threads` threads, started on demand. Work must not raise."""

    def __init__(self, max_threads: float = float("inf")) -> None:
        self._max_threads = max_threads
        self._lock = threads.Lock()
        self._queue: threads.SimpleQueue[Callable[[], object] | None] = threads.SimpleQueue()
        self._threads: set[threads.Thread] = set()
        # Idle threads minus queued work.
        self._free = 0

    def do(self, work: Callable[[], object]) -> None:
        """Queue work; it starts in the order of the calls."""
        thread = None
        with self._lock:
            self._free -= 1
            if self._free < 0 and len(self._threads) < self._max_threads:
                self._free += 1
                thread = threads.Thread(target=self._serve, daemon=True)
                self._threads.add(thread)
        self._queue.put(work)
        if thread is not None:
            thread.start()

    def _serve(self) -> None:
        """Execute queued work. Runs in a thread of the pool."""
        while True:
            try:
                work = self._queue.get(timeout=LINGER)
            except threads.Empty:
                with self._lock:
                    if self._free <= 0:  # `do` is about to queue work
                        continue
                    self._free -= 1
                    self._threads.discard(threads.current_thread())
                    return
            if work is None:
                return
            work()
            del work
            with self._lock:
                self._free += 1

    def dismiss(self) -> list[threads.Thread]:
        """Let the threads end after the queued work; returns them without waiting. Accepts no more work."""
        with self._lock:
            ending = list(self._threads)
            self._free = 0
        for _ in ending:
            self._queue.put(None)
        return ending

    def close(self) -> None:
        """Wait until all queued work is done. No work may be added after that."""
        for thread in self.dismiss():
            thread.join()
