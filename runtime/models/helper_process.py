"""A helper process that answers one request after another, and can be ended at any moment.

Code that may hang, use much memory or take a second to import (libjq, the model client) runs in one, because
a process can be ended at any moment and a thread cannot. Requests and answers are lines of JSON over pipes;
the helper is started when first needed, kept for the run, and ends by itself when the pipe closes.
A helper may send parts before its answer (`serve_in_parts`).
"""

from __future__ import annotations

import json
import sys

from ...ir.python_internals import suppress
from ..host import clock, files, pipes, processes, signals, threads
from ..host.effect_context import TICK, Interrupt, milliseconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


# Characters of an error that a helper reports, and nesting of a value that it returns: JSON and snapshots
# of a value need a limit.
MAX_MESSAGE = 500
MAX_DEPTH = 200
# A longer answer is refused: it could not be a value of a loop in any useful way.
MAX_ANSWER = 32 << 20
# Seconds a helper may take until it is ready; importing the model client takes one or two.
START_LIMIT = 60.0
# `sys.path` is handed over so that the helper finds what we found, wherever it is started.
_BOOT = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); "
    "import importlib; importlib.import_module(sys.argv[2]).main()"
)

_POLL = 0.005
# What a line begins with that is a part of an answer, and not the answer.
_PART = b'{"part":'


def command_of(module: str, *words: str) -> list[str]:
    """The command of a helper: `main()` of a module, by its full name."""
    return [sys.executable, "-P", "-c", _BOOT, json.dumps(sys.path), module, *words]


class WorkerEnded(Exception):
    """The helper ended without an answer; the text says how. The next request starts a new one."""


class WorkerTimeout(Exception):
    """No answer in time; the helper has been ended."""


class Worker:
    """A helper that runs `main()` of a module of this package; `words` are arguments for it.

    requests, answers: descriptors of the pipes to it and from it, -1 while it does not run.
    """

    def __init__(self, module: str, env: Mapping[bytes, bytes], *words: str) -> None:
        self._words = words
        self._module = f"{__package__.rpartition('.')[0]}.{module}"
        self._env = env
        self._pid = 0
        self.answers = self.requests = -1
        self._ready = False

    def start(self) -> None:
        """Start the helper if it does not run; does not wait for it."""
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
                setsid=True,  # Ctrl-C at the terminal is ours to handle
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
        """Wait until the helper has started; raises as `ask` does."""
        if self._pid and processes.waitpid(self._pid, processes.WNOHANG)[0]:
            self._forget()  # it was ended while it had nothing to do
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
        """The answer to a request, within `seconds` from when the helper is ready.

        on_part: receives what the helper sends before its answer.
        Raises `WorkerTimeout`, `WorkerEnded` and `Interrupted`; the helper has been ended then.
        """
        self.ready(START_LIMIT, interrupt, on_tick)
        line = json.dumps(request).encode() + b"\n"
        try:
            answer: dict[str, Any] = json.loads(self._exchange(line, seconds, interrupt, on_tick, on_part))
        except BaseException:
            self.close()
            raise
        return answer

    def let_go(self) -> None:
        """Tell the helper that nothing more comes: it ends by itself, when it has put everything away."""
        if self.requests >= 0:
            files.close(self.requests)
            self.requests = -1

    def wait_and_close(self, seconds: float) -> None:
        """Give a helper that was let go time to end, and end it then."""
        end = clock.monotonic() + seconds
        while self._pid and clock.monotonic() < end:
            if processes.waitpid(self._pid, processes.WNOHANG)[0]:
                self._forget()
                return
            clock.sleep(_POLL)
        self.close()

    def close(self) -> None:
        """End the helper."""
        if self._pid:
            self.kill()
            processes.waitpid(self._pid, 0)
        if self.answers >= 0:
            self._forget()

    # --- for who talks to it otherwise (`shared_worker`) ------------------------------------------

    def kill(self) -> None:
        if self._pid:
            processes.kill(self._pid, signals.SIGKILL)

    def reap(self) -> str:
        """How the helper came to its end, for which it waits."""
        _, status = processes.waitpid(self._pid, 0)
        self._pid = 0
        code = processes.waitstatus_to_exitcode(status)
        return f"it was ended by {signals.name_of(-code)}" if code < 0 else f"it ended with exit code {code}"

    def _forget(self) -> None:
        files.close(self.answers)
        self.let_go()
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
        """Write `line` and read one line that is no part."""
        end = clock.monotonic() + seconds
        poller = pipes.poll()
        poller.register(self.answers, pipes.POLLIN)
        poller.register(interrupt, pipes.POLLIN)
        if line:
            poller.register(self.requests, pipes.POLLOUT)
        rest = memoryview(line)
        answer = bytearray()
        while not answer.endswith(b"\n"):
            interrupt.check()
            left = end - clock.monotonic()
            if left <= 0:
                raise WorkerTimeout
            ready = poller.poll(milliseconds(min(left, TICK) if on_tick else left))
            for descriptor, _ in ready:
                if descriptor == self.answers:
                    data = files.read(descriptor, 1 << 16)
                    if not data:
                        raise WorkerEnded(self._ending())
                    answer += data
                    if on_part is not None and b"\n" in data:
                        answer = _told(answer, on_part)
                    if len(answer) > MAX_ANSWER:
                        raise WorkerEnded(f"its answer is longer than {MAX_ANSWER >> 20} MiB")
                elif descriptor == self.requests:
                    try:
                        rest = rest[files.write(descriptor, rest[: 1 << 16]) :]
                    except BrokenPipeError:
                        rest = rest[:0]  # it has ended; the read says so
                    if not rest:
                        poller.unregister(descriptor)
            if on_tick is not None and not ready:
                on_tick()
        return bytes(answer)

    def _ending(self) -> str:
        """How the helper came to its end."""
        why = self.reap()
        self._forget()
        return why


def _told(lines: bytearray, on_part: Callable[[Any], object]) -> bytearray:
    """Tell the parts that lines begin with; the rest of them."""
    start = 0
    while lines.startswith(_PART, start) and (end := lines.find(b"\n", start)) >= 0:
        on_part(json.loads(lines[start:end])["part"])
        start = end + 1
    return lines[start:]


def end_when_alone() -> None:
    """End this helper when the request pipe is closed, even during an answer, which may take long."""

    poller = pipes.poll()
    poller.register(0, 0)  # reports only that the pipe was closed

    def watch() -> None:
        poller.poll()
        processes.exit_now(0)

    threads.Thread(target=watch, daemon=True).start()


def serve(answer: Callable[[dict[str, Any]], dict[str, Any]], memory: int | None = None) -> None:
    """The helper's side: say ready, then answer each request until the pipe closes.

    memory: the limit of its address space in bytes.
    """
    if memory is not None:
        with suppress(ValueError, OSError):  # a tighter limit may hold already
            processes.setrlimit(processes.RLIMIT_AS, (memory, memory))
            processes.setrlimit(processes.RLIMIT_CORE, (0, 0))
    serve_in_parts(lambda request, say: answer(request))


def serve_in_parts(answer: Callable[[dict[str, Any], Callable[[Any], None]], dict[str, Any]]) -> None:
    """As `serve`; `answer(request, say)` may send parts before its answer, which are passed on at once."""
    requests = sys.stdin.buffer
    # Whatever a library prints must not be taken for an answer.
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
