"""Connection to an agent process: messages of JSON-RPC 2.0, one a line, over its standard input and output.

Owns the process and the framing, with bounds for what the other side sends. Must not contain: the methods of
the Agent Client Protocol (`acp_worker`).
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections import deque
from typing import Any

from ...host import clock, files, pipes, processes, signals
from ...host.effect_context import Interrupt, Interrupted, milliseconds

# Bytes of a message that is read, and of messages that wait until the agent reads them.
LONGEST = 64 << 20
# Seconds for the agent to end by itself when its input is closed, and after TERM.
GRACE = 1.0
# Characters of a line that is no message, as it is shown.
_SHOWN = 2000
_CHUNK = 1 << 16


class Failed(Exception):
    """The conversation cannot continue; `fields` are those of the event that states it."""

    def __init__(self, message: str, **fields: Any) -> None:
        self.fields = {"message": message, **fields}
        super().__init__(message)


class Connection:
    """The agent's process, in a group of its own, and messages to and from it.

    interrupt: ends a wait. As the agent does not get the signals that end the helper, it can be told first to
    cancel its turn.
    """

    def __init__(self, argv: list[str], interrupt: Interrupt) -> None:
        self._process = processes.Popen(
            argv, stdin=processes.PIPE, stdout=processes.PIPE, bufsize=0, process_group=0
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin = self._process.stdin
        self._write = self._stdin.fileno()
        self._read = self._process.stdout.fileno()
        self._interrupt = interrupt
        self._seen = 0
        pipes.set_blocking(self._write, False)
        self._unsent = bytearray()
        self._line = bytearray()
        self._messages: deque[dict[str, Any]] = deque()
        self._has_ended = False

    def send(self, **message: Any) -> None:
        """Send a message when the agent reads. Raises `Failed` where it does not."""
        self._unsent += json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"
        if len(self._unsent) > LONGEST:
            raise Failed(
                f"it does not read its input, where more than {LONGEST >> 20} MiB wait for it; "
                "stop its requests, or report this to its authors"
            )

    def receive(self, end: float | None) -> dict[str, Any] | None:
        """The next message; None when the agent's output has ended.

        Raises `TimeoutError` at `end` (of the monotonic clock), `Interrupted` once for each interrupt,
        and `Failed` for a message that is too long.
        """
        while not self._messages:
            if self._has_ended:
                return None
            poller = pipes.poll()
            poller.register(self._read, pipes.POLLIN)
            if self._interrupt.count == self._seen:
                poller.register(self._interrupt, pipes.POLLIN)
            if self._unsent:
                poller.register(self._write, pipes.POLLOUT)
            left = None if end is None else end - clock.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError
            for descriptor, _ in poller.poll(None if left is None else milliseconds(left)):
                if descriptor == self._write:
                    self._send_some()
                elif descriptor == self._read:
                    self._take(files.read(self._read, _CHUNK))
            self.check_interrupt()
        return self._messages.popleft()

    def check_interrupt(self) -> None:
        """Raises `Interrupted` once for each interrupt."""
        if self._interrupt.count > self._seen:
            self._seen = self._interrupt.count
            raise Interrupted

    def _send_some(self) -> None:
        try:
            del self._unsent[: files.write(self._write, self._unsent[:_CHUNK])]
        except BlockingIOError:
            pass
        except OSError:
            self._unsent.clear()  # it has ended; its output says so

    def _take(self, data: bytes) -> None:
        """Take what the agent wrote next."""
        self._has_ended = not data
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._line += line
            self._finish_line()
        self._line += rest
        if len(self._line) > LONGEST:
            raise Failed(
                f"it sent a message of more than {LONGEST >> 20} MiB; see which tool has so long a result, "
                "and let it write into a file"
            )
        if self._has_ended:
            self._finish_line()

    def _finish_line(self) -> None:
        line = bytes(self._line)
        self._line.clear()
        if not line.strip():
            return
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if isinstance(message, dict):
            self._messages.append(message)
        else:
            # Words of the agent in the wrong place: they may say what is wrong.
            sys.stderr.write(line[:_SHOWN].decode("utf-8", "replace") + "\n")

    def end(self) -> str:
        """Close the agent's input, and end its group if it does not end itself; how it ended."""
        with contextlib.suppress(OSError):
            self._stdin.close()
        for number in (signals.SIGTERM, signals.SIGKILL, 0):
            try:
                code = self._process.wait(GRACE)
                break
            except processes.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    processes.killpg(self._process.pid, number)
        else:
            return "it does not end"
        # A launcher may leave the program behind.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            processes.killpg(self._process.pid, signals.SIGKILL)
        return f"it was ended by {signals.name_of(-code)}" if code < 0 else f"it ended with exit code {code}"
