"""Flows to programs: which functions a program has, what they are called, and its metadata.

Every function that is reached from the program's body becomes one of the IR: the author's, those
of the library that are written in the language, and wrappers for primitives used as values. What
one function becomes is decided in `normal_form`, what functions share in `captures`.
"""

from __future__ import annotations

from collections.abc import Callable

from ..ir.builder import FunctionBuilder, prim
from ..ir.effects import EFFECTS
from ..ir.nodes import Closure, Function, Meta, Perform, Program, Return, Slot, TailCall
from ..ir.spans import Source
from .captures import Captures
from .core import Core, Lambda
from .library import LIBRARY, Defined, Primitive, Spread
from .normal_form import Body
from .states import Names

# The function for the program's own body.
ENTRY = "program"
# A longer name of a function inside another does not say where it stands.
_LONGEST_NAME = 60


def lower_flow(
    root: Core, name: str, sources: tuple[Source, ...], definition: Callable[[str], Lambda]
) -> Program:
    """The program of a core program: what the core's value is, the program returns.

    `definition(name)` is the function of the library that is `Defined` under a name.
    """
    return _Flow(definition).program(root, name, sources)


class _Flow:
    """Functions are lowered one after the other; those they reach are put in line."""

    def __init__(self, definition: Callable[[str], Lambda]) -> None:
        self.definition = definition
        self.names = Names()
        self.waiting: list[tuple[str, Lambda, Captures]] = []
        self.functions: list[Function] = []
        self.known: dict[Lambda, str] = {}
        self.from_library: dict[str, str] = {}
        self.wrappers: list[Function] = []

    def program(self, root: Core, name: str, sources: tuple[Source, ...]) -> Program:
        main = Lambda((), (), None, root, ENTRY, span=root.span)
        self.function_name(main, Captures(main, self.is_operation))
        done = 0
        while done < len(self.waiting):
            function_name, function, captures = self.waiting[done]
            self.functions.append(Body(function_name, function, captures, self).lower())
            done += 1
        self.functions += self.wrappers
        acts = any(
            isinstance(state.exit, Perform) and EFFECTS[state.exit.kind].acts
            for function in self.functions
            for state in function.states
        )
        # What touches nothing needs no lock.
        meta = Meta(kind="flow", scope=(".",) if acts else ())
        return Program(name, ENTRY, tuple(self.functions), meta, sources=sources)

    # --- names --------------------------------------------------------------------------------

    def function_name(self, function: Lambda, captures: Captures) -> str:
        known = self.known.get(function)
        if known is None:
            known = self.known[function] = self.names.give(self._full_name(function, captures))
            self.waiting.append((known, function, captures))
        return known

    def _full_name(self, function: Lambda, captures: Captures) -> str:
        """`outer/inner` for a function inside another."""
        line = f"-{function.span.line}" if function.span is not None else ""
        name = function.name or f"lambda{line}"
        parent = captures.parents.get(function)
        if parent is not None:
            outer = self.known.get(parent, "")
            if outer not in ("", ENTRY) and len(outer) + len(name) < _LONGEST_NAME:
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
                self.from_library[name] = self.function_name(function, Captures(function, self.is_operation))
            else:
                self.from_library[name] = given = self.names.give(name)
                self.wrappers.append(_wrapper(given, entry))
        return Closure(self.from_library[name])


def _wrapper(name: str, entry: Primitive | Spread) -> Function:
    """A function that does what a name of the library does that is no function itself."""
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
