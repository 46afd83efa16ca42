"""Liveness: the slots that may be read again. A store to any other slot is dropped.

A slot is read where it is loaded, and where a frame can be inspected: at a tick, a call or an effect
(`model/slots.py`). Inside a batch of a counted loop no frame can be inspected.
"""

from __future__ import annotations

from collections.abc import Collection

from ..model.control_flow import FlowGraph
from ..model.counted_loop import CountedLoop
from ..model.function import Function, Part
from ..model.slots import WAITS
from .type_inference import KnownTypes

# Kinds with a single value, whose loads become constants.
SINGLETONS = {"null": "None", "true": "True", "false": "False"}


class Liveness:
    """The live slots as bit masks: before a state begins, and after its exit."""

    def __init__(self, function: Function, graph: FlowGraph, known: KnownTypes) -> None:
        self.function = function
        self.graph = graph
        self.known = known
        # Instructions whose value is not used.
        self.unused: set[int] = set()
        # Slots that share a Python local count as one slot.
        places = {name: slot for slot, name in reversed(list(enumerate(function.names)))}
        self.root = [places[name] for name in function.names]
        self.live_in: dict[int, int] = dict.fromkeys(graph.order, 0)
        self.live_out: dict[int, int] = {}
        self.plans: dict[int, str] = {}
        self.solve(graph.order)

    def solve(self, states: Collection[int]) -> None:
        """Compute liveness for these states from that of the others."""
        todo = list(states)
        while todo:
            state = todo.pop()
            self.live_out[state] = self.compute_live_out(state)
            before = self.compute_live_in(state)
            if before != self.live_in[state]:
                self.live_in[state] = before
                todo += [one for one in self.graph.predecessors[state] if one in states]
        for state in states:
            self.plan_stores(state)

    def loaded_slots(self, state: int) -> list[int]:
        """For each instruction of a state, the slot that it reads, or -1."""
        before = self.known.at_entry.get(state, [])
        stored: set[int] = set()
        found = []
        for offset, row, words in self.function.states[state]:
            slot = -1
            if row.name == "STORE":
                stored.add(words[0])
            elif offset in self.unused:
                pass
            elif row.name == "LOAD" and (
                words[0] in stored or not before or before[words[0]] not in SINGLETONS
            ):
                slot = self.root[words[0]]
            found.append(slot)
        return found

    def compute_live_in(self, state: int) -> int:
        live = self.live_out[state]
        instructions = self.function.states[state]
        for slot, (_, row, words) in zip(
            reversed(self.loaded_slots(state)), reversed(instructions), strict=True
        ):
            if row.name == "STORE":
                live &= ~(1 << words[0])
            elif slot >= 0:
                live |= 1 << slot
        return live

    def compute_live_out(self, state: int) -> int:
        function = self.function
        part = function.part_of[state]
        name = function.states[state][-1][1].name
        live = 0
        for target in function.edges[state]:
            if (state, target) in function.exit_jumps:
                return -1
            live |= self.live_on_edge(state, target)
        if function.restarts[state]:
            # A call assigns the parameters and clears the locals of the inlined function.
            count = len(part.code.slots) - part.code.parameters - part.code.captures
            anew = (1 << part.code.parameters) - 1 | ((1 << count) - 1) << len(part.code.slots) - count
            return live & ~(anew << part.slot)
        callee = function.inlined_calls.get(state)
        if callee is not None:
            live &= ~self.own_slots(callee)
        else:
            slot = function.result_slot(state)
            if slot is not None:
                live &= ~(1 << slot)
        if (name in WAITS and not self.is_opaque(state)) or function.is_end(state):
            live |= self.inspectable(part, state, True)
        if state in function.fallback_calls:
            outer = function.fallback_calls[state]
            live |= self.root_mask(outer, (1 << outer.code.parameters + outer.code.captures) - 1)
        return live

    def is_opaque(self, state: int) -> bool:
        """Whether the frame cannot be inspected at the call of a state."""
        return False

    def live_on_edge(self, state: int, target: int) -> int:
        """The live slots on the edge from a state to a target."""
        live = self.live_in.get(target, 0)
        # The frame can be inspected at the head of a loop when a batch of iterations begins
        # (`counted_loops`).
        if self.function.ticks(state, target) or target in self.graph.headers:
            live |= self.visible_on_edge(state, target)
        return live

    def own_slots(self, part: Part) -> int:
        """The slots of a part that have their own Python locals."""
        return sum(1 << slot for slot in self.slots(part) if self.root[slot] == slot)

    def slots(self, part: Part) -> range:
        return range(part.slot, part.slot + len(part.code.slots))

    def visible_on_edge(self, state: int, target: int) -> int:
        """The slots that are visible if the machine runs out of fuel on the edge from a state to a target."""
        function = self.function
        part = function.part_of[target]
        is_first = target in (part.leaf_states or ()) and state not in (part.leaf_states or ())
        return self.inspectable(part, part.state if is_first else target, False)

    def inspectable(self, part: Part, state: int, is_exit: bool) -> int:
        """The slots of a frame that are visible at the beginning or the exit of a state, including those
        of its callers.
        """
        found = 0
        if state in self.function.fallback_calls:
            state = self.function.fallback_calls[state].call
        while True:
            if part.assigned_slots is None:
                found |= self.root_mask(part, -1)
            else:
                found |= self.root_mask(part, part.assigned_slots.assigned_at(state - part.state, is_exit))
            state, is_exit = self.function.returns_to(part), True
            if state < 0:
                return found
            part = self.function.part_of[state]

    def root_mask(self, part: Part, slots: int) -> int:
        """The slots of a part as a mask over all slots of the text."""
        found = 0
        for slot in self.slots(part):
            if slots >> slot - part.slot & 1:
                found |= 1 << self.root[slot]
        return found

    def is_result_used(self, state: int) -> bool:
        """Whether the result that the exit of a state stores is used."""
        function = self.function
        slot = function.result_slot(state)
        assert slot is not None
        live = 0
        for target in function.edges[state]:
            if (state, target) in function.exit_jumps:
                return True
            live |= self.live_on_edge(state, target)
        return bool(live >> slot & 1)

    def plan_stores(self, state: int) -> None:
        """Decide about each STORE: `drop` it, or `keep` the value for the following LOAD."""
        live = self.live_out[state]
        instructions = self.function.states[state]
        loaded = self.loaded_slots(state)
        after_load = 0
        for index in range(len(instructions) - 1, -1, -1):
            offset, row, words = instructions[index]
            if row.name == "STORE":
                slot = words[0]
                if not live >> slot & 1:
                    self.plans[offset] = "drop"
                elif loaded[index + 1] == slot and not after_load >> slot & 1:
                    self.plans[offset] = "keep"
                live &= ~(1 << slot)
            elif loaded[index] >= 0:
                after_load = live
                live |= 1 << loaded[index]


class BatchLiveness(Liveness):
    """Liveness inside a batch of a counted loop. `outer` is that of the surrounding function."""

    def __init__(self, outer: Liveness, count: CountedLoop) -> None:
        self.function = outer.function
        self.graph = outer.graph
        self.known = outer.known
        self.root = outer.root
        self.count = count
        self.unused = count.unused
        self.live_in = dict(outer.live_in)
        self.live_out = dict(outer.live_out)
        self.plans = dict(outer.plans)
        for state in count.states:
            self.live_in[state] = 0
            for offset, _, _ in self.function.states[state]:
                self.plans.pop(offset, None)
        self.solve(count.states)

    def is_opaque(self, state: int) -> bool:
        return True

    def live_on_edge(self, state: int, target: int) -> int:
        count = self.count
        if count.is_within(state, target):
            return self.live_in[target]
        live = super().live_on_edge(state, target)
        if target == count.header:
            # Slots with a known difference to the index are stored after the last iteration of a batch.
            live &= ~sum(1 << slot for slot in (count.index, *count.derived))
        return live
