"""Emission of code images from the program model.

Owns the layout: the indices of constants, slots, states and spans, and the code for each
expression, instruction and exit. The program must be verified (`ir.verify`); a program that
cannot be emitted raises `EmitError`. Each instruction is checked against the opcode table when it is
written. Nothing here recurses over an expression or a constant, because both may be deep.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, assert_never

import attrs

from ...ir import nodes as ir
from ...ir.spans import Span
from ..values.values import ATOMS
from .image import FunctionCode, Image, SourceText, words
from .opcodes import BY_NAME, NO_STATE


class EmitError(Exception):
    """A program refers to something that does not exist, or exceeds the code format."""


def emit(program: ir.Program, *, sources: bool = True) -> Image:
    """The image of a program. sources: whether to include the source texts. Raises EmitError."""
    try:
        return _emit(program, sources)
    except OverflowError:
        raise EmitError("a number of the program, such as a line, does not fit the code format") from None


def _emit(program: ir.Program, sources: bool) -> Image:
    constants = Constants()
    spans = Spans([source.path for source in program.sources])
    functions = {function.name: index for index, function in enumerate(program.functions)}
    code = [FunctionEmitter(function, functions, constants, spans).emit() for function in program.functions]
    meta = attrs.asdict(program.meta)
    for limits in (meta["limits"], *(loop["limits"] for loop in meta["loops"])):
        _leave_out_new(limits)
    if not meta["loops"]:
        del meta["loops"]
    return Image(
        name=program.name,
        entry=_index(functions, program.entry, "function"),
        meta={name: list(value) if isinstance(value, tuple) else value for name, value in meta.items()},
        constants=constants.values,
        functions=code,
        paths=list(spans.paths),
        spans=words(spans.rows),
        sources=[
            SourceText(source.path, source.sha256, source.text if sources else None)
            for source in program.sources
        ],
    )


def _leave_out_new(limits: dict[str, Any]) -> None:
    """Remove unset limits of newer versions, so that images without them are unchanged."""
    for name in ("budget_calls", "budget_seconds", "state_budgets"):
        if not limits[name] and limits[name] != 0:
            del limits[name]


def _index(names: dict[str, int], name: str, what: str) -> int:
    try:
        return names[name]
    except KeyError:
        raise EmitError(f"there is no {what} `{name}`") from None


class Constants:
    """The constant pool; equal constants of the same type are shared."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        # Strings, the most frequent constants, by value.
        self.texts: dict[str, int] = {}
        self._integers: dict[int, int] = {}
        self._index: dict[Any, int] = {}
        # A container's key consists of the numbers of its parts, so keys are never nested deeply.
        self._parts: dict[Any, int] = {}

    def add(self, value: Any) -> int:
        known: dict[Any, int] = self._index
        key = value
        kind = type(value)
        if kind is str:
            known = self.texts
        elif kind is int:
            known = self._integers
        else:
            key = self._key(value)
        index = known.get(key)
        if index is None:
            index = known[key] = len(self.values)
            self.values.append(value)
        return index

    def _key(self, value: Any) -> Any:
        if type(value) in ATOMS:
            return _scalar_key(value)
        numbers: dict[int, int] = {}
        stack = [value]
        while stack:
            node = stack[-1]
            items = self._items(node)
            waiting = [item for item in items if type(item) not in ATOMS and id(item) not in numbers]
            if waiting and id(node) not in numbers:
                stack.extend(waiting)
                continue
            stack.pop()
            keys = [numbers[id(item)] if type(item) not in ATOMS else _scalar_key(item) for item in items]
            names = tuple(node) if type(node) is dict else None
            key = (names, tuple(keys))
            numbers[id(node)] = self._parts.setdefault(key, len(self._parts))
        return ("container", numbers[id(value)])

    @staticmethod
    def _items(node: Any) -> Sequence[Any]:
        if type(node) is tuple:
            return node
        if type(node) is dict and all(type(key) is str for key in node):
            return list(node.values())
        raise EmitError(f"a constant holds a {type(node).__name__}")


def _scalar_key(value: Any) -> Any:
    return (type(value).__name__, repr(value) if type(value) is float else value)


