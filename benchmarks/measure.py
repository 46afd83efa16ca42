"""Figures on a noisy machine: contestants take turns, and each round is compared in itself.

Owns timing, medians and the paired ratio: what is measured is divided by its peer of the same
round, a moment earlier or later, and the median of those ratios is reported. Knows nothing of llc.
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
    """The first and the third quartile; of few values the least and the greatest."""
    if len(values) < 4:
        return min(values), max(values)
    first, _, third = statistics.quantiles(values, n=4)
    return first, third


def ratios(values: Sequence[float], peers: Sequence[float]) -> list[float]:
    """Each value over its peer of the same round."""
    return [value / peer for value, peer in zip(values, peers, strict=True)]


def differences(values: Sequence[float], bases: Sequence[float], units: int) -> list[float]:
    """What one of `units` units costs: each value less its base of the same round."""
    return [(value - base) / units for value, base in zip(values, bases, strict=True)]
