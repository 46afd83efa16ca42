"""Connection to an agent process: JSON-RPC 2.0 messages, one per line, over its standard input and output.

Owns the process, the framing and the size limits. Must not contain: the methods of the Agent Client Protocol
(`acp_worker`).
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections import deque
from typing import Any

from ...host import clock, files, pipes, processes, signals
from ...host.effect_context import Interrupt, Interrupted, milliseconds

# Maximum size of a received message, and of all messages that the agent has not read yet, in bytes.
MAX_MESSAGE_BYTES = 64 << 20
# Seconds for the agent to end after its input is closed, and after TERM.
GRACE = 1.0
# Bytes of a line that is shown because it is not a message.
_MAX_SHOWN_LINE = 2000
_CHUNK_BYTES = 1 << 16


class Failed(Exception):
    """The conversation cannot continue. fields: fields of the error event."""

    def __init__(self, message: str, **fields: Any) -> None:
        self.fields = {"message": message, **fields}
        super().__init__(message)


class Connection:
    """The agent's process, in its own process group, and the messages to and from it.

    interrupt: ends a wait. The agent does not receive the signals that end the helper, so that its turn can
    be cancelled first.
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
        """Queue a message. Raises `Failed` if the agent does not read its input."""
        self._unsent += json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"
        if len(self._unsent) > MAX_MESSAGE_BYTES:
            raise Failed(
                f"it does not read its input, where more than {MAX_MESSAGE_BYTES >> 20} MiB wait for it; "
                "stop its requests, or report this to its authors"
            )

    def receive(self, deadline: float | None) -> dict[str, Any] | None:
        """The next message; None at the end of the agent's output.

        Raises `TimeoutError` at `deadline` (monotonic clock; None for none), `Interrupted` once per
        interrupt, and `Failed` for a message that is too long.
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
            remaining = None if deadline is None else deadline - clock.monotonic()
            if remaining is not None and remaining <= 0:
                raise TimeoutError
            for descriptor, _ in poller.poll(None if remaining is None else milliseconds(remaining)):
                if descriptor == self._write:
                    self._send_some()
                elif descriptor == self._read:
                    self._take(files.read(self._read, _CHUNK_BYTES))
            self.check_interrupt()
        return self._messages.popleft()

    def check_interrupt(self) -> None:
        """Raise `Interrupted` once per interrupt."""
        if self._interrupt.count > self._seen:
            self._seen = self._interrupt.count
            raise Interrupted

    def _send_some(self) -> None:
        try:
            del self._unsent[: files.write(self._write, self._unsent[:_CHUNK_BYTES])]
        except BlockingIOError:
            pass
        except OSError:
            self._unsent.clear()  # the agent has ended, which its output shows

    def _take(self, data: bytes) -> None:
        """Process the next piece of the agent's output."""
        self._has_ended = not data
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._line += line
            self._finish_line()
        self._line += rest
        if len(self._line) > MAX_MESSAGE_BYTES:
            raise Failed(
                f"it sent a message of more than {MAX_MESSAGE_BYTES >> 20} MiB; find the tool with it, "
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
            # Show other output, which may explain an error.
            sys.stderr.write(line[:_MAX_SHOWN_LINE].decode("utf-8", "replace") + "\n")

    def end(self) -> str:
        """Close the agent's input, end its group if necessary, and return how the agent ended."""
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
        # A launcher may leave its child process running.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            processes.killpg(self._process.pid, signals.SIGKILL)
        return f"it was ended by {signals.name_of(-code)}" if code < 0 else f"it ended with exit code {code}"
