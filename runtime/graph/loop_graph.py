"""Graph of a loop: states and routes as written by the author, with known context values filled in."""

from __future__ import annotations

from ...frontend.loop.hook_schema import LoopHooks, hooks_in
from ...frontend.loop.schema import CURRENT, Loop, StateSpec
from ...frontend.source.schema import fields_of
from ...frontend.template.nodes import Literal, Variable, text_of
from ...frontend.template.template import parse
from .model import ERROR, PLAIN, Edge, Graph, Node, kind_of_verdict

_MAX_DETAIL_CHARACTERS = 60
_KINDS = {
    "shell": "action",
    "slash": "agent",
    "ask": "ask",
    "call": "call",
    "loop": "call",
    "mcp_tool": "call",
}


def graph_of_loop(loop: Loop) -> Graph:
    """The graph of a loop with all routes."""
    graph = Graph(loop.name, "loop", [], [], loop.initial)
    for state in loop.states.values():
        graph.nodes.append(_node(loop, state))
        own = hooks_in(state.hooks, "before", "after")
        graph.nodes[-1].chips += (f"{key}: {short(_fill_context(loop, hook.run))}" for key, hook in own)
    nodes = graph.by_name
    for state in loop.states.values():
        _add_routes(graph, nodes, loop, state)
    if loop.on_error is not None:
        graph.notes.append(f"errors of all other states → {loop.on_error}")
    graph.notes += (
        f"hook {key}: {short(_fill_context(loop, hook.run))}"
        for key, hook in hooks_in(loop.hooks, *fields_of(LoopHooks))
    )
    if loop.maintain:
        graph.notes.append("the loop starts again after it ends")
    return graph


def _node(loop: Loop, state: StateSpec) -> Node:
    span = state.span_of("name")
    return Node(
        state.name,
        _kind(loop, state),
        short(
            state.call
            or state.loop
            or " ".join(state.parallel or ())
            or _fill_context(loop, state.action or "")
        ),
        line=None if span is None else span.line,
    )


def _fill_context(loop: Loop, text: str) -> str:
    """Replace the known context values in an action; the rest of the text stays unchanged."""
    template = parse(text, kind="value", context=loop.context, is_open=True)
    if template.problems:
        return text
    return "".join(
        part.text if isinstance(part, Literal | Variable) else text_of(part.value) for part in template.parts
    )


def _kind(loop: Loop, state: StateSpec) -> str:
    if state.is_terminal:
        return state.status or "success"
    return _KINDS[loop.kind_of(state)] if state.acts else "check"


def _add_routes(graph: Graph, nodes: dict[str, Node], loop: Loop, state: StateSpec) -> None:
    """Add the edges of a state. Routes to the same target share an edge; error routes have their own."""
    if state.is_terminal:
        again = loop.restart_of(state)
        routes = [("again", again, PLAIN)] if again is not None else []
    else:
        routes = [
            (_label(verdict), target, kind_of_verdict(verdict)) for verdict, target in state.routes.items()
        ]
        if state.next is not None:
            routes.insert(0, ("", state.next, PLAIN))
    edges: dict[tuple[str, bool], Edge] = {}
    for label, target, kind in routes:
        target = state.name if target == CURRENT else target
        if target not in nodes:  # the target is known only at run time
            nodes[state.name].chips.append(f"{label or 'next'} → {short(target)}")
            continue
        edge = edges.setdefault((target, kind == ERROR), Edge(state.name, target, [], kind))
        if edge.kind != kind:
            edge.kind = PLAIN
        if label:
            edge.labels.append(label)
    graph.edges += edges.values()


def _label(verdict: str) -> str:
    return {"_": "else", "_error": "error"}.get(verdict, verdict)


def short(text: str) -> str:
    """The first line of a text, cut to the maximum length."""
    first, *more = text.strip().split("\n", 1)
    if len(first) > _MAX_DETAIL_CHARACTERS:
        return first[: _MAX_DETAIL_CHARACTERS - 1] + "…"
    return first + (" …" if more else "")
