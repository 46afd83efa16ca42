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


def axis_of(steps: Steps) -> list[list[Any]]:
    """Stretches of the axis in order: begin, end, drawn length in ms, and the label of a short one."""
    end = max(steps.duration, 1)
    busy = _merged([span for step in (*steps.steps, *steps.pending) for span in _span(step, end)])
    total = sum(stop - start for start, stop in busy) or end
    least = max(_LEAST_MS, _LEAST_PART * total)
    drawn = max(_DRAWN_PART * total, 1)
    axis: list[list[Any]] = []
    at = 0
    for start, stop in [*busy, (end, end)]:
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


def _span(step: Step, end: int) -> list[tuple[int, int]]:
    """When an effect works; nothing for one that only waits."""
    row = EFFECTS.get(step.kind)
    if step.start is None or (row is not None and row.is_idle):
        return []
    return [(step.start, end if step.end is None else step.end)]


def _merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for start, stop in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], stop)
        else:
            found.append((start, stop))
    return found
