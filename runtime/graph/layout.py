"""Layout of a graph: positions of nodes and paths of edges, computed by Graphviz.

Prefers the program of the package `graphviz-pure`, whose output is the same on all machines, to `dot` on
PATH. Sizes are in points; y grows downwards.
"""

from __future__ import annotations

import json
import os.path
import sys
from typing import Any

import attrs

from ...ir.records import define, frozen
from ..host import environment, processes
from ..host.errors import Failure
from ..host.screen import columns, fit, shortened
from .model import Graph
from .text_forms import lines_of

# Metrics of the monospaced font, and the space around the lines of a node.
FONT_SIZE = 12.0
CHARACTER_WIDTH = 0.602 * FONT_SIZE
LINE_HEIGHT = 16.0
PADDING = 9.0
LABEL_SIZE = 10.5
_MAX_LINE_COLUMNS = 46
_TIMEOUT_S = 60
# Attributes that limit the effort of Graphviz, which otherwise takes minutes: (minimum total length of the
# routes in rows, attributes). Straight lines take a tenth of the time of curves.
_EFFORTS = (
    (10_000, "splines=line, nslimit=0.02, nslimit1=0.1, mclimit=0.01, searchsize=5"),
    (3_000, "splines=line, nslimit=2, nslimit1=2, mclimit=0.5"),
    (0, "splines=true"),
)


@frozen
class Box:
    """A node: its centre, its size and its lines."""

    x: float
    y: float
    width: float
    height: float
    lines: tuple[str, ...]


@frozen
class EdgePath:
    """The path of an edge: points of a chain of cubic curves, the tip of the arrow, the label's position."""

    points: tuple[tuple[float, float], ...]
    end: tuple[float, float]
    label: tuple[float, float] | None


@define
class Layout:
    """Boxes by node name, and paths in the order of the graph's edges."""

    width: float = 0
    height: float = 0
    boxes: dict[str, Box] = attrs.field(factory=dict)
    paths: list[EdgePath] = attrs.field(factory=list)


def lay_out(graph: Graph) -> Layout:
    """Compute the layout of a graph. Raises UserError if Graphviz is missing or fails."""
    sizes = {node.name: _measured(lines_of(node)) for node in graph.nodes}
    ids = {node.name: f"n{number}" for number, node in enumerate(graph.nodes)}
    lines = ["digraph {", f"  graph [rankdir=TB, nodesep=0.45, ranksep=0.5, {_effort(graph)}];"]
    lines.append('  node [shape=box, fixedsize=true, label=""];')
    lines.append(f'  edge [fontname="Helvetica", fontsize={LABEL_SIZE}];')
    for name, (width, height, _) in sizes.items():
        lines.append(f"  {ids[name]} [width={width / 72:.4f}, height={height / 72:.4f}];")
    if graph.initial in ids:
        lines.append(f"  {{ rank=source; {ids[graph.initial]}; }}")
    for edge in graph.edges:
        # Reserve the width of the label with plain letters: the label itself may need quoting.
        width = round(columns(edge.label_with_count) * 0.75)
        label = f' [label="{"m" * width}"]' if width else ""
        lines.append(f"  {ids[edge.source]} -> {ids[edge.target]}{label};")
    answer = json.loads(run_graphviz("\n".join([*lines, "}"]), "json0"))
    return _read(graph, sizes, answer)


def _effort(graph: Graph) -> str:
    """The attributes that limit the effort of Graphviz for this graph."""
    targets: dict[str, list[str]] = {node.name: [] for node in graph.nodes}
    for edge in graph.edges:
        targets[edge.source].append(edge.target)
    # Topological order by depth-first search, ignoring cycles; then the rank of each node.
    order: list[str] = []
    seen: set[str] = set()
    for first in (*(name for name in targets if name == graph.initial), *targets):
        stack = [(first, iter(targets[first]))] if first not in seen else []
        seen.add(first)
        while stack:
            name, targets_left = stack[-1]
            following = next((target for target in targets_left if target not in seen), None)
            if following is None:
                order.append(name)
                stack.pop()
            else:
                seen.add(following)
                stack.append((following, iter(targets[following])))
    rank = dict.fromkeys(order, 0)
    place = {name: number for number, name in enumerate(reversed(order))}
    for name in reversed(order):
        for target in targets[name]:
            if place[target] > place[name]:
                rank[target] = max(rank[target], rank[name] + 1)
    rows = sum(abs(rank[edge.source] - rank[edge.target]) for edge in graph.edges)
    return next(effort for least, effort in _EFFORTS if rows >= least)


def _measured(lines: list[str]) -> tuple[float, float, tuple[str, ...]]:
    """The size of a node in points, and its lines, cut to the maximum length."""
    name, *others = lines
    shown = (shortened(name, _MAX_LINE_COLUMNS), *(fit(line, _MAX_LINE_COLUMNS) for line in others))
    width = max(columns(line) for line in shown) * CHARACTER_WIDTH + 2 * PADDING + 6
    return max(width, 60.0), len(shown) * LINE_HEIGHT + 2 * PADDING, shown


def _read(graph: Graph, sizes: dict[str, Any], answer: dict[str, Any]) -> Layout:
    left, bottom, right, top = (float(number) for number in answer["bb"].split(","))
    layout = Layout(right - left, top - bottom)

    def place(text: str) -> tuple[float, float]:
        x, y = text.split(",")[-2:]
        return float(x) - left, top - float(y)

    placed = [entry for entry in answer["objects"] if "pos" in entry]  # ranks are objects without a position
    for node, entry in zip(graph.nodes, placed, strict=True):
        x, y = place(entry["pos"])
        width, height, lines = sizes[node.name]
        layout.boxes[node.name] = Box(x, y, width, height, lines)
    for entry in answer.get("edges", ()):
        points = entry["pos"].split()
        end = place(points.pop(0)) if points[0].startswith("e") else place(points[-1])
        label = place(entry["lp"]) if "lp" in entry else None
        layout.paths.append(EdgePath(tuple(place(point) for point in points), end, label))
    return layout


def run_graphviz(source: str, form: str) -> bytes:
    """Run Graphviz on a graph in the DOT language; returns its output in `form`. Raises UserError."""
    program = _program()
    process = processes.Popen(
        [program, f"-T{form}"], stdin=processes.PIPE, stdout=processes.PIPE, stderr=processes.PIPE
    )
    try:
        output, errors = process.communicate(source.encode(), timeout=_TIMEOUT_S)
    except processes.TimeoutExpired:
        process.kill()
        process.communicate()
        raise Failure(
            "no-layout",
            f"Graphviz did not finish within {_TIMEOUT_S} s",
            "select a smaller part with --level, or use -o with .mmd, .dot or .json",
        ) from None
    if process.returncode != 0:
        message = errors.decode("utf-8", "replace").strip().split("\n")[0]
        raise Failure("no-layout", f"{program} failed: {message[:200]}")
    return output


def _program() -> str:
    installed = os.path.join(os.path.dirname(sys.executable), "graphviz-pure")
    program = environment.which(installed) or environment.which("graphviz-pure") or environment.which("dot")
    if program is None:
        raise Failure(
            "no-layout",
            "pictures need Graphviz",
            "pip install 'llc-loops[graph]', or install the package graphviz; "
            "-o with .mmd, .dot or .json works without it",
        )
    return str(program)
