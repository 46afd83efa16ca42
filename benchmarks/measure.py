"""Measurement on a noisy machine: contestants take turns, and values are compared within each round.

Owns timing, medians and the paired ratio: each value is divided by the value of its peer in the same
round, and the median of these ratios is reported. Does not know llc.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence

# Performs its work and gives what it cost: seconds for one unit of it, or bytes.
Contestant = Callable[[], float]


def take_turns(contestants: Mapping[str, Contestant], rounds: int) -> dict[str, list[float]]:
    """The cost of each contestant in each round, after a round that warms up and is not counted.

    A single round only shows that everything works, and needs no warm-up.
    """
    names = list(contestants)
    if rounds > 1:
        for name in names:
            contestants[name]()
    found: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        start = number % len(names)
        for name in names[start:] + names[:start]:
            found[name].append(contestants[name]())
    return found


def middle(values: Sequence[float]) -> float:
    return statistics.median(values)


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    """Return the first and the third quartile; the minimum and the maximum for fewer than four values."""
    if len(values) < 4:
        return min(values), max(values)
    first, _, third = statistics.quantiles(values, n=4)
    return first, third


def ratios(values: Sequence[float], peers: Sequence[float]) -> list[float]:
    """Divide each value by the value of its peer in the same round."""
    return [value / peer for value, peer in zip(values, peers, strict=True)]


def differences(values: Sequence[float], bases: Sequence[float], units: int) -> list[float]:
    """Return the cost of one of `units` units in each round: the value minus its base, divided by `units`."""
    return [(value - base) / units for value, base in zip(values, bases, strict=True)]
