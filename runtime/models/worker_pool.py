"""Pool of helper processes that answer concurrent calls, for the many runs of one process.

A model client takes a second to import and tens of megabytes, so each helper answers several calls in its own
threads. The pool does not wait for an abandoned call. The helper, which may hang in it, gets no new calls
until that call has ended; it is killed when no other call waits for it.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections import deque

from ..host import clock, files, pipes, processes, threads
from ..host.effect_context import Interrupt, milliseconds
from .helper_process import MAX_ANSWER, START_LIMIT, Worker, WorkerEnded, WorkerTimeout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


# Maximum number of concurrent calls per helper. Importing a client takes as long as a hundred calls.
MAX_CALLS = 50
# Command-line argument that makes a helper answer concurrent calls.
CONCURRENT_ARGUMENT = "many"
# Kinds of messages to a call.
_READY, _PART, _ANSWER, _ENDED = "ready", "part", "answer", "ended"
_CHUNK_BYTES = 1 << 16


class _Call:
    """A call in its own thread; receives messages from the thread that reads the helper's output."""

    def __init__(self) -> None:
        self.messages: deque[tuple[str, Any]] = deque()
        self._read, self._write = pipes.pipe()
        pipes.set_blocking(self._write, False)

    def post(self, kind: str, payload: Any) -> None:
        self.messages.append((kind, payload))
        with contextlib.suppress(OSError):
            files.write(self._write, b"!")

    def wait(self, deadline: float, interrupt: Interrupt, write: int = -1) -> bool:
        """Wait for a message or, unless `write` is -1, until this descriptor is writable.

        Return whether it is writable. Raises `WorkerTimeout` and `Interrupted`.
        """
        poller = pipes.poll()
        poller.register(self._read, pipes.POLLIN)
        poller.register(interrupt, pipes.POLLIN)
        if write >= 0:
            poller.register(write, pipes.POLLOUT)
        interrupt.check()
        remaining = deadline - clock.monotonic()
        if remaining <= 0:
            raise WorkerTimeout
        ready = [descriptor for descriptor, _ in poller.poll(milliseconds(remaining))]
        interrupt.check()
        if self._read in ready:
            files.read(self._read, 1 << 10)
        return write in ready

    def close(self) -> None:
        files.close(self._read)
        files.close(self._write)


class _Helper:
    """A helper process and its current calls. abandoned: numbers of calls that no thread waits for."""

    def __init__(self, module: str, env: Mapping[bytes, bytes]) -> None:
        self.worker = Worker(module, env, CONCURRENT_ARGUMENT)
        self.calls: dict[int, _Call] = {}
        self.abandoned: set[int] = set()
        self.is_ready = self.has_ended = False
        self._write_lock = threads.Lock()
        self._lock = threads.Lock()
        self._last_number = 0
        self.worker.start()
        self._reader = threads.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def has_capacity(self) -> bool:
        return not self.has_ended and not self.abandoned and len(self.calls) < MAX_CALLS

    def begin(self) -> tuple[int, _Call]:
        call = _Call()
        with self._lock:
            self._last_number += 1
            self.calls[self._last_number] = call
            if self.is_ready:
                call.post(_READY, None)
            if self.has_ended:
                call.post(_ENDED, "it has ended")
            return self._last_number, call

    def end(self, number: int, is_answered: bool, was_sent: bool) -> None:
        """Remove a call; if it was sent but not answered, the helper still works on it."""
        with self._lock:
            call = self.calls.pop(number)
            if was_sent and not is_answered and not self.has_ended:
                self.abandoned.add(number)
            call.close()

    def send(self, line: bytes, call: _Call, deadline: float, interrupt: Interrupt) -> None:
        """Send a line. Raises the exceptions of `Worker.ask`; a partly sent line kills the helper."""
        rest = memoryview(line)
        while not self._write_lock.acquire(timeout=0.05):
            interrupt.check()
            if clock.monotonic() >= deadline:
                raise WorkerTimeout
        try:
            while rest and not self.has_ended:
                if call.wait(deadline, interrupt, self.worker.requests):
                    with contextlib.suppress(BlockingIOError, BrokenPipeError):
                        rest = rest[files.write(self.worker.requests, rest[:_CHUNK_BYTES]) :]
        finally:
            if 0 < len(rest) < len(line):
                self.kill()
            self._write_lock.release()

    def _read(self) -> None:
        """Main function of the reader thread: pass the helper's messages to the calls."""
        rest = bytearray()
        error = ""
        while data := files.read(self.worker.answers, _CHUNK_BYTES):
            rest += data
            if b"\n" in data:
                *lines, rest = rest.split(b"\n")
                for line in lines:
                    self._dispatch(json.loads(line))
            if len(rest) > MAX_ANSWER:
                error = f"its answer is longer than {MAX_ANSWER >> 20} MiB"
                break
        with self._lock:
            self.has_ended = True
            self.worker.kill()
            exit_reason = self.worker.reap()
            for call in self.calls.values():
                call.post(_ENDED, error or exit_reason)

    def _dispatch(self, message: Any) -> None:
        with self._lock:
            if not message:
                self.is_ready = True
                for call in self.calls.values():
                    call.post(_READY, None)
                return
            number, kind, payload = message
            if kind == _ANSWER:
                self.abandoned.discard(number)
            if number in self.calls:
                self.calls[number].post(kind, payload)

    def kill(self) -> None:
        with self._lock:
            if not self.has_ended:
                self.worker.kill()

    def close(self) -> None:
        self.kill()
        self._reader.join()
        with self._write_lock:
            self.worker.close()


