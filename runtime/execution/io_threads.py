"""Thread pool: threads are reused, and end after a while without work.

To start a thread takes longer than a short action does, and to let one that sleeps go on does not. One
that had nothing to do for a while ends, so that a process that only waits has no thread but its own.
"""

from __future__ import annotations

from ..host import threads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# Seconds that an idle thread waits for more work.
LINGER = 1.0


class Threads:
    """A pool of at most `most` threads, started on demand. Work must not raise."""

    def __init__(self, most: float = float("inf")) -> None:
        self._most = most
        self._lock = threads.Lock()
        self._wanted: threads.SimpleQueue[Callable[[], object] | None] = threads.SimpleQueue()
        self._threads: set[threads.Thread] = set()
        # Idle threads minus queued work.
        self._free = 0

    def do(self, work: Callable[[], object]) -> None:
        """Have it done, in the order of asking."""
        thread = None
        with self._lock:
            self._free -= 1
            if self._free < 0 and len(self._threads) < self._most:
                self._free += 1
                thread = threads.Thread(target=self._serve, daemon=True)
                self._threads.add(thread)
        self._wanted.put(work)
        if thread is not None:
            thread.start()

    def _serve(self) -> None:
        """In a thread."""
        while True:
            try:
                work = self._wanted.get(timeout=LINGER)
            except threads.Empty:
                with self._lock:
                    if self._free <= 0:  # there will be something in a moment
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
        """Nothing more is asked for: they end when what was is done. Does not wait for that."""
        with self._lock:
            ours = list(self._threads)
            self._free = 0
        for _ in ours:
            self._wanted.put(None)
        return ours

    def close(self) -> None:
        """Wait until all is done; nothing more is asked for."""
        for thread in self.dismiss():
            thread.join()
