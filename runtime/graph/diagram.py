"""Terminal diagram of a graph: boxes and arrows for small graphs, an outline for others.

Boxes are listed top to bottom in the order of the source. A route starts on its own line of its box and runs
in a lane on the right to the first line of its target; all routes to one box share a lane.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from ..host.screen import Screen, columns, fit, shortened, visible
from .model import BAD, ERROR, GOOD, Edge, Graph, Node
from .text_forms import visits_text

# Larger graphs are shown as an outline.
MAX_BOXES = 20
_MIN_BOX_COLUMNS = 24
_MAX_BOX_COLUMNS = 64
_COLORS = {GOOD: "green", BAD: "yellow", ERROR: "red"}
_MARKS = {
    "success": "✓",
    "failure": "✗",
    "agent": "✎",
    "ask": "?",
    "call": "ƒ",
    "function": "ƒ",
    "folded": "…",
}
_ASCII = str.maketrans(
    {"┌": "+", "┐": "+", "└": "+", "┘": "+", "├": "+", "┤": "+", "┼": "+", "─": "-", "│": "|", "◀": "<",
     "✓": "*", "✗": "x", "✎": "@", "ƒ": "f", "…": ".", "→": ">", "↻": "o", "×": "x", "·": "-", "▶": ">",
     "▸": ">", "⟨": "<", "⟩": ">"}
)  # fmt: skip


def as_diagram(graph: Graph, screen: Screen, width: int) -> str:
    """The diagram or the outline of a graph, at most `width` columns wide."""
    lanes = _lanes(graph)
    box = width - 2 * (max(lanes.values(), default=-1) + 1) - 3
    is_outline = len(graph.nodes) > MAX_BOXES or box < _MIN_BOX_COLUMNS
    lines = list(_outline(graph, screen, width) if is_outline else _boxes(graph, lanes, screen, box))
    for note in graph.notes:
        lines += textwrap.wrap(_shown(note, screen), width)
    text = "".join(line.rstrip() + "\n" for line in lines)
    return text if screen.unicode else text.translate(_ASCII)


def _shown(text: str, screen: Screen) -> str:
    """A text with all characters that the terminal cannot show replaced, so that its width is known."""
    text = visible(text)
    return text if screen.unicode else text.translate(_ASCII).encode("ascii", "backslashreplace").decode()


# --- boxes ----------------------------------------------------------------------------------------


def _lanes(graph: Graph) -> dict[str, int]:
    """The lane of each node with incoming routes; short lanes are near the boxes."""
    rows = {node.name: number for number, node in enumerate(graph.nodes)}
    spans: dict[str, tuple[int, int]] = {}
    for edge in graph.edges:
        row, target = rows[edge.source], rows[edge.target]
        low, high = spans.get(edge.target, (target, target))
        spans[edge.target] = min(low, row), max(high, row)
    occupied: list[list[tuple[int, int]]] = []
    lanes = {}
    for name, (low, high) in sorted(spans.items(), key=lambda item: (item[1][1] - item[1][0], rows[item[0]])):
        lane = next(
            (n for n, used in enumerate(occupied) if all(high < a or low > b for a, b in used)), len(occupied)
        )
        if lane == len(occupied):
            occupied.append([])
        occupied[lane].append((low, high))
        lanes[name] = lane
    return lanes


def _boxes(graph: Graph, lanes: dict[str, int], screen: Screen, room: int) -> Iterator[str]:
    rows = {node.name: list(_content(graph, node, screen)) for node in graph.nodes}
    widest = max(columns(text) for content in rows.values() for text, _ in content)
    inner = min(widest + 1, room - 2, _MAX_BOX_COLUMNS)
    # Per line: text, the edge that leaves here, and the node that is entered here.
    lines: list[tuple[str, Edge | None, str | None]] = []
    for node in graph.nodes:
        lines.append(("┌" + "─" * inner + "┐", None, None))
        for number, (text, edge) in enumerate(rows[node.name]):
            shown = shortened(text, inner) if number == 0 else fit(text, inner)
            pad = " " * (inner - columns(shown))
            shown = pad + shown if edge is not None else shown + pad
            style = _COLORS.get(edge.kind, "") if edge is not None else "bold" if number == 0 else "dim"
            entered = node.name if number == 0 and node.name in lanes else None
            end = "├" if edge is not None or entered else "│"
            lines.append(("│" + screen.paint(shown, style) + end, edge, entered))
        lines.append(("└" + "─" * inner + "┘", None, None))
    drawn = _draw_lanes(graph, lanes, lines)
    for (text, _, _), lane in zip(lines, drawn, strict=True):
        yield text + lane


def _content(graph: Graph, node: Node, screen: Screen) -> Iterator[tuple[str, Edge | None]]:
    """The lines of a box; lines of routes with their edges."""
    yield f" {_title(graph, node, screen)} ", None
    if node.detail and node.detail != node.name:
        yield f" {_shown(node.detail, screen)}", None
    if node.visits is not None:
        yield f" {visits_text(node)}", None
    if node.badges:
        yield f" ↻ {_shown(', '.join(node.badges), screen)}", None
    for chip in node.chips:
        yield f" {_shown(chip, screen)}", None
    for edge in graph.edges:
        if edge.source == node.name:
            taken = "" if edge.taken is None else f" {edge.taken}×"
            yield f"{_shown(edge.label or 'next', screen)}{taken} ", edge


def _title(graph: Graph, node: Node, screen: Screen) -> str:
    """The title of a node: marks of the initial state and of the node's kind, then the name."""
    marks = ["▸"] if node.name == graph.initial else []
    if node.kind in _MARKS:
        marks.append(_MARKS[node.kind])
    return " ".join([*marks, _shown(node.name, screen)])


