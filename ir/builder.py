"""Building functions: shorthand for expressions, and slots declared by being named.

A frontend names slots and states as it goes; `FunctionBuilder.build` works out the frame. Checks
nothing: that is the verifier's work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from .nodes import (
    Branch,
    Call,
    Closure,
    Const,
    Exit,
    Expr,
    Fail,
    Function,
    Handler,
    Instruction,
    Note,
    Perform,
    Prim,
    Return,
    SetBox,
    Slot,
    State,
    Switch,
    TailCall,
)
from .nodes import Set as SetSlot
from .spans import Span


def expr(value: Any) -> Expr:
    """An expression as it is, anything else as a literal."""
    return value if isinstance(value, (Const, Slot, Prim, Closure)) else Const(value)


def prim(op: str, *args: Any, span: Span | None = None) -> Prim:
    """A primitive applied; operands that are no expressions are literals."""
    return Prim(op, tuple(expr(arg) for arg in args), span=span)


def record(fields: dict[str, Any]) -> Prim:
    """A `map` expression with these keys, in this order; None means: leave the field out."""
    operands: list[Any] = []
    for name, value in fields.items():
        if value is not None:
            operands += [name, value]
    return prim("map", *operands)


def store(slot: str, value: Any, span: Span | None = None) -> SetSlot:
    return SetSlot(slot, expr(value), span=span)


class FunctionBuilder:
    """Collects the states of one function in the order they are given."""

    def __init__(self, name: str, parameters: Iterable[str] = (), captures: Iterable[str] = ()) -> None:
        self.name = name
        self.parameters = tuple(parameters)
        self.captures = tuple(captures)
        self.states: list[State] = []

    def state(
        self,
        name: str,
        body: Iterable[Instruction],
        exit: Exit,
        *,
        handler: Handler | None = None,
        span: Span | None = None,
    ) -> None:
        self.states.append(State(name, tuple(body), exit, handler, span=span))

    def build(self, span: Span | None = None) -> Function:
        named = dict.fromkeys(name for state in self.states for name in _slots_of_state(state))
        outer = {*self.parameters, *self.captures}
        locals_ = tuple(name for name in named if name not in outer)
        return Function(self.name, self.parameters, tuple(self.states), self.captures, locals_, span=span)


def _slots_of_state(state: State) -> Iterator[str]:
    for instruction in state.body:
        match instruction:
            case SetSlot(slot, value):
                yield from _slots_of(value)
                yield slot
            case SetBox(box, value):
                yield from _slots_of(box)
                yield from _slots_of(value)
            case Note(_, fields):
                yield from _slots_of(fields)
    match state.exit:
        case Branch(condition):
            yield from _slots_of(condition)
        case Switch(subject):
            yield from _slots_of(subject)
        case Call(callee, args, slot):
            for arg in (callee, *args):
                yield from _slots_of(arg)
            yield slot
        case TailCall(callee, args):
            for arg in (callee, *args):
                yield from _slots_of(arg)
        case Perform(_, args, slot):
            yield from _slots_of(args)
            yield slot
        case Return(value):
            yield from _slots_of(value)
        case Fail(error):
            yield from _slots_of(error)
    if state.handler is not None:
        yield state.handler.slot


def _slots_of(root: Expr) -> Iterator[str]:
    """Slots an expression reads, left to right; iterative, since expressions may be deep."""
    todo = [root]
    while todo:
        node = todo.pop()
        match node:
            case Slot(name):
                yield name
            case Prim(_, args):
                todo.extend(reversed(args))
            case Closure(_, captures):
                todo.extend(reversed(captures))
