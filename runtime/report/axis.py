"""Time axis of a run: long idle intervals are drawn compressed and labelled with their duration."""

from __future__ import annotations

from typing import Any

from ...ir.effects import EFFECTS
from ...vm.values.text_form import duration_text
from .steps import Step, Steps

# Minimum duration of a compressed idle interval, in ms and as a fraction of the busy time.
_MIN_IDLE_MS = 5_000
_MIN_IDLE_FRACTION = 0.05
# Drawn length of a compressed interval, as a fraction of the busy time.
_DRAWN_FRACTION = 0.03


class Intervals:
    """Disjoint time intervals in order; an added interval must not end before an earlier one."""

    def __init__(self) -> None:
        self.items: list[tuple[int, int]] = []
        self.length = 0

    def add(self, start: int, stop: int) -> None:
        """Add an interval, merged with the intervals that it touches."""
        while self.items and self.items[-1][1] >= start:
            begin, end = self.items.pop()
            self.length -= end - begin
            start = min(start, begin)
        self.items.append((start, stop))
        self.length += stop - start

    def copy(self) -> Intervals:
        copied = Intervals()
        copied.items, copied.length = self.items.copy(), self.length
        return copied


class Axis:
    """The axis of a run whose list of steps grows; each finished step is processed once."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._processed = 0
        # Intervals with an effect that works, and with an effect that works or waits.
        self._busy = Intervals()
        self._active = Intervals()

    def until(self, now: int) -> tuple[list[list[Any]], int]:
        """The axis up to `now`, and the time in ms in which the run only waited for a person or a time.

        The axis is a list of its intervals in order: begin, end, drawn length in ms, and label ('' for an
        interval that is not compressed). All times are in ms since the start of the run.
        """
        finished = self._steps.steps[self._processed : -1]
        self._processed += len(finished)
        for step in finished:
            _add(self._busy, self._active, step, now)
        busy, active = self._busy.copy(), self._active.copy()
        for step in self._steps.pending:
            _add(busy, active, step, now)
        return _axis_of(busy, max(now, 1)), active.length - busy.length


def _add(busy: Intervals, active: Intervals, step: Step, now: int) -> None:
    row = EFFECTS.get(step.kind)
    if step.start is None:
        return
    stop = now if step.end is None else step.end
    active.add(step.start, stop)
    if row is None or not row.is_idle:
        busy.add(step.start, stop)


def _axis_of(busy: Intervals, end: int) -> list[list[Any]]:
    total = busy.length or end
    min_idle = max(_MIN_IDLE_MS, _MIN_IDLE_FRACTION * total)
    drawn = max(_DRAWN_FRACTION * total, 1)
    axis: list[list[Any]] = []
    at = 0
    for start, stop in [*busy.items, (end, end)]:
        if start - at >= min_idle:
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
