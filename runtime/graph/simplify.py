"""Simplification of a graph: error routes and routes to crowded targets become chips; folding.

Most crossings in real loops have two causes: error routes of all states to one state, and many routes to the
same final state. Both are easier to read as words on their source.
"""

from __future__ import annotations

from collections import Counter

from ...ir.analysis import components
from .model import ERROR, Edge, Graph, Node

# From this number of incoming routes on, a node keeps only one of them as a line.
CROWDED = 5
# Larger graphs are folded.
MAX_NODES = 80


def simplify(graph: Graph, all_edges: bool = False) -> Graph:
    """Simplify a graph in place; with `all_edges`, only self-loops become badges."""
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
    if len(graph.nodes) > MAX_NODES and not all_edges:
        fold_regions(graph)
    return graph


def _without_crowds(edges: list[Edge], nodes: dict[str, Node]) -> list[Edge]:
    """Keep one edge into each crowded node; the others become chips."""
    incoming = Counter(edge.target for edge in edges)
    targets: set[str] = set()
    kept = []
    for edge in edges:
        if incoming[edge.target] >= CROWDED and edge.target in targets:
            nodes[edge.source].chips.append(f"{edge.label or 'next'} → {edge.target}")
        else:
            targets.add(edge.target)
            kept.append(edge)
    return kept


def fold_regions(graph: Graph) -> None:
    """Fold inner loops, the smallest first, until at most `MAX_NODES` nodes are visible.

    An inner loop is a strongly connected component of a loop without its first node. If no loops remain,
    chains of nodes with one incoming and one outgoing edge are folded.
    """
    for find in (_inner_loops, _chains):
        for region in find(graph):
            if len(graph.nodes) <= MAX_NODES:
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
        successors: list[list[int]] = [[] for _ in names]
        for edge in graph.edges:
            if edge.source in index and edge.target in index:
                successors[index[edge.source]].append(index[edge.target])
        for component in components(successors):
            if len(component) > 1:
                region = [names[number] for number in sorted(component)]
                if len(region) < len(names) or names != [node.name for node in graph.nodes]:
                    found.append(region)
                todo.append(region[1:])
    return sorted(found, key=len)


def _chains(graph: Graph) -> list[list[str]]:
    incoming = Counter(edge.target for edge in graph.edges)
    outgoing = Counter(edge.source for edge in graph.edges)
    successor = {
        edge.source: edge.target
        for edge in graph.edges
        if outgoing[edge.source] == 1 and incoming[edge.target] == 1
    }
    heads = set(successor) - set(successor.values())
    chains = []
    for name in (node.name for node in graph.nodes):
        if name in heads:
            chain = [name]
            while chain[-1] in successor:
                chain.append(successor[chain[-1]])
            chains.append(chain)
    return sorted(chains, key=len, reverse=True)


def _fold(graph: Graph, names: list[str]) -> None:
    """Replace these nodes by one folded node."""
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
    position = next(number for number, node in enumerate(graph.nodes) if node.name in inside)
    graph.nodes = [node for node in graph.nodes if node.name not in inside]
    graph.nodes.insert(position, folded)
    merged: dict[tuple[str, str], Edge] = {}
    for edge in graph.edges:
        source = title if edge.source in inside else edge.source
        target = title if edge.target in inside else edge.target
        if source == target:
            continue
        common = merged.setdefault((source, target), Edge(source, target, [], edge.kind))
        common.labels += [label for label in edge.labels if label not in common.labels]
        if edge.taken is not None:
            common.taken = (common.taken or 0) + edge.taken
    graph.edges = list(merged.values())
