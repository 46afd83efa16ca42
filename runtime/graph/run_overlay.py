"""What a run did in a graph: visits, time, money, the routes it took, and where it is."""

from __future__ import annotations

from collections import Counter

from ..journal.events import Route
from ..journal.reader import read
from ..journal.run_history import RunHistory
from .model import Graph, Visits


class Taken:
    """The routes that a run took, by their ends and verdict, with how often."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str, str]] = Counter()

    def add(self, route: Route) -> None:
        self.counts[route.from_, route.to, str(route.verdict or "")] += 1


def taken_in(journal: str) -> tuple[RunHistory, Taken]:
    """What a journal says of a run, and the routes that it took. Raises JournalError."""
    history, taken = RunHistory(), Taken()
    for entry in read(journal):
        history.add(entry)
        if isinstance(entry, Route):
            taken.add(entry)
    return history, taken


def add_run(graph: Graph, run: str, history: RunHistory, taken: Taken) -> None:
    """Add what a run did to a graph with all its edges."""
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
            for (source, target, verdict), count in taken.counts.items()
            if (source, target) == (edge.source, edge.target) and _is_of(edge.labels, verdict)
        )


def _is_of(labels: list[str], verdict: str) -> bool:
    """Whether a verdict belongs to an edge: it is named, or the edge takes any other, or needs none."""
    return not labels or verdict in labels or ("error" in labels) == (verdict == "error")
