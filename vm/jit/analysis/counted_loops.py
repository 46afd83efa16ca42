"""Counted loops: detection of loops whose trip count is known when they begin.

If the head of a loop compares a slot with a fixed bound, each back edge adds or subtracts one, and no exit
inside can suspend, then the number of remaining iterations is known. Batches of them run as `for … in range`;
fuel is charged once per batch, and unused fuel is returned if the loop is left early or a fault occurs.

Must not contain: code generation (`codegen/states.py`), tick accounting (`jit/runtime/fuel.py`).
"""

from __future__ import annotations

from collections.abc import Container

from ..model.control_flow import FlowGraph
from ..model.counted_loop import CountedLoop
from ..model.function import Function
from ..model.trees import Node
from ..model.type_lattice import INTEGERS
from .liveness import BatchLiveness, Liveness
from .type_inference import KnownTypes

# Comparisons of an index with its bound: the negated comparison, and the comparison with swapped operands.
# `_STEPS` has the direction in which the index must change (0: either) to reach the bound, and the index at
# the exit.
_OPPOSITE = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "num_eq": "ne"}
_SWAPPED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "ne": "ne", "num_eq": "num_eq"}
_STEPS = {"lt": (1, 0), "le": (1, 1), "gt": (-1, 0), "ge": (-1, -1), "ne": (0, 0)}
# Exits of states at which the machine cannot be suspended. Inlined calls are handled separately.
_NOT_SUSPENDING = frozenset({"JUMP", "BRANCH", "SWITCH", "RETURN"})


def find_counted_loops(
    function: Function, graph: FlowGraph, known: KnownTypes, live: Liveness, nodes: list[list[Node]]
) -> dict[int, CountedLoop]:
    """The counted loops, by header. nodes: the function's `trees`."""
    headers = set(graph.headers)
    if graph.roots == {function.start} and graph.predecessors[function.start]:
        headers.add(function.start)
    found = {}
    for header in headers:
        if _condition(function, header) is not None:
            loop = _LoopAnalysis(function, graph, known, live, nodes).loop(header, headers)
            if loop is not None:
                found[header] = loop
    return found


def iterate_items(
    count: CountedLoop, live: BatchLiveness, below: Container[int], nodes: list[list[Node]]
) -> None:
    """Determine whether the loop uses its index only to read the items of one list.

    below: offsets of `nth` instructions whose index is within the list.
    """
    root = live.root
    found = []
    for state in count.states:
        fine = set(count.unused)
        for node in nodes[state]:
            if node.name == "STORE" and live.plans.get(node.offset) == "drop":
                fine |= {
                    one.offset for one in node.operands[0].all() if node.operands[0].offset in count.sums
                }
            elif node.name == "nth" and node.offset in below:
                index, items = node.operands
                if items.name == "LOAD" and root[items.slot] == count.index:
                    index, items = items, index
                found.append(live.function.names[items.slot])
                fine.add(index.offset)
        for node in nodes[state]:
            if node.name == "LOAD" and root[node.slot] == count.index and node.offset not in fine:
                return
    if len(set(found)) == 1:
        count.items, count.uses = found[0], len(found)


def _condition(function: Function, header: int) -> str | None:
    """The primitive of the branch condition of a state that does nothing else; None for other states."""
    instructions = function.states[header]
    names = [row.name for _, row, _ in instructions]
    if names[2:] != ["PRIM", "BRANCH"] or not {"LOAD", "CONST"}.issuperset(names[:2]):
        return None
    name = function.image.constants[instructions[2][2][0]]
    return str(name) if name in _SWAPPED else None


