"""The form `run-loop`: a YAML loop as a part of a flow.

Owns the form's clauses. A use becomes a call of the loop's function, with the context values that are
known only at run time as arguments. The file of the loop is found by `link/linker.py`.
"""

from __future__ import annotations

from typing import Any

from ...ir.constants import Symbol
from ...ir.diagnostics import suggest
from ..core.forms import Steps, form
from ..core.nodes import Apply, Binding, Core, External, Let, Literal, Operation, Variable
from ..core.program_parts import Request
from ..core.scope import Scope, identifier_of
from ..sexp.datum import Atom, Datum, Form
from .expansion import Context

USAGE = '(run-loop "name" [(context (key value)…)] [(max-iterations count)])'
_CLAUSES = ("context", "max-iterations")


@form(
    "run-loop", USAGE, "Run a loop of `.loops/`, or of a file; returns a map that describes how it ended.", 1
)
def expand_run_loop(x: Context, datum: Form, scope: Scope) -> Steps:
    before = len(x.diagnostics)
    name = _name(x, datum.items[1])
    clauses = _clauses(x, datum)
    entries = _entries(x, clauses["context"]) if "context" in clauses else {}
    most = _count(x, clauses["max-iterations"]) if "max-iterations" in clauses else None
    values: dict[str, Core] = {}
    for key, (_, value) in entries.items():
        values[key] = yield value, scope
    if name is None or any(finding.is_error for finding in x.diagnostics[before:]):
        return Literal(None)
    constants = {key: _plain(value.value) for key, value in values.items() if isinstance(value, Literal)}
    request = Request(
        name,
        datum.items[1].span,
        constants,
        tuple(key for key in values if key not in constants),
        {key: place.span for key, (place, _) in entries.items()},
        most,
    )
    run_loop = x.environment.run_loop
    if run_loop is None:
        return x.error("cannot-run", "loops cannot be run here", datum.span)
    part = run_loop(request, x.loading[-1])
    if part is None:
        return Literal(None)
    return _call(part, values, constants, datum, scope)


def _call(part: Any, values: dict[str, Core], constants: dict[str, Any], datum: Form, scope: Scope) -> Core:
    """The call, with its values evaluated in source order."""
    callee = External(part, span=datum.items[0].span)
    written = [key for key in values if key not in constants]
    given: dict[str, Core] = {key: values[key] for key in written}
    bindings: list[tuple[Binding, Core]] = []
    if written != list(part.given):
        for key in written:
            binding = Binding(key, None, scope.function)
            binding.references += 1
            bindings.append((binding, given[key]))
            given[key] = Variable(binding, span=values[key].span)
    # Only plain data crosses between the languages, so that no function can bypass a loop's limits.
    args = tuple(Operation("plain", (given[key],), span=values[key].span) for key in part.given)
    call: Core = Apply(callee, args, span=datum.span)
    return Let(tuple(bindings), call, span=datum.span) if bindings else call


def _name(x: Context, datum: Datum) -> str | None:
    if isinstance(datum, Atom) and isinstance(datum.value, str):
        return datum.value
    x.error(
        "bad-form",
        "`run-loop` takes the name of the loop as a string",
        datum.span,
        help='the loop is compiled with the flow, so write its name as a literal: (run-loop "name")',
    )
    return None


def _clauses(x: Context, datum: Form) -> dict[str, Form]:
    found: dict[str, Form] = {}
    for clause in datum.items[2:]:
        head = clause.items[0] if isinstance(clause, Form) and clause.items else None
        identifier = identifier_of(head) if head is not None else None
        if not isinstance(clause, Form) or identifier is None or clause.tail is not None:
            message = "a clause of `run-loop` must be a list that begins with its name"
            x.error("bad-clause", message, clause.span, help=f"write {USAGE}")
        elif identifier.name not in _CLAUSES:
            help = suggest(identifier.name, _CLAUSES, "its clauses are")
            x.error("unknown-clause", f"`run-loop` has no clause `{identifier.name}`", clause.span, help=help)
        elif identifier.name in found:
            x.error("repeated-clause", f"the clause `{identifier.name}` occurs twice", clause.span)
        else:
            found[identifier.name] = clause
    return found


def _entries(x: Context, clause: Form) -> dict[str, tuple[Datum, Datum]]:
    """The entries of the context: the data of key and value, by key."""
    found: dict[str, tuple[Datum, Datum]] = {}
    for item in clause.items[1:]:
        key: str | None = None
        if isinstance(item, Form) and len(item.items) == 2 and item.tail is None:
            identifier = identifier_of(item.items[0])
            value = item.items[0].value if isinstance(item.items[0], Atom) else None
            key = identifier.name if identifier is not None else value if isinstance(value, str) else None
        if key is None:
            x.error(
                "bad-clause", "an entry of `context` must be (key value)", item.span, help=f"write {USAGE}"
            )
            continue
        assert isinstance(item, Form)
        if key in found:
            x.error("repeated-key", f"the key `{key}` occurs twice", item.items[0].span)
        found[key] = (item.items[0], item.items[1])
    return found


def _count(x: Context, clause: Form) -> int | None:
    value = clause.items[1] if len(clause.items) == 2 else None
    if isinstance(value, Atom) and type(value.value) is int and value.value >= 1:
        return value.value
    place = clause.span if value is None else value.span
    help = "the limit is part of the program, so write it as a literal: (max-iterations 5)"
    x.error("bad-count", "`max-iterations` of `run-loop` must be a whole number, 1 or more", place, help=help)
    return None


def _plain(value: Any) -> Any:
    """A literal as a YAML value: symbols become their names, tuples lists."""
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value.name if isinstance(value, Symbol) else value
