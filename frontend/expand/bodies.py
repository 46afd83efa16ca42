"""Bodies: of functions, of `let` and its kin, of whole programs and the files they import.

A body is read twice. First its forms are looked at without being expanded, so that every name it
defines is known in all of it; then they are expanded in order.
"""

from __future__ import annotations

from collections.abc import Iterable
from posixpath import normpath
from typing import TYPE_CHECKING, Any

from ...ir.diagnostics import CompileError
from ...ir.records import frozen
from ...ir.spans import Source, Span
from ...ir.symbols import Symbol
from ..core.forms import FormRow, Steps
from ..core.library import LIBRARY, Primitive
from ..core.nodes import (
    Apply,
    Assign,
    Binding,
    Core,
    Lambda,
    Let,
    Letrec,
    Library,
    Literal,
    Variable,
    children,
)
from ..core.nodes import Sequence as SequenceNode
from ..core.scope import Frame, Identifier, Scope
from ..core.syntax_rules import SyntaxRules
from ..sexp.datum import Atom, Datum, Form
from ..tasks.signature import Signature
from .binding_forms import Define, definition, named
from .defatom import read_defatom
from .define_syntax import define_macro

if TYPE_CHECKING:
    from .expander import Expander

MAX_IMPORTS = 50
_DECLARING = frozenset({"begin", "progn", "define", "define-syntax", "bind", "import", "defatom"})


class Unit:
    """One body while it is expanded.

    index: the entry under way. first_use: for variables that a function uses before they have a
    value, the first entry with such a function. positions: the entry that gives a variable its
    value. entries: what the body came to.
    """

    __slots__ = (
        "defined", "entries", "first_use", "frame", "imported", "index", "is_top", "positions", "scope",
    )  # fmt: skip

    def __init__(self, scope: Scope, *, is_top: bool = False) -> None:
        self.scope = scope
        self.is_top = is_top
        self.frame = scope.frame = Frame(scope, scope.function, is_top)
        self.index = 0
        self.first_use: dict[Binding, int] = {}
        self.positions: dict[Binding, int] = {}
        self.defined: dict[Identifier, Span | None] = {}
        self.imported: dict[Identifier, str] = {}
        self.entries: list[tuple[Binding, Core]] = []


@frozen(eq=False)
class Bind:
    """A `bind` that is one of the body's own forms."""

    datum: Form
    identifier: Identifier


def expand_body(x: Expander, data: Iterable[Datum], scope: Scope, span: Span | None) -> Steps:
    """A body in a scope that was made for it; nil for an empty one (and a finding)."""
    data = list(data)
    if not data:
        x.error("empty-body", "the body is empty", span, help="write what it gives, `nil` for nothing")
        return Literal((), span=span)
    return (yield expand_unit(x, Unit(scope), data))


def expand_unit(
    x: Expander, unit: Unit, data: Iterable[Datum], prelude: list[tuple[Binding, Core]] | None = None
) -> Steps:
    """The core of a body; `prelude`, read afterwards, is what imported files have to do before it."""
    yield fill_unit(x, unit, data)
    entries = unit.entries
    late: list[tuple[Binding, Core]] = [(binding, Literal(None)) for binding in unit.frame.late]
    body: Core = Literal(None)
    if entries:
        binding, last = entries[-1]
        if not binding.name:
            body = last
            entries = entries[:-1]
        elif binding not in unit.positions:
            # A body that ends in a `bind` gives its value.
            binding.references += 1
            body = Variable(binding, span=last.span)
    # The program's own node has no place: that is how it is told from what a form made.
    span = None if unit.is_top else entries[0][1].span if entries else body.span
    if prelude:
        return Letrec((*prelude, *late, *entries), body)
    if unit.positions:
        return Letrec((*late, *entries), body, span=span)
    if any(binding.name for binding, _ in entries):
        return Let((*late, *entries), body, span=span)
    if entries:
        items: list[Core] = []
        for item in [*(value for _, value in entries), body]:
            items += item.items if isinstance(item, SequenceNode) else [item]
        body = SequenceNode(tuple(items), span=span)
    return Let(tuple(late), body, span=span) if late else body


def fill_unit(x: Expander, unit: Unit, data: Iterable[Datum]) -> Steps:
    """Expand a body's forms into `unit.entries`."""
    found = _survey(x, unit, data)
    for entry in found:
        # In a session a variable that is defined again has its old value until then.
        if isinstance(entry, Define) and (x.session is None or entry.binding not in x.session.valued):
            x.pending[entry.binding] = unit
    for index, entry in enumerate(found):
        unit.index = index
        if isinstance(entry, Define):
            value = yield entry.value(unit.scope)
            x.pending.pop(entry.binding, None)
            unit.positions[entry.binding] = index
            unit.entries.append((entry.binding, named(value, entry.binding)))
        elif isinstance(entry, Bind):
            value = yield entry.datum.items[2], unit.scope
            unit.entries.append(_bound(x, unit, entry, value))
        else:
            value = yield entry, unit.scope
            unit.entries.append((Binding(""), value))
    mark_early(unit)
    return Literal(None)


