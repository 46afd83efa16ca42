"""Model of a graph: nodes, routes between them, and the visits of a run."""

from __future__ import annotations

from typing import Any

import attrs

from ...ir.records import define

# Kinds of nodes, with their names in legends.
KINDS = {
    "action": "command",
    "agent": "agent",
    "ask": "question",
    "call": "call",
    "check": "judgement without an action",
    "success": "end with success",
    "failure": "end with failure",
    "function": "function",
    "effect": "effect",
    "state": "state",
    "folded": "folded states",
}
# Kinds of routes: for good verdicts, for bad verdicts, for errors, and for all others.
GOOD, BAD, ERROR, PLAIN = "good", "bad", "error", "plain"


@define
class Visits:
    """The visits of a run to a node: number, active time in ms, cost, and whether the run is there now."""

    count: int = 0
    ms: int = 0
    usd: float = 0.0
    is_current: bool = False


@define
class Node:
    """A node.

    Args:
        name: its unique name.
        kind: one of `KINDS`.
        detail: the first line of its action.
        chips: routes that are written on the node instead of drawn, such as `error → diagnose`.
        badges: verdicts that lead back to the node.
        line: its line in the source; None if unknown.
        states: the number of states that it represents.
        visits: the visits of the run; None without a run.
        members: the names of folded states.
    """

    name: str
    kind: str
    detail: str = ""
    chips: list[str] = attrs.field(factory=list)
    badges: list[str] = attrs.field(factory=list)
    line: int | None = None
    states: int = 1
    visits: Visits | None = None
    members: list[str] = attrs.field(factory=list)


@define
class Edge:
    """A route. labels: its verdicts. taken: how often the run took it; None without a run."""

    source: str
    target: str
    labels: list[str] = attrs.field(factory=list)
    kind: str = PLAIN
    taken: int | None = None

    @property
    def label(self) -> str:
        return ", ".join(self.labels)

    @property
    def label_with_count(self) -> str:
        """The label, with the number of times that a run took the route."""
        return f"{self.label} ({self.taken}×)" if self.label and self.taken else self.label


@define
class Graph:
    """A graph. Nodes and edges are in the order of the source.

    Args:
        name: the name of the loop or program.
        level: `loop`, `functions` or `ir`.
        nodes: the nodes.
        edges: the edges.
        initial: the name of the first node; None if unknown.
        notes: facts about the whole graph, such as a common error route.
        run: the id of the run whose visits are shown; None for none.
    """

    name: str
    level: str
    nodes: list[Node]
    edges: list[Edge]
    initial: str | None = None
    notes: list[str] = attrs.field(factory=list)
    run: str | None = None

    def node(self, name: str) -> Node:
        """The node with this name. Raises KeyError."""
        return self.by_name[name]

    @property
    def by_name(self) -> dict[str, Node]:
        return {node.name: node for node in self.nodes}

    def to_json(self) -> dict[str, Any]:
        """The graph as plain data, without empty fields."""
        return {
            "name": self.name,
            "level": self.level,
            "initial": self.initial,
            "run": self.run,
            "notes": self.notes,
            "nodes": [_without_empty(attrs.asdict(node)) for node in self.nodes],
            "edges": [_without_empty(attrs.asdict(edge)) for edge in self.edges],
        }


def _without_empty(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value not in (None, [], "")}


def kind_of_verdict(verdict: str) -> str:
    """The kind of the route for a verdict."""
    if verdict in ("success", "target", "yes"):
        return GOOD
    if verdict in ("failure", "no", "stall"):
        return BAD
    return ERROR if verdict in ("error", "_error") else PLAIN
