"""Expansion of bodies: of functions, of `let` forms, of programs and of imported files.

A body is expanded in two passes. The first pass declares the names that the body defines, so that they are
visible in the whole body; the second pass expands its forms in order.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from itertools import islice
from posixpath import normpath
from typing import Any

from ...ir.constants import Symbol
from ...ir.diagnostics import CompileError, labelled
from ...ir.records import frozen
from ...ir.spans import Source, Span
from ..core.forms import Body, FormRow, Steps
from ..core.nodes import Assign, Binding, Core, Let, Letrec, Literal, Variable
from ..core.nodes import Sequence as SequenceNode
from ..core.scope import Identifier, Scope, identifier_of
from ..core.syntax_rules import SyntaxRules
from ..sexp.datum import Atom, Datum, Form
from ..sexp.reader import read
from ..tasks.signature import Signature
from .binding_forms import Define, definition, is_lambda, named
from .defatom import read_defatom
from .define_syntax import define_macro
from .expansion import Context
from .foreign_names import DEFINING
from .unit import Unit

MAX_IMPORTS = 50
_DECLARING = frozenset({"begin", "progn", "define", "define-syntax", "bind", "import", "defatom"})


@frozen(eq=False)
class Bind:
    """A `bind` directly in a body."""

    datum: Form
    identifier: Identifier


def expand_body(x: Context, body: Body) -> Steps:
    """Expand a body; an empty body is an error, with nil as its value."""
    if not body.data:
        message = "the body is empty"
        x.error("empty-body", message, body.span, help="write the value of the body, or `nil`")
        return Literal((), span=body.span)
    return (yield expand_unit(x, Unit(body.scope), body.data))


def expand_unit(
    x: Context, unit: Unit, data: Iterable[Datum], prelude: list[tuple[Binding, Core]] | None = None
) -> Steps:
    """Expand a body. prelude: entries of imported files, which run before it; read after the expansion."""
    yield fill_unit(x, unit, data)
    entries = unit.entries
    late: list[tuple[Binding, Core]] = [(binding, Literal(None)) for binding in unit.frame.late]
    body: Core = Literal(None)
    if entries:
        binding, last = entries[-1]
        if not binding.name:
            body = last
            entries = entries[:-1]
        elif binding not in unit.definitions:
            # The value of a body that ends in a `bind` is the bound value.
            binding.references += 1
            body = Variable(binding, span=last.span)
    # The program's own node has no span, which distinguishes it from nodes that forms created.
    span = None if unit.is_top else entries[0][1].span if entries else body.span
    if prelude:
        return Letrec((*prelude, *late, *entries), body)
    if unit.definitions:
        return Letrec((*late, *entries), body, span=span)
    if any(binding.name for binding, _ in entries):
        return Let((*late, *entries), body, span=span)
    if entries:
        items: list[Core] = []
        for item in [*(value for _, value in entries), body]:
            items += item.items if isinstance(item, SequenceNode) else [item]
        body = SequenceNode(tuple(items), span=span)
    return Let(tuple(late), body, span=span) if late else body


def fill_unit(x: Context, unit: Unit, data: Iterable[Datum]) -> Steps:
    """Expand a body's forms into `unit.entries`."""
    found: Any = yield _declare_names(x, unit, data)
    for entry in found:
        # In a session, a variable that is defined again keeps its old value until then.
        if isinstance(entry, Define) and (x.session is None or entry.binding not in x.session.valued):
            x.pending.add(entry.binding)
    functions: dict[int, Binding] = {}
    after_functions = 0
    for at, entry in enumerate(found):
        if at >= after_functions:
            after_functions = _declare_functions(x, unit, found, at, functions) + 1
        if isinstance(entry, Define):
            value = yield entry.value(unit.scope)
            x.pending.discard(entry.binding)
            unit.definitions.add(entry.binding)
            unit.entries.append((entry.binding, named(value, entry.binding)))
        elif at in functions:
            binding = functions[at]
            value = yield entry.datum.items[2], unit.scope
            unit.definitions.add(binding)
            unit.entries.append((binding, named(value, binding)))
            if entry is found[-1]:
                binding.references += 1
                unit.entries.append((Binding(""), Variable(binding, span=entry.datum.span)))
        elif isinstance(entry, Bind):
            value = yield entry.datum.items[2], unit.scope
            unit.entries.append(_bound(x, unit, entry, value))
        else:
            value = yield entry, unit.scope
            unit.entries.append((Binding(""), value))
    return Literal(None)


