"""`llc trace` on a terminal: keys move through a run, the screen shows the point it is at.

Owns the terminal: its mode, its keys, drawing. It is put back as it was whatever ends the view.
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
    ("n, →, space", "the next point: after the next result"),
    ("p, ←", "the point before"),
    ("g", "go to an effect (12), an iteration (i3) or a state (fix)"),
    ("f, F", "the next failure, the one before: a result, a verdict, the end"),
    ("/, ?text", "search for a text in notes, effects and results; empty: again"),
    ("↑ ↓, k j", "scroll; PgUp, PgDn by a page"),
    ("0, G", "the first point, the last one"),
    ("q", "quit"),
)
_ARROWS = {"A": "up", "B": "down", "C": "n", "D": "p", "H": "0", "F": "G", "5~": "pageup", "6~": "pagedown"}
# How long after Escape the rest of a key may come, in seconds.
_ESCAPE = 0.05


class TraceView:
    """A look through a timeline, from its beginning on."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.number = 0
        self.scroll = 0
        self.message = ""
        self.searched = ""
        self.is_helping = False
        self.screen = Screen(sys.stdout)
        self.sources = diff_text.sources_of(timeline.image)
        self.room = 1
        self.total = 0

    def run(self) -> None:
        """Until the person quits, or the terminal is gone. Raises UserError as `Timeline.at` does."""
        with _terminal(self.screen, self.draw):
            self.draw()
            while True:
                key = _read_key()
                if key in ("q", ""):
                    return
                self.press(key)
                self.draw()

    def press(self, key: str) -> None:
        """Do what a key is for."""
        self.message = ""
        was_helping, self.is_helping = self.is_helping, False
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
                self.find(self.timeline.find_failure(self.number), "no failure after this point")
            case "F":
                self.find(self.timeline.find_failure(self.number, -1), "no failure before this point")
            case "g":
                self.go_to(self.ask("go to (12, i3, state): "))
            case "/":
                self.search(self.ask("search: "))
            case "up" | "k":
                self.scroll -= 1
            case "down" | "j":
                self.scroll += 1
            case "pageup":
                self.scroll -= self.room
            case "pagedown":
                self.scroll += self.room
            case "?":
                self.is_helping = not was_helping
            case _:
                self.message = "press ? for the keys"
        self.scroll = max(0, min(self.scroll, self.total - self.room))

    def go(self, number: int, otherwise: str = "") -> None:
        if not 0 <= number < self.timeline.count:
            self.message = otherwise
        elif number != self.number:
            self.number, self.scroll = number, 0

    def find(self, number: int | None, otherwise: str) -> None:
        if number is None:
            self.message = otherwise
        else:
            self.go(number)

    def go_to(self, word: str) -> None:
        if word:
            self.find(self.timeline.find_place(word), f"there is no effect, iteration or state `{word}`")

    def search(self, text: str) -> None:
        self.searched = text or self.searched
        if self.searched:
            found = self.timeline.find_text(self.number, self.searched)
            self.find(found, f"`{self.searched}` does not come after this point")

    # --- the screen ---------------------------------------------------------------------------

    def draw(self) -> None:
        width, height = _size()
        point = self.timeline.at(self.number)
        if self.is_helping:
            lines: list[trace_text.Line] = [(f"  {keys:<12} {what}", "") for keys, what in _LONG_HELP]
        else:
            lines = trace_text.page(point, self.sources)
        self.room = max(1, height - 3)
        self.total = len(lines)
        self.scroll = max(0, min(self.scroll, self.total - self.room))
        body = lines[self.scroll : self.scroll + self.room]
        title = self.line(trace_text.head(point, self.timeline), "bold", width)
        rows = [title, *(self.line(text, style, width) for text, style in body)]
        rows += [""] * (height - 2 - len(rows))
        below = self.total - self.scroll - len(body)
        more = f"… {below} more lines" if below > 0 else ""
        rows += [self.line(more, "dim", width), self.line(self.message or _HELP, "dim", width)]
        self.screen.write("\x1b[H" + "\r\n".join(f"{row}\x1b[K" for row in rows) + "\x1b[J")

    def line(self, text: str, style: str, width: int) -> str:
        cut = fit(text.replace("\t", "    "), width - 1, "…" if self.screen.unicode else "~")
        return self.screen.paint(cut, style) if style in STYLES else cut

    def ask(self, prompt: str) -> str:
        """A line typed at the bottom; empty where it is given up."""
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
    """The terminal for a view: keys one by one, a screen of its own, drawn again when its size changes."""
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
    """The next key: a character, or the name of a special one; '' where the terminal is gone."""
    fd = sys.stdin.fileno()
    first = _read(fd, 1)
    if first == b"\x1b":
        if not pipes.select([fd], [], [], _ESCAPE)[0]:
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
