"""What a batch shows: a line for each run that is over, on a terminal how many there are, and the sum."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ...vm.values.text_form import duration_text
from ..host import clock
from ..host.screen import Screen, fit, printable
from ..journal.outcome import Outcome, headline

# The count is drawn again so often at most, in seconds.
EVERY = 0.1
_MARKS = {"success": ("✓", "+", "green"), "interrupted": ("•", "*", "yellow")}
_BAD = ("✗", "x", "red")


class BatchLines:
    """Shows a batch of `total` runs on a screen; `is_quiet`: nothing but the errors that runs ended with."""

    def __init__(self, screen: Screen, total: int, is_quiet: bool) -> None:
        self._screen = screen
        self._total = total
        self._is_quiet = is_quiet
        self._statuses: Counter[str] = Counter()
        self._shown = ""
        self._drawn = 0.0
        self._begun = clock.monotonic()

    def told(self, what: str, outcome: Outcome) -> None:
        """One is over; `what` was asked for."""
        self._statuses[outcome.status] += 1
        if self._is_quiet and outcome.error is None:
            return
        self._erase()
        screen = self._screen
        fancy, plain, style = _MARKS.get(outcome.status, _BAD)
        mark = fancy if screen.unicode else plain
        head = f"[{self._statuses.total():,}/{self._total:,}] "
        name = printable(outcome.run or what)
        screen.write(f"{head}{screen.paint(f'{mark} {name}', style)} {printable(_how(outcome))}\n")

    def count(self, under_way: int, at_work: int) -> float:
        """Draw how many there are, if that is due; in how many seconds it will be."""
        if self._is_quiet or not self._screen.is_live:
            return float("inf")
        left = self._total - self._statuses.total() - under_way
        failed = self._statuses.total() - self._statuses["success"]
        parts = [f"{self._statuses.total():,} of {self._total:,} over"]
        parts += [f"{failed:,} not well"] if failed else []
        parts += [f"{under_way:,} under way, {at_work:,} at work"]
        parts += [f"{left:,} to come"] if left else []
        text = ", ".join(parts)
        if text == self._shown:
            return float("inf")
        due = self._drawn + EVERY - clock.monotonic()
        if due > 0:
            return due
        self._erase()
        self._screen.write(self._screen.paint(fit(text, self._screen.width - 1), "dim"))
        self._shown = text
        self._drawn = clock.monotonic()
        return float("inf")

    def end(self, not_begun: int) -> None:
        """All is over."""
        self._erase()
        if self._is_quiet:
            return
        counts = ", ".join(f"{count:,} {status}" for status, count in sorted(self._statuses.items()))
        runs = f"{self._total:,} run{'' if self._total == 1 else 's'}"
        if not_begun:
            counts += f"{', ' if counts else ''}{not_begun:,} not begun"
        took = duration_text(round((clock.monotonic() - self._begun) * 1000))
        self._screen.write(f"\n{runs}: {counts} ({took})\n")

    def _erase(self) -> None:
        if self._shown:
            self._shown = ""
            self._screen.write("\r\x1b[K")


def _how(outcome: Outcome) -> str:
    """How it ended, in a few words."""
    facts = duration_text(outcome.duration_ms)
    if outcome.kind == "loop" and outcome.final_state is not None:
        count = outcome.iterations
        facts = f"{count} iteration{'' if count == 1 else 's'}, {facts}"
    where = outcome.final_state or ""
    error: dict[str, Any] = outcome.error or {}
    if outcome.status in ("success", "failure"):
        return f"{where} ({facts})".strip()
    if outcome.status == "interrupted":
        return f"interrupted{f' in {where}' if where else ''} ({facts})"
    if outcome.status == "limit":
        return f"stopped by {outcome.terminated_by}{f' in {where}' if where else ''} ({facts})"
    place = f" at {error['span']}" if error.get("span") else ""
    message, help = headline(error)
    return f"error[{error.get('kind')}]: {message}{place}{f'; {help}' if help else ''}"
