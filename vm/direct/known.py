"""What is known of types before each state, by going through the states until nothing changes."""

from __future__ import annotations

from .function import result_slot
from .instructions import Instructions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .flow import FlowGraph
    from .function import Function


class Known:
    """What is known before each state: the type of each slot. wanted: slots that should be integers."""

    def __init__(self) -> None:
        self.before: dict[int, list[str]] = {}
        self.wanted: set[int] = set()


def types(function: Function, graph: FlowGraph, given: dict[int, str]) -> Known:
    """Types by going through the states until nothing changes; `given` for slots at the start."""
    known = Known()
    slots = len(function.code.slots)
    todo = []
    for root in graph.roots:
        known.before[root] = ["any"] * slots
        todo.append(root)
    if graph.roots == {function.start} and not function.is_entry:
        fresh = ["any"] * (function.code.parameters + function.code.captures)
        start = fresh + ["null"] * (slots - len(fresh))
        for slot, kind in given.items():
            start[slot] = kind
        known.before[function.start] = start
    while todo:
        state = todo.pop()
        after = _after(function, state, known)
        for target, types in after:
            before = known.before.get(target)
            if before is None:
                known.before[target] = list(types)
                todo.append(target)
                continue
            joined = [a if a == b else "any" for a, b in zip(before, types, strict=True)]
            if joined != before:
                known.before[target] = joined
                todo.append(target)
    return known


def _after(function: Function, state: int, known: Known) -> list[tuple[int, list[str]]]:
    """The types after a state, for each state it leads to."""
    writer = Instructions(function, known)
    writer.enter(state)
    for offset, row, operands in function.states[state][:-1]:
        writer.work(offset, row.name, operands)
    _, row, operands = function.states[state][-1]
    types = writer.types
    if function.again[state]:
        count = function.code.parameters
        arguments = writer.stack[len(writer.stack) - count :]
        fresh = [argument.kind for argument in arguments] + ["any"] * len(function.own)
        return [(0, fresh + ["null"] * (len(types) - len(fresh)))]
    slot = result_slot(row.name, operands)
    if slot is not None:
        types[slot] = "any"
    return [(target, types) for target in function.edges[state]]
