"""Helper processes that answer many at once: the clients of models, where many runs share a process of ours.

A client takes a second to import and tens of megabytes, so where many calls are made at once each helper
answers several, in threads of its own. An abandoned call is not waited for; its helper, which may hang
in it, gets no new calls until that call is over, and is ended when no call waits for it.
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


# Calls that one helper answers at once: to import a client takes as long as a hundred of its calls.
AT_ONCE = 50
# The argument that makes a helper answer many calls.
MANY = "many"
_READY, _PART, _ANSWER, _ENDED = "ready", "part", "answer", "ended"
_CHUNK = 1 << 16


class _Call:
    """One that waits, in its own thread, for what the thread that reads has for it."""

    def __init__(self) -> None:
        self.messages: deque[tuple[str, Any]] = deque()
        self._read, self._write = pipes.pipe()
        pipes.set_blocking(self._write, False)

    def tell(self, what: str, about: Any) -> None:
        self.messages.append((what, about))
        with contextlib.suppress(OSError):
            files.write(self._write, b"!")

    def wait(self, end: float, interrupt: Interrupt, write: int = -1) -> bool:
        """Until there is a message or, where `write` is given, room for more; whether there is room."""
        poller = pipes.poll()
        poller.register(self._read, pipes.POLLIN)
        poller.register(interrupt, pipes.POLLIN)
        if write >= 0:
            poller.register(write, pipes.POLLOUT)
        interrupt.check()
        left = end - clock.monotonic()
        if left <= 0:
            raise WorkerTimeout
        ready = [descriptor for descriptor, _ in poller.poll(milliseconds(left))]
        interrupt.check()
        if self._read in ready:
            files.read(self._read, 1 << 10)
        return write in ready

    def close(self) -> None:
        files.close(self._read)
        files.close(self._write)


class _Helper:
    """A process, and the calls that it answers now."""

    def __init__(self, module: str, env: Mapping[bytes, bytes]) -> None:
        self.worker = Worker(module, env, MANY)
        self.calls: dict[int, _Call] = {}
        self.given_up: set[int] = set()
        self.is_ready = self.is_over = False
        self._writing = threads.Lock()
        self._lock = threads.Lock()
        self._numbers = 0
        self.worker.start()
        self._reader = threads.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def has_room(self) -> bool:
        return not self.is_over and not self.given_up and len(self.calls) < AT_ONCE

    def begin(self) -> tuple[int, _Call]:
        call = _Call()
        with self._lock:
            self._numbers += 1
            self.calls[self._numbers] = call
            if self.is_ready:
                call.tell(_READY, None)
            if self.is_over:
                call.tell(_ENDED, "it has ended")
            return self._numbers, call

    def end(self, number: int, is_answered: bool, was_sent: bool) -> None:
        """A call is over; one that was sent and not answered is still worked on there."""
        with self._lock:
            call = self.calls.pop(number)
            if was_sent and not is_answered and not self.is_over:
                self.given_up.add(number)
            call.close()

    def send(self, line: bytes, call: _Call, end: float, interrupt: Interrupt) -> None:
        """Raises as `Worker.ask` does; a line that was not sent whole is the end of the helper."""
        rest = memoryview(line)
        while not self._writing.acquire(timeout=0.05):
            interrupt.check()
            if clock.monotonic() >= end:
                raise WorkerTimeout
        try:
            while rest and not self.is_over:
                if call.wait(end, interrupt, self.worker.requests):
                    with contextlib.suppress(BlockingIOError, BrokenPipeError):
                        rest = rest[files.write(self.worker.requests, rest[:_CHUNK]) :]
        finally:
            if 0 < len(rest) < len(line):
                self.kill()
            self._writing.release()

    def _read(self) -> None:
        """In a thread: hand out what the helper says."""
        rest = bytearray()
        why = ""
        while data := files.read(self.worker.answers, _CHUNK):
            rest += data
            if b"\n" in data:
                *lines, rest = rest.split(b"\n")
                for line in lines:
                    self._take(json.loads(line))
            if len(rest) > MAX_ANSWER:
                why = f"its answer is longer than {MAX_ANSWER >> 20} MiB"
                break
        with self._lock:
            self.is_over = True
            self.worker.kill()
            ended = self.worker.reap()
            for call in self.calls.values():
                call.tell(_ENDED, why or ended)

    def _take(self, said: Any) -> None:
        with self._lock:
            if not said:
                self.is_ready = True
                for call in self.calls.values():
                    call.tell(_READY, None)
                return
            number, what, about = said
            if what == _ANSWER:
                self.given_up.discard(number)
            if number in self.calls:
                self.calls[number].tell(what, about)

    def kill(self) -> None:
        with self._lock:
            if not self.is_over:
                self.worker.kill()

    def close(self) -> None:
        self.kill()
        self._reader.join()
        with self._writing:
            self.worker.close()


class Line:
    """To the helpers of one module; in place of a `Worker`, and for one thread at a time."""

    def __init__(self, shared: SharedWorkers, module: str) -> None:
        self._shared = shared
        self._module = module

    def start(self) -> None:
        """Start a helper if there is none; does not wait for it."""
        self._shared.helper(self._module)

    def ready(
        self, seconds: float, interrupt: Interrupt, on_tick: Callable[[], object] | None = None
    ) -> None:
        """Wait until there is a helper that can answer; raises as `ask` does."""
        helper = self._shared.helper(self._module)
        if helper.is_ready:
            return
        end = clock.monotonic() + min(seconds, START_LIMIT)
        number, call = helper.begin()
        try:
            while not helper.is_ready:
                call.wait(end, interrupt)
                for what, about in list(call.messages):
                    if what == _ENDED:
                        raise WorkerEnded(about)
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
        """The answer to a request; as `Worker.ask`, but the helper keeps running."""
        helper = self._shared.helper(self._module)
        end = clock.monotonic() + seconds
        number, call = helper.begin()
        is_answered = was_sent = False
        try:
            helper.send(json.dumps([number, request]).encode() + b"\n", call, end, interrupt)
            was_sent = True
            while True:
                while call.messages:
                    what, about = call.messages.popleft()
                    if what == _ANSWER:
                        is_answered = True
                        answer: dict[str, Any] = about
                        return answer
                    if what == _ENDED:
                        raise WorkerEnded(about)
                    if what == _PART and on_part is not None:
                        on_part(about)
                call.wait(end, interrupt)
        finally:
            helper.end(number, is_answered, was_sent)

    def close(self) -> None:
        """Others may need the helpers: they are closed all together."""


class SharedWorkers:
    """The helpers of all runs of this process."""

    def __init__(self, env: Mapping[bytes, bytes]) -> None:
        self._env = env
        self._helpers: dict[str, list[_Helper]] = {}
        self._lock = threads.Lock()

    def line(self, module: str) -> Line:
        return Line(self, module)

    def helper(self, module: str) -> _Helper:
        """One with room for a call. Raises WorkerEnded where none can be started."""
        with self._lock:
            helpers = self._helpers.setdefault(module, [])
            for helper in list(helpers):
                if helper.is_over or (helper.given_up and not helper.calls):
                    helpers.remove(helper)
                    helper.close()
            found = next((helper for helper in helpers if helper.has_room), None)
            if found is None:
                found = _Helper(module, self._env)
                helpers.append(found)
            return found

    def close(self) -> None:
        """End all of them."""
        for helpers in self._helpers.values():
            for helper in helpers:
                helper.close()
        self._helpers.clear()


def serve_many(answer: Callable[[dict[str, Any], Callable[[Any], None]], dict[str, Any]]) -> None:
    """The helper's side: say ready, then answer each request in a thread of its own."""
    answers = files.open(pipes.dup(1), "wb")
    pipes.dup2(2, 1)
    lock = threads.Lock()

    def say(*said: Any) -> None:
        line = json.dumps(said).encode() + b"\n"
        with lock:
            answers.write(line)
            answers.flush()

    def do(number: int, request: dict[str, Any]) -> None:
        say(number, _ANSWER, answer(request, lambda part: say(number, _PART, part)))

    say()
    for line in sys.stdin.buffer:
        number, request = json.loads(line)
        threads.Thread(target=do, args=(number, request), daemon=True).start()
    processes.exit_now(0)  # the run is gone