class _LoopAnalysis:
    """Analysis of one loop."""

    def __init__(
        self, function: Function, graph: FlowGraph, known: KnownTypes, live: Liveness, nodes: list[list[Node]]
    ) -> None:
        self.function = function
        self.graph = graph
        self.known = known
        self.live = live
        self.root = live.root
        self.nodes = nodes
        # Difference between a slot's value and the index at the start of the iteration: at the start of each
        # state, and at the end of the states with back edges.
        self.values: dict[int, dict[int, int]] = {}
        self.last: list[dict[int, int]] = []

    def loop(self, header: int, headers: set[int]) -> CountedLoop | None:
        graph, function = self.graph, self.function
        back = [state for state in graph.predecessors[header] if graph.is_back(state, header)]
        states: set[int] = set()
        todo = list(back)
        while todo:
            state = todo.pop()
            if state != header and state not in states:
                states.add(state)
                todo += graph.predecessors[state]
        firsts = [target for target in graph.edges[header] if target in states]
        if len(firsts) != 1 or header in back or not all(function.ticks(state, header) for state in back):
            return None
        loop = CountedLoop(header, firsts[0], states)
        order = sorted(states, key=graph.position.__getitem__)
        if headers & states or not all(self.cannot_suspend(state) for state in order):
            return None
        if not self.find_index(loop) or not self.follow_iteration(loop, order, set(back)):
            return None
        live_in = self.live.live_in[loop.first] | 1 << loop.index
        first, *others = self.last
        for slot, value in first.items():
            if not live_in >> slot & 1 and all(one.get(slot) == value for one in others):
                loop.derived[slot] = value - loop.step
        return loop

    def cannot_suspend(self, state: int) -> bool:
        """Whether the frame cannot be inspected while the state runs."""
        function = self.function
        return state not in function.fallback_calls and (
            function.restarts[state]
            or state in function.inlined_calls
            or function.states[state][-1][1].name in _NOT_SUSPENDING
        )

    def find_index(self, loop: CountedLoop) -> bool:
        """Find the index and the bound. True if the bound is constant; the step of the index is determined
        later.
        """
        function, header = self.function, loop.header
        name = str(_condition(function, header))
        test = self.nodes[header][2]
        kinds = self.known.at_entry[header]
        if self.graph.edges[header][0] != loop.first:
            name = _OPPOSITE[name]
        stored = {self.root[slot] for state in loop.states for slot in self.stored(state)}
        left, right = test.operands
        for index, bound, relation in ((left, right, name), (right, left, _SWAPPED[name])):
            if relation not in _STEPS or index.name != "LOAD" or kinds[index.slot] not in INTEGERS:
                continue
            value = None
            if bound.name == "CONST":
                value = function.image.constants[bound.slot]
                if type(value) is not int or value.bit_length() > 128:
                    continue
                text = f"({value})" if value < 0 else str(value)
            elif kinds[bound.slot] in INTEGERS and self.root[bound.slot] not in stored:
                text = function.names[bound.slot]
            else:
                continue
            loop.index = self.root[index.slot]
            loop.name = function.names[index.slot]
            if loop.index in stored:
                loop.step, more = _STEPS[relation]
                loop.bound = text + (f" + {more}" if more > 0 else f" - {-more}" if more else "")
                loop.limit = None if value is None else value + more
                return True
        return False

    def stored(self, state: int) -> set[int]:
        """The slots that a state of the loop may change."""
        function = self.function
        found = {node.slot for node in self.nodes[state] if node.name == "STORE"}
        result = function.result_slot(state)
        if function.restarts[state]:
            part = function.part_of[state]
            arguments = (
                self.nodes[state][-1].operands[-part.code.parameters :] if part.code.parameters else []
            )
            for number, node in enumerate(arguments):
                slot = part.slot + number
                if node.name != "LOAD" or self.root[node.slot] != self.root[slot]:
                    found.add(slot)
        elif state in function.inlined_calls:
            part = function.inlined_calls[state]
            found |= {slot for slot in self.live.slots(part) if self.root[slot] == slot}
        elif result is not None:
            found.add(result)
        return found

    # --- the index ------------------------------------------------------------------------------

    def follow_iteration(self, loop: CountedLoop, order: list[int], back: set[int]) -> bool:
        """Follow one iteration. True if all paths use the same number of ticks and change the index by
        its step.
        """
        function, header = self.function, loop.header
        self.values[loop.first] = {loop.index: 0}
        loop.ticks_before[loop.first] = int(function.ticks(header, loop.first))
        for state in order:
            # The index may be stored only at the end of an iteration.
            if state not in back and any(self.root[slot] == loop.index for slot in self.stored(state)):
                return False
            values = self.state(loop, state, state in back)
            if values is None:
                return False
            for target in self.graph.edges[state]:
                passed = loop.ticks_before[state] + function.ticks(state, target)
                if target == header:
                    if loop.ticks not in (0, passed):
                        return False
                    loop.ticks = passed
                elif target in loop.states:
                    if loop.ticks_before.setdefault(target, passed) != passed:
                        return False
                    old = self.values.get(target)
                    if old is None:
                        self.values[target] = dict(values)
                    else:
                        self.values[target] = {
                            slot: value for slot, value in old.items() if values.get(slot) == value
                        }
        return True

    def state(self, loop: CountedLoop, state: int, is_back: bool) -> dict[int, int] | None:
        """The differences at the end of a state; None if its back edge has another index than expected."""
        function, root = self.function, self.root
        values = self.values[state]
        known: dict[Node, int | None] = {}
        next_index: list[Node] = []
        for node in self.nodes[state]:
            known[node] = self.value(node, known, values)
            if known[node] is not None:
                loop.sums.add(node.offset)
            if node.name == "LOAD" and next_index and root[node.slot] == loop.index:
                return None
            if node.name == "STORE":
                self.put(values, root[node.slot], known[node.operands[0]])
                if root[node.slot] == loop.index:
                    next_index.append(node.operands[0])
        last = self.nodes[state][-1]
        if function.restarts[state]:
            part = function.part_of[state]
            count = part.code.parameters
            for slot in self.live.slots(part):
                if root[slot] == slot and slot != loop.index:
                    values.pop(slot, None)
            number = loop.index - part.slot
            if is_back and 0 <= number < count:
                next_index.append(last.operands[len(last.operands) - count + number])
        elif state in function.inlined_calls:
            part = function.inlined_calls[state]
            count = part.code.parameters
            given = last.operands[len(last.operands) - count :] if count else []
            for number, slot in enumerate(self.live.slots(part)):
                if root[slot] == slot:
                    self.put(values, slot, known[given[number]] if number < count else None)
        else:
            result = function.result_slot(state)
            if result is not None:
                self.put(values, root[result], None)
        if is_back:
            if loop.step == 0 and next_index and known[next_index[0]] in (1, -1):
                loop.step = known[next_index[0]] or 0
            if (
                len(next_index) != 1
                or known[next_index[0]] != loop.step
                or self.graph.edges[state] != [loop.header]
            ):
                return None
            self.last.append(values)
            loop.next_index.add(next_index[0].offset)
            loop.unused |= {node.offset for node in next_index[0].all()}
        return values

    def value(self, node: Node, known: dict[Node, int | None], values: dict[int, int]) -> int | None:
        """The difference between the value of an instruction and the index; None if unknown."""
        if node.name == "LOAD":
            return values.get(self.root[node.slot])
        if node.name in ("add", "sub") and len(node.operands) == 2:
            left, right = node.operands
            if node.name == "add" and left.name == "CONST":
                left, right = right, left
            more = self.function.image.constants[right.slot] if right.name == "CONST" else None
            base = known[left]
            if type(more) is int and base is not None:
                return base + more if node.name == "add" else base - more
        return None

    def put(self, values: dict[int, int], slot: int, value: int | None) -> None:
        if value is None:
            values.pop(slot, None)
        else:
            values[slot] = value
