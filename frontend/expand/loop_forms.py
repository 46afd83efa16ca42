"""The forms `iterative-loop` and `director-evaluator-loop`, and internal forms of `stdlib/`.

Owns the clauses, which can be in any order. The loops are defined in the language itself, in
`stdlib/loops.sexp`, whose macros take the clauses' expressions in a fixed order. The internal forms
at the end give the files of `stdlib/` access to core nodes; programs cannot use them.
"""

from __future__ import annotations

from functools import cache

import attrs

from ...ir.compile_options import LIBRARY_FOLDER
from ...ir.constants import Symbol
from ...ir.diagnostics import suggest
from ...ir.effects import EFFECTS, NOTES
from ...ir.records import frozen
from ...stdlib import read_text
from ..core.checks import Expected
from ..core.forms import Steps, form
from ..core.nodes import (
    Apply,
    Binding,
    Core,
    Fail,
    If,
    Lambda,
    Let,
    Library,
    Literal,
    Note,
    Operation,
    Parallel,
    Perform,
    Variable,
)
from ..core.scope import Alias, Scope, identifier_of
from ..sexp.datum import Atom, Datum, Form
from ..sexp.reader import read
from ..source.files import text_source
from .control_forms import is_count
from .define_syntax import define_macro
from .expansion import Context


@frozen
class Clause:
    """A clause of a loop form.

    takes: the arguments its function is called with, if it is one. check: the macro of
    `stdlib/loops.sexp` that checks its value when the loop begins.
    """

    name: str
    usage: str
    takes: tuple[str, ...] | None = None
    check: str | None = None


_MAXIMUM = Clause("max-iterations", "(max-iterations count)", check="loop:maximum")
_ITERATIVE = (
    _MAXIMUM,
    Clause("initial-input", "(initial-input value)"),
    Clause("test-command", "(test-command string)", check="loop:command"),
    Clause("executor", "(executor function)", ("input", "iteration")),
    Clause("validator", "(validator function)", ("command", "iteration")),
    Clause("controller", "(controller function)", ("result", "validation", "input", "iteration")),
)
_DIRECTED = (
    _MAXIMUM,
    Clause("initial-director-input", "(initial-director-input value)"),
    Clause("director", "(director function)", ("input", "iteration")),
    Clause("executor", "(executor function)", ("plan", "iteration")),
    Clause("evaluator", "(evaluator function)", ("result", "plan", "iteration")),
    Clause("controller", "(controller function)", ("feedback", "plan", "result", "iteration")),
)


def _usage(name: str, clauses: tuple[Clause, ...]) -> str:
    return f"({name} {' '.join(clause.usage for clause in clauses)})"


@form("iterative-loop", _usage("iterative-loop", _ITERATIVE), "Repeat: execute, validate, decide.")
def expand_iterative_loop(x: Context, datum: Form, scope: Scope) -> Steps:
    return (yield _loop(x, datum, scope, "iterative-loop", _ITERATIVE))


@form(
    "director-evaluator-loop",
    _usage("director-evaluator-loop", _DIRECTED),
    "Repeat: plan, execute, evaluate, decide.",
)
def expand_director_evaluator_loop(x: Context, datum: Form, scope: Scope) -> Steps:
    return (yield _loop(x, datum, scope, "director-evaluator-loop", _DIRECTED))


def _loop(x: Context, datum: Form, scope: Scope, name: str, clauses: tuple[Clause, ...]) -> Steps:
    given, is_sound = _read_clauses(x, datum, name, clauses)
    if not is_sound:
        # The expressions in the clauses may contain errors of their own.
        for item in datum.items[1:]:
            if isinstance(item, Form) and len(item.items) == 2:
                yield item.items[1], scope
        return Literal(None)
    operands: list[Datum] = [Atom(_name(x, name, scope))]
    for clause in clauses:
        value = given[clause.name]
        if clause.takes is not None:
            wrapped = (_internal(x, "loop:phase", value), Atom(name), Atom(clause.name), value)
            value = Form(wrapped, value.place)
        elif clause.check is not None and not _is_literal(x, clause, value):
            value = Form((_internal(x, clause.check, value), Atom(name), value), value.place)
        operands.append(value)
    span = given["controller"].span
    place = f"{span.path}:{span.line}:{span.column}" if span is not None else None
    operands.append(Atom(place))  # where a wrong decision is reported
    head = _internal(x, f"loops:{name}", datum)
    return (yield Form((head, *operands), datum.place), _with_loops(x, scope))


def _name(x: Context, form: str, scope: Scope) -> str:
    """A name of a loop in events: that of the function that it is in, else of its form; numbered from 2."""
    name = next((around.function.name for around in scope.chain() if around.function.name), form)
    number = 1
    while (unique := name if number == 1 else f"{name}-{number}") in x.loops:
        number += 1
    x.loops.add(unique)
    return unique