def _declare_functions(
    x: Context, unit: Unit, found: list[Any], start: int, declared: dict[int, Binding]
) -> int:
    """Declare the variables of consecutive `bind`s of lambdas, beginning at index `start`.

    As with `define`, the functions see their own name and those of the others. `declared` receives the new
    variables, by the index of their form. Returns the index of the next other form.
    """
    for at, entry in enumerate(islice(found, start, None), start):
        if not isinstance(entry, Bind) or not is_lambda(x, entry.datum.items[2], unit.scope):
            return at
        if not isinstance(unit.scope.names.get(entry.identifier), Binding):
            declared[at] = _new_variable(x, unit, entry)
    return len(found)


def _new_variable(x: Context, unit: Unit, entry: Bind) -> Binding:
    return x.bind(entry.identifier, entry.datum.items[1].span, unit.scope, is_local=not unit.is_top)


def _bound(x: Context, unit: Unit, entry: Bind, value: Core) -> tuple[Binding, Core]:
    """Return a new variable with its value, or a new value for an existing variable."""
    known = unit.scope.names.get(entry.identifier)
    if isinstance(known, Binding):
        known.is_assigned = True
        x.check_use(known, entry.datum.span, unit.scope)
        return Binding(""), Assign(known, value, span=entry.datum.span)
    binding = _new_variable(x, unit, entry)
    return binding, named(value, binding)


def _declare_names(x: Context, unit: Unit, data: Iterable[Datum]) -> Generator[Any, Any, list[Any]]:
    """Declare the names that a body defines; return its forms, with macros at their heads expanded."""
    scope = unit.scope
    found: list[Any] = []
    todo = list(data)[::-1]
    while todo:
        datum = x.expand_head(todo.pop(), scope)
        meaning = x.head_meaning(datum, scope) if isinstance(datum, Form) else None
        if meaning is None and isinstance(datum, Form):
            _note_foreign_definition(x, datum)
        if not isinstance(datum, Form) or not isinstance(meaning, FormRow) or meaning.name not in _DECLARING:
            found.append(datum)
            continue
        name = meaning.name
        if name in ("begin", "progn"):
            if len(datum.items) == 1 or datum.tail is not None:
                found.append(datum)
            else:
                todo.extend(reversed(datum.items[1:]))
        elif not x.has_operands(datum, meaning):
            found.append(Atom(None, datum.place))
        elif name == "define":
            _declare_variable(x, unit, datum, found)
        elif name == "define-syntax":
            macro_name = define_macro(x, datum, scope)
            if macro_name is not None and _is_new(x, unit, macro_name, datum.items[1]):
                unit.defined[macro_name] = datum.items[1].span
        elif name == "defatom":
            found.append(_declare_task(x, unit, datum))
        elif name == "bind":
            identifier = x.may_bind(datum.items[1])
            found.append(Bind(datum, identifier) if identifier is not None else datum.items[2])
        elif unit.is_top:
            for operand in datum.items[1:]:
                yield _import(x, unit, operand)
        else:
            x.error("misplaced-import", "`import` is allowed only at the top of a file", datum.span)
    return found


def _note_foreign_definition(x: Context, datum: Form) -> None:
    """Record the name that a form of another language would define."""
    names = [identifier_of(item) for item in datum.items[:2]]
    if len(names) < 2 or names[0] is None or names[0].name not in DEFINING:
        return
    target = datum.items[1]
    if isinstance(target, Form) and target.items:
        names[1] = identifier_of(target.items[0])
    if names[1] is not None:
        x.foreign_definitions.add(names[1].name)


def _declare_variable(x: Context, unit: Unit, datum: Form, found: list[Any]) -> None:
    target, value = definition(x, datum)
    identifier = x.may_bind(target)
    if identifier is None or not _is_new(x, unit, identifier, target):
        found.append(Atom(None, datum.place))
        return
    binding = x.bind(identifier, target.span, unit.scope, is_local=not unit.is_top)
    unit.defined[identifier] = target.span
    found.append(Define(binding, value))


