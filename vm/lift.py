"""From a code image back to the program model, by running each state's code on expressions.

What `ir.verify` proves of a program it so proves of an image, wherever that came from. Takes an image
in which `verify_image` found nothing; `lift(emit(program))` is the program, but for sources and for
spans, which stand where the image keeps places.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

from ..ir.nodes import (
    Branch,
    Call,
    Closure,
    Const,
    Exit,
    Expr,
    Fail,
    Function,
    Goto,
    Handler,
    InnerLoop,
    Instruction,
    Limits,
    Meta,
    Note,
    Parallel,
    Perform,
    Prim,
    Program,
    Return,
    Set,
    SetBox,
    Slot,
    State,
    Switch,
    TailCall,
)
from ..ir.spans import Source, Span
from .image import FunctionCode, Image
from .opcodes import NO_STATE, decode


def lift(image: Image) -> Program:
    """The program that `image` is code for."""
    loops = [{**loop, "limits": Limits(**loop["limits"])} for loop in image.meta.get("loops", ())]
    meta = {
        **image.meta,
        "scope": tuple(image.meta["scope"]),
        "limits": Limits(**image.meta["limits"]),
        "loops": tuple(InnerLoop(**loop) for loop in loops),
    }
    return Program(
        image.name,
        image.functions[image.entry].name,
        tuple(Lifter(image, function).function() for function in image.functions),
        Meta(**meta),
        sources=tuple(Source(source.path, source.sha256, source.text) for source in image.sources),
    )


class Lifter:
    """One function. The symbolic stack holds expressions, pushed and popped as the machine does."""

    def __init__(self, image: Image, code: FunctionCode) -> None:
        self.image = image
        self.code = code
        self.stack: list[Expr] = []
        self.spans: dict[int, Span | None] = {}
        self.starts = code.positions[::2]
        # Where the place that was asked for last holds: from one offset to another, and the place.
        self.held: tuple[int, float, Span | None] = (0, 0, None)

    def function(self) -> Function:
        code = self.code
        first, second = code.parameters, code.parameters + code.captures
        return Function(
            code.name,
            code.slots[:first],
            tuple(self.state(number) for number in range(len(code.states))),
            code.slots[first:second],
            code.slots[second:],
            code.rest,
            span=self.span(code.span),
        )

    def span(self, index: int) -> Span | None:
        if index not in self.spans:
            place = self.image.place(index)
            self.spans[index] = None if place is None else Span(*place)
        return self.spans[index]

    def span_at(self, offset: int) -> Span | None:
        """As `FunctionCode.span_at`, made quick for reading all of the code."""
        begin, end, span = self.held
        if not begin <= offset < end:
            starts = self.starts
            row = bisect_right(starts, offset) - 1
            span = self.span(self.code.positions[2 * row + 1]) if row >= 0 else None
            end = starts[row + 1] if row + 1 < len(starts) else float("inf")
            self.held = starts[row] if row >= 0 else 0, end, span
        return span

    def pop(self) -> Expr:
        return self.stack.pop()

    def take(self, count: int) -> tuple[Expr, ...]:
        """The topmost operands, in the order they were pushed."""
        first = len(self.stack) - count
        taken = tuple(self.stack[first:])
        del self.stack[first:]
        return taken

    def state(self, number: int) -> State:
        code = self.code
        body: list[Instruction] = []
        exit_: Exit | None = None
        for offset, row, operands in decode(code.code, *code.bounds(number)):
            span = self.span_at(offset)
            if row.is_exit:
                exit_ = self.exit(row.name, operands, span)
            elif row.pushes:
                self.push(row.name, operands, span)
            else:
                body.append(self.instruction(row.name, operands, span))
        assert exit_ is not None
        assert not self.stack
        handler = code.handlers.get(number)
        return State(
            code.states[number],
            tuple(body),
            exit_,
            None if handler is None else Handler(code.states[handler[0]], code.slots[handler[1]]),
            span=self.span(code.state_spans[number]),
        )

    def push(self, name: str, operands: tuple[int, ...], span: Span | None) -> None:
        expr: Expr
        match name:
            case "CONST":
                expr = Const(self.constant(operands[0]), span=span)
            case "LOAD":
                expr = Slot(self.code.slots[operands[0]], span=span)
            case "PRIM":
                expr = Prim(self.constant(operands[0]), self.take(operands[1]), span=span)
            case "CLOSURE":
                function = self.image.functions[operands[0]].name
                expr = Closure(function, self.take(operands[1]), span=span)
            case _:
                raise AssertionError(f"{name} is not known here")
        self.stack.append(expr)

    def instruction(self, name: str, operands: tuple[int, ...], span: Span | None) -> Instruction:
        match name:
            case "STORE":
                return Set(self.code.slots[operands[0]], self.pop(), span=span)
            case "SETBOX":
                box, value = self.take(2)
                return SetBox(box, value, span=span)
            case "NOTE":
                return Note(self.constant(operands[0]), self.pop(), span=span)
            case _:
                raise AssertionError(f"{name} is not known here")

    def exit(self, name: str, operands: tuple[int, ...], span: Span | None) -> Exit:
        states, slots = self.code.states, self.code.slots
        match name:
            case "JUMP":
                return Goto(states[operands[0]], span=span)
            case "BRANCH":
                return Branch(self.pop(), states[operands[0]], states[operands[1]], span=span)
            case "SWITCH":
                cases = tuple(
                    (case, states[target]) for case, target in self.code.tables[operands[0]].items()
                )
                default = None if operands[1] == NO_STATE else states[operands[1]]
                return Switch(self.pop(), cases, default, span=span)
            case "CALL":
                callee, *args = self.take(1 + operands[0])
                return Call(callee, tuple(args), slots[operands[1]], states[operands[2]], span=span)
            case "TAILCALL":
                callee, *args = self.take(1 + operands[0])
                return TailCall(callee, tuple(args), span=span)
            case "PERFORM":
                kind = self.constant(operands[0])
                return Perform(kind, self.pop(), slots[operands[1]], states[operands[2]], span=span)
            case "PARALLEL":
                callee, items = self.take(2)
                return Parallel(callee, items, slots[operands[0]], states[operands[1]], span=span)
            case "RETURN":
                return Return(self.pop(), span=span)
            case "FAIL":
                return Fail(self.pop(), span=span)
            case _:
                raise AssertionError(f"{name} is not known here")

    def constant(self, index: int) -> Any:
        return self.image.constants[index]