class Spans:
    """The span table of the image; equal spans are shared, and index 0 means no span."""

    def __init__(self, paths: Iterable[str]) -> None:
        self.paths = {path: index for index, path in enumerate(dict.fromkeys(paths))}
        self.rows: list[int] = []
        self._index: dict[Span, int] = {}
        # The last span, because neighbouring instructions often share one.
        self._last: Span | None = None
        self._last_index = 0

    def add(self, span: Span | None) -> int:
        if span is self._last:
            return self._last_index
        self._last, self._last_index = span, self._number(span)
        return self._last_index

    def _number(self, span: Span | None) -> int:
        if span is None:
            return 0
        known = self._index.get(span)
        if known is None:
            path = self.paths.setdefault(span.path, len(self.paths))
            self.rows += (path, span.line, span.column, span.end_line, span.end_column)
            known = self._index[span] = len(self.rows) // 5
        return known


class FunctionEmitter:
    """Emits the code of one function."""

    def __init__(
        self, function: ir.Function, functions: dict[str, int], constants: Constants, spans: Spans
    ) -> None:
        self.function = function
        self.functions = functions
        self.constants = constants
        self.spans = spans
        self.slots = {name: index for index, name in enumerate(function.slots)}
        self.states = {state.name: index for index, state in enumerate(function.states)}
        self.tables: dict[tuple[tuple[str, int], ...], int] = {}
        self.code: list[int] = []
        self.positions: list[int] = []
        self.last_span = 0
        self.depth = 0
        self.max_stack = 0
        self.done = False  # whether the exit of the current state has been emitted

    def emit(self) -> FunctionCode:
        function = self.function
        if len(self.slots) != len(function.slots) or len(self.states) != len(function.states):
            raise EmitError(f"function `{function.name}` has two slots or two states of one name")
        offsets = []
        for state in function.states:
            offsets.append(len(self.code))
            self.state(state)
        return FunctionCode(
            name=function.name,
            parameters=len(function.parameters),
            captures=len(function.captures),
            rest=function.rest,
            slots=function.slots,
            states=[state.name for state in function.states],
            offsets=words(offsets),
            code=words(self.code),
            handlers={
                self.states[state.name]: (self.target(state.handler.target), self.slot(state.handler.slot))
                for state in function.states
                if state.handler is not None
            },
            tables=[dict(table) for table in self.tables],
            max_stack=self.max_stack,
            span=self.spans.add(function.span),
            state_spans=words(self.spans.add(state.span) for state in function.states),
            positions=words(self.positions),
        )

    def op(self, name: str, span: int, *operands: int) -> None:
        """Append one instruction and check it against its row. span: index of the innermost known span."""
        row = BY_NAME[name]
        if len(operands) != len(row.operands):
            raise EmitError(f"operands {operands} do not fit {name}")
        depth = self.depth - (row.popped(operands) if row.pops_count else row.pops)
        if depth < 0 or self.done:
            raise EmitError(f"{name} does not fit where it stands")
        self.depth = depth = depth + row.pushes
        if depth > self.max_stack:
            self.max_stack = depth
        if row.is_exit:
            self.done = True
            if depth:
                raise EmitError(f"{name} leaves values behind")
        code = self.code
        if span != self.last_span:
            self.last_span = span
            self.positions += (len(code), span)
        code.append(row.number)
        code += operands

    def slot(self, name: str) -> int:
        return _index(self.slots, name, "slot")

    def target(self, name: str) -> int:
        return _index(self.states, name, "state")

    def place(self, span: Span | None, around: int) -> int:
        """The index of a span, or of the enclosing one if it is None."""
        return around if span is None else self.spans.add(span)

    def state(self, state: ir.State) -> None:
        self.done = False
        span = self.spans.add(state.span) or self.spans.add(self.function.span)
        for instruction in state.body:
            self.instruction(instruction, self.place(instruction.span, span))
        self.exit(state.exit, self.place(state.exit.span, span))

    def instruction(self, instruction: ir.Instruction, span: int) -> None:
        if isinstance(instruction, ir.Set):
            self.expression(instruction.value, span)
            self.op("STORE", span, self.slot(instruction.slot))
        elif isinstance(instruction, ir.Note):
            self.expression(instruction.fields, span)
            self.op("NOTE", span, self.constants.add(instruction.kind))
        else:
            self.expression(instruction.box, span)
            self.expression(instruction.value, span)
            self.op("SETBOX", span)

    def exit(self, exit: ir.Exit, span: int) -> None:
        match exit:  # match by type only: patterns with attributes take twice as long
            case ir.Goto():
                self.op("JUMP", span, self.target(exit.target))
            case ir.Branch():
                self.expression(exit.condition, span)
                self.op("BRANCH", span, self.target(exit.then), self.target(exit.otherwise))
            case ir.Switch():
                self.expression(exit.subject, span)
                table: dict[str, int] = {}
                for name, target in exit.cases:
                    table.setdefault(name, self.target(target))
                index = self.tables.setdefault(tuple(table.items()), len(self.tables))
                default = NO_STATE if exit.default is None else self.target(exit.default)
                self.op("SWITCH", span, index, default)
            case ir.Perform():
                self.expression(exit.args, span)
                kind = self.constants.add(exit.kind)
                self.op("PERFORM", span, kind, self.slot(exit.slot), self.target(exit.next))
            case ir.Fail():
                self.expression(exit.error, span)
                self.op("FAIL", span)
            case ir.Return():
                self.expression(exit.value, span)
                self.op("RETURN", span)
            case ir.Call():
                self.operands((exit.callee, *exit.args), span)
                self.op("CALL", span, len(exit.args), self.slot(exit.slot), self.target(exit.next))
            case ir.TailCall():
                self.operands((exit.callee, *exit.args), span)
                self.op("TAILCALL", span, len(exit.args))
            case ir.Parallel():
                self.operands((exit.callee, exit.items), span)
                self.op("PARALLEL", span, self.slot(exit.slot), self.target(exit.next))
            case _:
                assert_never(exit)

    def operands(self, expressions: Iterable[ir.Expr], span: int) -> None:
        for expression in expressions:
            self.expression(expression, span)

    def expression(self, expression: ir.Expr, span: int) -> None:
        """Emit code that pushes the expression's value. span: used if the expression has no span of its own.

        This method emits most of a program, so it does not look up opcode rows, and it emits literals and
        slots together with the expression whose operands they are.
        """
        if self.done:
            raise EmitError("an expression does not fit where it stands")
        code, slots, texts, add = self.code, self.slots, self.constants.texts, self.constants.add
        depth = highest = self.depth
        # Expressions in progress, outermost first: the remaining operands, the expression, its span.
        begun: list[Any] = []
        operands: Iterator[ir.Expr] = iter((expression,))
        applied: Any = None
        while True:
            for node in operands:
                kind = type(node)
                place = span if node.span is None else self.spans.add(node.span)
                if kind is ir.Const:
                    value = node.value  # type: ignore[union-attr]
                    index = texts.get(value) if type(value) is str else add(value)
                    leaf = (_CONST, add(value) if index is None else index)
                elif kind is ir.Slot:
                    index = slots.get(node.name)  # type: ignore[union-attr]
                    leaf = (_LOAD, self.slot(node.name) if index is None else index)  # type: ignore[union-attr]
                else:
                    begun.append((operands, span, applied))
                    span = place
                    applied = node
                    operands = iter(node.args if kind is ir.Prim else node.captures)  # type: ignore[union-attr]
                    break
                if place != self.last_span:
                    self.last_span = place
                    self.positions += (len(code), place)
                code += leaf
                depth += 1
            else:
                if depth > highest:
                    highest = depth
                if not begun:
                    break
                if span != self.last_span:
                    self.last_span = span
                    self.positions += (len(code), span)
                if type(applied) is ir.Prim:
                    op, count = applied.op, len(applied.args)
                    index = texts.get(op)
                    code += (_PRIM, add(op) if index is None else index, count)
                else:
                    count = len(applied.captures)
                    code += (_CLOSURE, _index(self.functions, applied.function, "function"), count)
                depth += 1 - count
                operands, span, applied = begun.pop()
        self.depth = depth
        if highest > self.max_stack:
            self.max_stack = highest


def _number(name: str, operands: int, pops_count: bool) -> int:
    """The number of an opcode that `expression` emits, with a check of the assumptions about its row."""
    row = BY_NAME[name]
    if (len(row.operands), row.pops, row.pops_count, row.pushes) != (operands, 0, pops_count, 1):
        raise AssertionError(f"{name} is not what is written here")
    return row.number


_CONST, _LOAD = _number("CONST", 1, False), _number("LOAD", 1, False)
_PRIM, _CLOSURE = _number("PRIM", 2, True), _number("CLOSURE", 2, True)
