"""What is not drawn: error routes and crowded targets become chips, loops on a state badges; regions fold.

Most crossings of real loops come from two habits: errors of all states that go to one state, and many states
that lead to the same end. Both read better as words on their state.
"""

from __future__ import annotations

from collections import Counter

from ...ir.analysis import components
from .model import ERROR, Edge, Graph, Node

# A node that this many routes lead to keeps only one of them as a line.
CROWDED = 5
# More visible nodes than this are folded.
MOST_NODES = 80


def simplify(graph: Graph, all_edges: bool = False) -> Graph:
    """The graph as it is drawn; with `all_edges`, only loops on one node become badges."""
    kept: list[Edge] = []
    nodes = graph.by_name
    for edge in graph.edges:
        if edge.source == edge.target:
            nodes[edge.source].badges += edge.labels or ["again"]
        elif edge.kind == ERROR and not all_edges:
            nodes[edge.source].chips.append(f"{edge.label or 'error'} → {edge.target}")
        else:
            kept.append(edge)
    graph.edges = kept if all_edges else _without_crowds(kept, nodes)
    if len(graph.nodes) > MOST_NODES and not all_edges:
        fold_regions(graph)
    return graph


def _without_crowds(edges: list[Edge], nodes: dict[str, Node]) -> list[Edge]:
    """All edges but the last ones into each crowded node; the others become chips."""
    sources = Counter(edge.target for edge in edges)
    kept_of: set[str] = set()
    kept = []
    for edge in edges:
        if sources[edge.target] >= CROWDED and edge.target in kept_of:
            nodes[edge.source].chips.append(f"{edge.label or 'next'} → {edge.target}")
        else:
            kept_of.add(edge.target)
            kept.append(edge)
    return kept


def fold_regions(graph: Graph) -> None:
    """Fold inner loops, the smallest first, until few enough nodes are visible.

    An inner loop is a strongly connected part of a loop without that loop's first node. Where no loops are
    left, chains of nodes with one way in and one way out are folded.
    """
    for find in (_inner_loops, _chains):
        for region in find(graph):
            if len(graph.nodes) <= MOST_NODES:
                return
            names = [name for name in region if name in graph.by_name and name != graph.initial]
            if len(names) > 1:
                _fold(graph, names)


def _inner_loops(graph: Graph) -> list[list[str]]:
    found: list[list[str]] = []
    todo = [[node.name for node in graph.nodes]]
    while todo:
        names = todo.pop()
        index = {name: number for number, name in enumerate(names)}
        ways: list[list[int]] = [[] for _ in names]
        for edge in graph.edges:
            if edge.source in index and edge.target in index:
                ways[index[edge.source]].append(index[edge.target])
        for part in components(ways):
            if len(part) > 1:
                region = [names[number] for number in sorted(part)]
                if len(region) < len(names) or names != [node.name for node in graph.nodes]:
                    found.append(region)
                todo.append(region[1:])
    return sorted(found, key=len)


def _chains(graph: Graph) -> list[list[str]]:
    ways_in = Counter(edge.target for edge in graph.edges)
    ways_out = Counter(edge.source for edge in graph.edges)
    after = {
        edge.source: edge.target
        for edge in graph.edges
        if ways_out[edge.source] == 1 and ways_in[edge.target] == 1
    }
    begun = set(after) - set(after.values())
    chains = []
    for name in (node.name for node in graph.nodes):
        if name in begun:
            chain = [name]
            while chain[-1] in after:
                chain.append(after[chain[-1]])
            chains.append(chain)
    return sorted(chains, key=len, reverse=True)


def _fold(graph: Graph, names: list[str]) -> None:
    """Replace these nodes by one."""
    inside = set(names)
    first = graph.node(names[0])
    states = sum(graph.node(name).states for name in names)
    last = names[-1].rpartition(" … ")[2].partition(" (")[0]
    title = f"{names[0].partition(' … ')[0]} … {last} ({states} states)"
    detail = ", ".join(names[:6]) + (" …" if len(names) > 6 else "")
    folded = Node(title, "folded", detail, line=first.line, states=states)
    for node in graph.nodes:
        if node.name in inside:
            folded.chips += [chip for chip in node.chips if chip.rpartition(" → ")[2] not in inside]
    for node in (graph.node(name) for name in names):
        folded.members += node.members or [node.name]
    at = next(number for number, node in enumerate(graph.nodes) if node.name in inside)
    graph.nodes = [node for node in graph.nodes if node.name not in inside]
    graph.nodes.insert(at, folded)
    merged: dict[tuple[str, str], Edge] = {}
    for edge in graph.edges:
        source = title if edge.source in inside else edge.source
        target = title if edge.target in inside else edge.target
        if source == target:
            continue
        known = merged.setdefault((source, target), Edge(source, target, [], edge.kind))
        known.labels += [label for label in edge.labels if label not in known.labels]
        if edge.taken is not None:
            known.taken = (known.taken or 0) + edge.taken
    graph.edges = list(merged.values())
