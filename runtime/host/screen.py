"""Output stream of a command (terminal, pipe or file) and its capabilities.

Owns colours, width, encoding and writing. Progress that a closed reader cannot receive is dropped without an
error, because a run does not depend on its display.
"""

from __future__ import annotations

import sys

from ...ir.python_internals import re
from . import environment, files, pipes, terminal
from .errors import Failure, reason
from .secrets import masked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Any

STYLES = {"dim": "\x1b[2m", "bold": "\x1b[1m", "red": "\x1b[31m", "green": "\x1b[32m", "yellow": "\x1b[33m"}
_RESET = "\x1b[0m"

# Escape sequences (CSI, OSC, others) and control characters; a tab stays.
_UNSAFE = (
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-Z\\^-~]"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
)
# Invisible characters and characters that change the text direction; the pages of runs use the same set.
_HIDDEN = (
    r"[\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    r"\ud800-\udfff\U000e0000-\U000e007f]"
)


def visible(text: str) -> str:
    """Return text like `printable`, and replace characters that reorder or hide text by their codes."""
    if text.isprintable():
        return text
    return printable(re.sub(_HIDDEN, lambda found: f"⟨U+{ord(found[0]):04X}⟩", text))


def printable(text: str) -> str:
    """Remove control characters and escape sequences from untrusted text."""
    if text.isprintable() or text.replace("\n", "").replace("\t", "").isprintable():
        return text
    # Compiled at first use: compilation takes as long as all other imports of `llc --help`.
    return re.sub(_UNSAFE, "", text)


class Screen:
    """One output stream.

    is_live: lines can be rewritten (a terminal that is not dumb). color, unicode: whether the stream supports
    them.
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
        """Whether the stream is a terminal, including a dumb one."""
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
        """Write a text with secrets masked; a closed reader is ignored."""
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
        """Write the result of a command. Raises BrokenPipeError, and UserError for other write errors."""
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
    """Wait until a handle is writable; another program may have made the terminal non-blocking."""
    pipes.select([], [fd], [], 1.0)


def is_attended() -> bool:
    """Whether standard input and output are terminals."""
    try:
        return sys.stdin.isatty() and sys.stdout.isatty()
    except (AttributeError, ValueError):  # missing or closed
        return False


def columns(text: str) -> int:
    """Return the width of a text in terminal columns."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(ch) else 2 if east_asian_width(ch) in "WF" else 1 for ch in text)


def fit(text: str, width: int, mark: str = "…") -> str:
    """Truncate `text` to `width` columns, with a mark at the end if it was truncated."""
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


def counted(number: Any, noun: str) -> str:
    """Return a number with its noun in the right form: `1 run`, `2,000 runs`; any value of a journal."""
    shown = f"{number:,}" if isinstance(number, int) else number
    return f"{shown} {noun}{'' if number == 1 else 's'}"


def shortened(text: str, width: int) -> str:
    """Shorten a text in its middle, because names often differ only at their ends."""
    if columns(text) <= width:
        return text
    tail = fit(text[::-1], (width - 1) // 2, "")[::-1]
    return fit(text, width - 1 - columns(tail), "") + "…" + tail


def flush_standard_streams() -> None:
    """Flush stdout and stderr; a closed reader causes no error, neither now nor at exit."""
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
