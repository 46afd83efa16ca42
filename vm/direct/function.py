"""One function's code, taken apart: its states and where they lead. What it calls may be written in place.

A function in whose text others are written in place (`absorb`) has their states and slots after its own;
offsets go on likewise. `frames` says which frames of the machine stand at an offset.
"""

from __future__ import annotations

from ..opcodes import NO_STATE, decode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, TypeAlias

    from ..image import Image
    from ..opcodes import Opcode
    from .flow import FlowGraph

    Instruction: TypeAlias = tuple[int, Opcode, tuple[int, ...]]
    # A function, an offset in its code, and which of the slots of the text is its first.
    Place: TypeAlias = tuple[int, int, int]

# The offset of what belongs to no frame.
NOWHERE = 1 << 40


class Part:
    """One function in a text: the text's own, or one that is written in place of a call.

    offset, slot, state: where its own begin among all. call: the state that calls it, -1 for the own.
    locals: the slots besides parameters and captures that its code uses.
    """

    __slots__ = ("call", "code", "index", "locals", "offset", "slot", "state")

    def __init__(self, image: Image, index: int, offset: int, slot: int, state: int, call: int) -> None:
        self.index = index
        self.code = image.functions[index]
        self.offset = offset
        self.slot = slot
        self.state = state
        self.call = call
        self.locals: list[int] = []


class Function:
    """A function of an image, or what of it can be reached from the start of the state `start`.

    states: the instructions of each. edges: the states each leads to. parts: the functions in it.
    again: whether a state ends in a tail call of the function itself, which is a jump to its start.
    called: the functions written in place, by the state that calls them. left: the jumps, from a state to
    another, where the text ends and that of another entry goes on (`leave_loops`).
    roots: the states where control may come in.
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
        own = Part(image, index, 0, 0, 0, -1)
        self.parts = [own]
        self.part_of = [own] * len(self.states)
        self.called: dict[int, Part] = {}
        self.left: set[tuple[int, int]] = set()
        own.locals = self._locals()
        # One that is entered in the middle calls the whole function.
        stored = self.stored()
        self.again = [not self.is_entry and self._calls_itself(state, stored) for state in self.states]
        self.edges = [self._targets(number) for number in range(len(self.states))]
        self.roots = {self.start} | {target for target, _ in code.handlers.values()}

    def stored(self) -> set[int]:
        """The slots that are stored to."""
        return {slot for state in self.states for slot in stores(state)} | {
            slot for _, slot in self.code.handlers.values()
        }

    def _locals(self) -> list[int]:
        given = self.code.parameters + self.code.captures
        loaded = {words[0] for state in self.states for _, row, words in state if row.name == "LOAD"}
        return sorted(slot for slot in loaded | self.stored() if slot >= given)

    def _calls_itself(self, state: list[Instruction], stored: set[int]) -> bool:
        """Whether a state ends in a tail call of this function with the same captures."""
        _, row, operands = state[-1]
        code = self.code
        own = range(code.parameters, code.parameters + code.captures)
        if row.name != "TAILCALL" or operands[0] != code.parameters or code.rest:
            return False
        if any(slot in stored for slot in own):
            return False
        # What is on the stack: an instruction, and what it took from there.
        stack: list[Any] = []
        for _, row, words in state[:-1]:
            count = row.popped(words)
            taken = stack[len(stack) - count :]
            del stack[len(stack) - count :]
            if row.pushes:
                stack.append((row.name, words, taken))
        name, words, captures = stack[-1 - operands[0]]
        if name != "CLOSURE" or words[0] != self.index:
            return False
        return [(name, words[0]) for name, words, _ in captures] == [("LOAD", slot) for slot in own]

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
            case "TAILCALL" if self.again[number]:
                return [0]
            case _:
                return []

    def leave_loops(self, graph: FlowGraph) -> None:
        """Have the text end where it would come back to a loop around its start. `graph` is the whole's."""
        onward = {self.start}
        todo = [self.start]
        back = []
        while todo:
            state = todo.pop()
            for target in self.edges[state]:
                if state in graph.position and graph.is_back(state, target):
                    back.append((state, target))
                elif target not in onward:
                    onward.add(target)
                    todo.append(target)
        self.left = {(state, target) for state, target in back if target not in onward}

    @property
    def ways(self) -> list[list[int]]:
        """The states that each leads to in this text."""
        if not self.left:
            return self.edges
        return [
            [target for target in targets if (state, target) not in self.left]
            for state, targets in enumerate(self.edges)
        ]

    # --- functions written in place -----------------------------------------------------------

    def absorb(self, call: int, other: Function) -> None:
        """Have another function, a whole one, written in place of the call that ends a state."""
        part = Part(self.image, other.index, self.size, self.slots, len(self.states), call)
        part.locals = [slot + part.slot for slot in other.parts[0].locals]
        self.parts.append(part)
        self.called[call] = part
        self.size += other.size
        self.slots += other.slots
        onward = self.edges[call]
        self.edges[call] = [part.state]
        for number, state in enumerate(other.states):
            self.states.append([_moved(instruction, part) for instruction in state])
            self.offsets.append(other.offsets[number] + part.offset)
            self.part_of.append(part)
            self.again.append(other.again[number])
            if state[-1][1].name == "RETURN" or (state[-1][1].name == "TAILCALL" and not other.again[number]):
                self.edges.append(list(onward))
            else:
                self.edges.append([target + part.state for target in other.edges[number]])

    def is_return(self, state: int) -> bool:
        """Whether a state leaves a function that is written in place."""
        name = self.states[state][-1][1].name
        is_left = name == "RETURN" or (name == "TAILCALL" and not self.again[state])
        return is_left and self.part_of[state].call >= 0

    def result_slot(self, state: int) -> int | None:
        """The slot that the exit of a state stores to."""
        if self.is_return(state):
            state = self.part_of[state].call
        _, row, operands = self.states[state][-1]
        return result_slot(row.name, operands)

    def ticks(self, state: int, target: int) -> bool:
        """Whether going from a state to another uses a tick."""
        if state in self.called:
            return True
        if self.is_return(state):
            state = self.part_of[state].call
        # The answer to an effect has its tick already.
        return target <= state and self.states[state][-1][1].name != "PERFORM"

    def chain(self, state: int) -> Iterable[Part]:
        """The part that a state is of and those that called it, innermost first."""
        part = self.part_of[state]
        while True:
            yield part
            if part.call < 0:
                return
            part = self.part_of[part.call]

    def frames(self, offset: int) -> tuple[Place, ...]:
        """The frames of the machine that stand at an offset, outermost first."""
        if offset == NOWHERE:
            return ()
        part = next(part for part in reversed(self.parts) if part.offset <= offset)
        found = [(part.index, offset - part.offset, part.slot)]
        while part.call >= 0:
            offset = self.states[part.call][-1][0]
            part = self.part_of[part.call]
            found.append((part.index, offset - part.offset, part.slot))
        return tuple(reversed(found))


