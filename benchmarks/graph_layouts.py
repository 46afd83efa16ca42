"""Measurements of diagrams of loops in a process that has imported llc: `time FILE ROUNDS` or `quality
FOLDER`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

from llc.frontend.loop.load import load
from llc.frontend.source.files import read_source
from llc.ir.compile_options import CompileOptions
from llc.ir.diagnostics import CompileError
from llc.runtime.graph import layout, picture
from llc.runtime.graph.loop_graph import graph_of_loop
from llc.runtime.graph.simplify import simplify
from llc.runtime.host.screen import columns

# Crossings of a readable picture.
_MOST_CROSSINGS = 10
# Straight pieces of a curve, between which crossings are counted.
_PIECES = 6


def _graph(path: Path) -> Any:
    """Return the graph of a loop; None for a file that is not a loop."""

    dialect = "little-loops" if "little_loops" in path.parts else None
    options = CompileOptions(dialect=dialect) if dialect else CompileOptions()
    try:
        loop, _, _ = load(read_source(str(path)), options, lambda made: (made, []))
    except CompileError:
        return None
    return simplify(graph_of_loop(loop)) if loop is not None and loop.states else None


def _times(path: Path, rounds: int) -> dict[str, float]:

    graph = _graph(path)
    found = {}
    for number in range(rounds):
        started_at = perf_counter()
        picture.as_svg(graph)
        found[f"{number:03}"] = perf_counter() - started_at
    return found


def _quality(folder: Path) -> dict[str, float]:
    graphs = [graph for path in sorted(folder.rglob("*.yaml")) if (graph := _graph(path)) is not None]
    facts = [_facts(graph) for graph in graphs]
    crossings = [crossed for crossed, _, _, _ in facts]
    return {
        "loops": len(graphs),
        "crossings": sum(crossings),
        "most": max(crossings),
        "part": sum(crossed <= _MOST_CROSSINGS for crossed in crossings) / len(graphs),
        "covered": sum(covered for _, covered, _, _ in facts),
        "overlaps": sum(overlaps for _, _, overlaps, _ in facts),
        "top": sum(is_top for _, _, _, is_top in facts) / len(graphs),
    }


def _facts(graph: Any) -> tuple[int, int, int, bool]:
    """Count crossings of routes, labels on states and states on states; return whether the first state
    is on top.
    """

    found = layout.lay_out(graph)
    boxes = list(found.boxes.values())
    lines = [list(_pieces(path.points)) for path in found.paths]
    crossings = sum(_cross(one, other) for at, one in enumerate(lines) for other in lines[:at])
    labels = [
        (path.label, columns(edge.label) * layout.LABEL_SIZE * 0.6)
        for edge, path in zip(graph.edges, found.paths, strict=True)
        if path.label is not None
    ]
    covered = sum(
        abs(box.x - x) < (box.width + width) / 2 - 1 and abs(box.y - y) < box.height / 2
        for (x, y), width in labels
        for box in boxes
    )
    overlaps = sum(
        abs(one.x - other.x) < (one.width + other.width) / 2
        and abs(one.y - other.y) < (one.height + other.height) / 2
        for at, one in enumerate(boxes)
        for other in boxes[:at]
    )
    first = found.boxes.get(graph.initial)
    return crossings, covered, overlaps, first is None or first.y == min(box.y for box in boxes)


Point = tuple[float, float]


def _pieces(points: tuple[Point, ...]) -> Iterator[tuple[Point, Point]]:
    """Return the straight pieces of a chain of cubic curves."""
    before = points[0]
    for at in range(1, len(points) - 2, 3):
        a, b, c, d = points[at - 1 : at + 3]
        for step in range(1, _PIECES + 1):
            t = step / _PIECES
            parts = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3)
            now = tuple(
                sum(part * point[axis] for part, point in zip(parts, (a, b, c, d), strict=True))
                for axis in (0, 1)
            )
            yield before, (now[0], now[1])
            before = (now[0], now[1])


def _cross(one: list[tuple[Point, Point]], other: list[tuple[Point, Point]]) -> bool:
    """Whether two lines cross."""
    return any(_meet(*first, *second) for first in one for second in other)


def _meet(a: Point, b: Point, c: Point, d: Point) -> bool:
    if max(a[0], b[0]) < min(c[0], d[0]) or max(c[0], d[0]) < min(a[0], b[0]):
        return False
    return _side(a, b, c) * _side(a, b, d) < 0 and _side(c, d, a) * _side(c, d, b) < 0


def _side(a: Point, b: Point, c: Point) -> float:
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


if __name__ == "__main__":
    what, target, *more = sys.argv[1:]
    print(json.dumps(_times(Path(target), int(more[0])) if what == "time" else _quality(Path(target))))