def _bound(x: Expander, unit: Unit, entry: Bind, value: Core) -> tuple[Binding, Core]:
    """A new variable, or a new value for an old one."""
    known = unit.scope.names.get(entry.identifier)
    if isinstance(known, Binding):
        known.is_assigned = True
        x.touch(known, entry.datum.span, unit.scope)
        return Binding(""), Assign(known, value, span=entry.datum.span)
    span = entry.datum.items[1].span
    binding = x.bind(entry.identifier, span, unit.scope, is_local=not unit.is_top)
    return binding, named(value, binding)


def _survey(x: Expander, unit: Unit, data: Iterable[Datum]) -> list[Any]:
    """The body's forms with macros at their heads expanded and what they define declared."""
    scope = unit.scope
    found: list[Any] = []
    todo = list(data)[::-1]
    while todo:
        datum = x.expand_head(todo.pop(), scope)
        meaning = x.meaning(datum, scope) if isinstance(datum, Form) else None
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
            _survey_define(x, unit, datum, found)
        elif name == "define-syntax":
            macro_name = define_macro(x, datum, scope)
            if macro_name is not None and _is_new(x, unit, macro_name, datum.items[1]):
                unit.defined[macro_name] = datum.items[1].span
        elif name == "defatom":
            found.append(_survey_task(x, unit, datum))
        elif name == "bind":
            identifier = x.may_bind(datum.items[1], scope)
            found.append(Bind(datum, identifier) if identifier is not None else datum.items[2])
        elif unit.is_top:
            for operand in datum.items[1:]:
                _import(x, unit, operand)
        else:
            x.error("misplaced-import", "`import` stands at the top of a file only", datum.span)
    return found


def _survey_define(x: Expander, unit: Unit, datum: Form, found: list[Any]) -> None:
    target, value = definition(x, datum)
    identifier = x.may_bind(target, unit.scope)
    if identifier is None or not _is_new(x, unit, identifier, target):
        found.append(Atom(None, datum.place))
        return
    binding = x.bind(identifier, target.span, unit.scope, is_local=not unit.is_top)
    unit.defined[identifier] = target.span
    found.append(Define(binding, value))


def _survey_task(x: Expander, unit: Unit, datum: Form) -> Datum:
    """A `defatom`; what it gives is the task's name."""
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


def _is_new(x: Expander, unit: Unit, identifier: Identifier, target: Datum) -> bool:
    if identifier in unit.imported:
        where = f"it comes from `{unit.imported[identifier]}`"
    elif identifier in unit.defined:
        first = unit.defined[identifier]
        where = f"its first definition is in line {first.line}" if first is not None else ""
    else:
        return True
    x.error(
        "repeated-name",
        f"`{identifier.name}` is defined twice",
        target.span,
        where,
        help="use `set!` to change a variable, or choose another name",
    )
    return False


def mark_early(unit: Unit) -> None:
    """Mark the variables that a function may be asked for before they have a value.

    That needs a call, between the first function that uses the variable and its definition.
    """
    if not unit.first_use:
        return
    calls = [0]
    for _, value in unit.entries:
        calls.append(calls[-1] + _may_call(value))
    for binding, first in unit.first_use.items():
        last = unit.positions.get(binding)
        if last is not None and calls[last + 1] > calls[first]:
            binding.is_early = True


def _may_call(value: Core) -> bool:
    """Whether evaluating something may call a function of the program."""
    todo = [value]
    while todo:
        node = todo.pop()
        if isinstance(node, Apply):
            callee = node.callee
            if not (isinstance(callee, Library) and isinstance(LIBRARY.get(callee.name), Primitive)):
                return True
        if not isinstance(node, Lambda):
            todo.extend(children(node))
    return False


# --- imports ----------------------------------------------------------------------------------


def _import(x: Expander, unit: Unit, operand: Datum) -> None:
    """Make the names that another file defines known in this one; its forms run once, before."""
    path = operand.value if isinstance(operand, Atom) else None
    if not isinstance(path, str):
        x.error(
            "bad-form",
            "`import` takes the path of a file",
            operand.span,
            help='write (import "lists.sexp"); the library needs no import',
        )
        return
    for identifier, meaning in _module(x, path, operand.span).items():
        if unit.imported.get(identifier) == path:
            continue
        if _is_new(x, unit, identifier, operand):
            unit.scope.names[identifier] = meaning
            unit.imported[identifier] = path


def _module(x: Expander, path: str, span: Span | None) -> dict[Identifier, Any]:
    load = x.environment.load
    if load is None:
        x.error("cannot-import", "nothing can be imported here", span)
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
        x.error("nesting-too-deep", f"files import one another more than {MAX_IMPORTS} deep", span)
        return {}
    exports: dict[Identifier, Any] | None = x.modules.get(name)
    if exports is None:
        exports = x.modules[name] = _expand_module(x, source)
    return exports


def _expand_module(x: Expander, source: Source) -> dict[Identifier, Any]:
    from ..sexp.reader import read

    data, found = read(source, x.limits.nesting)
    x.sources.append(source)
    x.diagnostics += found
    x.loading.append(normpath(source.path))
    unit = Unit(Scope(x.root, function=x.main), is_top=True)
    x.run(fill_unit(x, unit, data))
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