def _moved(instruction: Instruction, part: Part) -> Instruction:
    offset, row, words = instruction
    first = {"slot": part.slot, "state": part.state, "state?": part.state}
    moved = [
        word if word == NO_STATE else word + first.get(kind, 0)
        for kind, word in zip(row.operands, words, strict=True)
    ]
    return offset + part.offset, row, tuple(moved)


def stores(state: list[Instruction]) -> Iterable[int]:
    """The slots that a state stores to, its exit included."""
    for _, row, operands in state:
        if row.name == "STORE":
            yield operands[0]
    slot = result_slot(state[-1][1].name, state[-1][2])
    if slot is not None:
        yield slot


def unset(function: Function, graph: FlowGraph) -> set[int]:
    """The slots that must hold null from the start: a state may read them that nothing stored to.

    Those of functions written in place are set where they are called.
    """
    code = function.code
    if function.is_entry:
        return set()
    given = code.parameters + code.captures
    first = (1 << function.slots) - (1 << len(code.slots)) | (1 << given) - 1
    before = dict.fromkeys(graph.roots, first)
    found: set[int] = set()
    todo = sorted(graph.roots)
    while todo:
        state = todo.pop()
        has = before[state]
        for _, row, operands in function.states[state]:
            if row.name == "LOAD" and not has >> operands[0] & 1:
                found.add(operands[0])
            elif row.name == "STORE":
                has |= 1 << operands[0]
        slot = function.result_slot(state)
        if slot is not None and state not in function.called:
            has |= 1 << slot
        if function.again[state] and function.part_of[state].call < 0:
            has = first
        for target in function.edges[state]:
            old = before.get(target)
            new = has if old is None else old & has
            if new != old:
                before[target] = new
                todo.append(target)
    return found


def result_slot(name: str, operands: tuple[int, ...]) -> int | None:
    match name:
        case "CALL" | "PERFORM":
            return operands[1]
        case "PARALLEL":
            return operands[0]
        case _:
            return None
