"""Progress of a batch: a line for each finished run, a live count on a terminal, and a summary."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ...vm.values.text_form import duration_text
from ..host import clock
from ..host.screen import Screen, counted, fit, printable
from ..journal.outcome import Outcome, headline

# Minimum seconds between two updates of the count.
UPDATE_INTERVAL = 0.1
_MARKS = {"success": ("✓", "+", "green"), "interrupted": ("•", "*", "yellow")}
_BAD = ("✗", "x", "red")


class BatchLines:
    """Progress display of a batch of `total` runs. is_quiet: show only runs that ended with an error."""

    def __init__(self, screen: Screen, total: int, is_quiet: bool) -> None:
        self._screen = screen
        self._total = total
        self._is_quiet = is_quiet
        self._statuses: Counter[str] = Counter()
        self._shown = ""
        self._drawn_at = 0.0
        self._started_at = clock.monotonic()

    def show_outcome(self, target: str, outcome: Outcome) -> None:
        """Show a finished run. target: the name of the run if it has no id."""
        self._statuses[outcome.status] += 1
        if self._is_quiet and outcome.error is None:
            return
        self._erase()
        screen = self._screen
        fancy, plain, style = _MARKS.get(outcome.status, _BAD)
        mark = fancy if screen.unicode else plain
        head = f"[{self._statuses.total():,}/{self._total:,}] "
        name = printable(outcome.run or target)
        screen.write(f"{head}{screen.paint(f'{mark} {name}', style)} {printable(_outcome_text(outcome))}\n")

    def update_count(self, active: int, working: int) -> float:
        """Draw the numbers of runs if an update is due; returns the seconds until the next update is due."""
        if self._is_quiet or not self._screen.is_live:
            return float("inf")
        waiting = self._total - self._statuses.total() - active
        failed = self._statuses.total() - self._statuses["success"]
        parts = [f"{self._statuses.total():,} of {self._total:,} finished"]
        parts += [f"{failed:,} without success"] if failed else []
        parts += [f"{active:,} started, {working:,} working"]
        parts += [f"{waiting:,} waiting"] if waiting else []
        text = ", ".join(parts)
        if text == self._shown:
            return float("inf")
        due = self._drawn_at + UPDATE_INTERVAL - clock.monotonic()
        if due > 0:
            return due
        self._erase()
        self._screen.write(self._screen.paint(fit(text, self._screen.width - 1), "dim"))
        self._shown = text
        self._drawn_at = clock.monotonic()
        return float("inf")

    def end(self, not_started: int) -> None:
        """Show the summary of the batch."""
        self._erase()
        if self._is_quiet:
            return
        counts = ", ".join(f"{count:,} {status}" for status, count in sorted(self._statuses.items()))
        runs = counted(self._total, "run")
        if not_started:
            counts += f"{', ' if counts else ''}{not_started:,} not started"
        duration = duration_text(round((clock.monotonic() - self._started_at) * 1000))
        self._screen.write(f"\n{runs}: {counts} ({duration})\n")

    def _erase(self) -> None:
        if self._shown:
            self._shown = ""
            self._screen.write("\r\x1b[K")


def _outcome_text(outcome: Outcome) -> str:
    """The end of a run on one line."""
    facts = duration_text(outcome.duration_ms)
    if outcome.kind == "loop" and outcome.final_state is not None:
        count = outcome.iterations
        facts = f"{counted(count, 'iteration')}, {facts}"
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
