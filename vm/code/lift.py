"""Lifting of a code image to the program model, by symbolic execution of each state's code.

Properties that `ir.verify` proves of the lifted program hold for the image, whatever its origin. The image
must have passed `verify_image`. `lift(emit(program))` equals the program, except for sources and
spans, which are only as precise as the places of the image.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...ir import nodes as ir
from ...ir.spans import Source, Span
from .image import FunctionCode, Image, words
from .opcodes import BY_NAME, BY_NUMBER, NO_STATE

_CONST, _LOAD = BY_NAME["CONST"].number, BY_NAME["LOAD"].number
_PRIM, _CLOSURE = BY_NAME["PRIM"].number, BY_NAME["CLOSURE"].number
_APPLYING = frozenset({_PRIM, _CLOSURE})


def lift(image: Image, places: bool = True) -> ir.Program:
    """The program of an image. places: whether to include spans."""
    loops = [{**loop, "limits": ir.Limits(**loop["limits"])} for loop in image.meta.get("loops", ())]
    meta = {
        **image.meta,
        "scope": tuple(image.meta["scope"]),
        "limits": ir.Limits(**image.meta["limits"]),
        "loops": tuple(ir.InnerLoop(**loop) for loop in loops),
    }
    return ir.Program(
        image.name,
        image.functions[image.entry].name,
        tuple(Lifter(image, function, places).function() for function in image.functions),
        ir.Meta(**meta),
        sources=tuple(Source(source.path, source.sha256, source.text) for source in image.sources),
    )


class Lifter:
    """Lifts one function. The symbolic stack contains expressions, pushed and popped like the values of the
    machine.

    Equal expressions with the same span are shared.
    """

    def __init__(self, image: Image, code: FunctionCode, places: bool = True) -> None:
        self.image = image
        self.code = code
        self.places = places
        self.stack: list[ir.Expr] = []
        self.spans: dict[int, Span | None] = {}
        self.positions = code.positions if places else words()
        self.starts = self.positions[::2]
        # Shared nodes by content and span index.
        self.constants: dict[int, dict[int, ir.Const]] = {}
        self.slots: dict[int, dict[int, ir.Slot]] = {}
        self.applied: dict[tuple[int, ...], ir.Expr] = {}

    def function(self) -> ir.Function:
        code = self.code
        first, second = code.parameters, code.parameters + code.captures
        return ir.Function(
            code.name,
            code.slots[:first],
            tuple(self.states()),
            code.slots[first:second],
            code.slots[second:],
            code.rest,
            span=self.span(code.span),
        )

    def span(self, index: int) -> Span | None:
        if index not in self.spans:
            place = self.image.place(index) if self.places else None
            self.spans[index] = None if place is None else Span(*place)
        return self.spans[index]

    def pop(self) -> ir.Expr:
        return self.stack.pop()

    def take(self, count: int) -> tuple[ir.Expr, ...]:
        """Pop the topmost operands, in the order in which they were pushed."""
        first = len(self.stack) - count
        taken = tuple(self.stack[first:])
        del self.stack[first:]
        return taken

    def states(self) -> Iterator[ir.State]:
        """The states, which partition the code; each ends with its exit."""
        code, stack, starts, applied = self.code.code.tolist(), self.stack, self.starts, self.applied
        body: list[ir.Instruction] = []
        offset = number = 0
        # The current span, and the offset at which the next one begins.
        row, until = -1, 0
        while offset < len(code):
            if offset >= until:
                while row + 1 < len(starts) and starts[row + 1] <= offset:
                    row += 1
                place = self.positions[2 * row + 1] if row >= 0 else 0
                until = starts[row + 1] if row + 1 < len(starts) else len(code)
                span = self.span(place)
                constants = self.constants.setdefault(place, {})
                slots = self.slots.setdefault(place, {})
            opcode = code[offset]
            if opcode == _CONST:
                operand = code[offset + 1]
                offset += 2
                constant = constants.get(operand)
                if constant is None:
                    constant = constants[operand] = ir.Const(self.constant(operand), span=span)
                stack.append(constant)
            elif opcode == _LOAD:
                operand = code[offset + 1]
                offset += 2
                slot = slots.get(operand)
                if slot is None:
                    slot = slots[operand] = ir.Slot(self.code.slots[operand], span=span)
                stack.append(slot)
            elif opcode in _APPLYING:
                operand = code[offset + 1]
                first = len(stack) - code[offset + 2]
                offset += 3
                taken = tuple(stack[first:])
                del stack[first:]
                key = (opcode, operand, place, *map(id, taken))
                made = applied.get(key)
                if made is None:
                    made = applied[key] = self.apply(opcode, operand, taken, span)
                stack.append(made)
            else:
                known = BY_NUMBER[opcode]
                after = offset + 1 + len(known.operands)
                operands = code[offset + 1 : after]
                offset = after
                if known.is_exit:
                    yield self.state(number, body, self.exit(known.name, operands, span))
                    number += 1
                    body = []
                else:
                    body.append(self.instruction(known.name, operands, span))

    def state(self, number: int, body: list[ir.Instruction], exit: ir.Exit) -> ir.State:
        assert not self.stack
        code = self.code
        handler = code.handlers.get(number)
        return ir.State(
            code.states[number],
            tuple(body),
            exit,
            None if handler is None else ir.Handler(code.states[handler[0]], code.slots[handler[1]]),
            span=self.span(code.state_spans[number]),
        )

    def apply(self, opcode: int, operand: int, taken: tuple[ir.Expr, ...], span: Span | None) -> ir.Expr:
        if opcode == _PRIM:
            return ir.Prim(self.constant(operand), taken, span=span)
        return ir.Closure(self.image.functions[operand].name, taken, span=span)

    def instruction(self, name: str, operands: Sequence[int], span: Span | None) -> ir.Instruction:
        match name:
            case "STORE":
                return ir.Set(self.code.slots[operands[0]], self.pop(), span=span)
            case "SETBOX":
                box, value = self.take(2)
                return ir.SetBox(box, value, span=span)
            case "NOTE":
                return ir.Note(self.constant(operands[0]), self.pop(), span=span)
            case _:
                raise AssertionError(f"{name} is not known here")

    def exit(self, name: str, operands: Sequence[int], span: Span | None) -> ir.Exit:
        states, slots = self.code.states, self.code.slots
        match name:
            case "JUMP":
                return ir.Goto(states[operands[0]], span=span)
            case "BRANCH":
                return ir.Branch(self.pop(), states[operands[0]], states[operands[1]], span=span)
            case "SWITCH":
                cases = tuple(
                    (case, states[target]) for case, target in self.code.tables[operands[0]].items()
                )
                default = None if operands[1] == NO_STATE else states[operands[1]]
                return ir.Switch(self.pop(), cases, default, span=span)
            case "CALL":
                callee, *args = self.take(1 + operands[0])
                return ir.Call(callee, tuple(args), slots[operands[1]], states[operands[2]], span=span)
            case "TAILCALL":
                callee, *args = self.take(1 + operands[0])
                return ir.TailCall(callee, tuple(args), span=span)
            case "PERFORM":
                kind = self.constant(operands[0])
                return ir.Perform(kind, self.pop(), slots[operands[1]], states[operands[2]], span=span)
            case "PARALLEL":
                callee, items = self.take(2)
                return ir.Parallel(callee, items, slots[operands[0]], states[operands[1]], span=span)
            case "RETURN":
                return ir.Return(self.pop(), span=span)
            case "FAIL":
                return ir.Fail(self.pop(), span=span)
            case _:
                raise AssertionError(f"{name} is not known here")

    def constant(self, index: int) -> Any:
        return self.image.constants[index]
