"""Helper process that answers one request after another and can be killed at any moment.

Code that may hang, use much memory or take a second to import (libjq, the model client) runs in a helper,
because a process can be killed and a thread cannot. Requests and answers are lines of JSON over pipes. The
helper is started on first use, lives as long as the run, and exits when the pipe closes. A helper may send
parts before its answer (`serve_in_parts`).
"""

from __future__ import annotations

import json
import sys

from ...ir.python_internals import suppress
from ..host import clock, environment, files, pipes, processes, signals, threads
from ..host.effect_context import TICK, Interrupt, milliseconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


# Maximum length of an error message of a helper, in characters.
MAX_MESSAGE = 500
# Maximum nesting of a returned value, because JSON and snapshots of the value need a limit.
MAX_DEPTH = 200
# Maximum size of an answer in bytes; a larger value is of no use in a loop.
MAX_ANSWER = 32 << 20
# Seconds that a helper may take to start; importing the model client takes one or two.
START_LIMIT = 60.0
# The helper receives `sys.path`, so that it imports the same modules in any working directory.
_BOOT = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); "
    "import importlib; importlib.import_module(sys.argv[2]).main()"
)

_POLL_INTERVAL = 0.005  # seconds
# Prefix of a line that is a part of an answer.
_PART = b'{"part":'


def command_of(module: str, *words: str) -> list[str]:
    """The command that runs `main()` of a module in a helper. module: full name. words: its arguments."""
    return [sys.executable, "-P", "-c", _BOOT, json.dumps(sys.path), module, *words]


def bare_environment() -> dict[bytes, bytes]:
    """The variables that Python needs to start, for a helper that must not read the environment."""
    names = (b"PYTHON", b"LD_LIBRARY_PATH", b"DYLD_")
    return {name: value for name, value in environment.environb.items() if name.startswith(names)}


class WorkerEnded(Exception):
    """The helper ended without an answer; the message states how. The next request starts a new helper."""


class WorkerTimeout(Exception):
    """The helper did not answer in time and was killed."""


