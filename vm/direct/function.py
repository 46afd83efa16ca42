"""One function's code, taken apart: its states, where they lead, which slots are read before they are set."""

from __future__ import annotations

from ..opcodes import NO_STATE, decode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..image import Image
    from .flow import FlowGraph


class Function:
    """A function of an image, or what of it can be reached from the start of the state `start`.

    states: the instructions of each, as (offset, opcode, operands). edges: the states each leads to.
    again: whether a state ends in a tail call of the function itself, which is a jump to its start.
    roots: the states where control may come in. own: the slots of captures; stored: slots stored to.
    """

    def __init__(self, image: Image, index: int, start: int | None = None) -> None:
        self.image = image
        self.index = index
        self.code = code = image.functions[index]
        self.is_entry = start is not None
        self.start = start or 0
        self.states = [list(decode(code.code, *code.bounds(number))) for number in range(len(code.states))]
        self.own = range(code.parameters, code.parameters + code.captures)
        self.stored = (
            {operands[0] for state in self.states for _, row, operands in state if row.name == "STORE"}
            | {
                slot
                for state in self.states
                for slot in [result_slot(state[-1][1].name, state[-1][2])]
                if slot is not None
            }
            | {slot for _, slot in code.handlers.values()}
        )
        self.offsets = [state[0][0] for state in self.states]
        self.again = [self.calls_itself(state) for state in self.states]
        self.edges = [self.targets(number) for number in range(len(self.states))]
        self.roots = {self.start} | {target for target, _ in code.handlers.values()}
        if self.is_entry and any(self.again):
            self.roots.add(0)

    # --- flow -------------------------------------------------------------------------------

    def calls_itself(self, state: Any) -> bool:
        """Whether a state ends in a tail call of this function with the same captures."""
        _, row, operands = state[-1]
        code = self.code
        if row.name != "TAILCALL" or operands[0] != code.parameters or code.rest:
            return False
        if any(slot in self.stored for slot in self.own):
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
        return [(name, words[0]) for name, words, _ in captures] == [("LOAD", slot) for slot in self.own]

    def targets(self, number: int) -> list[int]:
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


def unset(function: Function, graph: FlowGraph) -> set[int]:
    """The slots that must hold null from the start: a state may read them that nothing stored to."""
    code = function.code
    if function.is_entry:
        return set()
    first = (1 << (code.parameters + code.captures)) - 1
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
        _, row, operands = function.states[state][-1]
        slot = result_slot(row.name, operands)
        if slot is not None:
            has |= 1 << slot
        if function.again[state]:
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
