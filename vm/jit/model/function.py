"""The decoded code of one function: its states and their successors; inlining of other functions.

`inline` inlines a function: its states and slots follow those of the caller, and
its offsets continue. `frames` gives the frames of the machine at an offset.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from copy import copy
from operator import length_hint

from ....ir.primitives import PRIMITIVES
from ...code.image import FunctionCode, Image
from ...code.opcodes import NO_STATE, Opcode, decode
from .control_flow import FlowGraph
from .slots import AssignedSlots

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias

Instruction: TypeAlias = tuple[int, Opcode, tuple[int, ...]]
# A function, an offset in its code, and the Python locals of its slots: '' for an empty slot, several names
# with commas for a list of their values.
Place: TypeAlias = tuple[int, int, list[str]]

# Offset of code that belongs to no frame.
NOWHERE = 1 << 40


class PrepaidTicks:
    """Ticks charged in advance: `ticks_per_iteration` for each remaining iteration, minus those `used` in the
    current one.

    Iterations remain until the local `index` equals `e`, or without an index as long as `r` has items.
    """

    __slots__ = ("index", "ticks_per_iteration", "used")

    def __init__(self, index: str, ticks_per_iteration: int, used: int) -> None:
        self.index = index
        self.ticks_per_iteration = ticks_per_iteration
        self.used = used

    def ticks(self, local: Mapping[str, Any]) -> int:
        iterations = abs(local["e"] - local[self.index]) if self.index else length_hint(local["r"]) + 1
        return iterations * self.ticks_per_iteration - self.used


class Part:
    """One function within a text: the function itself, or an inlined one.

    Attributes:
        offset, slot, state: the positions of its first code word, slot and state among all.
        call: the calling state, -1 for the function itself.
        is_tail: whether the call is a tail call, so that the caller's frame no longer exists.
        is_spread: whether its slots are the items of the list in the function's only slot (`Operation`).
        assigned_slots: the assigned slots; None if the function is entered in the middle.
        leaf_states: with partial inlining, the states that return without a call.
    """

    __slots__ = (
        "assigned_slots",
        "call",
        "code",
        "index",
        "is_tail",
        "is_unpacked",
        "leaf_states",
        "offset",
        "slot",
        "state",
    )

    def __init__(self, index: int, code: FunctionCode, offset: int, slot: int, state: int, call: int) -> None:
        self.index = index
        self.code = code
        self.is_unpacked = False
        self.offset = offset
        self.slot = slot
        self.state = state
        self.call = call
        self.is_tail = False
        self.assigned_slots: AssignedSlots | None = None
        self.leaf_states: set[int] | None = None

    @property
    def slots_to_clear(self) -> list[int]:
        """The slots to clear at the start of the function."""
        if self.assigned_slots is None or self.leaf_states is not None:
            return []
        to_clear = self.assigned_slots.to_clear
        return [self.slot + slot for slot in range(len(self.code.slots)) if to_clear >> slot & 1]


class Function:
    """A function of an image, or the part of it that is reachable from the state `start`.

    Attributes:
        states: the instructions of each state.
        edges: the successors of each state.
        parts: the function and its inlined functions.
        restarts: whether a state ends in a self tail call, which becomes a jump to the start.
        inlined_calls: the inlined functions, by calling state.
        fallback_calls: calling states of partially inlined functions.
        names: the Python locals of the slots.
        exit_jumps: jumps (state, target) at which the text ends and another entry continues (`leave_loops`).
        roots: the entry states.
        prepaid_ticks: the ticks charged in advance at marks (`python_text.PREPAID`).
        trees: the result of `trees.trees`, until other functions are inlined.
    """

    def __init__(self, image: Image, index: int, start: int | None = None) -> None:
        self.image = image
        self.index = index
        self.code = code = image.functions[index]
        self.is_entry = start is not None
        self.start = start or 0
        self.states: list[list[Instruction]] = [
            list(decode(code.code, *code.bounds(number))) for number in range(len(code.states))
        ]
        self.offsets = [state[0][0] for state in self.states]
        self.size = len(code.code)
        self.slots = len(code.slots)
        self.names = [f"s{slot}" for slot in range(self.slots)]
        own = Part(index, code, 0, 0, 0, -1)
        self.parts = [own]
        self.part_of = [own] * len(self.states)
        self.inlined_calls: dict[int, Part] = {}
        self.fallback_calls: dict[int, Part] = {}
        self.exit_jumps: set[tuple[int, int]] = set()
        self.prepaid_ticks: list[PrepaidTicks] = []
        self.trees: list[Any] = []
        # The slots that change after the function has begun.
        self.changed = stored = self.stored()
        # A function that is entered in the middle calls the complete function.
        self.restarts = [
            not self.is_entry and self._calls_itself(state, set(stored)) for state in self.states
        ]
        self.edges = [self._targets(number) for number in range(len(self.states))]
        self.roots = {self.start} | {target for target, _ in code.handlers.values()}

    def stored(self) -> set[int]:
        """The slots with stores."""
        return {slot for state in self.states for slot in stores(state)} | {
            slot for _, slot in self.code.handlers.values()
        }

    def _calls_itself(self, state: list[Instruction], stored: set[int]) -> bool:
        """Whether a state ends in a self tail call with the same captures."""
        _, row, operands = state[-1]
        code = self.code
        own = range(code.parameters, code.parameters + code.captures)
        if row.name != "TAILCALL" or operands[0] != code.parameters or code.rest:
            return False
        if any(slot in stored for slot in own):
            return False
        stack = _stack(state)
        name, words, captures = stack[-1 - operands[0]]
        if name != "CLOSURE" or words[0] != self.index:
            return False
        if [(name, words[0]) for name, words, _ in captures] != [("LOAD", slot) for slot in own]:
            return False
        arguments = stack[len(stack) - code.parameters :]
        self.changed |= {
            slot for slot, (name, words, _) in enumerate(arguments) if (name, words) != ("LOAD", (slot,))
        }
        return True

    def _targets(self, number: int) -> list[int]:
        _, row, operands = self.states[number][-1]
        match row.name:
            case "JUMP":
                return [operands[0]]
            case "BRANCH":
                return list(operands)
            case "SWITCH":
                table = list(self.code.tables[operands[0]].values())
                return table + ([] if operands[1] == NO_STATE else [operands[1]])
            case "CALL":
                return [operands[2]]
            case "PERFORM":
                return [operands[2]]
            case "PARALLEL":
                return [operands[1]]
            case "TAILCALL" if self.restarts[number]:
                return [0]
            case _:
                return []

    def leave_loops(self, graph: FlowGraph) -> None:
        """End the text at jumps back to a loop around its start. graph: the graph of the complete
        function.
        """
        successors = {self.start}
        todo = [self.start]
        back = []
        while todo:
            state = todo.pop()
            for target in self.edges[state]:
                if state in graph.position and graph.is_back(state, target):
                    back.append((state, target))
                elif target not in successors:
                    successors.add(target)
                    todo.append(target)
        self.exit_jumps = {(state, target) for state, target in back if target not in successors}

    def is_end(self, state: int) -> bool:
        """Whether a state returns from the function of a loop, whose captures are inspected afterwards."""
        return (
            self.states[state][-1][1].name == "RETURN"
            and self.part_of[state].call < 0
            and self.index == self.image.entry
            and self.image.meta.get("kind") == "loop"
        )

    @property
    def text_edges(self) -> list[list[int]]:
        """The successors of each state within this text."""
        if not self.exit_jumps:
            return self.edges
        return [
            [target for target in targets if (state, target) not in self.exit_jumps]
            for state, targets in enumerate(self.edges)
        ]

    # --- functions written in place -----------------------------------------------------------

    def inline(
        self,
        call: int,
        other: Function,
        assigned_slots: AssignedSlots,
        tests: Iterable[int] = (),
        leaf_states: set[int] | None = None,
    ) -> None:
        """Inline a complete function in place of the call at the end of a state.

        leaf_states: with partial inlining, only these states are inlined, with the states `tests` that lead
        to them; on other paths the function is called.
        """
        part = Part(other.index, other.code, self.size, self.slots, len(self.states), call)
        part.assigned_slots = assigned_slots
        part.is_unpacked = isinstance(other, Operation)
        part.is_tail = self.states[call][-1][1].name == "TAILCALL"
        if leaf_states is not None:
            part.leaf_states = {part.state + state for state in leaf_states}
        self.names += self._names_for(part, other)
        self.parts.append(part)
        self.inlined_calls[call] = part
        self.size += other.size
        self.slots += other.slots
        successors = self.edges[call]
        self.edges[call] = [part.state]
        for number, state in enumerate(other.states):
            if leaf_states is not None and number not in leaf_states and number not in tests:
                self.fallback_calls[len(self.states)] = part
                self.states.append(self.states[call][-1:])
                self.offsets.append(self.states[call][-1][0])
                self.part_of.append(self.part_of[call])
                self.restarts.append(False)
                self.edges.append(list(successors))
                continue
            is_return = state[-1][1].name == "RETURN" or (
                state[-1][1].name == "TAILCALL" and not other.restarts[number]
            )
            self._add(part, other, number)
            if is_return:
                self.edges[-1] = list(successors)

    def _add(self, part: Part, other: Function, number: int) -> None:
        """Add a state of an inlined function."""
        self.states.append([_relocated(instruction, part) for instruction in other.states[number]])
        self.offsets.append(other.offsets[number] + part.offset)
        self.part_of.append(part)
        self.restarts.append(other.restarts[number])
        self.edges.append([target + part.state for target in other.edges[number]])

    def merge(self, others: Iterable[tuple[Function, AssignedSlots]]) -> None:
        """Merge complete functions into this text; tail calls among them become jumps."""
        for other, assigned_slots in others:
            part = Part(other.index, other.code, self.size, self.slots, len(self.states), -1)
            part.assigned_slots = assigned_slots
            self.names += [f"s{part.slot + slot}" for slot in range(other.slots)]
            self.parts.append(part)
            self.size += other.size
            self.slots += other.slots
            for number in range(len(other.states)):
                self._add(part, other, number)
        by_index = {part.index: part for part in self.parts}
        for state, instructions in enumerate(self.states):
            target = by_index.get(tail_callee(self.image, instructions))
            if target is not None and target is not self.part_of[state] and not self.restarts[state]:
                self.inlined_calls[state] = target
                self.edges[state] = [target.state]

    def _names_for(self, part: Part, other: Function) -> list[str]:
        """The Python locals for the slots of an inlined function.

        An argument from a slot of the caller that does not change during the call shares the caller's local.
        """
        names = [f"s{part.slot + slot}" for slot in range(other.slots)]
        state = self.states[part.call]
        # With its own local, such a value can have a single reference and be changed in place.
        if {"put", "cons"} & {self.image.constants[words[0]] for words in other.primitives()}:
            return names
        given = part.code.parameters
        stack = _stack(state)
        _, _, captures = stack[-1 - given]
        sources = stack[len(stack) - given :] + captures
        changed = set() if part.leaf_states is not None else other.changed
        # Stores of the calling state precede the loads of the arguments.
        for slot, (name, words, _) in enumerate(sources):
            if name == "LOAD" and slot not in changed:
                names[slot] = self.names[words[0]]
        return names

    def closures(self) -> set[int]:
        """The functions whose closures the code creates, except in self tail calls."""
        return {
            words[0]
            for state, is_restart in zip(self.states, self.restarts, strict=True)
            for _, row, words in state
            if row.name == "CLOSURE" and not is_restart
        }

    def primitives(self) -> Iterable[tuple[int, ...]]:
        """The operands of the primitive applications."""
        return (words for state in self.states for _, row, words in state if row.name == "PRIM")

    def is_return(self, state: int) -> bool:
        """Whether a state returns from an inlined function."""
        name = self.states[state][-1][1].name
        is_return = name == "RETURN" or (name == "TAILCALL" and not self.restarts[state])
        return is_return and self.returns_to(self.part_of[state]) >= 0

    def returns_to(self, part: Part) -> int:
        """The state that receives the result of a part, found through its tail calls; -1 for none."""
        while part.is_tail:
            part = self.part_of[part.call]
        return part.call

    def result_slot(self, state: int) -> int | None:
        """The slot in which the exit of a state stores its result."""
        if self.is_return(state):
            state = self.returns_to(self.part_of[state])
        _, row, operands = self.states[state][-1]
        return result_slot(row.name, operands)

    def ticks(self, state: int, target: int) -> bool:
        """Whether the edge from a state to a target uses a tick."""
        part = self.part_of[state]
        if state in self.inlined_calls:
            return self.inlined_calls[state].leaf_states is None
        if part.leaf_states is not None and state not in part.leaf_states:
            return target in part.leaf_states
        if state in self.fallback_calls:
            state = self.fallback_calls[state].call
        elif self.is_return(state):
            state = self.returns_to(part)
        # The result of an effect has been charged already.
        return target <= state and self.states[state][-1][1].name != "PERFORM"

    def tick_offset(self, state: int, target: int) -> int:
        """The offset at which the machine stops if the edge from a state to a target has no tick left."""
        part = self.part_of[state]
        is_first = part.leaf_states is not None and state not in part.leaf_states
        return self.offsets[part.state if is_first else target]

    def enclosing_parts(self, state: int) -> Iterable[Part]:
        """The part of a state and its callers, innermost first."""
        part = self.part_of[state]
        while True:
            yield part
            if part.call < 0:
                return
            part = self.part_of[part.call]

    def frames(self, offset: int) -> tuple[Place, ...]:
        """The frames of the machine at an offset, outermost first."""
        if offset == NOWHERE:
            return ()
        part = next(part for part in reversed(self.parts) if part.offset <= offset)
        found = [(part.index, offset - part.offset, self.names_at(part, offset))]
        while (call := self.returns_to(part)) >= 0:
            offset = self.states[call][-1][0]
            part = self.part_of[call]
            found.append((part.index, offset - part.offset, self.names_at(part, offset)))
        return tuple(reversed(found))

    def names_at(self, part: Part, offset: int) -> list[str]:
        """The Python locals of the slots of a part, at the beginning or the exit of a state."""
        names = self.names[part.slot : part.slot + len(part.code.slots)]
        if part.is_unpacked:
            return ["".join(f"{name}," for name in names)]
        if part.assigned_slots is not None:
            state = bisect_right(part.code.offsets, offset - part.offset) - 1
            is_exit = offset - part.offset != part.code.offsets[state]
            full = part.assigned_slots.assigned_at(state, is_exit)
            names = [name if full >> slot & 1 else "" for slot, name in enumerate(names)]
        return names


class Operation(Function):
    """A function that applies a primitive to its argument list (`operation`), specialised to a number of
    arguments: each argument has a slot, in place of the slot of the list.
    """

    def __init__(self, image: Image, index: int, count: int) -> None:
        super().__init__(image, index)
        (first, _, (name,)), (_, load, _), (offset, primitive, _), end = self.states[0]
        self.code = copy(self.code)
        self.code.parameters, self.code.rest = count, False
        self.code.slots = self.code.slots * count
        self.slots = count
        self.names = [f"s{slot}" for slot in range(count)]
        loads = [(first + slot, load, (slot,)) for slot in range(count)]
        self.states = [[*loads, (offset, primitive, (name, count)), end]]


def _stack(state: list[Instruction]) -> list[Any]:
    """The operand stack before the exit of a state, as (instruction, words, operands)."""
    stack: list[Any] = []
    for _, row, words in state[:-1]:
        count = row.popped(words)
        taken = stack[len(stack) - count :]
        del stack[len(stack) - count :]
        if row.pushes:
            stack.append((row.name, words, taken))
    return stack


def tail_callee(image: Image, state: list[Instruction]) -> int:
    """The callee of the tail call at the end of a state if the number of arguments matches; -1 otherwise."""
    _, row, words = state[-1]
    if row.name != "TAILCALL":
        return -1
    name, (index, *_), _ = _stack(state)[-1 - words[0]]
    if name != "CLOSURE" or image.functions[index].rest or image.functions[index].parameters != words[0]:
        return -1
    return index  # type: ignore[no-any-return]


def _relocated(instruction: Instruction, part: Part) -> Instruction:
    offset, row, words = instruction
    first = {"slot": part.slot, "state": part.state, "state?": part.state}
    moved = [
        word if word == NO_STATE else word + first.get(kind, 0)
        for kind, word in zip(row.operands, words, strict=True)
    ]
    return offset + part.offset, row, tuple(moved)


def stores(state: list[Instruction]) -> Iterable[int]:
    """The slots that a state stores to, including its exit."""
    for _, row, operands in state:
        if row.name == "STORE":
            yield operands[0]
    slot = result_slot(state[-1][1].name, state[-1][2])
    if slot is not None:
        yield slot


def result_slot(name: str, operands: tuple[int, ...]) -> int | None:
    match name:
        case "CALL" | "PERFORM":
            return operands[1]
        case "PARALLEL":
            return operands[0]
        case _:
            return None


def operation(image: Image, index: int, count: int) -> str | None:
    """The primitive of a function that only applies it to its arguments, of which there are `count`; else
    None.
    """
    code, constants = image.functions[index], image.constants
    if not code.rest or code.parameters != 1 or code.captures or len(code.states) != 1:
        return None
    words = [(row.name, operands) for _, row, operands in decode(code.code)]
    if [name for name, _ in words] != ["CONST", "LOAD", "PRIM", "RETURN"] or words[1][1][0] != 0:
        return None
    name = constants[words[0][1][0]]
    signature = PRIMITIVES.get(name) if type(name) is str else None
    if constants[words[2][1][0]] != "operate" or signature is None or name == "operate":
        return None
    is_fit = count >= signature.least and (signature.most is None or count <= signature.most)
    return name if is_fit else None
