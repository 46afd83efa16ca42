"""The output stream for progress: a terminal, a pipe or a file, and its capabilities.

Owns colours, width, encoding and the write itself. A closed reader is no error: later output is dropped,
because a run does not depend on its display.
"""

from __future__ import annotations

import sys

from ...ir.python_internals import re
from . import environment, files, pipes, terminal
from .errors import Failure, reason
from .secrets import masked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO

STYLES = {"dim": "\x1b[2m", "bold": "\x1b[1m", "red": "\x1b[31m", "green": "\x1b[32m", "yellow": "\x1b[33m"}
_RESET = "\x1b[0m"

# Escape sequences (CSI, OSC, others) and control characters; a tab stays.
_UNSAFE = (
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-Z\\^-~]"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
)
# Characters that change the direction of a text or cannot be seen; pages of runs show the same ones.
_HIDDEN = (
    r"[\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    r"\ud800-\udfff\U000e0000-\U000e007f]"
)


def visible(text: str) -> str:
    """Text as `printable` returns it, with the code of each character that reorders or hides text."""
    if text.isprintable():
        return text
    return printable(re.sub(_HIDDEN, lambda found: f"⟨U+{ord(found[0]):04X}⟩", text))


def printable(text: str) -> str:
    """Text of unknown origin without control and escape sequences."""
    if text.isprintable() or text.replace("\n", "").replace("\t", "").isprintable():
        return text
    # Compiled when it is first needed: that takes as long as the rest of `llc --help`'s imports.
    return re.sub(_UNSAFE, "", text)


class Screen:
    """One output stream.

    is_live: lines can be rewritten (a terminal that is not dumb). color, unicode: whether they may be used.
    """

    def __init__(self, stream: IO[str] | None) -> None:
        environ = environment.environ
        self._stream = stream
        try:
            self._fd = stream.fileno() if stream is not None else -1
        except (OSError, ValueError):
            self._fd = -1
        self._gone = self._fd < 0
        self._encoding = getattr(stream, "encoding", None) or "utf-8"
        is_terminal = not self._gone and terminal.isatty(self._fd)
        self.is_live = is_terminal and environ.get("TERM", "dumb") not in ("dumb", "")
        self.color = not environ.get("NO_COLOR") and (self.is_live or bool(environ.get("FORCE_COLOR")))
        try:
            "✓✗→│…⠋".encode(self._encoding)
            self.unicode = True
        except (UnicodeEncodeError, LookupError):
            self.unicode = False

    @property
    def is_terminal(self) -> bool:
        """Whether the stream is a terminal, of whatever kind."""
        return self._fd >= 0 and terminal.isatty(self._fd)

    @property
    def width(self) -> int:
        """Columns of the terminal; 80 without one."""
        try:
            return terminal.get_terminal_size(self._fd).columns or 80
        except OSError:
            return 80

    @property
    def height(self) -> int:
        """Lines of the terminal; 24 without one."""
        try:
            return terminal.get_terminal_size(self._fd).lines or 24
        except OSError:
            return 24

    def paint(self, text: str, style: str) -> str:
        return f"{STYLES[style]}{text}{_RESET}" if self.color and style and text else text

    def write(self, text: str) -> None:
        """Write a text with secrets masked; ignores a closed reader."""
        self.write_bytes(self.encode(masked(text)))

    def encode(self, text: str) -> bytes:
        return text.encode(self._encoding, "replace")

    def write_bytes(self, content: bytes) -> None:
        if self._gone:
            return
        try:
            self._write_all(content)
        except OSError:
            self._gone = True

    def deliver(self, content: bytes) -> None:
        """Write the result of a command. Raises BrokenPipeError, and UserError if it cannot be written."""
        try:
            if self._fd < 0 and self._stream is not None:  # replaced by an object in memory
                self._stream.write(content.decode(self._encoding))
                self._stream.flush()
                return
            if self._fd < 0:
                raise Failure("cannot-write", "standard output is closed")
            self._write_all(content)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise Failure("cannot-write", f"cannot write to standard output: {reason(error)}") from None

    def _write_all(self, content: bytes) -> None:
        data = memoryview(content)
        while data:
            try:
                data = data[files.write(self._fd, data) :]
            except BlockingIOError:
                _wait_writable(self._fd)


def _wait_writable(fd: int) -> None:
    """Wait until a handle is writable: another program may have made our terminal non-blocking."""
    pipes.select([], [fd], [], 1.0)


def is_attended() -> bool:
    """Whether standard input and output are terminals."""
    try:
        return sys.stdin.isatty() and sys.stdout.isatty()
    except (AttributeError, ValueError):  # missing or closed
        return False


def columns(text: str) -> int:
    """The width of a text in terminal columns."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(ch) else 2 if east_asian_width(ch) in "WF" else 1 for ch in text)


def fit(text: str, width: int, mark: str = "…") -> str:
    """`text` cut to `width` columns, with a mark at the end if it was cut."""
    if columns(text) <= width:
        return text
    room = width - len(mark)
    if room <= 0:
        return mark[: max(width, 0)]
    if text.isascii():
        return text[:room] + mark
    used = 0
    for index, ch in enumerate(text):
        used += columns(ch)
        if used > room:
            return text[:index] + mark
    return text


def shortened(text: str, width: int) -> str:
    """A text without what is in its middle: names often differ at their ends only."""
    if columns(text) <= width:
        return text
    tail = fit(text[::-1], (width - 1) // 2, "")[::-1]
    return fit(text, width - 1 - columns(tail), "") + "…" + tail


def flush_standard_streams() -> None:
    """Flush stdout and stderr; a closed reader is no error, now or at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            try:
                fd = files.open_handle(files.devnull, files.O_WRONLY)
                pipes.dup2(fd, stream.fileno())
                files.close(fd)
            except (OSError, ValueError, AttributeError):
                continue
