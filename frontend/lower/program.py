"""Lowering of flows to programs: functions, their names, and metadata.

Every function that is reachable from the program's body becomes an IR function: the author's functions,
library functions that are written in the language, and wrappers for primitives used as values.
`anf` lowers a single function; `closure_analysis` answers questions about all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from ...ir.builder import FunctionBuilder, prim
from ...ir.call_limits import References
from ...ir.diagnostics import CompileError, Diagnostic
from ...ir.effects import EFFECTS
from ...ir.nodes import Closure, Function, InnerLoop, Meta, Perform, Program, Return, Slot, TailCall
from ...ir.spans import Source
from ..core.library import LIBRARY, Defined, Primitive, Spread
from ..core.nodes import Apply, Binding, Core, External, Lambda, Letrec, Variable, walk
from ..core.program_parts import BranchesPart, CallPart, FunctionPart, LateCallPart, LoopPart
from .anf import Body
from .branches import functions_of
from .budgets import unbounded_calls
from .closure_analysis import ClosureAnalysis
from .deadlines import Calls, pass_deadlines
from .loop import Lowering, scope_of
from .loop_context import Callee, LateCallee
from .state_writer import Names

# The function of the program's body.
ENTRY = "program"
# Maximal length of a qualified name `outer/inner`; otherwise the name is `inner`.
_LONGEST_NAME = 60


def lower_flow(
    root: Core, name: str, sources: tuple[Source, ...], definition: Callable[[str], Lambda]
) -> Program:
    """Lower a core program and the loops that it runs; the IR program returns the value of `root`.

    definition: returns the core function of a library function that is `Defined`, by name.
    """
    return _ProgramLowering(definition, FunctionNames()).program(root, name, sources)


def lower_calling_loop(
    part: LoopPart, sources: tuple[Source, ...], definition: Callable[[str], Lambda]
) -> Program:
    """Lower a loop and the functions that it calls."""
    return _ProgramLowering(definition, FunctionNames()).loop_program(part, sources)


class FunctionNames:
    """Allocator of function names; knows the names of lowered library functions."""

    def __init__(self) -> None:
        self.names = Names()
        self.from_library: dict[str, str] = {}

    def apart(self) -> FunctionNames:
        """A copy for functions that do not share the lowered library functions."""
        apart = FunctionNames()
        apart.names = self.names
        return apart

    def copy(self) -> FunctionNames:
        copied = FunctionNames()
        copied.names = self.names.copy()
        copied.from_library = dict(self.from_library)
        return copied


def lower_input(
    function: Lambda, shared: Sequence[Binding], definition: Callable[[str], Lambda], names: FunctionNames
) -> tuple[tuple[Function, ...], tuple[Binding, ...]]:
    """Lower one form of a session; return its functions, and which of the `shared` variables it captures.

    The first function is the form itself. Library functions are included unless `names` has them already.
    """
    around = Lambda(tuple(shared), (), None, function, span=function.span)
    runs_loops = any(isinstance(node, External) for node in walk(function))
    # Functions called by a loop may get a deadline parameter, which the existing ones do not have.
    flow = _ProgramLowering(definition, names.apart() if runs_loops else names)
    captures = ClosureAnalysis(around, flow.is_operation, shared)
    functions = pass_deadlines(flow.lower(function, captures), flow.calls)
    return tuple(functions), captures.of(function)


class _ProgramLowering:
    """Lowers functions one after another; functions that they reach are added to a queue."""

    def __init__(self, definition: Callable[[str], Lambda], names: FunctionNames) -> None:
        self.definition = definition
        self.names = names.names
        self.from_library = names.from_library
        self.main: Lambda | None = None
        # Queue of functions to lower, in order.
        self.queue: list[Callable[[], Function]] = []
        # Loops with computed names, by number. They come last, in the order in which a run entered them, so
        # that the names of all earlier functions do not change.
        self.late: dict[int, tuple[LoopPart, str]] = {}
        self.functions: list[Function] = []
        self.known: dict[Lambda, str] = {}
        self.wrappers: list[Function] = []
        self.loops: dict[LoopPart, str] = {}
        self.inner: list[InnerLoop] = []
        self.loop_names = Names()
        self.functions_called: dict[FunctionPart, Closure] = {}
        self.branches: dict[BranchesPart, Closure] = {}
        # By the name of the loop's function.
        self.calls: dict[str, Calls] = {}

    def program(self, root: Core, name: str, sources: tuple[Source, ...]) -> Program:
        main = Lambda((), (), None, root, ENTRY, span=root.span)
        self.lower(main, ClosureAnalysis(main, self.is_operation))
        self.reject_spending(self.functions, sources)
        meta = Meta(kind="flow", scope=self.scope(), loops=tuple(self.inner))
        return Program(name, ENTRY, tuple(pass_deadlines(self.functions, self.calls)), meta, sources=sources)

    def loop_program(self, part: LoopPart, sources: tuple[Source, ...]) -> Program:
        loop = part.loop
        name = self.names.give("main")
        lowering = Lowering(loop, part.within, part.model, None, self.callees(part))
        function = lowering.function()
        self.calls[name] = _calls_of(lowering)
        self.loops[part] = name
        functions = [function, *self.lower_queue()]
        self.reject_spending(functions, sources)
        functions = pass_deadlines(functions, self.calls)
        scope = _union(self.paths())
        meta = Meta("loop", loop.paradigm, scope, lowering.maintains, lowering.limits, tuple(self.inner))
        return Program(loop.name, name, tuple(functions), meta, sources=sources)

    def scope(self) -> tuple[str, ...]:
        """The paths of the program's loops, or the whole project if the program acts outside of loops.

        A program without actions needs no lock.
        """
        inner = set(self.loops.values())
        own = {function.name for function in self.functions}
        if inner:
            own = {ENTRY, *References(self.functions).reach([ENTRY], inner)} - inner
        acts = any(
            isinstance(state.exit, Perform) and EFFECTS[state.exit.kind].acts
            for function in self.functions
            if function.name in own
            for state in function.states
        )
        return (".",) if acts else _union(self.paths())

    def paths(self) -> list[str]:
        """The paths of the program's loops; the whole project if a loop is not known yet."""
        is_open = any(isinstance(call, LateCallPart) for part in self.loops for call in part.calls.values())
        return ["."] if is_open else [path for part in self.loops for path in scope_of(part.loop)]

    def reject_spending(self, functions: Sequence[Function], sources: tuple[Source, ...]) -> None:
        """Raise CompileError if a loop with a budget calls a function that can use models or agents."""
        if any(part.loop.has_budget and part.calls for part in self.loops):
            references = References(functions)
            found: list[Diagnostic] = []
            for part in self.loops:
                for state, callee in self.callees(part).items():
                    many = [callee] if isinstance(callee, Callee) else [one for _, one in callee.linked]
                    for one in many:
                        found += unbounded_calls(part.loop, {state: one.function.function}, references)
            if found:
                raise CompileError(found, sources)

    # --- loops --------------------------------------------------------------------------------

    def external(self, part: LoopPart) -> Closure:
        name = self.loops.get(part)
        if name is None:
            name = self.loops[part] = self.names.give(part.name)
            self.queue.append(lambda: self.loop(part, name))
        return Closure(name)

    def loop(self, part: LoopPart, name: str) -> Function:
        shown = self.loop_names.give(part.name)
        callees = self.callees(part)
        lowering = Lowering(part.loop, part.within, part.model, shown, callees, part.gives_results)
        function = attrs.evolve(lowering.function(), name=name)
        self.inner.append(InnerLoop(name, shown, lowering.maintains, lowering.limits))
        self.calls[name] = _calls_of(lowering)
        return function

    def callees(self, part: LoopPart) -> dict[str, Callee | LateCallee]:
        return {
            state: Callee(self.callee(call.function), call.arguments)
            if isinstance(call, CallPart)
            else LateCallee(call.file, tuple(self.linked(*one) for one in call.linked))
            for state, call in part.calls.items()
        }

    def linked(self, name: str, number: int, call: CallPart) -> tuple[str, Callee]:
        part = call.function
        assert isinstance(part, LoopPart)
        if part not in self.loops:
            self.loops[part] = f"{part.name}/link-{number + 1}"
            self.late[number] = part, self.loops[part]
        return name, Callee(Closure(self.loops[part]), call.arguments)

    def callee(self, part: FunctionPart | LoopPart | BranchesPart) -> Closure:
        if isinstance(part, BranchesPart):
            return self.parallel_function(part)
        return self.external(part) if isinstance(part, LoopPart) else self.called(part)

    def parallel_function(self, part: BranchesPart) -> Closure:
        """The function that runs loops concurrently."""
        if part not in self.branches:
            loops = [self.external(loop) for _, loop in part.branches]
            whole = self.names.give(part.name)
            functions = functions_of(part, loops, (whole, self.names.give(f"{whole}/branch")))
            self.queue += [lambda made=made: made for made in functions]  # type: ignore[misc]
            self.branches[part] = Closure(whole)
        return self.branches[part]

    def called(self, part: FunctionPart) -> Closure:
        """A function that a loop calls, with the definitions of its file that must be evaluated first."""
        if part not in self.functions_called:
            parameters = tuple(Binding(f"argument{number + 1}") for number in range(part.count))
            call = Apply(Variable(part.binding), tuple(map(Variable, parameters)))
            body = Letrec(part.definitions.entries, call)
            whole = Lambda(parameters, (), None, body, f"{part.file}#{part.name}")
            captures = ClosureAnalysis(whole, self.is_operation)
            function = captures.known.get(part.binding)
            stands_alone = function is not None and not captures.of(function)
            name = self.function_name(function if function is not None and stands_alone else whole, captures)
            self.functions_called[part] = Closure(name)
        return self.functions_called[part]

    def lower(self, main: Lambda, captures: ClosureAnalysis) -> list[Function]:
        """`main` and all functions that it reaches; `main` is first."""
        self.main = main
        self.function_name(main, captures)
        return self.lower_queue()

    def lower_queue(self) -> list[Function]:
        """Lower the queued functions and all that they reach."""
        done = 0
        while done < len(self.queue) or self.late:
            if done == len(self.queue):
                part, name = self.late.pop(min(self.late))
                self.functions.append(self.loop(part, name))
                continue
            self.functions.append(self.queue[done]())
            done += 1
        self.functions += self.wrappers
        return self.functions

    # --- names --------------------------------------------------------------------------------

    def function_name(self, function: Lambda, captures: ClosureAnalysis) -> str:
        known = self.known.get(function)
        if known is None:
            known = self.known[function] = self.names.give(self._full_name(function, captures))
            name = known
            self.queue.append(lambda: Body(name, function, captures, self).lower())
        return known

    def _full_name(self, function: Lambda, captures: ClosureAnalysis) -> str:
        """`outer/inner` for a nested function."""
        line = f"-{function.span.line}" if function.span is not None else ""
        name = function.name or f"lambda{line}"
        parent = captures.parents.get(function)
        if parent is not None and parent is not self.main:
            outer = self.known.get(parent, "")
            if outer and len(outer) + len(name) < _LONGEST_NAME:
                return f"{outer}/{name}"
        return name

    # --- the library --------------------------------------------------------------------------

    def operation(self, name: str) -> str | None:
        entry = LIBRARY[name]
        return entry.op if isinstance(entry, Primitive) else None

    def is_operation(self, name: str) -> bool:
        return self.operation(name) is not None

    def library_value(self, name: str) -> Closure:
        if name not in self.from_library:
            entry = LIBRARY[name]
            if isinstance(entry, Defined):
                function = self.definition(name)
                self.from_library[name] = self.function_name(
                    function, ClosureAnalysis(function, self.is_operation)
                )
            else:
                self.from_library[name] = given = self.names.give(name)
                self.wrappers.append(_wrapper(given, entry))
        return Closure(self.from_library[name])


def _calls_of(lowering: Lowering) -> Calls:
    return Calls(lowering.until, lowering.deadline is not None, lowering.acted)


def _union(paths: Sequence[str]) -> tuple[str, ...]:
    return (".",) if "." in paths else tuple(dict.fromkeys(paths))


def _wrapper(name: str, entry: Primitive | Spread) -> Function:
    """A function that wraps a primitive or a spread operation of the library."""
    if isinstance(entry, Spread):
        others = Slot("others")
        front = prim("take", prim("sub", prim("length", others), 1), others)
        filled = prim("applied", prim("applied", Slot("function"), prim("last", others)), front)
        builder = FunctionBuilder(name, ["function", "others"])
        builder.state("start", (), TailCall(filled, ()))
        return builder.build(rest=True)
    if entry.least == entry.most:
        parameters = [f"operand{number}" for number in range(1, entry.least + 1)]
        builder = FunctionBuilder(name, parameters)
        builder.state("start", (), Return(prim(entry.op, *map(Slot, parameters))))
        return builder.build()
    builder = FunctionBuilder(name, ["operands"])
    builder.state("start", (), Return(prim("operate", entry.op, Slot("operands"))))
    return builder.build(rest=True)
