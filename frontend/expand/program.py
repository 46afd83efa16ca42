"""Expansion of whole files: programs, files of functions, and the library.

Expansion of single forms is the work of `expander`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from posixpath import normpath

import attrs

from ...ir.constants import Symbol
from ...ir.diagnostics import Diagnostic
from ...ir.records import frozen
from ...ir.spans import Source, Span
from ..core.checks import check
from ..core.nodes import Binding, Core, Lambda, Let, Letrec, Literal
from ..core.program_parts import Definitions
from ..core.reserved_names import AROUND
from ..core.scope import Scope, identifier_of
from ..sexp.datum import Datum, Form
from . import ask_form, control_forms, function_forms, loop_forms, quoting_forms, run_loop_form, task_calls  # noqa: F401
from .binding_forms import definition
from .bodies import expand_unit, fill_unit
from .expander import run
from .expansion import MAX_FINDINGS, Abandoned, Context, Environment, LibraryName, Limits
from .unit import Unit

# The modules of forms are imported because they register their handlers.
__all__ = ["ALONE", "Environment", "Expansion", "Limits", "expand", "expand_library"]

# The environment of a program without imports, loops and tools.
ALONE = Environment()


@frozen
class Expansion:
    """Result of an expansion: the program as a function of the environment's parameters, and findings.

    sources: the program's and those it imports.
    """

    program: Lambda
    diagnostics: tuple[Diagnostic, ...]
    sources: tuple[Source, ...]


def expand(data: Sequence[Datum], source: Source, environment: Environment = ALONE) -> Expansion:
    """Expand the data of a file to a program, with all findings."""
    x = Context(environment)
    program = _program(x, data, source)
    found = x.diagnostics
    declared = x.declared
    found += declared.wrong
    found += declared.findings()
    found += check(program, x.locals, x.expected, has_errors=any(item.is_error for item in found))
    return Expansion(program, tuple(found[:MAX_FINDINGS]), tuple(x.sources))


def expand_definitions(data: Sequence[Datum], source: Source, environment: Environment) -> Definitions:
    """Expand a file of functions that loops call; it may contain definitions only."""
    x = Context(environment)
    x.sources.append(source)
    x.loading.append(normpath(source.path))
    unit = Unit(Scope(Scope(x.root, function=x.main)), is_top=True)
    with contextlib.suppress(Abandoned):
        run(x, fill_unit(x, unit, data))
    entries: list[tuple[Binding, Core]] = [(called.binding, called.function) for called in x.called.values()]
    # A loop calls these functions, so their loop forms are within one.
    entries += [(binding, Literal(name == AROUND or None)) for name, binding in x.dynamic.items()]
    entries += x.prelude
    entries += [(binding, Literal(None)) for binding in unit.frame.late]
    entries += unit.entries
    for binding, value in entries:
        if not binding.name and value.span is not None:
            x.error(
                "not-a-definition",
                "this is not a definition, and would run at each call of a function of the file",
                value.span,
                help="only `define`, `define-syntax` and `import` are allowed here; put it in a function",
            )
    found = [*x.diagnostics, *x.declared.wrong]
    found += x.declared.findings()
    whole = Lambda((), (), None, Letrec(tuple(entries), Literal(None)), "")
    found += check(whole, x.locals, x.expected, has_errors=any(item.is_error for item in found))
    names = {binding.name: binding for binding, _ in unit.entries if binding.name}
    return Definitions(tuple(entries), names, tuple(found[:MAX_FINDINGS]), tuple(x.sources))


def expand_library(data: Sequence[Datum]) -> tuple[dict[str, Lambda], list[Diagnostic]]:
    """The functions that a file of `stdlib/` defines, by name.

    They refer to one another, and to the rest of the library, by `Library` nodes, so each can be lowered
    separately.
    """
    x = Context(ALONE)
    functions = _library(x, data)
    for function in functions.values():
        x.diagnostics += check(function)
    return functions, x.diagnostics


def _program(x: Context, data: Sequence[Datum], source: Source) -> Lambda:
    x.sources.append(source)
    x.loading.append(normpath(source.path))
    outer = Scope(x.root, function=x.main)
    parameters = []
    for name in x.environment.parameters:
        binding = Binding(name, None, x.main)
        parameters.append(binding)
        why = x.why_reserved(name)
        if why is not None:
            x.error("cannot-bind", f"the argument `{name}` {why} and cannot be bound", None)
        outer.names[Symbol(name)] = binding
    if not data:
        span = Span(source.path, 1, 1, 1, 1)
        x.error("empty-program", "the program is empty", span, help="write an expression")
    body: Core = Literal(None)
    unit = Unit(Scope(outer), is_top=True)
    with contextlib.suppress(Abandoned):
        body = run(x, expand_unit(x, unit, data, x.prelude))
    if x.dynamic:
        body = Let(tuple((binding, Literal(None)) for binding in x.dynamic.values()), body)
    if x.called:
        body = Let(tuple((called.binding, called.function) for called in x.called.values()), body)
    return Lambda(tuple(parameters), (), None, body, "main")


def _library(x: Context, data: Sequence[Datum]) -> dict[str, Lambda]:
    """Every form of the file is a `define` of a function."""
    scope = Scope(x.inner, function=x.main)
    functions: dict[str, Lambda] = {}
    defines: list[tuple[str, Form]] = []
    for datum in data:
        assert isinstance(datum, Form)
        head = datum.items[1]
        name = identifier_of(head.items[0] if isinstance(head, Form) else head)
        assert name is not None
        scope.names[name] = LibraryName(name.name)
        defines.append((name.name, datum))
    for name_text, datum in defines:
        _, value = definition(x, datum)
        core = run(x, value(scope))
        assert isinstance(core, Lambda)
        functions[name_text] = attrs.evolve(core, name=name_text)
    return functions
