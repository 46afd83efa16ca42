"""Resume time and stored bytes by the length of the history, compared with peers; also as a diagram.

Owns the comparison and the diagram `histories.svg`: two plots with logarithmic axes, written as text.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Mapping, Sequence

import loops
import rig
from measure import middle, take_turns
from peers import open_section
from place import ROOT, Place
from report import BYTES, SECONDS, Section, row, shown
from resuming import InstantWorld, killed_run
from sizes import Sizes

_LIMIT_EXIT = 3
_WIDTH, _HEIGHT = 440, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 20, 60, 45
# Colour and dashes of each line; the dashes distinguish the lines without colour.
_STYLES = (("#1f5fa8", ""), ("#b3541e", "6 3"), ("#3a7d34", "2 3"))
# What a contestant cost at each length: rounds of seconds, rounds of bytes.
Curve = dict[int, tuple[list[float], list[float]]]


def section(place: Place, sizes: Sizes) -> Section:
    about = (
        "A run of the given number of steps with a small state is killed before its next "
        "step, and a new process resumes it with that step, which ends it; the complete "
        "process is timed. In llc the steps were "
        "answered at once, with a real journal, and the process is `llc resume`; in LangGraph (SqliteSaver, "
        "`sync`) the process of a graph dies and another one invokes it; in DBOS (SQLite) that of a "
        "workflow, which is recovered. Stored bytes are those of all files of the killed run. The "
        "picture is `histories.svg`."
    )
    title = "Compared with peers: resume time and bytes by the length of the history"
    with open_section(place, sizes, "peers-histories", title, about) as (found, peers):
        curves: dict[str, Curve] = {}
        for key, program in (("langgraph", "langgraph_history"), ("dbos", "dbos_history")):
            name, process = peers.process(key, program)
            curves[name] = {}
            for steps in sizes.history_steps if process is not None else ():
                told = [process.ask(steps=steps) for _ in range(sizes.history_rounds)]
                curves[name][steps] = [one["seconds"] for one in told], [one["bytes"] for one in told]
        own = {steps: _resumed(place, steps, sizes.history_rounds) for steps in sizes.history_steps}
        for steps, (seconds, kept) in own.items():
            for name, curve in curves.items():
                theirs = curve.get(steps, ([], []))
                what = f"`llc resume` after {steps:,} steps"
                found.add(row(what, seconds, peer=(name, theirs[0])))
                found.add(row(f"stored after {steps:,} steps", kept, BYTES, peer=(name, theirs[1])))
        folder = os.path.join(ROOT, "benchmarks") if sizes.keeps_pictures else place.folder
        with open(os.path.join(folder, "histories.svg"), "w", encoding="utf-8") as file:
            file.write(draw({"llc": own, **{name: curve for name, curve in curves.items() if curve}}))
    return found


def _resumed(place: Place, steps: int, rounds: int) -> tuple[list[float], list[float]]:
    """Return the seconds of `llc resume` after a number of steps, and the bytes of the run before it."""
    image = rig.image_of(loops.repeated("true", steps + 1))
    run = killed_run(image, place.folder, InstantWorld(steps, lambda n: ""))
    path = os.path.join(place.folder, run.path)
    kept = shutil.move(path, place.inside(f"kept-{steps}"))
    size = sum(
        os.path.getsize(os.path.join(root, name)) for root, _, names in os.walk(kept) for name in names
    )

    def go() -> float:
        shutil.copytree(kept, path)
        took = place.seconds([*place.llc, "resume", run.id, "--quiet"], (_LIMIT_EXIT,))
        shutil.rmtree(place.inside(".loops", ".history", run.id))
        return took

    return take_turns({"resume": go}, rounds)["resume"], [float(size)] * rounds


# --- the picture ----------------------------------------------------------------------------------


def draw(curves: Mapping[str, Curve]) -> str:
    """Draw two plots over the number of steps as SVG: seconds to resume, and stored bytes."""
    plots = []
    for index, (title, unit) in enumerate((("time to resume", SECONDS), ("bytes kept", BYTES))):
        points = {
            name: [(steps, middle(values[index])) for steps, values in curve.items()]
            for name, curve in curves.items()
        }
        plots.append(f'<g transform="translate({index * _WIDTH} 0)">{_plot(title, unit, points)}</g>')
    head = f'xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * _WIDTH} {_HEIGHT}"'
    names = ", ".join(curves)
    return (
        f'<svg {head} role="img" font-family="sans-serif" font-size="11">\n'
        f"<title>Time to resume and bytes kept by the steps of the history: {names}</title>\n"
        '<rect width="100%" height="100%" fill="#fff"/>\n' + "\n".join(plots) + "\n</svg>\n"
    )


def _plot(title: str, unit: str, points: Mapping[str, Sequence[tuple[int, float]]]) -> str:
    every = [point for line in points.values() for point in line]
    across = _Axis([steps for steps, _ in every], _LEFT, _WIDTH - _RIGHT)
    up = _Axis([value for _, value in every], _HEIGHT - _BOTTOM, _TOP)
    found = [f'<text x="{_LEFT}" y="20" font-weight="bold">{title}</text>']
    for steps, x in across.marks():
        found.append(f'<path d="M{x} {_TOP}V{_HEIGHT - _BOTTOM}" stroke="#ddd"/>')
        found.append(f'<text x="{x}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{steps:,.0f}</text>')
    for value, y in up.marks():
        found.append(f'<path d="M{_LEFT} {y}H{_WIDTH - _RIGHT}" stroke="#ddd"/>')
        label = shown(value, unit)
        found.append(f'<text x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{label}</text>')
    found.append(f'<text x="{(_LEFT + _WIDTH) // 2}" y="{_HEIGHT - 10}" text-anchor="middle">steps</text>')
    for number, (name, line) in enumerate(points.items()):
        colour, dashes = _STYLES[number]
        way = " ".join(f"{across.at(steps)},{up.at(value)}" for steps, value in line)
        look = f'stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"'
        found.append(f'<polyline points="{way}" fill="none" {look}/>')
        x = _LEFT + number * 120
        found.append(f'<path d="M{x} 38h22" {look}/><text x="{x + 27}" y="42">{name}</text>')
    return "".join(found)


class _Axis:
    """Logarithmic axis for the values, between two positions in the diagram."""

    def __init__(self, values: Sequence[float], begin: float, end: float) -> None:
        self._low = math.floor(math.log10(min(values)))
        self._high = max(self._low + 1, math.ceil(math.log10(max(values)) - 1e-9))
        self._begin, self._end = begin, end

    def at(self, value: float) -> float:
        part = (math.log10(value) - self._low) / (self._high - self._low)
        return round(self._begin + part * (self._end - self._begin), 1)

    def marks(self) -> list[tuple[float, float]]:
        """Return the powers of ten with their positions."""
        return [(10.0**power, self.at(10.0**power)) for power in range(self._low, self._high + 1)]
