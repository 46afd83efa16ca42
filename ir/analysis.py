"""What can be read off a function's graph of states: ways, reachability, cycles, live slots.

Everything here is iterative and near linear: a function may have tens of thousands of states in
one chain. Takes functions whose names resolve; says nothing about whether they should be accepted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from .nodes import (
    Branch,
    Call,
    Closure,
    Const,
    Exit,
    Expr,
    Fail,
    Function,
    Goto,
    Instruction,
    Note,
    Perform,
    Prim,
    Return,
    Set,
    Slot,
    State,
    Switch,
    TailCall,
)


def exit_targets(exit: Exit) -> tuple[str, ...]:
    """The states an exit names, in the order it names them; a state may come twice."""
    match exit:
        case Goto(target):
            return (target,)
        case Branch(_, then, otherwise):
            return (then, otherwise)
        case Switch(_, cases, default):
            targets = tuple(target for _, target in cases)
            return targets if default is None else (*targets, default)
        case Call() | Perform():
            return (exit.next,)
        case TailCall() | Return() | Fail():
            return ()


def successors(state: State) -> tuple[str, ...]:
    """Every state control can go to from `state`: what its exit names, then its handler's target."""
    targets = exit_targets(state.exit)
    return targets if state.handler is None else (*targets, state.handler.target)


def graph(function: Function) -> list[list[int]]:
    """For each state its successors, by position; KeyError at a target that is no state."""
    index = {state.name: number for number, state in enumerate(function.states)}
    return [[index[target] for target in successors(state)] for state in function.states]


def reachable(ways: Sequence[Iterable[int]], start: int = 0) -> set[int]:
    """The positions control can get to from `start`, itself included."""
    seen = {start}
    todo = [start]
    while todo:
        for target in ways[todo.pop()]:
            if target not in seen:
                seen.add(target)
                todo.append(target)
    return seen


def components(ways: Sequence[Sequence[int]]) -> list[list[int]]:
    """The strongly connected components, each after those it leads to (Tarjan 1972, iterative)."""
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
    """One shortest cycle through the first state of each component that has a cycle."""
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


def slots_read(expr: Expr) -> Iterator[str]:
    """The slots an expression reads, in no particular order."""
    todo = [expr]
    while todo:
        item = todo.pop()
        if isinstance(item, Slot):
            yield item.name
        elif isinstance(item, Prim):
            todo.extend(item.args)
        elif isinstance(item, Closure):
            todo.extend(item.captures)


def expressions(part: Instruction | Exit) -> tuple[Expr, ...]:
    """The outermost expressions of an instruction or exit, in the order they are evaluated."""
    match part:
        case Set(_, value) | Return(value):
            return (value,)
        case Note(_, fields):
            return (fields,)
        case Goto():
            return ()
        case Branch(condition):
            return (condition,)
        case Switch(subject):
            return (subject,)
        case Call(callee, args) | TailCall(callee, args):
            return (callee, *args)
        case Perform(_, args):
            return (args,)
        case Fail(error):
            return (error,)
        case _:
            return (part.box, part.value)


def may_fault(expr: Expr) -> bool:
    """Whether evaluating `expr` could fault; True where that is not plain to see."""
    todo = [expr]
    while todo:
        item = todo.pop()
        if isinstance(item, Prim):
            if item.op == "map":
                keys = item.args[::2]
                if len(item.args) % 2 or not all(
                    isinstance(key, Const) and type(key.value) is str for key in keys
                ):
                    return True
            elif item.op not in _TOTAL:
                return True
            todo.extend(item.args)
        elif isinstance(item, Closure):
            todo.extend(item.captures)
    return False


# Primitives that give an answer for every value.
_TOTAL = frozenset({"list", "is_null", "select", "not", "and", "or", "box", "eq"})


class LiveSlots:
    """Which slots' values may still be read from the beginning of a state on.

    A slot that is not live there need not be kept: whatever it holds, the program does the same.
    """

    def __init__(self, function: Function) -> None:
        self._slots = function.slots
        self._bits = {name: 1 << number for number, name in enumerate(function.slots)}
        self._index = {state.name: number for number, state in enumerate(function.states)}
        self._live = self._solve(function)

    def at(self, state: str) -> frozenset[str]:
        """The slots live where `state` begins; KeyError if there is no such state."""
        mask = self._live[self._index[state]]
        names = []
        while mask:
            bit = mask & -mask
            names.append(self._slots[bit.bit_length() - 1])
            mask ^= bit
        return frozenset(names)

    def _solve(self, function: Function) -> list[int]:
        bits = self._bits
        gen: list[int] = []
        kill: list[int] = []
        fault_kill: list[int] = []
        for state in function.states:
            read, written = 0, 0
            for part in (*state.body, state.exit):
                for expr in expressions(part):
                    for name in slots_read(expr):
                        read |= bits[name] & ~written
                if isinstance(part, Set):
                    written |= bits[part.slot]
            if isinstance(state.exit, Call | Perform):
                written |= bits[state.exit.slot]
            gen.append(read)
            kill.append(~written)
            # A fault may come before anything was stored, so only the handler's slot is fresh.
            fault_kill.append(~bits[state.handler.slot] if state.handler else 0)
        ways = graph(function)
        live = gen.copy()
        callers: list[list[int]] = [[] for _ in ways]
        for number, targets in enumerate(ways):
            for target in targets:
                callers[target].append(number)
        # Components come after what they lead to, so most states are final when first visited.
        todo = [member for component in components(ways) for member in component][::-1]
        waiting = bytearray(b"\1") * len(ways)
        while todo:
            number = todo.pop()
            waiting[number] = 0
            targets = ways[number]
            after = 0
            if function.states[number].handler is not None:
                fault = live[targets[-1]] & fault_kill[number]
                targets = targets[:-1]
            else:
                fault = 0
            for target in targets:
                after |= live[target]
            mask = gen[number] | (after & kill[number]) | fault
            if mask != live[number]:
                live[number] = mask
                for caller in callers[number]:
                    if not waiting[caller]:
                        waiting[caller] = 1
                        todo.append(caller)
        return live
