"""Generated core programs and their reference evaluator, with which the compiler is compared.

One drawn seed determines the structure of a program. The evaluator recurses and keeps variables in cells, so
it shares nothing with states and slots; concurrent calls are threads of which one runs at a time. Primitives
are those of the machine.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from llc.frontend.core import nodes
from llc.frontend.core.nodes import Binding, Core
from llc.vm.primitives.handlers import HANDLERS
from llc.vm.primitives.operands import items as items_of
from llc.vm.values.faults import PrimitiveFault

MAX_STEPS = 4_000
MAX_DEPTH = 60


class Undefined(Exception):
    """The program takes too many steps, is too deep, or compares functions; the result is undefined."""


class Function:
    """A function value of the evaluator."""

    def __init__(self, node: nodes.Lambda, cells: dict[Binding, list[Any]]) -> None:
        self.node = node
        self.cells = cells


class Recur(Exception):
    """A `recur` with its arguments."""

    def __init__(self, values: list[Any]) -> None:
        self.values = values


UNSET = object()

# Function that picks the pending effect to answer next.
Pick = Callable[[list[int]], int]


class StrandScheduler:
    """Runs one strand at a time, the one that has been ready longest.

    pick: chooses the effect to answer when no strand is ready; without it each effect is answered
    immediately.
    """

    def __init__(self, pick: Pick | None) -> None:
        self.pick = pick
        self.ready: deque[Callable[[], object]] = deque()
        self.pending: dict[int, Callable[[], object]] = {}

    def wait_for_answer(self, seq: int) -> None:
        """Block the caller until its effect is answered."""
        done = threading.Semaphore(0)
        if self.pick is None:
            self.ready.append(done.release)
        else:
            self.pending[seq] = done.release
        self.next()
        done.acquire()

    def fork(self, calls: list[Callable[[], None]]) -> None:
        """Block the caller until all of these have ended."""
        done = threading.Semaphore(0)
        remaining = [len(calls)]

        def run(call: Callable[[], None]) -> None:
            call()
            remaining[0] -= 1
            if not remaining[0]:
                self.ready.append(done.release)
            self.next()

        self.ready += [threading.Thread(target=run, args=(call,), daemon=True).start for call in calls]
        self.next()
        done.acquire()

    def next(self) -> None:
        if not self.ready:
            assert self.pick is not None
            seq = self.pick(list(self.pending))
            self.ready.append(self.pending.pop(seq))
        self.ready.popleft()()


class Evaluator:
    """Evaluates core; `trace` collects effects and notes, `answer` answers an effect.

    pick: see `StrandScheduler`.
    """

    def __init__(self, pick: Pick | None = None, answer: Callable[[int, Any], Any] | None = None) -> None:
        self.trace: list[Any] = []
        self.seq = 0
        self.steps = 0
        self.assigned: set[Binding] = set()
        self.turns = StrandScheduler(pick)
        self.answer = answer or (lambda seq, args: by_number(seq))
        self.is_endless = False
        # Each strand has its own depth.
        self.here = threading.local()

    def run(self, node: Core) -> Any:
        """The value, or the fault as (kind, message)."""
        self.assigned = {part.binding for part in nodes.walk(node) if isinstance(part, nodes.Assign)}
        try:
            return ("value", self.evaluate(node, {}))
        except PrimitiveFault as fault:
            return ("fault", fault.kind, fault.message)

    def evaluate(self, node: Core, cells: dict[Binding, list[Any]]) -> Any:
        self.steps += 1
        depth = self.here.depth = getattr(self.here, "depth", 0) + 1
        if self.steps > MAX_STEPS or depth > MAX_DEPTH or self.is_endless:
            self.is_endless = True
            raise Undefined
        try:
            return self.dispatch(node, cells)
        finally:
            self.here.depth = depth - 1

    def dispatch(self, node: Core, cells: dict[Binding, list[Any]]) -> Any:
        match node:
            case nodes.Literal(value=value):
                return value
            case nodes.Variable(binding=binding):
                value = cells[binding][0]
                if value is UNSET:
                    message = f"`{binding.name}` is used before it has its value"
                    raise PrimitiveFault("uninitialised", message)
                return value
            case nodes.Assign(binding=binding, value=value):
                cells[binding][0] = found = self.evaluate(value, cells)
                return found
            case nodes.If(test=test, then=then, otherwise=otherwise):
                return self.evaluate(then if self.evaluate(test, cells) else otherwise, cells)
            case nodes.Lambda():
                return Function(node, cells)
            case nodes.Let(bindings=bindings, body=body):
                inner = dict(cells)
                for binding, value in bindings:
                    inner = {**inner, binding: [self.evaluate(value, inner)]}
                return self.evaluate(body, inner)
            case nodes.Letrec(bindings=bindings, body=body):
                inner = {**cells, **{binding: [UNSET] for binding, _ in bindings}}
                # Functions may be called before their definition is evaluated.
                known = {b for b, value in bindings if isinstance(value, nodes.Lambda)} - self.assigned
                for binding, value in bindings:
                    if binding in known:
                        inner[binding][0] = self.evaluate(value, inner)
                for binding, value in bindings:
                    if binding not in known:
                        inner[binding][0] = self.evaluate(value, inner)
                return self.evaluate(body, inner)
            case nodes.Loop(bindings=bindings, body=body):
                inner = dict(cells)
                for binding, value in bindings:
                    inner = {**inner, binding: [self.evaluate(value, inner)]}
                while True:
                    try:
                        return self.evaluate(body, inner)
                    except Recur as again:
                        fresh = zip((b for b, _ in bindings), again.values, strict=True)
                        inner = {**inner, **{binding: [value] for binding, value in fresh}}
            case nodes.Recur(args=args):
                raise Recur([self.evaluate(arg, cells) for arg in args])
            case nodes.Sequence(items=items):
                return [self.evaluate(item, cells) for item in items][-1]
            case nodes.Apply(callee=callee, args=args, spread=spread):
                function = self.evaluate(callee, cells)
                values = [self.evaluate(arg, cells) for arg in args]
                if spread is not None:
                    values += self.splice(function, self.evaluate(spread, cells))
                return self.call(function, values)
            case nodes.Operation(op=op, args=args):
                return self.operate(op, [self.evaluate(arg, cells) for arg in args])
            case nodes.Perform(kind=kind, fields=fields):
                found = {name: self.evaluate(value, cells) for name, value in fields}
                args = to_plain(without_nulls(found), f"the arguments of effect `{kind}`")
                self.trace.append((kind, args))
                self.seq += 1
                seq = self.seq
                self.turns.wait_for_answer(seq)
                return self.answer(seq, args)
            case nodes.Parallel(callee=callee, items=items):
                function = self.evaluate(callee, cells)
                return self.parallel(function, self.evaluate(items, cells))
            case nodes.Note(kind=kind, fields=fields):
                found = {name: self.evaluate(value, cells) for name, value in fields}
                self.trace.append((kind, to_plain(without_nulls(found), f"the fields of note `{kind}`")))
                return None
            case nodes.Fail(error=error):
                message = self.evaluate(error, cells)
                if type(message) is not str:
                    raise Undefined  # the text of a value is undefined
                raise PrimitiveFault("user", message)
            case nodes.Try(body=body, binding=binding, handler=handler):
                try:
                    return self.evaluate(body, cells)
                except PrimitiveFault as fault:
                    caught = {"kind": fault.kind, "message": fault.message, "span": None}
                    return self.evaluate(handler, {**cells, binding: [caught]})
            case _:
                raise AssertionError(node)

    def parallel(self, function: Any, items: Any) -> Any:
        if type(items) is not tuple and holds_function(items):
            raise Undefined
        items = items_of(items)
        if not items:
            return ()
        self.check_arity(function, 1)
        results: list[Any] = [None] * len(items)
        faults: dict[int, PrimitiveFault] = {}

        def call(index: int) -> None:
            try:
                results[index] = self.call(function, [items[index]])
            except PrimitiveFault as fault:
                faults[index] = fault
            except (Undefined, RecursionError):
                self.is_endless = True

        self.turns.fork([partial(call, index) for index in range(len(items))])
        if self.is_endless:
            raise Undefined
        if faults:
            raise faults[min(faults)]
        return tuple(results)

    def splice(self, function: Any, values: Any) -> list[Any]:
        if not isinstance(function, Function):
            raise Undefined
        if type(values) is not tuple:
            HANDLERS["operate"]("list", values)  # faults
        return list(values)

    def check_arity(self, function: Any, given: int) -> None:
        """Fault if the function does not accept this number of arguments."""
        if not isinstance(function, Function):
            if holds_function(function):
                raise Undefined
            HANDLERS["applied"](function, ())  # faults
            raise AssertionError
        node = function.node
        if given < node.least or (node.most == node.least != given):
            takes = f"{node.least} argument{'' if node.least == 1 else 's'}"
            least = "" if node.most == node.least else "at least "
            raise PrimitiveFault("arity", f"`{node.name}` takes {least}{takes}, not {given}")
        if node.most is not None and given > node.most:
            takes = f"{node.most} argument{'' if node.most == 1 else 's'}"
            raise PrimitiveFault("arity", f"`{node.name}` takes at most {takes}")

    def call(self, function: Any, values: list[Any]) -> Any:
        self.check_arity(function, len(values))
        node, parameters = function.node, function.node.parameters
        cells = dict(function.cells)
        cells |= {b: [value] for b, value in zip(parameters, values, strict=False)}
        remaining = values[len(parameters) :]
        for binding, default in node.optionals:
            cells = {**cells, binding: [remaining.pop(0) if remaining else self.evaluate(default, cells)]}
        if node.rest is not None:
            cells[node.rest] = [tuple(remaining)]
        return self.evaluate(node.body, cells)

    def operate(self, op: str, values: list[Any]) -> Any:
        if op not in ("list", "is_null", "not", "select") and any(map(holds_function, values)):
            raise Undefined  # the text and equality of functions are undefined
        return HANDLERS[op](*values)


def by_number(seq: int) -> dict[str, Any]:
    """Answer to the effect with this number."""
    return {"values": {"n": seq, "text": "x" * (seq % 3)}}


def by_arguments(args: Any) -> dict[str, Any]:
    """Answer that depends only on the arguments of the effect."""
    return {"values": {"length": len(repr(args)), "question": args}}


def without_nulls(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def holds_function(value: Any) -> bool:
    if isinstance(value, tuple):
        return any(map(holds_function, value))
    if isinstance(value, dict):
        return any(map(holds_function, value.values()))
    return isinstance(value, Function)


def to_plain(value: Any, what: str = "the program's result") -> Any:
    """Like `to_host`; a function is a fault."""
    if isinstance(value, Function):
        raise PrimitiveFault("type-error", f"{what}: a function cannot leave the machine")
    if isinstance(value, tuple):
        return [to_plain(item, what) for item in value]
    if isinstance(value, dict):
        return {name: to_plain(item, what) for name, item in value.items()}
    return value


# --- generated programs -----------------------------------------------------------------------

_OPERATIONS = (("add", 2), ("sub", 2), ("list", 2), ("lt", 2), ("eq", 2), ("not", 1), ("is_null", 1))


class Generator:
    """Generator of core programs. `kinds` sets the frequency of node kinds, 0 omits one."""

    def __init__(self, seed: int, **kinds: int) -> None:
        self.chance = random.Random(seed)
        self.count = 0
        self.kinds = kinds

    def binding(self) -> Binding:
        self.count += 1
        # Names repeat, but two variables of one name are distinct.
        return Binding(self.chance.choice("abcdefg"))

    def program(self) -> Core:
        return self.node(7, (), None)

    def concurrent_program(self, is_pure: bool = False) -> Core:
        """A program of concurrent, mostly successful calls that share and change a variable."""
        shared = self.binding()
        body = self.concurrent_call(self.chance.randint(1, 3), (shared,), None if is_pure else shared)
        end = nodes.Operation("list", (body, nodes.Variable(shared)))
        return nodes.Let(((shared, nodes.Literal(())),), end)

    def concurrent_call(self, depth: int, scope: tuple[Binding, ...], shared: Binding | None) -> Core:
        chance, item = self.chance, self.binding()
        inside = (*scope, item)
        steps: list[Core] = []
        for _ in range(chance.randint(1, 4)):
            kind = chance.choice(["ask", "ask", "change", "change", "more", "more", "any", "fail", "guarded"])
            if kind == "ask":
                steps.append(nodes.Perform("env", (("names", nodes.Variable(item)),)))
            elif kind == "change" and shared is not None:
                extended = nodes.Operation("list", (nodes.Variable(shared), nodes.Variable(item)))
                steps.append(nodes.Assign(shared, extended))
            elif kind == "more" and depth > 0:
                steps.append(self.concurrent_call(depth - 1, inside, shared))
            elif kind == "any":
                steps.append(self.node(2, inside, None))
            elif kind == "fail":
                rare = nodes.Operation("eq", (nodes.Variable(item), nodes.Literal(chance.randint(0, 3))))
                steps.append(nodes.If(rare, nodes.Fail(nodes.Literal("boom")), nodes.Literal(None)))
            elif kind == "guarded" and depth > 0:
                caught = self.binding()
                body = self.concurrent_call(depth - 1, inside, shared)
                steps.append(nodes.Try(body, caught, nodes.Variable(caught)))
        each = nodes.Lambda((item,), (), None, nodes.Sequence((*steps, self.leaf(inside))), "f")
        items = tuple(nodes.Literal(number) for number in range(chance.randint(0, 4)))
        return nodes.Parallel(each, nodes.Operation("list", items))

    def node(self, depth: int, scope: tuple[Binding, ...], loop: int | None) -> Core:
        """A node; `loop` is the number of variables of the loop if the node is in its tail position."""
        pick = self.chance.random
        if depth <= 0 or pick() < 0.08:
            return self.leaf(scope)
        inner = lambda: self.node(depth - 1, scope, None)  # noqa: E731
        tail = lambda names=(): self.node(depth - 1, (*scope, *names), loop)  # noqa: E731
        kinds = ["if", "let", "sequence", "try", "letrec", "loop", "operation", "operation", "apply", "apply"]
        kinds += ["lambda", "perform", "perform", "note", "fail"] + ["assign", "assign"] * bool(scope)
        kinds += ["recur"] * 4 * (loop is not None) + ["parallel"]
        for kind, count in self.kinds.items():
            if kind in kinds:
                kinds = [other for other in kinds if other != kind] + [kind] * count
        match self.chance.choice(kinds):
            case "if":
                return nodes.If(inner(), tail(), tail())
            case "sequence":
                items = [inner() for _ in range(self.chance.randint(1, 3))]
                last = tail()
                more = last.items if isinstance(last, nodes.Sequence) else (last,)
                return nodes.Sequence((*items, *more))
            case "let":
                first, second = self.binding(), self.binding()
                value = self.node(depth - 1, (*scope, first), None)
                return nodes.Let(((first, inner()), (second, value)), tail((first, second)))
            case "letrec":
                names = tuple(self.binding() for _ in range(self.chance.randint(1, 3)))
                there = (*scope, *names)
                values = [
                    self.function(depth - 1, there) if pick() < 0.7 else self.node(depth - 1, there, None)
                    for _ in names
                ]
                return nodes.Letrec(tuple(zip(names, values, strict=True)), tail(names))
            case "loop":
                counter, other = self.binding(), self.binding()
                there = (*scope, counter, other)
                going = self.node(depth - 1, there, 2)
                body = nodes.If(
                    nodes.Operation("lt", (nodes.Variable(counter), nodes.Literal(3))),
                    self.counted(going, counter),
                    self.node(depth - 2, there, None),
                )
                return nodes.Loop(((counter, nodes.Literal(0)), (other, inner())), body)
            case "recur":
                return nodes.Recur(tuple(inner() for _ in range(loop or 0)))
            case "operation":
                op, count = self.chance.choice(_OPERATIONS)
                return nodes.Operation(op, tuple(inner() for _ in range(count)))
            case "apply":
                callee = inner() if pick() < 0.3 or not scope else nodes.Variable(self.chance.choice(scope))
                if pick() < 0.3:
                    callee = self.function(depth - 1, scope)
                args = tuple(inner() for _ in range(self.chance.randint(0, 2)))
                spread = nodes.Operation("list", (inner(),)) if pick() < 0.15 else None
                return nodes.Apply(callee, args, spread)
            case "parallel":
                one = self.binding()
                each: Core = nodes.Lambda((one,), (), None, self.node(depth - 1, (*scope, one), None), "f")
                if pick() < 0.2:
                    each = inner()
                items = tuple(inner() for _ in range(self.chance.randint(0, 3)))
                return nodes.Parallel(each, inner() if pick() < 0.1 else nodes.Operation("list", items))
            case "lambda":
                return self.function(depth - 1, scope)
            case "perform":
                return nodes.Perform("env", (("names", inner()), ("more", inner())))
            case "note":
                return nodes.Note("log", (("message", inner()),))
            case "fail":
                return nodes.Fail(nodes.Literal("boom"))
            case "try":
                caught = self.binding()
                handler = self.node(depth - 1, (*scope, caught), loop)
                return nodes.Try(inner(), caught, handler)
            case _:
                return nodes.Assign(self.chance.choice(scope), inner())

    def counted(self, node: Core, counter: Binding) -> Core:
        """The `recur` of a loop, with a counter that ends the loop."""
        step = nodes.Operation("add", (nodes.Variable(counter), nodes.Literal(1)))
        return nodes.Sequence((node_without_recur(node), nodes.Recur((step, self.leaf((counter,))))))

    def function(self, depth: int, scope: tuple[Binding, ...]) -> nodes.Lambda:
        parameters = tuple(self.binding() for _ in range(self.chance.randint(0, 2)))
        rest = self.binding() if self.chance.random() < 0.15 else None
        more = () if rest is None else (rest,)
        optionals: tuple[tuple[Binding, Core], ...] = ()
        for _ in range(self.chance.choice([0, 0, 0, 1, 2])):
            there = (*scope, *parameters, *(binding for binding, _ in optionals))
            optionals += ((self.binding(), self.node(depth - 2, there, None)),)
        names = (*parameters, *(binding for binding, _ in optionals), *more)
        body = self.node(depth, (*scope, *names), None)
        return nodes.Lambda(parameters, optionals, rest, body, "f")

    def leaf(self, scope: tuple[Binding, ...]) -> Core:
        if scope and self.chance.random() < 0.6:
            return nodes.Variable(self.chance.choice(scope))
        return nodes.Literal(self.chance.choice([0, 1, 2, -5, None, True, False, "", "text", (), (1, (2,))]))


def node_without_recur(node: Core) -> Core:
    """A node outside a tail position: each `recur` is replaced by null."""
    match node:
        case nodes.Recur(args=args):
            return nodes.Sequence((*args, nodes.Literal(None)))
        case nodes.If(test=test, then=then, otherwise=otherwise):
            return nodes.If(test, node_without_recur(then), node_without_recur(otherwise))
        case nodes.Sequence(items=items):
            return nodes.Sequence((*items[:-1], node_without_recur(items[-1])))
        case nodes.Let(bindings=bindings, body=body):
            return nodes.Let(bindings, node_without_recur(body))
        case nodes.Letrec(bindings=bindings, body=body):
            return nodes.Letrec(bindings, node_without_recur(body))
        case nodes.Try(body=body, binding=binding, handler=handler):
            return nodes.Try(body, binding, node_without_recur(handler))
        case _:
            return node
