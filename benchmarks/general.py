"""General programs, for which no optimisation was written: the first run in a process, and a warm run.

A first run has its own image and includes the translation of hot code. The fourth run is the warm run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from time import process_time

from general_programs import FROZEN, Program
from measure import middle, ratios
from more_programs import FROZEN as MORE
from place import Place
from programs import image_of, result
from report import TIMES, Row, Section, row
from same_algorithms import SAME
from sizes import Sizes

# What the twins' sizes mean: up to this a depth, of which little is taken off; above it a number of items.
_DEPTH = 20
# Runs between the first and the warm one: what is not hot in one run may get hot over several.
_WARMING = 2


def section(place: Place, sizes: Sizes) -> Section:
    found = Section(
        name="general",
        title="General programs",
        about=(
            "Twenty programs of different kinds, chosen before any work on their speed, and twenty more, "
            "frozen later, compared with idiomatic Python that has the same result. A first run "
            "translates the hot functions; the Python program is compiled. By processor time."
        ),
    )
    for which, programs in (("first twenty", FROZEN), ("second twenty", MORE)):
        _measure(found, which, programs, sizes)
    return found


def _measure(found: Section, which: str, programs: dict[str, Program], sizes: Sizes) -> None:
    means: dict[str, list[float]] = {"first": [], "warm": []}
    for name, (text, twin, whole) in programs.items():
        size = size_of(whole, sizes)
        turns: dict[str, list[float]] = {"first": [], "warm": [], "twin": [], "same": []}
        for _ in range(sizes.general_rounds):
            image = image_of(text, size)
            seconds, answer = _timed(lambda image=image: result(image, "auto"))  # type: ignore[misc]
            turns["first"].append(seconds)
            for _ in range(_WARMING):
                result(image, "auto")
            seconds, again = _timed(lambda image=image: result(image, "auto"))  # type: ignore[misc]
            turns["warm"].append(seconds)
            seconds, expected = _timed(lambda twin=twin, size=size: twin(size))  # type: ignore[misc]
            turns["twin"].append(seconds)
            if not answer == again == expected:
                raise RuntimeError(f"{name}: the ways differ: {answer}, {again}, {expected}")
            if name in SAME:
                seconds, same = _timed(lambda name=name, size=size: SAME[name](size))  # type: ignore[misc]
                turns["same"].append(seconds)
                if same != expected:
                    raise RuntimeError(f"{name}: the same algorithm in Python gives {same}, not {expected}")
        for turn, of_all in means.items():
            of_all.append(middle(ratios(turns[turn], turns["twin"])))
        found.add(
            row(name, turns["warm"], peer=("Python", turns["twin"]), aim=2.5),
            row(f"{name}, first run", turns["first"], peer=("Python", turns["twin"])),
        )
        if name in SAME:
            peer = "Python, same algorithm", turns["same"]
            found.add(row(f"{name}, the same algorithm", turns["warm"], peer=peer))
    for turn, aim in (("warm", 1.5), ("first", 4)):
        figure = math.exp(sum(map(math.log, means[turn])) / len(means[turn]))
        what = f"the {which}, {'first run' if turn == 'first' else turn}, geometric mean of the ratios"
        found.add(Row(what=what, unit=TIMES, figure=figure, aim=aim, aim_is_absolute=True))


def size_of(whole: int, sizes: Sizes) -> int:
    """Return the size of the program for this measurement."""
    return whole if sizes.program_part == 1 else whole - 4 if whole <= _DEPTH else min(whole, 30)


def _timed(work: Callable[[], object]) -> tuple[float, object]:
    started_at = process_time()
    answer = work()
    return process_time() - started_at, answer
