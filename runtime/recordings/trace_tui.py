"""`llc trace` on a terminal: an interactive view of the points of a run.

Owns the terminal: mode, keys, drawing. Restores the terminal when the view ends, also after an error.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from ..host import files, pipes, signals, terminal
from ..host.screen import STYLES, Screen, fit
from . import diff_text, trace_text
from .timeline import Timeline

_HELP = "n next  p back  g go to  f/F failure  / search  ↑↓ scroll  0/G ends  ? help  q quit"
_LONG_HELP = (
    ("n, →, space", "go to the next point: after the next result"),
    ("p, ←", "go to the previous point"),
    ("g", "go to an effect (12), an iteration (i3) or a state (fix)"),
    ("f, F", "go to the next, previous failure: a result, a verdict, the end"),
    ("/", "search for a text in notes, effects and results; empty: repeat the search"),
    ("↑ ↓, k j", "scroll; PgUp, PgDn: by a page"),
    ("0, G", "go to the first, last point"),
    ("q", "quit"),
)
_ARROWS = {"A": "up", "B": "down", "C": "n", "D": "p", "H": "0", "F": "G", "5~": "pageup", "6~": "pagedown"}
# Seconds to wait for the rest of an escape sequence.
_ESCAPE_TIMEOUT = 0.05


class TraceView:
    """An interactive view of a timeline, starting at its first point."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.number = 0
        self.scroll = 0
        self.message = ""
        self.search_text = ""
        self.is_help_shown = False
        self.screen = Screen(sys.stdout)
        self.sources = diff_text.sources_of(timeline.image)
        self.visible_lines = 1
        self.total_lines = 0

    def run(self) -> None:
        """Show the view until the user quits or the terminal is closed. Raises UserError as `Timeline.at`."""
        with _terminal(self.screen, self.draw):
            self.draw()
            while True:
                key = _read_key()
                if key in ("q", ""):
                    return
                self.press(key)
                self.draw()

    def press(self, key: str) -> None:
        """Handle a key."""
        self.message = ""
        was_help_shown, self.is_help_shown = self.is_help_shown, False
        match key:
            case "n" | " " | "\r" | "\n":
                self.go(self.number + 1, "this is the last point")
            case "p":
                self.go(self.number - 1, "this is the first point")
            case "0":
                self.go(0)
            case "G":
                self.go(self.timeline.count - 1)
            case "f":
                self.go_if_found(self.timeline.find_failure(self.number), "no failure after this point")
            case "F":
                self.go_if_found(self.timeline.find_failure(self.number, -1), "no failure before this point")
            case "g":
                self.go_to(self.ask("go to (12, i3, state): "))
            case "/":
                self.search(self.ask("search: "))
            case "up" | "k":
                self.scroll -= 1
            case "down" | "j":
                self.scroll += 1
            case "pageup":
                self.scroll -= self.visible_lines
            case "pagedown":
                self.scroll += self.visible_lines
            case "?":
                self.is_help_shown = not was_help_shown
            case _:
                self.message = "press ? for the keys"
        self.scroll = max(0, min(self.scroll, self.total_lines - self.visible_lines))

    def go(self, number: int, message: str = "") -> None:
        """Go to a point; show the message if there is no such point."""
        if not 0 <= number < self.timeline.count:
            self.message = message
        elif number != self.number:
            self.number, self.scroll = number, 0

    def go_if_found(self, number: int | None, message: str) -> None:
        """Go to a point; show the message if it is None."""
        if number is None:
            self.message = message
        else:
            self.go(number)

    def go_to(self, word: str) -> None:
        if word:
            self.go_if_found(
                self.timeline.find_place(word), f"there is no effect, iteration or state `{word}`"
            )

    def search(self, text: str) -> None:
        self.search_text = text or self.search_text
        if self.search_text:
            point = self.timeline.find_text(self.number, self.search_text)
            self.go_if_found(point, f"`{self.search_text}` does not occur after this point")

    # --- the screen ---------------------------------------------------------------------------

    def draw(self) -> None:
        width, height = _size()
        point = self.timeline.at(self.number)
        if self.is_help_shown:
            lines: list[trace_text.Line] = [(f"  {keys:<12} {meaning}", "") for keys, meaning in _LONG_HELP]
        else:
            lines = trace_text.page(point, self.sources)
        self.visible_lines = max(1, height - 3)
        self.total_lines = len(lines)
        self.scroll = max(0, min(self.scroll, self.total_lines - self.visible_lines))
        body = lines[self.scroll : self.scroll + self.visible_lines]
        title = self.line(trace_text.head(point, self.timeline), "bold", width)
        rows = [title, *(self.line(text, style, width) for text, style in body)]
        rows += [""] * (height - 2 - len(rows))
        below = self.total_lines - self.scroll - len(body)
        more = f"… {below} more lines" if below > 0 else ""
        rows += [self.line(more, "dim", width), self.line(self.message or _HELP, "dim", width)]
        self.screen.write("\x1b[H" + "\r\n".join(f"{row}\x1b[K" for row in rows) + "\x1b[J")

    def line(self, text: str, style: str, width: int) -> str:
        cut = fit(text.replace("\t", "    "), width - 1, "…" if self.screen.unicode else "~")
        return self.screen.paint(cut, style) if style in STYLES else cut

    def ask(self, prompt: str) -> str:
        """Read a line at the bottom of the screen; '' if the user cancels."""
        text = ""
        while True:
            width, height = _size()
            shown = fit(f"{prompt}{text}", width - 1)
            self.screen.write(f"\x1b[{height};1H{shown}\x1b[K\x1b[?25h")
            key = _read_key()
            if key in ("\r", "\n", ""):
                break
            if key == "escape":
                text = ""
                break
            if key in ("\x7f", "\b"):
                text = text[:-1]
            elif key == "\x15":
                text = ""
            elif len(key) == 1 and key.isprintable():
                text += key
        self.screen.write("\x1b[?25l")
        return text.strip()


