"""Time axis of a run: stretches in which nothing works are drawn short, with their length written on them."""

from __future__ import annotations

from typing import Any

from ...ir.effects import EFFECTS
from ...vm.values.text_form import duration_text
from .steps import Step, Steps

# An idle stretch is drawn short from this length on, and from this part of all busy time on.
_LEAST_MS = 5_000
_LEAST_PART = 0.05
# How long it is drawn, as part of the busy time.
_DRAWN_PART = 0.03


class Stretches:
    """Stretches of time that do not touch; each is added with an end that no earlier one exceeds."""

    def __init__(self) -> None:
        self.items: list[tuple[int, int]] = []
        self.length = 0

    def add(self, start: int, stop: int) -> None:
        """Add a stretch, together with those that it touches."""
        while self.items and self.items[-1][1] >= start:
            begin, end = self.items.pop()
            self.length -= end - begin
            start = min(start, begin)
        self.items.append((start, stop))
        self.length += stop - start

    def copy(self) -> Stretches:
        copied = Stretches()
        copied.items, copied.length = self.items.copy(), self.length
        return copied


class Axis:
    """The axis of a run whose steps become more; each finished one is taken into account once."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._taken = 0
        # When an effect worked, and when one worked or waited.
        self._busy = Stretches()
        self._all = Stretches()

    def until(self, now: int) -> tuple[list[list[Any]], int]:
        """The axis up to `now`, and how long nothing worked while a person or a moment was waited for.

        The axis are its stretches in order: begin, end, drawn length in ms, and the label of a short one. All
        times are in ms since the run began.
        """
        finished = self._steps.steps[self._taken : -1]
        self._taken += len(finished)
        for step in finished:
            _add(self._busy, self._all, step, now)
        busy, every = self._busy.copy(), self._all.copy()
        for step in self._steps.pending:
            _add(busy, every, step, now)
        return _axis_of(busy, max(now, 1)), every.length - busy.length


def _add(busy: Stretches, every: Stretches, step: Step, now: int) -> None:
    row = EFFECTS.get(step.kind)
    if step.start is None:
        return
    stop = now if step.end is None else step.end
    every.add(step.start, stop)
    if row is None or not row.is_idle:
        busy.add(step.start, stop)


def _axis_of(busy: Stretches, end: int) -> list[list[Any]]:
    total = busy.length or end
    least = max(_LEAST_MS, _LEAST_PART * total)
    drawn = max(_DRAWN_PART * total, 1)
    axis: list[list[Any]] = []
    at = 0
    for start, stop in [*busy.items, (end, end)]:
        if start - at >= least:
            axis.append([at, start, drawn, duration_text(start - at)])
        elif start > at:
            _extend(axis, at, start)
        if stop > start:
            _extend(axis, start, stop)
        at = max(at, stop)
    return axis or [[0, end, end, ""]]


def _extend(axis: list[list[Any]], start: int, stop: int) -> None:
    if axis and not axis[-1][3]:
        axis[-1][1] = stop
        axis[-1][2] += stop - start
    else:
        axis.append([start, stop, stop - start, ""])