def _declare_task(x: Context, unit: Unit, datum: Form) -> Datum:
    """Declare the task of a `defatom`; its value is the task's name."""
    if not unit.is_top:
        return datum
    read = read_defatom(x, datum, unit.scope)
    if read is None:
        return Atom(None, datum.place)
    identifier, task = read
    first = x.tasks.setdefault(task.name, task)
    if first is not task and x.session is None:
        where = f"it is defined in {first.span.path}:{first.span.line}" if first.span else None
        message = f"the task `{task.name}` is defined twice in the program"
        x.error("repeated-task", message, task.span, help=where)
        return Atom(None, datum.place)
    if not _is_new(x, unit, identifier, datum.items[1]):
        return Atom(None, datum.place)
    unit.scope.names[identifier] = task
    unit.defined[identifier] = task.span
    quoted = (Atom(Symbol("quote"), datum.place), Atom(Symbol(task.name), datum.place))
    return Form(quoted, datum.place)


def _is_new(x: Context, unit: Unit, identifier: Identifier, target: Datum) -> bool:
    if identifier in unit.imported:
        where, first = f"it comes from `{unit.imported[identifier]}`", None
    elif identifier in unit.defined:
        first = unit.defined[identifier]
        where = "defined again here"
    else:
        return True
    x.error(
        "repeated-name",
        f"`{identifier.name}` is defined twice",
        target.span,
        where,
        help="use `set!` to change a variable, or choose another name",
        related=labelled(first, "first defined here"),
    )
    return False


# --- imports ----------------------------------------------------------------------------------


def _import(x: Context, unit: Unit, operand: Datum) -> Generator[Any, Any, None]:
    """Import the names that another file defines. Its forms run once, before those of this file."""
    path = operand.value if isinstance(operand, Atom) else None
    if not isinstance(path, str):
        x.error(
            "bad-form",
            "`import` takes the path of a file as a string",
            operand.span,
            help='write (import "lists.sexp"); the library needs no import',
        )
        return
    exports = yield _module(x, path, operand.span)
    for identifier, meaning in exports.items():
        if identifier in unit.imported and unit.scope.names[identifier] is meaning:
            continue  # already imported from this file, perhaps with another spelling of its path
        if _is_new(x, unit, identifier, operand):
            unit.scope.names[identifier] = meaning
            unit.imported[identifier] = path


def _module(x: Context, path: str, span: Span | None) -> Generator[Any, Any, dict[Identifier, Any]]:
    load = x.environment.load
    if load is None:
        x.error("cannot-import", "imports are not possible here", span)
        return {}
    try:
        source = load(path, x.loading[-1])
    except CompileError as error:
        why = error.diagnostics[0].message if error.diagnostics else "it cannot be read"
        x.error("cannot-import", f"cannot import `{path}`: {why}", span)
        return {}
    name = normpath(source.path)
    if name in x.loading:
        chain = " → ".join([*x.loading[x.loading.index(name) :], name])
        x.error("circular-import", f"`{path}` imports itself: {chain}", span)
        return {}
    if len(x.loading) > MAX_IMPORTS:
        x.error("nesting-too-deep", f"imports are nested more than {MAX_IMPORTS} deep", span)
        return {}
    exports: dict[Identifier, Any] | None = x.modules.get(name)
    if exports is None:
        exports = x.modules[name] = yield _expand_module(x, source)
    return exports


def _expand_module(x: Context, source: Source) -> Generator[Any, Any, dict[Identifier, Any]]:
    data, found = read(source, x.limits.nesting)
    x.sources.append(source)
    x.diagnostics += found
    x.loading.append(normpath(source.path))
    unit = Unit(Scope(x.root, function=x.main), is_top=True)
    yield fill_unit(x, unit, data)
    x.loading.pop()
    x.prelude += [(binding, Literal(None)) for binding in unit.frame.late]
    x.prelude += unit.entries
    return {
        identifier: meaning
        for identifier, meaning in unit.scope.names.items()
        if type(identifier) is Symbol
        and isinstance(meaning, Binding | SyntaxRules | Signature)
        and identifier not in unit.imported
    }
