"""Lanes of the timeline: rows for the strands, agents and inner loops of a run.

An effect of an agent is in a lane of this agent, any other effect in a lane of the loop that requests it.
Concurrent effects are in different lanes; a strand keeps its lane as long as the lane is free.
"""

from __future__ import annotations

from ...ir.records import define
from .steps import Step

# A strand is one of several concurrent calls: the item numbers of the parallel forms that enclose it.
Strand = tuple[int, ...]
_PROGRAM = "program"
_STRAND = "strand"
_AGENT = "agent"


@define
class Lane:
    """A row: its name, its latest effect and the strand of this effect."""

    name: str
    step: Step
    strand: Strand


class Lanes:
    """The lanes of a run; effects are placed in the order in which they start."""

    def __init__(self) -> None:
        self._lanes: list[Lane] = []
        # Lane numbers by agent or loop.
        self._groups: dict[str, list[int]] = {}

    @property
    def names(self) -> list[str]:
        """Names of the lanes; `Step.lane` is an index of this list."""
        return [lane.name for lane in self._lanes]

    def place(self, step: Step, strand: Strand) -> None:
        """Set the lane of an effect that has started."""
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
    """Name of the agent that works, or of the loop that requests the effect."""
    if step.agent is not None:
        return f"{_AGENT} {step.agent}".rstrip()
    loop, _, _ = (step.state or "").rpartition("/")
    return loop or _PROGRAM
