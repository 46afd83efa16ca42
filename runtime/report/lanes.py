"""Lanes of the timeline: rows for the strands, the agents and the inner loops of a run.

An effect of an agent is in a lane of that agent, any other one in a lane of the loop that asks for it.
Effects at the same time are in lanes of their own; a strand stays in its lane as long as that is free.
"""

from __future__ import annotations

from ...ir.records import define
from .steps import Step

# The items of the parallel forms around a strand; a strand is one of several calls at the same time.
Strand = tuple[int, ...]
_PROGRAM = "program"
_STRAND = "strand"
_AGENT = "agent"


@define
class Lane:
    """A row: its name, the latest effect in it and that one's strand."""

    name: str
    step: Step
    strand: Strand


class Lanes:
    """The lanes so far; effects are placed in the order in which they start."""

    def __init__(self) -> None:
        self._lanes: list[Lane] = []
        # Numbers of the lanes of each agent and of each loop.
        self._groups: dict[str, list[int]] = {}

    @property
    def names(self) -> list[str]:
        """The name of each lane; a step has its index."""
        return [lane.name for lane in self._lanes]

    def place(self, step: Step, strand: Strand) -> None:
        """Choose the lane of an effect that started."""
        name = _group(step)
        group = self._groups.setdefault(name, [])
        free = [number for number in group if self._is_free(number, step)]
        own = [number for number in free if self._lanes[number].strand == strand]
        if free:
            step.lane = (own or free)[0]
            lane = self._lanes[step.lane]
            lane.step, lane.strand = step, strand
            return
        step.lane = len(self._lanes)
        group.append(step.lane)
        if len(group) > 1:
            name = f"{_STRAND if name == _PROGRAM else name} {len(group)}"
        self._lanes.append(Lane(name, step, strand))

    def _is_free(self, number: int, step: Step) -> bool:
        until = self._lanes[number].step.until
        return until is not None and until <= step.after


def _group(step: Step) -> str:
    """The agent that works, or the loop that asks."""
    if step.agent is not None:
        return f"{_AGENT} {step.agent}".rstrip()
    loop, _, _ = (step.state or "").rpartition("/")
    return loop or _PROGRAM
