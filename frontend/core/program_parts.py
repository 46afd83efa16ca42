"""The parts that a program of several files is linked from: loops as functions, functions that loops call.

The expander requests loops, the linker finds the files and makes the parts, lowering turns them into
functions of the program. Must not contain: files, forms, states.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...ir.diagnostics import Diagnostic
from ...ir.records import frozen
from ...ir.spans import Source, Span
from ..loop.schema import Loop
from ..loop.texts import Within
from .nodes import Binding, Core


@frozen
class Request:
    """A loop that a form, or a state of another loop, runs. spans: the places of the keys of its context.

    constants: context known at compile time; a text in it is read as `--context` reads it.
    given: keys of context whose values are known only at run time.
    is_state: a state runs it, which is given whole results instead of texts (`LoopPart`).
    is_late: its name is computed, or others are given the same: its `context` need not have what it is given.
    dialect: that of a loop that names none.
    """

    name: str
    span: Span | None
    constants: Mapping[str, Any]
    given: tuple[str, ...]
    spans: Mapping[str, Span | None]
    max_iterations: int | None
    is_state: bool = False
    dialect: str | None = None
    is_late: bool = False


@frozen(eq=False)
class Definitions:
    """The definitions of a file of functions, with the findings.

    entries: variables with their values in the order of evaluation, imported ones first.
    names: the variables of the file's own definitions.
    """

    entries: tuple[tuple[Binding, Core], ...]
    names: dict[str, Binding]
    diagnostics: tuple[Diagnostic, ...]
    sources: tuple[Source, ...]


@frozen(eq=False)
class FunctionPart:
    """A function of a file that a loop calls with `count` arguments."""

    name: str
    file: str
    definitions: Definitions
    binding: Binding
    count: int


@frozen
class CallPart:
    """A call of a state: what it calls, and the arguments as (place, value) in its order."""

    function: FunctionPart | LoopPart | BranchesPart
    arguments: tuple[tuple[str, Any], ...]


@frozen(eq=False)
class BranchesPart:
    """Loops that a state runs at once, by name, of which at least `least` have to succeed."""

    name: str
    branches: tuple[tuple[str, LoopPart], ...]
    least: int
    span: Span | None

    @property
    def given(self) -> tuple[str, ...]:
        """The context variables that are the parameters of some of them."""
        return tuple(dict.fromkeys(key for _, loop in self.branches for key in loop.given))


@frozen
class LateCallPart:
    """A call of a state whose loop has a computed name.

    file: that has the state. linked: the loops that are known by now, as (name, number in
    `CompileOptions.links`, call).
    """

    file: str
    linked: tuple[tuple[str, int, CallPart], ...]


@frozen(eq=False)
class LoopPart:
    """A loop as a function of a program.

    given: the context variables that are its parameters, in order. calls: the calls by state.
    gives_results: what was captured comes back as results, not as texts.
    """

    name: str
    loop: Loop
    given: tuple[str, ...]
    within: Within
    model: str
    calls: Mapping[str, CallPart | LateCallPart]
    gives_results: bool = False
