"""Analyses of a function's state graph: edges, reachability, cycles, slots read.

All analyses are iterative and nearly linear: a function may have tens of thousands of states in
one chain. The input must have no unresolved names; validity is decided by `verify`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import assert_never

from . import nodes


def exit_targets(exit: nodes.Exit) -> tuple[str, ...]:
    """The target states of an exit, in order; a state can occur twice."""
    match exit:
        case nodes.Goto():
            return (exit.target,)
        case nodes.Branch():
            return (exit.then, exit.otherwise)
        case nodes.Switch():
            targets = tuple([target for _, target in exit.cases])
            return targets if exit.default is None else (*targets, exit.default)
        case nodes.Call() | nodes.Perform() | nodes.Parallel():
            return (exit.next,)
        case nodes.TailCall() | nodes.Return() | nodes.Fail():
            return ()
        case _:
            assert_never(exit)


def successors(state: nodes.State) -> tuple[str, ...]:
    """All successors of a state: the targets of its exit, then the target of its handler."""
    targets = exit_targets(state.exit)
    return targets if state.handler is None else (*targets, state.handler.target)


def graph(function: nodes.Function) -> list[list[int]]:
    """The successors of each state, by position. Raises KeyError for an unknown target."""
    index = {state.name: number for number, state in enumerate(function.states)}
    return [[index[target] for target in successors(state)] for state in function.states]


def reachable(ways: Sequence[Iterable[int]], start: int = 0) -> set[int]:
    """The positions reachable from `start`, including `start`."""
    seen = {start}
    todo = [start]
    while todo:
        for target in ways[todo.pop()]:
            if target not in seen:
                seen.add(target)
                todo.append(target)
    return seen


def components(ways: Sequence[Sequence[int]]) -> list[list[int]]:
    """The strongly connected components in reverse topological order (Tarjan 1972, iterative)."""
    count = len(ways)
    order = [-1] * count
    low = [0] * count
    on_stack = bytearray(count)
    stack: list[int] = []
    found: list[list[int]] = []
    clock = 0
    for root in range(count):
        if order[root] >= 0:
            continue
        path = [(root, iter(ways[root]))]
        order[root] = low[root] = clock
        clock += 1
        stack.append(root)
        on_stack[root] = 1
        while path:
            node, targets = path[-1]
            for target in targets:
                if order[target] < 0:
                    order[target] = low[target] = clock
                    clock += 1
                    stack.append(target)
                    on_stack[target] = 1
                    path.append((target, iter(ways[target])))
                    break
                if on_stack[target] and order[target] < low[node]:
                    low[node] = order[target]
            else:
                path.pop()
                if path and low[node] < low[path[-1][0]]:
                    low[path[-1][0]] = low[node]
                if low[node] == order[node]:
                    component = []
                    while True:
                        member = stack.pop()
                        on_stack[member] = 0
                        component.append(member)
                        if member == node:
                            break
                    found.append(component)
    return found


def cycles(ways: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """For each component with a cycle, a shortest cycle through its first state."""
    for component in components(ways):
        first = min(component)
        if len(component) > 1 or first in ways[first]:
            yield _cycle_through(ways, first, set(component))


def _cycle_through(ways: Sequence[Sequence[int]], start: int, within: set[int]) -> list[int]:
    came_from: dict[int, int] = {}
    todo = [start]
    for node in todo:
        for target in ways[node]:
            if target == start:
                path = [node]
                while path[-1] != start:
                    path.append(came_from[path[-1]])
                return path[::-1]
            if target in within and target not in came_from:
                came_from[target] = node
                todo.append(target)
    raise ValueError("no cycle goes through this state")


# --- slots ------------------------------------------------------------------------------------


def slots_read(expr: nodes.Expr) -> list[str]:
    """The slots that an expression reads, in no particular order."""
    found = []
    todo = [expr]
    while todo:
        item = todo.pop()
        # `type` instead of `isinstance`: this runs for every expression of a program.
        kind = type(item)
        if kind is nodes.Slot:
            found.append(item.name)  # type: ignore[union-attr]
        elif kind is nodes.Prim:
            todo += item.args  # type: ignore[union-attr]
        elif kind is nodes.Closure:
            todo += item.captures  # type: ignore[union-attr]
    return found


def functions_named(expr: nodes.Expr) -> list[str]:
    """The functions of the closures in an expression, in no particular order."""
    found = []
    todo = [expr]
    while todo:
        item = todo.pop()
        if isinstance(item, nodes.Closure):
            found.append(item.function)
            todo += item.captures
        elif isinstance(item, nodes.Prim):
            todo += item.args
    return found


def expressions(part: nodes.Instruction | nodes.Exit) -> tuple[nodes.Expr, ...]:
    """The outermost expressions of an instruction or exit, in evaluation order."""
    # By type, most frequent first: this runs for every part of a program.
    kind = type(part)
    if kind is nodes.Goto:
        return ()
    name = _ONE_EXPRESSION.get(kind)
    if name is not None:
        return (getattr(part, name),)
    match part:
        case nodes.Call() | nodes.TailCall():
            return (part.callee, *part.args)
        case nodes.Parallel():
            return (part.callee, part.items)
        case nodes.SetBox():
            return (part.box, part.value)
    raise AssertionError(part)


_ONE_EXPRESSION: dict[type, str] = {
    nodes.Set: "value",
    nodes.Note: "fields",
    nodes.Branch: "condition",
    nodes.Switch: "subject",
    nodes.Perform: "args",
    nodes.Return: "value",
    nodes.Fail: "error",
}


def may_fault(expr: nodes.Expr) -> bool:
    """Whether evaluating `expr` could fault; True if unknown."""
    todo = [expr]
    while todo:
        item = todo.pop()
        if isinstance(item, nodes.Prim):
            if item.op == "map":
                keys = item.args[::2]
                if len(item.args) % 2 or not all(
                    isinstance(key, nodes.Const) and type(key.value) is str for key in keys
                ):
                    return True
            elif item.op not in _TOTAL:
                return True
            todo.extend(item.args)
        elif isinstance(item, nodes.Closure):
            todo.extend(item.captures)
    return False


# Primitives that are defined for all values.
_TOTAL = frozenset({"list", "is_null", "select", "not", "and", "or", "box", "dynamic_box", "eq"})
