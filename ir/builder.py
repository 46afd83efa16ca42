"""Construction of functions: shorthand for expressions, and slots that are declared by use.

A frontend names slots and states as it proceeds; `FunctionBuilder.build` computes the frame. Nothing
is checked here: that is the verifier's task.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from . import nodes
from .analysis import expressions
from .nodes import Set as SetSlot
from .spans import Span

_EXPRESSIONS = frozenset({nodes.Const, nodes.Slot, nodes.Prim, nodes.Closure})


def expr(value: Any) -> nodes.Expr:
    """An expression unchanged; any other value as a literal."""
    made: nodes.Expr = value if type(value) in _EXPRESSIONS else nodes.Const(value)
    return made


def freeze(value: Any) -> Any:
    """JSON-like Python data as a constant: lists become tuples, recursively."""
    if isinstance(value, dict):
        return {name: freeze(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return tuple(freeze(item) for item in value)
    return value


def prim(op: str, *args: Any, span: Span | None = None) -> nodes.Prim:
    """A primitive application; operands that are not expressions become literals."""
    operands = tuple([arg if type(arg) in _EXPRESSIONS else nodes.Const(arg) for arg in args])
    return nodes.Prim(op, operands, span=span)


def record(fields: dict[str, Any]) -> nodes.Prim:
    """A `map` expression with these keys, in this order; a field with the value None is omitted."""
    operands: list[nodes.Expr] = []
    for name, value in fields.items():
        if value is not None:
            operands.append(_key(name))
            operands.append(value if type(value) in _EXPRESSIONS else nodes.Const(value))
    return nodes.Prim("map", tuple(operands))


@lru_cache(maxsize=256)
def _key(name: str) -> nodes.Const:
    """A shared constant for a key of records; there are few keys, and they are used everywhere."""
    return nodes.Const(name)


def store(slot: str, value: Any, span: Span | None = None) -> SetSlot:
    return SetSlot(slot, expr(value), span=span)


class FunctionBuilder:
    """Collects the states of one function in the order they are given."""

    def __init__(self, name: str, parameters: Iterable[str] = (), captures: Iterable[str] = ()) -> None:
        self.name = name
        self.parameters = tuple(parameters)
        self.captures = tuple(captures)
        self.states: list[nodes.State] = []

    def state(
        self,
        name: str,
        body: Iterable[nodes.Instruction],
        exit: nodes.Exit,
        *,
        handler: nodes.Handler | None = None,
        span: Span | None = None,
    ) -> None:
        self.states.append(nodes.State(name, tuple(body), exit, handler, span=span))

    def build(self, span: Span | None = None, rest: bool = False) -> nodes.Function:
        named: dict[str, None] = {}
        for state in self.states:
            for part in (*state.body, state.exit):
                todo = [*expressions(part)]
                todo.reverse()
                while todo:
                    item = todo.pop()
                    kind = type(item)
                    if kind is nodes.Prim:
                        todo += [inner for inner in item.args if type(inner) is not nodes.Const]  # type: ignore[union-attr]
                    elif kind is nodes.Slot:
                        named[item.name] = None  # type: ignore[union-attr]
                    elif kind is nodes.Closure:
                        todo += item.captures  # type: ignore[union-attr]
                if type(part) in _STORING:
                    named[part.slot] = None  # type: ignore[union-attr]
            if state.handler is not None:
                named[state.handler.slot] = None
        outer = {*self.parameters, *self.captures}
        locals_ = tuple(name for name in named if name not in outer)
        return nodes.Function(
            self.name, self.parameters, tuple(self.states), self.captures, locals_, rest, span=span
        )


_STORING = frozenset({SetSlot, nodes.Call, nodes.Perform, nodes.Parallel})