class SharedWorker:
    """Handle to the helpers of one module, with the interface of `Worker`; for one thread at a time."""

    def __init__(self, shared: SharedWorkers, module: str) -> None:
        self._shared = shared
        self._module = module

    def start(self) -> None:
        """Start a helper if none is running, without waiting until it is ready."""
        self._shared.helper(self._module)

    def ready(
        self, seconds: float, interrupt: Interrupt, on_tick: Callable[[], object] | None = None
    ) -> None:
        """Wait until a helper is ready. Raises the exceptions of `ask`."""
        helper = self._shared.helper(self._module)
        if helper.is_ready:
            return
        deadline = clock.monotonic() + min(seconds, START_LIMIT)
        number, call = helper.begin()
        try:
            while not helper.is_ready:
                call.wait(deadline, interrupt)
                for kind, payload in list(call.messages):
                    if kind == _ENDED:
                        raise WorkerEnded(payload)
        finally:
            helper.end(number, is_answered=False, was_sent=False)

    def ask(
        self,
        request: dict[str, Any],
        seconds: float,
        interrupt: Interrupt,
        on_tick: Callable[[], object] | None = None,
        on_part: Callable[[Any], object] | None = None,
    ) -> dict[str, Any]:
        """Send a request and return its answer; see `Worker.ask`. The helper keeps running in any case."""
        helper = self._shared.helper(self._module)
        deadline = clock.monotonic() + seconds
        number, call = helper.begin()
        is_answered = was_sent = False
        try:
            helper.send(json.dumps([number, request]).encode() + b"\n", call, deadline, interrupt)
            was_sent = True
            while True:
                while call.messages:
                    kind, payload = call.messages.popleft()
                    if kind == _ANSWER:
                        is_answered = True
                        answer: dict[str, Any] = payload
                        return answer
                    if kind == _ENDED:
                        raise WorkerEnded(payload)
                    if kind == _PART and on_part is not None:
                        on_part(payload)
                call.wait(deadline, interrupt)
        finally:
            helper.end(number, is_answered, was_sent)

    def close(self) -> None:
        """Do nothing: other runs may use the helpers, and `SharedWorkers.close` closes them all."""


class SharedWorkers:
    """The helpers that all runs of this process share."""

    def __init__(self, env: Mapping[bytes, bytes]) -> None:
        self._env = env
        self._helpers: dict[str, list[_Helper]] = {}
        self._lock = threads.Lock()

    def worker(self, module: str) -> SharedWorker:
        return SharedWorker(self, module)

    def helper(self, module: str) -> _Helper:
        """A helper with capacity for a call; started if necessary. Raises WorkerEnded if the start fails."""
        with self._lock:
            helpers = self._helpers.setdefault(module, [])
            for helper in list(helpers):
                if helper.has_ended or (helper.abandoned and not helper.calls):
                    helpers.remove(helper)
                    helper.close()
            available = next((helper for helper in helpers if helper.has_capacity), None)
            if available is None:
                available = _Helper(module, self._env)
                helpers.append(available)
            return available

    def close(self) -> None:
        """Kill all helpers."""
        for helpers in self._helpers.values():
            for helper in helpers:
                helper.close()
        self._helpers.clear()


def serve_concurrently(answer: Callable[[dict[str, Any], Callable[[Any], None]], dict[str, Any]]) -> None:
    """Main loop of a helper: report that it is ready, then answer each request in its own thread."""
    answers = files.open(pipes.dup(1), "wb")
    pipes.dup2(2, 1)
    lock = threads.Lock()

    def send(*message: Any) -> None:
        line = json.dumps(message).encode() + b"\n"
        with lock:
            answers.write(line)
            answers.flush()

    def handle(number: int, request: dict[str, Any]) -> None:
        send(number, _ANSWER, answer(request, lambda part: send(number, _PART, part)))

    send()
    for line in sys.stdin.buffer:
        number, request = json.loads(line)
        threads.Thread(target=handle, args=(number, request), daemon=True).start()
    processes.exit_now(0)  # the pipe is closed, so the run has ended