def _size() -> tuple[int, int]:
    try:
        size = terminal.get_terminal_size(sys.stdout.fileno())
    except OSError:
        return 80, 24
    return size.columns or 80, size.lines or 24


@contextlib.contextmanager
def _terminal(screen: Screen, draw: Callable[[], None]) -> Iterator[None]:
    """Context with the terminal in character mode, on the alternate screen, redrawn when its size changes."""
    fd = sys.stdin.fileno()
    before = terminal.tcgetattr(fd)

    def resized(*_: object) -> None:
        draw()

    handled = signals.signal(signals.SIGWINCH, resized)
    try:
        terminal.setcbreak(fd)
        screen.write("\x1b[?1049h\x1b[?25l")
        yield
    finally:
        signals.signal(signals.SIGWINCH, handled)
        screen.write("\x1b[?25h\x1b[?1049l")
        terminal.tcsetattr(fd, terminal.TCSADRAIN, before)


def _read_key() -> str:
    """The next key: a character, or the name of a special key; '' if the terminal is closed."""
    fd = sys.stdin.fileno()
    first = _read(fd, 1)
    if first == b"\x1b":
        if not pipes.select([fd], [], [], _ESCAPE_TIMEOUT)[0]:
            return "escape"
        if _read(fd, 1) not in (b"[", b"O"):
            return "escape"
        code = ""
        while len(code) < 8:
            code += _read(fd, 1).decode("latin-1")
            if not code or code[-1].isalpha() or code[-1] == "~":
                break
        return _ARROWS.get(code, "unknown")
    if first >= b"\xc0":
        more = 1 if first < b"\xe0" else 2 if first < b"\xf0" else 3
        first += b"".join(_read(fd, 1) for _ in range(more))
    return first.decode("utf-8", "replace")


def _read(fd: int, count: int) -> bytes:
    try:
        return files.read(fd, count)
    except OSError:
        return b""