class Worker:
    """A helper process. module: name relative to `runtime`; its `main()` runs with the arguments `words`.

    requests, answers: descriptors of the pipes to and from the helper; -1 while it does not run.
    """

    def __init__(self, module: str, env: Mapping[bytes, bytes], *words: str) -> None:
        self._words = words
        self._module = f"{__package__.rpartition('.')[0]}.{module}"
        self._env = env
        self._pid = 0
        self.answers = self.requests = -1
        self._ready = False

    def start(self) -> None:
        """Start the helper if it does not run, without waiting until it is ready. Raises `WorkerEnded`."""
        if self._pid:
            return
        ends: list[int] = []
        null = files.open_handle(files.devnull, files.O_WRONLY)
        try:
            ends += pipes.pipe()
            ends += pipes.pipe()
            requests, self.requests, self.answers, answers = ends
            self._pid = processes.posix_spawn(
                sys.executable,
                command_of(self._module, *self._words),
                self._env,
                file_actions=(
                    (processes.POSIX_SPAWN_DUP2, requests, 0),
                    (processes.POSIX_SPAWN_DUP2, answers, 1),
                    (processes.POSIX_SPAWN_DUP2, null, 2),
                ),
                setsid=True,  # only this process handles Ctrl-C at the terminal
                setsigmask=(),
            )
        except OSError as error:
            for descriptor in ends:
                files.close(descriptor)
            self.answers = self.requests = -1
            raise WorkerEnded(f"it could not be started: {error.strerror}") from error
        finally:
            files.close(null)
        files.close(requests)
        files.close(answers)
        pipes.set_blocking(self.requests, False)
        self._ready = False

    def ready(
        self, seconds: float, interrupt: Interrupt, on_tick: Callable[[], object] | None = None
    ) -> None:
        """Start the helper and wait until it is ready. Raises the exceptions of `ask`."""
        if self._pid and processes.waitpid(self._pid, processes.WNOHANG)[0]:
            self._release()  # the helper ended while it was idle
        try:
            self.start()
            if not self._ready:
                self._exchange(b"", min(seconds, START_LIMIT), interrupt, on_tick)
                self._ready = True
        except BaseException:
            self.close()
            raise

    def ask(
        self,
        request: dict[str, Any],
        seconds: float,
        interrupt: Interrupt,
        on_tick: Callable[[], object] | None = None,
        on_part: Callable[[Any], object] | None = None,
    ) -> dict[str, Any]:
        """Send a request and return its answer. Raises `WorkerTimeout`, `WorkerEnded` and `Interrupted`.

        After an exception, the helper has ended.

        Args:
            request: plain data.
            seconds: timeout, counted from the time at which the helper is ready.
            interrupt: ends the call with `Interrupted`.
            on_tick: called while the helper does not answer, about every `TICK` seconds.
            on_part: receives the parts that the helper sends before its answer.
        """
        self.ready(START_LIMIT, interrupt, on_tick)
        line = json.dumps(request).encode() + b"\n"
        try:
            answer: dict[str, Any] = json.loads(self._exchange(line, seconds, interrupt, on_tick, on_part))
        except BaseException:
            self.close()
            raise
        return answer

    def close_requests(self) -> None:
        """Close the request pipe, so that the helper cleans up and exits by itself."""
        if self.requests >= 0:
            files.close(self.requests)
            self.requests = -1

    def wait_and_close(self, seconds: float) -> None:
        """Wait up to `seconds` for the helper to exit after `close_requests`, then kill it."""
        deadline = clock.monotonic() + seconds
        while self._pid and clock.monotonic() < deadline:
            if processes.waitpid(self._pid, processes.WNOHANG)[0]:
                self._release()
                return
            clock.sleep(_POLL_INTERVAL)
        self.close()

    def close(self) -> None:
        """Kill the helper and close its pipes."""
        if self._pid:
            self.kill()
            processes.waitpid(self._pid, 0)
        if self.answers >= 0:
            self._release()

    # --- for `worker_pool`, which reads and writes the pipes itself -------------------------------

    def kill(self) -> None:
        if self._pid:
            processes.kill(self._pid, signals.SIGKILL)

    def reap(self) -> str:
        """Wait for the end of the helper and return how it ended."""
        _, status = processes.waitpid(self._pid, 0)
        self._pid = 0
        code = processes.waitstatus_to_exitcode(status)
        return f"it was ended by {signals.name_of(-code)}" if code < 0 else f"it ended with exit code {code}"

    def _release(self) -> None:
        files.close(self.answers)
        self.close_requests()
        self._pid = 0
        self.answers = self.requests = -1

    def _exchange(
        self,
        line: bytes,
        seconds: float,
        interrupt: Interrupt,
        on_tick: Callable[[], object] | None,
        on_part: Callable[[Any], object] | None = None,
    ) -> bytes:
        """Write `line`, then read lines until one is not a part; return this line."""
        deadline = clock.monotonic() + seconds
        poller = pipes.poll()
        poller.register(self.answers, pipes.POLLIN)
        poller.register(interrupt, pipes.POLLIN)
        if line:
            poller.register(self.requests, pipes.POLLOUT)
        rest = memoryview(line)
        answer = bytearray()
        while not answer.endswith(b"\n"):
            interrupt.check()
            remaining = deadline - clock.monotonic()
            if remaining <= 0:
                raise WorkerTimeout
            ready = poller.poll(milliseconds(min(remaining, TICK) if on_tick else remaining))
            for descriptor, _ in ready:
                if descriptor == self.answers:
                    data = files.read(descriptor, 1 << 16)
                    if not data:
                        raise WorkerEnded(self._exit_reason())
                    answer += data
                    if on_part is not None and b"\n" in data:
                        answer = _take_parts(answer, on_part)
                    if len(answer) > MAX_ANSWER:
                        raise WorkerEnded(f"its answer is longer than {MAX_ANSWER >> 20} MiB")
                elif descriptor == self.requests:
                    try:
                        rest = rest[files.write(descriptor, rest[: 1 << 16]) :]
                    except BrokenPipeError:
                        rest = rest[:0]  # the helper has ended, which the next read reports
                    if not rest:
                        poller.unregister(descriptor)
            if on_tick is not None and not ready:
                on_tick()
        return bytes(answer)

    def _exit_reason(self) -> str:
        """Release the helper and return how it ended."""
        reason = self.reap()
        self._release()
        return reason


def _take_parts(lines: bytearray, on_part: Callable[[Any], object]) -> bytearray:
    """Pass the parts at the start of `lines` to `on_part`; return the rest."""
    start = 0
    while lines.startswith(_PART, start) and (end := lines.find(b"\n", start)) >= 0:
        on_part(json.loads(lines[start:end])["part"])
        start = end + 1
    return lines[start:]


def exit_when_orphaned() -> None:
    """Exit this helper when the request pipe is closed, even during an answer, which may take long."""

    poller = pipes.poll()
    poller.register(0, 0)  # reports only the closing of the pipe

    def watch() -> None:
        poller.poll()
        processes.exit_now(0)

    threads.Thread(target=watch, daemon=True).start()


def serve(answer: Callable[[dict[str, Any]], dict[str, Any]], memory: int | None = None) -> None:
    """Main loop of a helper: report that it is ready, then answer each request until the pipe closes.

    memory: limit of the address space in bytes; None for no limit.
    """
    if memory is not None:
        with suppress(ValueError, OSError):  # a stricter limit may already be in force
            processes.setrlimit(processes.RLIMIT_AS, (memory, memory))
            processes.setrlimit(processes.RLIMIT_CORE, (0, 0))
    serve_in_parts(lambda request, say: answer(request))


def serve_in_parts(answer: Callable[[dict[str, Any], Callable[[Any], None]], dict[str, Any]]) -> None:
    """Variant of `serve`: `answer(request, say)` may call `say` with parts, which are sent at once."""
    requests = sys.stdin.buffer
    # Output that a library prints must not be read as an answer.
    answers = files.open(pipes.dup(1), "wb")
    pipes.dup2(2, 1)
    answers.write(b"{}\n")
    answers.flush()

    def say(part: Any) -> None:
        answers.write(_PART + b" " + json.dumps(part).encode() + b"}\n")
        answers.flush()

    for line in requests:
        answers.write(json.dumps(answer(json.loads(line), say)).encode() + b"\n")
        answers.flush()
