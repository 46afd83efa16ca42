"""The model of a graph: nodes with what they do, routes between them, and what a run did there."""

from __future__ import annotations

from typing import Any

import attrs

from ...ir.records import define

# Kinds of nodes, each with a word for legends and readers of the page.
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
# Kinds of routes: of good verdicts, of bad ones, of errors, and all others.
GOOD, BAD, ERROR, PLAIN = "good", "bad", "error", "plain"


@define
class Visits:
    """What a run did in a node: entries, active time in ms, money, and whether the run is there now."""

    count: int = 0
    ms: int = 0
    usd: float = 0.0
    is_current: bool = False


@define
class Node:
    """A node.

    name: unique. detail: the first line of what it does. chips: routes that are written on the node and not
    drawn, such as `error → diagnose`. badges: verdicts that lead back to it. line: of the source. states: how
    many states it represents. members: the names of folded states.
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
        """The label with how often a run took the route."""
        return f"{self.label} ({self.taken}×)" if self.label and self.taken else self.label


@define
class Graph:
    """A graph; nodes and edges are in the order of the source. level: `loop`, `functions` or `ir`.

    notes: facts about all nodes, such as where errors go. run: the run that the visits are of.
    """

    name: str
    level: str
    nodes: list[Node]
    edges: list[Edge]
    initial: str | None = None
    notes: list[str] = attrs.field(factory=list)
    run: str | None = None

    def node(self, name: str) -> Node:
        """The node of a name; KeyError if there is none."""
        return self.by_name[name]

    @property
    def by_name(self) -> dict[str, Node]:
        return {node.name: node for node in self.nodes}

    def to_json(self) -> dict[str, Any]:
        """The graph as plain data, for programs."""
        return {
            "name": self.name,
            "level": self.level,
            "initial": self.initial,
            "run": self.run,
            "notes": self.notes,
            "nodes": [_given(attrs.asdict(node)) for node in self.nodes],
            "edges": [_given(attrs.asdict(edge)) for edge in self.edges],
        }


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value not in (None, [], "")}


def kind_of_verdict(verdict: str) -> str:
    """The kind of a route by its verdict."""
    if verdict in ("success", "target", "yes"):
        return GOOD
    if verdict in ("failure", "no", "stall"):
        return BAD
    return ERROR if verdict in ("error", "_error") else PLAIN
