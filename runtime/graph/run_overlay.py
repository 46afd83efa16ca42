"""Overlay of a run on a graph: visits, time, cost, taken routes, current state."""

from __future__ import annotations

from collections import Counter

from ..journal.events import Route
from ..journal.reader import read
from ..journal.run_history import RunHistory
from .model import Graph, Visits


class RouteCounts:
    """How often a run took each route, by source, target and verdict."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str, str]] = Counter()

    def add(self, route: Route) -> None:
        self.counts[route.from_, route.to, str(route.verdict or "")] += 1


def read_routes(journal: str) -> tuple[RunHistory, RouteCounts]:
    """Read the history and the taken routes of a run from its journal. Raises JournalError."""
    history, routes = RunHistory(), RouteCounts()
    for entry in read(journal):
        history.add(entry)
        if isinstance(entry, Route):
            routes.add(entry)
    return history, routes


def add_run(graph: Graph, run: str, history: RunHistory, routes: RouteCounts) -> None:
    """Add visits and taken routes of a run to a graph that is not simplified yet."""
    graph.run = run
    for node in graph.nodes:
        known = history.states.get(node.name)
        node.visits = Visits() if known is None else Visits(known.visits, known.ms, known.usd)
    if history.end is None and history.state in graph.by_name:
        visits = graph.node(history.state).visits
        assert visits is not None
        visits.is_current = True
    for edge in graph.edges:
        edge.taken = sum(
            count
            for (source, target, verdict), count in routes.counts.items()
            if (source, target) == (edge.source, edge.target) and _has_verdict(edge.labels, verdict)
        )


def _has_verdict(labels: list[str], verdict: str) -> bool:
    """Whether a verdict takes an edge: named, or unnamed with both or neither being errors, or no labels."""
    return not labels or verdict in labels or ("error" in labels) == (verdict == "error")