def _read_clauses(
    x: Context, datum: Form, name: str, clauses: tuple[Clause, ...]
) -> tuple[dict[str, Datum], bool]:
    """The expression of each clause, and whether the form is correct."""
    usages = {clause.name: clause.usage for clause in clauses}
    listing = "its clauses are " + ", ".join(usages.values())
    given: dict[str, Datum] = {}
    is_sound = datum.tail is None
    for item in datum.items[1:]:
        head = identifier_of(item.items[0]) if isinstance(item, Form) and item.items else None
        if head is None or not isinstance(item, Form):
            x.error("bad-clause", f"not a clause of `{name}`", item.span, help=listing)
            is_sound = False
        elif head.name not in usages:
            near = suggest(head.name, usages, "the clauses")
            help = f"{near} {listing}" if near and near.startswith("did") else listing
            x.error("unknown-clause", f"`{name}` has no clause `{head.name}`", item.items[0].span, help=help)
            is_sound = False
        elif head.name in given:
            x.error("repeated-clause", f"`{head.name}` is given twice", item.span, "again here", help=listing)
            is_sound = False
        elif len(item.items) != 2 or item.tail is not None:
            x.error(
                "bad-clause",
                f"`{head.name}` takes one expression, not {len(item.items) - 1}",
                item.span,
                help=f"write {usages[head.name]}",
            )
            given[head.name] = item
            is_sound = False
        else:
            given[head.name] = item.items[1]
    missing = [clause for clause in usages if clause not in given]
    if missing:
        names = ", ".join(f"`{clause}`" for clause in missing)
        word = "clause" if len(missing) == 1 else "clauses"
        place = datum.items[0].span
        x.error("missing-clause", f"`{name}` is missing the {word} {names}", place, help=listing)
        is_sound = False
    return given, is_sound


def _is_literal(x: Context, clause: Clause, value: Datum) -> bool:
    """Whether a clause's value is known, so that it is checked here and not when the loop begins."""
    if not isinstance(value, Atom) or identifier_of(value) is not None:
        return False
    if clause is _MAXIMUM and not is_count(value.value):
        x.error("bad-count", "`max-iterations` must be a whole number, 0 or more", value.span)
    elif clause.name == "test-command" and not isinstance(value.value, str):
        x.error("bad-clause", "`test-command` must be a string", value.span)
    return True


def _internal(x: Context, name: str, place: Datum) -> Atom:
    """A name of `stdlib/loops.sexp`, independent of the scope of its use."""
    return Atom(Alias(Symbol(name), x.inner, {}), place.place)


def _with_loops(x: Context, scope: Scope) -> Scope:
    """Define the macros of `stdlib/loops.sexp` at their first use."""
    if Symbol("loops:iterative-loop") not in x.inner.names:
        for datum in _read_stdlib("loops.sexp"):
            assert isinstance(datum, Form)
            define_macro(x, datum, x.inner)
    return scope


@cache
def _read_stdlib(name: str) -> list[Datum]:
    data, found = read(text_source(read_text(name), f"{LIBRARY_FOLDER}{name}"))
    assert not found, found
    return data


# --- internal forms ---------------------------------------------------------------------------


@form("loop:phase", "(loop:phase loop name function)", "A function for a phase.", 3, 3, is_internal=True)
def expand_phase(x: Context, datum: Form, scope: Scope) -> Steps:
    """The function of a clause, checked: when compiling where it can be, else when the loop begins."""
    loop, phase = (item.value if isinstance(item, Atom) else "" for item in datum.items[1:3])
    clauses = _ITERATIVE if loop == "iterative-loop" else _DIRECTED
    takes = next(clause.takes for clause in clauses if clause.name == phase) or ()
    value: Core = yield datum.items[3], scope
    if isinstance(value, Lambda):
        value = attrs.evolve(value, name=str(phase))
    x.expected.append(Expected(value, str(phase), takes))
    if isinstance(value, Lambda):
        return value
    if isinstance(value, Literal):
        return Literal(None)
    binding = Binding(str(phase), None, scope.function)
    binding.references = 3
    again = Variable(binding, span=value.span)
    shown = Apply(Library("to-string"), (again,))
    message = Operation("concat", (Literal(f"the {phase} of `{loop}` is not a function, but "), shown))
    fault = Operation("map", (Literal("kind"), Literal("not-a-function"), Literal("message"), message))
    wrong = Fail(fault, span=value.span)
    choice = If(Apply(Library("function?"), (again,)), again, wrong, span=value.span)
    return Let(((binding, value),), choice, span=value.span)


@form("effect:perform", "(effect:perform kind (name value)…)", "An effect.", 1, is_internal=True)
def expand_perform(x: Context, datum: Form, scope: Scope) -> Steps:
    kind, fields = yield _fields(datum, scope)
    assert kind in EFFECTS, kind
    return Perform(kind, fields, span=datum.span)


@form("effect:note", "(effect:note kind (name value)…)", "A note.", 1, is_internal=True)
def expand_note(x: Context, datum: Form, scope: Scope) -> Steps:
    kind, fields = yield _fields(datum, scope)
    assert kind in NOTES, kind
    return Note(kind, fields, span=datum.span)


@form(
    "effect:parallel",
    "(effect:parallel function list)",
    "Call a function for each item, concurrently.",
    2,
    2,
    is_internal=True,
)
def expand_parallel(x: Context, datum: Form, scope: Scope) -> Steps:
    function = yield datum.items[1], scope
    items = yield datum.items[2], scope
    return Parallel(function, items, span=datum.span)


def _fields(datum: Form, scope: Scope) -> Steps:
    kind = identifier_of(datum.items[1])
    assert kind is not None
    fields: list[tuple[str, Core]] = []
    for item in datum.items[2:]:
        assert isinstance(item, Form)
        name = identifier_of(item.items[0])
        assert name is not None
        fields.append((name.name, (yield item.items[1], scope)))
    return kind.name, tuple(fields)  # type: ignore[return-value]