def _draw_lanes(
    graph: Graph, lanes: dict[str, int], lines: list[tuple[str, Edge | None, str | None]]
) -> list[str]:
    """The part of the diagram to the right of each line."""
    if not lanes:
        return [""] * len(lines)
    enters = {name: row for row, (_, _, name) in enumerate(lines) if name is not None}
    leaves: dict[str, list[int]] = {}
    for row, (_, edge, _) in enumerate(lines):
        if edge is not None:
            leaves.setdefault(edge.target, []).append(row)
    count = max(lanes.values()) + 1
    grid = [[" "] * (2 * count + 1) for _ in lines]
    for name, lane in lanes.items():
        column = 2 * lane + 2
        joins = {enters[name], *leaves[name]}
        first, last = min(joins), max(joins)
        for row in range(first, last + 1):
            cell = grid[row]
            if row in joins:
                for left in range(column):
                    cell[left] = "┼" if cell[left] == "│" else "─" if cell[left] in " ─" else cell[left]
                cell[column] = "┐" if row == first else "┘" if row == last else "┤"
            else:
                cell[column] = "┼" if cell[column] == "─" else "│"
        grid[enters[name]][0] = "◀"
    return ["".join(cell) for cell in grid]


# --- outline --------------------------------------------------------------------------------------


def _outline(graph: Graph, screen: Screen, width: int) -> Iterator[str]:
    """For each state, a line with its name and detail, and lines with its routes."""
    for node in graph.nodes:
        name = _title(graph, node, screen)
        detail = "" if node.detail == node.name else _shown(node.detail, screen)
        if node.visits is not None:
            detail = f"{visits_text(node)}  {detail}"
        name = shortened(name, width)
        left = width - columns(name) - 2
        yield screen.paint(name, "bold") + ("  " + screen.paint(fit(detail, left), "dim") if left > 8 else "")
        routes = [
            f"{edge.label + ' ' if edge.label else ''}→ {edge.target}"
            for edge in graph.edges
            if edge.source == node.name
        ]
        routes += node.chips + (["↻ " + ", ".join(node.badges)] if node.badges else [])
        line = ""
        for text in routes:
            route = shortened(_shown(text, screen), width - 4)
            if line and columns(line) + columns(route) + 7 > width:
                yield f"    {line}"
                line = ""
            line += (" · " if line else "") + route
        if line:
            yield f"    {line}"
