"""Output of progress lines above a status line or a prompt."""

from __future__ import annotations

from ..host.screen import Screen, fit, printable
from .action_text import MARKS


class ProgressLines:
    """Writes complete lines. First erases a status line, or ends the line of an unanswered prompt."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._marks = MARKS[screen.unicode]
        self._indent = " " * 7
        self._status_shown = False
        self._prompt = ""
        self._is_asking = False  # the cursor is after the prompt

    def _line(self, text: str, style: str = "") -> None:
        self._erase_status()
        self._break_prompt()
        self._screen.write(self._screen.paint(text, style) + "\n")

    def _detail(self, text: str, style: str = "") -> None:
        self._line(self._indent + text, style)

    def _erase_status(self) -> None:
        if self._status_shown:
            self._status_shown = False
            self._screen.write("\r\x1b[K")

    def _break_prompt(self) -> None:
        """End the line of an unanswered prompt, before other output."""
        if self._is_asking:
            self._is_asking = False
            self._screen.write("\n")

    def _one_line(self, text: str) -> str:
        """The first line of a text, with a mark if further lines follow."""
        lines = [line for line in text.strip().splitlines() if line.strip()]
        if not lines:
            return ""
        shown = printable(lines[0].strip())
        return f"{shown} {self._marks['more']}" if len(lines) > 1 else shown

    def mark(self, name: str) -> str:
        return self._marks[name]

    def line_of(self, head: str, text: str, style: str = "") -> None:
        """The first line of a text after `head`."""
        line = head + self._one_line(text)
        if self._screen.is_live:
            line = fit(line, self._screen.width - 1, self._marks["more"])
        self._line(line, style)

    def show_lines(self, head: str, lines: list[str]) -> None:
        """Write lines of output, each after `head`, which names their effect."""
        if lines:
            self._erase_status()
            paint = self._screen.paint if self._screen.is_live else lambda text, style: text
            self._screen.write("".join(paint((head + line).rstrip(), "dim") + "\n" for line in lines))

    def prompt(self, text: str) -> None:
        self._is_asking = False
        *lines, self._prompt = text.split("\n")
        for line in lines:
            self._detail(printable(line), "yellow")
        self._show_prompt()

    def _show_prompt(self) -> None:
        if self._prompt:
            self._erase_status()
            self._screen.write(self._indent + self._screen.paint(printable(self._prompt), "bold"))
            self._is_asking = True
