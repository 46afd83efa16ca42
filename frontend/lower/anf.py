"""Lowering of one core function to states, in A-normal form.

Calls, effects and jumps end a state; values that live across them are in slots. A slot has the name of its
variable, a temporary is `t1`, `t2` …; a state is named after its operation and its line
(`validate-12`, `shell-14`, `loop-9`). Operands are evaluated left to right: an operand that precedes a
call is stored in a temporary unless its value cannot change.

The methods that lower a node are generators: they yield the lowering of a child node and receive its result
(`run_lowering`). Programs can therefore be nested deeper than Python's stack.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, Protocol

from ...ir import nodes as ir
from ...ir.analysis import slots_read
from ...ir.builder import prim, record, store
from ...ir.compile_options import LIBRARY_FOLDER
from ...ir.spans import Span
from ..core import nodes as core
from ..core.library import LIBRARY, Spread
from ..core.nodes import Binding, Core, Lambda
from .closure_analysis import ClosureAnalysis
from .constant_folding import fold
from .state_writer import Label, StateWriter, is_true

# The lowering of a node; its result is an expression or None.
Lowering = Generator[Any, Any, Any]


def run_lowering(lowering: Lowering) -> Any:
    """Run a lowering, and the lowerings that it yields, on an explicit stack; return its result."""
    stack = [lowering]
    given: Any = None
    while stack:
        try:
            stack.append(stack[-1].send(given))
            given = None
        except StopIteration as stop:
            stack.pop()
            given = stop.value
    return given


class Into:
    """Destination of a value: store it in a slot (None: discard it), then jump to a state."""

    def __init__(self, slot: str | None, label: Label) -> None:
        self.slot = slot
        self.label = label


# Destination: return the value from the function.
RETURN: None = None
Destination = Into | None


class ProgramContext(Protocol):
    """The interface of the program to the lowering of a function body."""

    def function_name(self, function: Lambda, captures: ClosureAnalysis) -> str:
        """The name of a function; adds the function to the program."""

    def library_value(self, name: str) -> ir.Closure:
        """The closure of a library function."""

    def external(self, part: Any) -> ir.Closure:
        """The closure of a part of the program that is not core code."""

    def operation(self, name: str) -> str | None:
        """The primitive that implements a library function; None if there is none."""


def _is_library(span: Span | None) -> bool:
    return span is not None and span.path.startswith(LIBRARY_FOLDER)


class Body(StateWriter):
    """Lowering of one function."""

    def __init__(
        self, name: str, function: Lambda, captures: ClosureAnalysis, program: ProgramContext
    ) -> None:
        self.function = function
        self.captures = captures
        self.program = program
        super().__init__(name)
        self.slots: dict[Binding, str] = {}
        # Slots of variables that are assigned and not boxed.
        self.changing: set[str] = set()
        self.loops: list[tuple[Label, tuple[Binding, ...]]] = []

    # --- the function -------------------------------------------------------------------------

    def lower(self) -> ir.Function:
        function, span = self.function, self.function.span
        parameters = [self.name_slot(binding) for binding in function.parameters]
        more = None
        if function.optionals or function.rest is not None:
            more = self.name_slot(function.rest) if function.rest else self.slot_names.give("more")
            parameters.append(more)
        captured = self.captures.of(function)
        captures = [self.name_slot(binding) for binding in captured]
        self.begin(Label("start", span).use())
        run_lowering(self.lower_function(more))
        return self.build(parameters, captures, more is not None, span)

    def lower_function(self, more: str | None) -> Lowering:
        """Lower parameters (boxes, defaults), then the body."""
        function = self.function
        for binding in function.parameters:
            self.box_if_needed(binding)
        if more is not None:
            for binding, default in function.optionals:
                yield self.default(binding, default, more)
            if function.rest is None:
                self.reject_extra_arguments(more, len(function.parameters) + len(function.optionals))
            else:
                self.box_if_needed(function.rest)
        yield self.into(function.body, RETURN)

    def default(self, binding: Binding, default: Core, more: str) -> Lowering:
        """Lower an optional parameter: the next argument, or the default."""
        slot = self.name_slot(binding)
        given, absent, after = (Label(kind, default.span) for kind in ("given", "default", "body"))
        self.leave_by_branch(ir.Slot(more), given, absent, None)
        self.begin(given)
        self.add(store(slot, prim("first", ir.Slot(more))))
        self.add(store(more, prim("rest", ir.Slot(more))))
        self.jump(after)
        self.begin(absent)
        yield self.into(default, Into(slot, after))
        self.begin(after)
        self.box_if_needed(binding)

    def reject_extra_arguments(self, more: str, most: int) -> None:
        """Raise an arity fault if arguments remain."""
        too_many, body = Label("too-many", self.function.span), Label("body", self.function.span)
        self.leave_by_branch(ir.Slot(more), too_many, body, None)
        self.begin(too_many)
        message = f"`{self.name}` takes at most {most} argument{'' if most == 1 else 's'}"
        self.leave(lambda: ir.Fail(ir.Const({"kind": "arity", "message": message}), span=self.function.span))
        self.begin(body)

    def box_if_needed(self, binding: Binding) -> None:
        """Box a variable whose slot has its value, if the variable needs a box."""
        if binding in self.captures.boxed:
            slot = self.slots[binding]
            self.add(store(slot, prim("box", ir.Slot(slot))))

    # --- slots --------------------------------------------------------------------------------

    def name_slot(self, binding: Binding) -> str:
        """Allocate a slot for a variable, named after it."""
        slot = self.slots[binding] = self.slot_names.give(binding.name or "unnamed")
        if binding in self.captures.assigned and binding not in self.captures.boxed:
            self.changing.add(slot)
        return slot

    def read(self, binding: Binding, span: Span | None) -> ir.Expr:
        """The expression that reads a variable."""
        captures = self.captures
        constant = captures.constants.get(binding)
        if constant is not None:
            return ir.Const(constant.value, span=span)
        function = captures.known.get(binding)
        if function is not None:
            return self.closure(function, span)
        slot = ir.Slot(self.slots[binding], span=span)
        if binding in captures.early:
            return prim("unbox_set", slot, binding.name, span=span)
        return prim("unbox", slot, span=span) if binding in captures.boxed else slot

    def closure(self, function: Lambda, span: Span | None) -> ir.Closure:
        captured = tuple([ir.Slot(self.slots[binding]) for binding in self.captures.of(function)])
        return ir.Closure(self.program.function_name(function, self.captures), captured, span=span)

    def is_stable(self, expr: ir.Expr) -> bool:
        """Whether an expression has the same value at any later point and cannot fault."""
        if isinstance(expr, ir.Closure):
            return True  # the slot of a captured variable never changes its value or its box
        return isinstance(expr, ir.Const) or (isinstance(expr, ir.Slot) and expr.name not in self.changing)

    # --- values -------------------------------------------------------------------------------

    def value(self, node: Core) -> Lowering:
        """An expression for a node's value, valid until the next evaluation."""
        while True:
            if node in self.captures.simple:
                return self.simple(node)
            match node:
                case core.Sequence() | core.Let() | core.Letrec():
                    node = yield self.evaluate_all_but_last(node)
                case core.Assign(binding=binding, value=value):
                    expr = yield self.value(value)
                    if not self.is_stable(expr):
                        expr = self.keep(expr)
                    self.assign(binding, expr, node.span)
                    return expr
                case core.Operation() | core.Apply() if self.operation(node) is not None:
                    mark = self.depth
                    expr = yield self.operate(node)
                    self.depth = mark
                    # Store it in a temporary to keep expressions shallow.
                    return expr if isinstance(expr, ir.Const) else self.keep(expr)
                case core.Note():
                    yield self.effect(node)
                    return ir.Const(None)
                case _:
                    mark = self.depth
                    slot = self.temporary()
                    after = Label("after", node.span)
                    yield self.into(node, Into(slot, after))
                    self.begin(after)
                    self.depth = mark + 1
                    return ir.Slot(slot)

    def evaluate_all_but_last(self, node: core.Sequence | core.Let | core.Letrec) -> Lowering:
        """Evaluate all parts of a node except the last, which determines its value; return the last part."""
        match node:
            case core.Sequence(items=(*items, last)):
                for item in items:
                    yield self.effect(item)
                return last
            case core.Let(bindings=bindings, body=body):
                for binding, value in bindings:
                    yield self.bind(binding, value)
                return body
            case core.Letrec(bindings=bindings, body=body):
                yield self.bind_all(bindings)
                return body

    def operation(self, node: Core) -> str | None:
        """The primitive that a node applies; None if it applies none."""
        match node:
            case core.Operation(op=op):
                return op
            case core.Apply(callee=core.Library(name=name), spread=None):
                return self.program.operation(name)
            case _:
                return None

    def operate(self, node: Core) -> Lowering:
        """The expression for an operation with operands that are not simple."""
        op = self.operation(node)
        assert op is not None
        assert isinstance(node, core.Operation | core.Apply)
        operands = yield self.operands(node.args)
        return fold(op, operands, node.span)

    def simple(self, node: Core) -> ir.Expr:
        """The expression for a simple node. Simple nodes have limited depth, so recursion is safe."""
        match node:
            case core.Literal(value=value):
                return ir.Const(value, span=node.span)
            case core.Variable(binding=binding):
                return self.read(binding, node.span)
            case core.Library(name=name):
                return self.program.library_value(name)
            case core.External(part=part):
                return self.program.external(part)
            case core.Lambda():
                return self.closure(node, node.span)
            case core.Operation(args=args) | core.Apply(args=args):
                op = self.operation(node)
                assert op is not None
                return fold(op, [self.simple(arg) for arg in args], node.span)
            case core.If(test=test, then=then, otherwise=otherwise):
                condition = self.simple(test)
                if isinstance(condition, ir.Const):
                    return self.simple(then if is_true(condition.value) else otherwise)
                return prim("select", condition, self.simple(then), self.simple(otherwise), span=node.span)
            case _:
                raise AssertionError(f"a {type(node).__name__} is no single expression")

    def operands(self, nodes: Sequence[Core]) -> Lowering:
        """Expressions for several nodes, evaluated left to right."""
        simple = self.captures.simple
        last = max((index for index, node in enumerate(nodes) if node not in simple), default=-1)
        found: list[ir.Expr] = []
        for index, node in enumerate(nodes):
            expr = yield self.value(node)
            if index < last and not self.is_stable(expr):
                expr = self.keep(expr)
            found.append(expr)
        return found

    def fields(self, fields: Sequence[tuple[str, Core]]) -> Lowering:
        """A map of the fields that are not null."""
        values = yield self.operands([value for _, value in fields])
        entries = dict(zip((name for name, _ in fields), values, strict=True))
        given = {
            name: expr
            for name, expr in entries.items()
            if not (isinstance(expr, ir.Const) and expr.value is None)
        }
        if all(isinstance(expr, ir.Const) for expr in given.values()):
            return record(given)
        return prim("without_nulls", record(given))

    # --- statements ---------------------------------------------------------------------------

    def effect(self, node: Core) -> Lowering:
        """Evaluate a node and discard its value."""
        mark = self.depth
        match node:
            case core.Note(kind=kind, fields=fields):
                entries = yield self.fields(fields)
                self.add(ir.Note(kind, entries, span=node.span))
            case core.Assign(binding=binding, value=value):
                expr = yield self.value(value)
                self.assign(binding, expr, node.span)
            case _ if node in self.captures.simple:
                self.drop(self.simple(node))
            case _:
                after = Label("after", node.span)
                yield self.into(node, Into(None, after))
                self.begin(after)
        self.depth = mark

    def assign(self, binding: Binding, expr: ir.Expr, span: Span | None) -> None:
        slot = self.slots[binding]
        if binding in self.captures.boxed:
            self.add(ir.SetBox(ir.Slot(slot), expr, span=span))
        else:
            self.add(store(slot, expr, span=span))

    def bind(self, binding: Binding, value: Core) -> Lowering:
        """Bind a new variable to a value."""
        captures = self.captures
        if binding in captures.known or binding in captures.constants:
            return
        if binding not in captures.used:
            yield self.effect(value)
            return
        mark = self.depth
        slot = self.slots[binding] if binding in self.slots else self.name_slot(binding)
        span = binding.span or value.span
        if binding in captures.boxed:
            expr = yield self.value(value)
            box = "dynamic_box" if binding.is_dynamic else "box"
            self.add(store(slot, prim(box, expr), span=span))
        elif value in captures.simple:
            self.add(store(slot, self.simple(value), span=span))
        else:
            after = Label("after", value.span)
            yield self.into(value, Into(slot, after))
            self.begin(after)
        self.depth = mark

    def bind_all(self, bindings: Sequence[tuple[Binding, Core]]) -> Lowering:
        """Bind like `letrec*`: a variable that can be read before its definition starts as an unset box."""
        early = [binding for binding, _ in bindings if binding in self.captures.early]
        for binding in early:
            self.add(store(self.name_slot(binding), prim("unset_box")))
        for binding, value in bindings:
            if binding in self.captures.early:
                mark = self.depth
                expr = yield self.value(value)
                self.add(ir.SetBox(ir.Slot(self.slots[binding]), expr, span=binding.span or value.span))
                self.depth = mark
            else:
                yield self.bind(binding, value)

    # --- into a destination -------------------------------------------------------------------

    def into(self, node: Core, to: Destination) -> Lowering:
        """Evaluate a node, deliver its value to the destination, and end the open state."""
        mark = self.depth
        while node not in self.captures.simple:
            self.depth = mark
            match node:
                case core.Sequence() | core.Let() | core.Letrec():
                    node = yield self.evaluate_all_but_last(node)
                case core.If(test=test, then=then, otherwise=otherwise):
                    yes, no = Label("then", then.span), Label("else", otherwise.span)
                    yield self.test(test, yes, no)
                    self.depth = mark
                    self.begin(yes)
                    yield self.into(then, to)
                    self.begin(no)
                    node = otherwise
                case core.Loop(bindings=bindings, body=body):
                    for binding, value in bindings:
                        yield self.bind(binding, value)
                    header = Label("loop", node.span)
                    self.jump(header)
                    header.uses *= 2  # prevents merging of the code before the loop into the header
                    self.begin(header)
                    self.loops.append((header, tuple(binding for binding, _ in bindings)))
                    yield self.into(body, to)
                    self.loops.pop()
                    return
                case core.Recur(args=args):
                    yield self.recur(args)
                    return
                case core.Apply() if self.operation(node) is None:
                    yield self.call(node, to)
                    return
                case core.Parallel():
                    yield self.parallel(node, to)
                    return
                case core.Perform():
                    yield self.perform(node, to)
                    return
                case core.Fail():
                    yield self.fail(node)
                    return
                case core.Try():
                    yield self.guard(node, to)
                    return
                case _:
                    break
        is_operation = node not in self.captures.simple and self.operation(node) is not None
        expr = yield (self.operate(node) if is_operation else self.value(node))
        self.deliver(expr, to, node.span)
        self.depth = mark

    def deliver(self, expr: ir.Expr, to: Destination, span: Span | None) -> None:
        if to is RETURN:
            self.leave(lambda: ir.Return(expr, span=span))
        else:
            if to.slot is None:
                self.drop(expr)
            elif not (isinstance(expr, ir.Slot) and expr.name == to.slot):
                self.add(store(to.slot, expr, span=span))
            self.jump(to.label)

    def leave_for(
        self, to: Destination, exit: Callable[[str, str], ir.Exit], kind: str, span: Span | None
    ) -> None:
        """End the open state with a call or an effect whose result goes to the destination."""
        if self.open is None:
            return
        mark = self.depth
        after = Label("after", span) if to is RETURN else to.label
        after.use()
        slot = self.temporary() if to is RETURN or to.slot is None else to.slot
        self.open.label.span = span or self.open.label.span
        self.leave(lambda: exit(slot, after.name), kind)
        if to is RETURN:
            self.begin(after)
            self.leave(lambda: ir.Return(ir.Slot(slot), span=span))
        self.depth = mark

    def call(self, node: core.Apply, to: Destination) -> Lowering:
        spread, span = node.spread, node.span
        nodes = [node.callee, *node.args] if spread is None else [node.callee, *node.args, spread]
        callee, *args = yield self.operands(nodes)
        if spread is not None:
            # `applied` evaluates the list within the callee's expression; the arguments must be evaluated
            # before it.
            last = args.pop()
            callee, *args = [expr if self.is_stable(expr) else self.keep(expr) for expr in (callee, *args)]
            callee = prim("applied", callee, last, span=span)
        if to is RETURN and not self.keeps_frame(node):
            self.leave(lambda: ir.TailCall(callee, tuple(args), span=span))
            return
        self.leave_for(
            to,
            lambda slot, next: ir.Call(callee, tuple(args), slot, next, span=span),
            self.callee_name(node.callee),
            span,
        )

    def keeps_frame(self, node: core.Apply) -> bool:
        """Whether the call must keep the caller's frame, so that a backtrace shows where the author called
        the library.

        This does not affect constant-memory tail calls: library functions other than `apply` do not call a
        function argument in tail position.
        """
        callee = node.callee
        if not isinstance(callee, core.Library) or isinstance(LIBRARY[callee.name], Spread):
            return False
        return not _is_library(self.function.span)

    def parallel(self, node: core.Parallel, to: Destination) -> Lowering:
        span = node.span
        callee, items = yield self.operands([node.callee, node.items])
        exit = partial(ir.Parallel, callee, items, span=span)
        self.leave_for(to, exit, "parallel", span)

    def perform(self, node: core.Perform, to: Destination) -> Lowering:
        kind, span = node.kind, node.span
        entries = yield self.fields(node.fields)
        self.leave_for(to, lambda slot, next: ir.Perform(kind, entries, slot, next, span=span), kind, span)

    def fail(self, node: core.Fail) -> Lowering:
        expr = yield self.value(node.error)
        self.leave(lambda: ir.Fail(expr, span=node.span))

    def callee_name(self, callee: Core) -> str:
        match callee:
            case core.Variable(binding=binding):
                return binding.name or "call"
            case core.Library(name=name):
                return name.removeprefix("calls:")  # the expander rewrote the author's call to this name
            case core.External(part=part):
                return str(part.name)
            case _:
                return "call"

    def recur(self, args: Sequence[Core]) -> Lowering:
        header, bindings = self.loops[-1]
        mark = self.depth
        exprs: list[ir.Expr] = yield self.operands(args)
        # Store left to right; delay a store to a slot that a later expression reads.
        later: list[set[str]] = []
        read: set[str] = set()
        for expr in reversed(exprs):
            later.append(read)
            read = read.union(slots_read(expr))
        waiting: list[tuple[Binding, ir.Expr]] = []
        for binding, expr, read in zip(bindings, exprs, reversed(later), strict=True):
            slot = self.slots.get(binding)
            if slot is None:  # the variable is never read
                self.drop(expr)
            elif isinstance(expr, ir.Slot) and expr.name == slot and binding not in self.captures.boxed:
                pass
            elif slot in read:
                waiting.append((binding, self.keep(expr)))
            else:
                self.set_loop_variable(binding, expr)
        for binding, expr in waiting:
            self.set_loop_variable(binding, expr)
        self.depth = mark
        if self.open is not None:
            header.use()
            self.leave(lambda: ir.Goto(header.name))

    def set_loop_variable(self, binding: Binding, expr: ir.Expr) -> None:
        """Assign a loop variable its value for the next iteration."""
        boxed = binding in self.captures.boxed
        self.add(store(self.slots[binding], prim("box", expr) if boxed else expr))

    def guard(self, node: core.Try, to: Destination) -> Lowering:
        """Lower `try`: the states of its body get the handler's state and the slot of the fault."""
        slot = self.name_slot(node.binding)
        catch, inside = Label("catch", node.handler.span), Label("try", node.span)
        done = Label("after", node.span)
        body_to = Into(self.temporary(), done) if to is RETURN else to
        outer = self.handler
        self.jump(inside)
        catch.uses += inside.uses
        self.handler = (catch, slot)
        loops, self.loops = self.loops, []
        self.begin(inside)
        yield self.into(node.body, body_to)
        self.handler, self.loops = outer, loops
        if to is RETURN:
            self.begin(done)
            self.leave(lambda: ir.Return(ir.Slot(body_to.slot or ""), span=node.span))
        self.begin(catch)
        self.box_if_needed(node.binding)
        yield self.into(node.handler, to)

    # --- tests --------------------------------------------------------------------------------

    def test(self, node: Core, yes: Label, no: Label) -> Lowering:
        """Branch on the truth of a node."""
        while True:
            match node:
                case core.Literal(value=value):
                    self.jump(yes if is_true(value) else no)
                    return
                case core.If(test=test, then=then, otherwise=otherwise) if node not in self.captures.simple:
                    first, second = Label("then", then.span), Label("else", otherwise.span)
                    yield self.test(test, first, second)
                    self.begin(first)
                    yield self.test(then, yes, no)
                    self.begin(second)
                    node = otherwise
                case core.Apply(callee=core.Library(name="not"), args=(inner,), spread=None):
                    node, yes, no = inner, no, yes
                case core.Operation(op="not", args=(inner,)):
                    node, yes, no = inner, no, yes
                case core.Sequence() | core.Let():
                    node = yield self.evaluate_all_but_last(node)
                case _:
                    mark = self.depth
                    expr = yield self.value(node)
                    self.leave_by_branch(expr, yes, no, node.span)
                    self.depth = mark
                    return
