"""Hy: the programs of `seven.hy`, compiled to Python when they are imported."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import hy  # noqa: F401 - lets Python import what is written in Hy
import seven
from serving import serve

PROGRAMS: dict[str, Any] = {
    "fib": seven.fib,
    "tak": seven.tak,
    "sum of a loop": seven.loop_sum,
    "queens": seven.queens,
    "words in a map": seven.words,
    "a counter": seven.counter,
    "filter, map, reduce": seven.pipe,
}


def measure(program: str, size: int) -> dict[str, float]:
    started_at = perf_counter()
    value = PROGRAMS[program](size)
    return {"seconds": perf_counter() - started_at, "value": value}


if __name__ == "__main__":
    serve(measure, program="fib", size=3)
