"""Text formats of a graph for other tools: Mermaid, DOT, JSON."""

from __future__ import annotations

import json

from ..host.screen import visible
from ..journal.quantities import amount_text
from .model import BAD, ERROR, GOOD, Graph, Node

_MERMAID_SHAPES = {
    "agent": ("([", "])"),
    "ask": ("{{", "}}"),
    "check": ("{", "}"),
    "call": ("[[", "]]"),
    "function": ("[[", "]]"),
    "success": ("(((", ")))"),
    "failure": ("(((", ")))"),
}
_DOT_SHAPES = {
    "agent": 'box, style="rounded,filled", fillcolor="#e8e2fb"',
    "ask": 'hexagon, style=filled, fillcolor="#fdf0cf"',
    "check": "diamond",
    "call": "box, peripheries=2",
    "function": "box, peripheries=2",
    "success": 'box, style="rounded,filled", fillcolor="#d9f2e3", peripheries=2',
    "failure": 'box, style="rounded,filled", fillcolor="#fbdedd", peripheries=2',
    "folded": "box3d",
}
_DOT_COLORS = {GOOD: "#1a7f4b", BAD: "#b3541e", ERROR: "#c0362c"}


def as_json(graph: Graph) -> str:
    return json.dumps(graph.to_json(), ensure_ascii=False, indent=2) + "\n"


def as_mermaid(graph: Graph) -> str:
    """A flow chart in Mermaid syntax, which many Markdown hosts render."""
    ids = _ids(graph)
    lines = ["flowchart TD"]
    for node in graph.nodes:
        before, after = _MERMAID_SHAPES.get(node.kind, ("[", "]"))
        text = "<br/>".join(_mermaid(line) for line in lines_of(node))
        lines.append(f'    {ids[node.name]}{before}"{text}"{after}')
    for edge in graph.edges:
        arrow = "-.->" if edge.taken == 0 else "-->"
        label = f'|"{_mermaid(edge.label)}"|' if edge.label else ""
        lines.append(f"    {ids[edge.source]} {arrow}{label} {ids[edge.target]}")
    if graph.initial in ids:
        lines.append(f"    style {ids[graph.initial]} stroke-width:3px")
    return "\n".join(lines) + "\n"


def as_dot(graph: Graph) -> str:
    """The graph in the DOT language, formatted for manual changes."""
    ids = _ids(graph)
    lines = [f"digraph {_quoted(graph.name)} {{"]
    lines.append('    node [shape=box, fontname="Helvetica", fontsize=12];')
    lines.append('    edge [fontname="Helvetica", fontsize=10];')
    for node in graph.nodes:
        shape = _DOT_SHAPES.get(node.kind, "box")
        label = _quoted("\n".join(lines_of(node)))
        width = ", penwidth=2.5" if node.name == graph.initial else ""
        lines.append(f"    {ids[node.name]} [label={label}, shape={shape}{width}];")
    if graph.initial in ids:
        lines.append(f"    {{ rank=source; {ids[graph.initial]}; }}")
    for edge in graph.edges:
        attributes = [f"label={_quoted(edge.label)}"] if edge.label else []
        if edge.kind in _DOT_COLORS:
            attributes.append(f'color="{_DOT_COLORS[edge.kind]}"')
        if edge.taken == 0:
            attributes.append("style=dashed")
        lines.append(f"    {ids[edge.source]} -> {ids[edge.target]} [{', '.join(attributes)}];")
    return "\n".join([*lines, "}"]) + "\n"


def lines_of(node: Node) -> list[str]:
    """The lines of a node: name, detail, visits, badges and chips."""
    lines = [node.name]
    if node.detail and node.detail != node.name:
        lines.append(node.detail)
    if node.visits is not None:
        lines.append(visits_text(node))
    if node.badges:
        lines.append("↻ " + ", ".join(node.badges))
    return [visible(line) for line in [*lines, *node.chips]]


def visits_text(node: Node) -> str:
    """The visits of a run to a node, in a few words."""
    visits = node.visits
    if visits is None or not visits.count:
        return "not entered"
    facts = [f"{visits.count}×", _time(visits.ms / 1000)]
    if visits.usd:
        facts.append(amount_text("usd", visits.usd))
    return ("▶ " if visits.is_current else "") + " · ".join(facts)


def _time(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def _ids(graph: Graph) -> dict[str, str]:
    return {node.name: f"n{number}" for number, node in enumerate(graph.nodes)}


def _mermaid(text: str) -> str:
    """Escape a text for a Mermaid string, whose entities have the form `#34;`."""
    plain = visible(text).replace("\n", " ")
    return "".join(ch if ch.isalnum() or ch in " _-.,:/…→×·↻▶" else f"#{ord(ch)};" for ch in plain)


def _quoted(text: str) -> str:
    plain = "\n".join(visible(line) for line in text.split("\n"))
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
