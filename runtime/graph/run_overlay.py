"""What a run did in a graph: visits, time, money, the routes it took, and where it is."""

from __future__ import annotations

from collections import Counter

from ..journal.events import Event, Route
from ..journal.reader import read
from ..journal.run_history import RunHistory
from .model import Graph, Visits


def add_run(graph: Graph, run: str, journal: str) -> None:
    """Add what a run did to a graph with all its edges. Raises JournalError."""
    history = RunHistory()
    taken: Counter[tuple[str, str, str]] = Counter()
    for entry in read(journal):
        history.add(entry)
        if isinstance(entry, Event) and isinstance(entry, Route):
            taken[entry.from_, entry.to, str(entry.verdict or "")] += 1
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
            for (source, target, verdict), count in taken.items()
            if (source, target) == (edge.source, edge.target) and _is_of(edge.labels, verdict)
        )


def _is_of(labels: list[str], verdict: str) -> bool:
    """Whether a verdict belongs to an edge: it is named, or the edge takes any other, or needs none."""
    return not labels or verdict in labels or ("error" in labels) == (verdict == "error")
