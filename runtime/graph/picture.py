"""Graph as SVG and as an HTML page with the SVG inline; no scripts, no other files."""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterator

from ..host.screen import visible
from .layout import FONT_SIZE, LABEL_SIZE, LINE_HEIGHT, PADDING, Box, EdgePath, Layout, lay_out
from .model import KINDS, Edge, Graph, Node

_MARGIN = 16
_STYLE = """
svg.llc { --ink: #1d2530; --soft: #5d6878; --paper: #ffffff; --line: #8b96a5;
  --good: #1a7f4b; --bad: #b3541e; --error: #c0362c; --heat: #f59e0b;
  --action: #eef2f7; --agent: #e9e4fb; --ask: #fdf1d3; --call: #dff0f7; --end: #dcf3e5; --lost: #fbe0de;
  background: var(--paper); font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
@media (prefers-color-scheme: dark) { svg.llc { --ink: #e6eaf0; --soft: #a3adba; --paper: #14181e;
  --line: #66717f; --good: #4cc38a; --bad: #f0a35e; --error: #ff7b72; --heat: #d97706;
  --action: #222a34; --agent: #2d2745; --ask: #3a3118; --call: #17323f; --end: #16382a; --lost: #43211f; } }
svg.llc .box { stroke: var(--line); fill: var(--action); }
svg.llc .agent .box { fill: var(--agent); } svg.llc .ask .box { fill: var(--ask); }
svg.llc .call .box, svg.llc .function .box { fill: var(--call); }
svg.llc .success .box { fill: var(--end); stroke-width: 2; }
svg.llc .failure .box { fill: var(--lost); stroke-width: 2; }
svg.llc .folded .box { stroke-dasharray: 6 3; }
svg.llc .initial .box { stroke: var(--ink); stroke-width: 2.5; }
svg.llc .current .box { stroke: var(--heat); stroke-width: 3; }
svg.llc .unused { opacity: .55; }
svg.llc .heat { fill: var(--heat); }
svg.llc text { fill: var(--ink); } svg.llc .name { font-weight: 700; } svg.llc .more { fill: var(--soft); }
svg.llc .edge path { fill: none; stroke: var(--line); stroke-width: 1.4; }
svg.llc .edge polygon { fill: var(--line); }
svg.llc .edge.good path { stroke: var(--good); } svg.llc .edge.good polygon { fill: var(--good); }
svg.llc .edge.bad path { stroke: var(--bad); } svg.llc .edge.bad polygon { fill: var(--bad); }
svg.llc .edge.error path { stroke: var(--error); } svg.llc .edge.error polygon { fill: var(--error); }
svg.llc .edge.untaken path { stroke-dasharray: 4 4; }
svg.llc .edge text { paint-order: stroke; stroke: var(--paper); stroke-width: 4px; stroke-linejoin: round; }
"""
_PAGE_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 1.5rem; color-scheme: light dark; }
figure { margin: 0; overflow: auto; } table { border-collapse: collapse; }
th, td { text-align: left; padding: .15rem 1rem .15rem 0; border-bottom: 1px solid #8884; }
"""


def as_svg(graph: Graph) -> str:
    """A standalone SVG image, which can also be embedded in a page. Raises UserError without Graphviz."""
    layout = lay_out(graph)
    width, height = layout.width + 2 * _MARGIN, layout.height + 2 * _MARGIN
    title = f"{graph.name}: {len(graph.nodes)} states" + (f", run {graph.run}" if graph.run else "")
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="llc" role="img" width="{width:.0f}" '
        f'height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}">',
        f"<title>{_text(title)}</title>",
        f"<style>{_STYLE}</style>",
        f'<g transform="translate({_MARGIN} {_MARGIN})">',
        *(_edge(edge, path) for edge, path in zip(graph.edges, layout.paths, strict=True)),
        *_nodes(graph, layout),
        *(_label(edge, path) for edge, path in zip(graph.edges, layout.paths, strict=True)),
        "</g></svg>",
    ]
    return "\n".join(part for part in parts if part) + "\n"


def as_html(graph: Graph) -> str:
    """A page with the picture, notes and a legend. Loads no other resources."""
    svg = as_svg(graph)
    hashes = " ".join(csp_hash(text) for text in (_PAGE_STYLE, _STYLE))
    policy = f"default-src 'none'; style-src {hashes}; base-uri 'none'; form-action 'none'"
    kinds = dict.fromkeys(node.kind for node in graph.nodes)
    notes = "".join(f"<li>{_text(note)}</li>" for note in graph.notes)
    lines = [
        "<!doctype html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{_text(graph.name)}</title>',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        f"<style>{_PAGE_STYLE}</style></head><body>",
        f"<h1>{_text(graph.name)}</h1>",
        f"<p>Shown: {_text(', '.join(KINDS[kind] for kind in kinds))}.</p>",
        f"<ul>{notes}</ul>" if notes else "",
        f'<figure tabindex="0" aria-label="{_text(graph.name)}: states and routes">{svg}</figure>',
        "<h2>Routes</h2>",
        _table(graph),
        "</body></html>",
    ]
    return "\n".join(line for line in lines if line) + "\n"


def _table(graph: Graph) -> str:
    """All routes as a table, for readers who cannot see the picture."""
    rows = [(edge.source, edge.label or "next", edge.target) for edge in graph.edges]
    for node in graph.nodes:
        rows += [(node.name, badge, node.name) for badge in node.badges]
        for chip in node.chips:
            label, _, target = chip.rpartition(" → ")
            rows.append((node.name, label, target))
    cells = "\n".join(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in rows)
    head = "<tr><th>State</th><th>Verdict</th><th>Next</th></tr>"
    return f"<table><thead>{head}</thead>\n<tbody>{cells}</tbody></table>"


def _nodes(graph: Graph, layout: Layout) -> Iterator[str]:
    longest = max((node.visits.ms for node in graph.nodes if node.visits is not None), default=0)
    for number, node in enumerate(graph.nodes):
        box = layout.boxes[node.name]
        yield _node(node, number, box, node.name == graph.initial, longest)


def _node(node: Node, number: int, box: Box, is_initial: bool, longest_ms: int) -> str:
    classes = ["node", node.kind]
    if is_initial:
        classes.append("initial")
    visits = node.visits
    if visits is not None:
        classes += ["current"] if visits.is_current else ["unused"] if not visits.count else []
    left, top = box.x - box.width / 2, box.y - box.height / 2
    radius = box.height / 2 if node.kind in ("success", "failure") and box.height < 60 else 6
    parts = [
        f'<g class="{" ".join(classes)}" data-node="{number}">',
        f"<title>{_text(node.name)}: {KINDS[node.kind]}</title>",
        f'<rect class="box" x="{left:.1f}" y="{top:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" '
        f'rx="{radius:.1f}"/>',
    ]
    if visits is not None and visits.ms and longest_ms:
        share = max(2.0, (box.width - 12) * visits.ms / longest_ms)
        bottom = top + box.height - 5
        parts.append(
            f'<rect class="heat" x="{left + 6:.1f}" y="{bottom:.1f}" width="{share:.1f}" height="3"/>'
        )
    for at, line in enumerate(box.lines):
        y = top + PADDING + LINE_HEIGHT * at + FONT_SIZE
        kind = "name" if at == 0 else "more"
        parts.append(
            f'<text class="{kind}" x="{left + PADDING:.1f}" y="{y:.1f}" font-size="{FONT_SIZE:g}">'
            f"{_text(line)}</text>"
        )
    return "".join([*parts, "</g>"])


def _edge(edge: Edge, path: EdgePath) -> str:
    points = path.points
    curve = f"M{_point(points[0])}"
    for at in range(1, len(points) - 2, 3):
        curve += "C" + " ".join(_point(point) for point in points[at : at + 3])
    classes = f"edge {edge.kind}" + (" untaken" if edge.taken == 0 else "")
    return f'<g class="{classes}"><path d="{curve}"/><polygon points="{_arrow(points[-1], path.end)}"/></g>'


def _arrow(start: tuple[float, float], end: tuple[float, float]) -> str:
    """The triangle of an arrow from the end of the curve to the box."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    length = (dx * dx + dy * dy) ** 0.5 or 1.0
    across = (-dy / length * 3.6, dx / length * 3.6)
    corners = [
        end,
        (start[0] + across[0], start[1] + across[1]),
        (start[0] - across[0], start[1] - across[1]),
    ]
    return " ".join(_point(corner) for corner in corners)


def _label(edge: Edge, path: EdgePath) -> str:
    if not edge.label or path.label is None:
        return ""
    x, y = path.label
    return (
        f'<g class="edge {edge.kind}"><text x="{x:.1f}" y="{y + LABEL_SIZE / 3:.1f}" text-anchor="middle" '
        f'font-size="{LABEL_SIZE:g}">{_text(edge.label_with_count)}</text></g>'
    )


def _point(point: tuple[float, float]) -> str:
    return f"{point[0]:.1f} {point[1]:.1f}"


def _text(text: str) -> str:
    return html.escape(visible(text))


def csp_hash(text: str) -> str:
    """The source expression of a content security policy that allows this inline script or style."""
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"
