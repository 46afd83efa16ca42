"""Forms that bind names: `lambda`, `define`, `bind`, `set!`, `let` and its variants, `import`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from ...ir.diagnostics import labelled
from ...ir.records import frozen
from ..core.forms import Body, FormRow, Steps, form
from ..core.nodes import Apply, Assign, Binding, Core, Lambda, Let, Letrec, Literal, Variable
from ..core.scope import FunctionMark, Identifier, Scope, identifier_of
from ..sexp.datum import Atom, Datum, Form
from ..sexp.printer import show
from .expansion import Context, DynamicName, LibraryName
from .unit import Unit

LAMBDA = "(lambda (parameter… [&optional (parameter default)…] [&rest parameter]) body…)"
DEFINE = "(define name value) or (define (name parameter…) body…)"
LET = "(let ((name value)…) body…) or (let name ((name value)…) body…)"
LET_STAR = "(let* ((name value)…) body…)"
LETREC = "(letrec ((name function)…) body…)"


@frozen(eq=False)
class Define:
    """A definition in a body: its variable, and the steps that expand its value in a scope."""

    binding: Binding
    value: Callable[[Scope], Steps]


# --- functions --------------------------------------------------------------------------------


@form("lambda", LAMBDA, "Create a function; it captures the surrounding variables.", 2)
def expand_lambda(x: Context, datum: Form, scope: Scope) -> Steps:
    parameters = datum.items[1]
    items: tuple[Datum, ...] = (parameters,)
    rest: Datum | None = None
    if isinstance(parameters, Form):
        items, rest = parameters.items, parameters.tail
    elif identifier_of(parameters) is not None:
        # (lambda all body): one name for the list of all arguments.
        items, rest = (), parameters
    return make_lambda(x, items, rest, datum.items[2:], datum, scope)


def make_lambda(
    x: Context,
    items: tuple[Datum, ...],
    rest: Datum | None,
    body: tuple[Datum, ...],
    datum: Form,
    scope: Scope,
    name: str = "",
) -> Steps:
    """Create a function. items: its parameters. rest: the parameter for the remaining arguments."""
    inside = Scope(scope, function=FunctionMark(name))
    required: list[Binding] = []
    optionals: list[tuple[Binding, Core]] = []
    more: Binding | None = None
    mode = "required"
    for index, item in enumerate(items):
        word = identifier_of(item)
        if word is not None and word.name in ("&optional", "&rest"):
            mode = _next_mode(x, mode, word.name, item, has_more=index + 1 < len(items))
        elif mode == "required" or (mode == "optional" and word is not None):
            binding = _parameter(x, item, inside)
            if binding is not None and mode == "required":
                required.append(binding)
            elif binding is not None:
                optionals.append((binding, Literal(None, span=item.span)))
        elif mode == "optional" and isinstance(item, Form) and len(item.items) == 2:
            default = yield item.items[1], inside
            binding = _parameter(x, item.items[0], inside)
            if binding is not None:
                optionals.append((binding, default))
        elif mode == "rest" and more is None:
            more = _parameter(x, item, inside)
        else:
            x.error("bad-parameter", "this is not a parameter", item.span, help=f"write {LAMBDA}")
    if rest is not None:
        if mode == "rest":
            x.error("bad-parameter", "`&rest` and a dot both name the rest parameter", rest.span)
        more = _parameter(x, rest, inside)
    core = yield Body(body, inside, datum.span)
    return Lambda(tuple(required), tuple(optionals), more, core, name, span=datum.span)


def _next_mode(x: Context, mode: str, word: str, item: Datum, *, has_more: bool) -> str:
    if not has_more or mode == "rest" or (mode == "optional" and word == "&optional"):
        x.error("bad-parameter", f"`{word}` is in the wrong place", item.span, help=f"write {LAMBDA}")
    return word[1:]


def _parameter(x: Context, item: Datum, scope: Scope) -> Binding | None:
    if identifier_of(item) is None:
        x.error("bad-parameter", "a parameter must be a name", item.span, help=f"write {LAMBDA}")
        return None
    identifier = x.may_bind(item)
    if identifier is None or is_repeated(x, identifier, item, scope):
        return None
    return x.bind(identifier, item.span, scope)


def is_repeated(x: Context, identifier: Identifier, item: Datum, scope: Scope) -> bool:
    """Whether a name occurs twice in one list; reports an error if so."""
    known = scope.names.get(identifier)
    if known is None:
        return False
    first = getattr(known, "span", None)
    x.error(
        "repeated-name",
        f"`{identifier.name}` is bound twice in one list",
        item.span,
        "bound again here",
        help="rename one of them",
        related=labelled(first, "first bound here"),
    )
    return True


# --- definitions ------------------------------------------------------------------------------


def definition(x: Context, datum: Form) -> tuple[Datum, Callable[[Scope], Steps]]:
    """Return the target of a `define` and the steps that expand its value."""
    target, body = datum.items[1], datum.items[2:]
    if isinstance(target, Form) and target.items:
        name = target.items[0]
        identifier = identifier_of(name)
        text = identifier.name if identifier is not None else ""

        def function(scope: Scope) -> Steps:
            return make_lambda(x, target.items[1:], target.tail, body, datum, scope, text)

        return name, function
    if len(body) != 1:
        help = f"write {DEFINE}"
        if len(body) > 1 and isinstance(body[0], Form) and all(map(identifier_of, body[0].items)):
            # The parameters follow the name, as in other languages.
            help = f"write (define {show(Form((target, *body[0].items)), limit=60)} body…)"
        x.error("bad-form", f"`define` takes one value for a name, not {len(body)}", datum.span, help=help)
        body = ()

    def value(scope: Scope) -> Steps:
        return (yield body[0] if body else Atom(None), scope)

    return target, value


@form("define", DEFINE, "Define a name in the enclosing body; it is visible in the whole body.", 1)
def expand_define(x: Context, datum: Form, scope: Scope) -> Steps:
    message = "`define` is allowed only at the top of a file or body"
    help = "write (bind name value) to define from inside an expression, or put it in a `let`"
    return x.refuse_place("misplaced-definition", message, datum, help)


@form("bind", "(bind name value)", "Define a variable from here on, or assign it; returns the value.", 2, 2)
def expand_bind(x: Context, datum: Form, scope: Scope) -> Steps:
    """Expand a `bind` inside another form: the variable belongs to the surrounding function or `let`."""
    identifier = x.may_bind(datum.items[1])
    if identifier is None:
        return (yield datum.items[2], scope)
    # A function sees its own name; other values are computed before the variable exists.
    binding = _bind_target(x, identifier, datum, scope) if is_lambda(x, datum.items[2], scope) else None
    value = yield datum.items[2], scope
    if binding is None:
        binding = _bind_target(x, identifier, datum, scope)
    else:
        value = named(value, binding)
    binding.is_assigned = True
    x.check_use(binding, datum.span, scope)
    return Assign(binding, value, span=datum.span)


def is_lambda(x: Context, datum: Datum, scope: Scope) -> bool:
    """Whether a form is a `lambda`."""
    meaning = x.head_meaning(datum, scope) if isinstance(datum, Form) else None
    return isinstance(meaning, FormRow) and meaning.name == "lambda"


def _bind_target(x: Context, identifier: Identifier, datum: Form, scope: Scope) -> Binding:
    """Return the variable that a `bind` sets: a variable of this function's body, or a new one."""
    frame = scope.frame
    binding = None
    for around in scope.chain():
        known = around.names.get(identifier)
        if isinstance(known, Binding):
            # A variable of this function's body, or of a loop in between.
            binding = known
        if binding is not None or around is frame.scope:
            break
    if binding is None:
        binding = Binding(identifier.name, datum.items[1].span, frame.function)
        frame.scope.names[identifier] = binding
        frame.late.append(binding)
    return binding


@form("set!", "(set! name value)", "Assign the nearest variable of this name; returns the value.", 2, 2)
def expand_set(x: Context, datum: Form, scope: Scope) -> Steps:
    value = yield datum.items[2], scope
    target = datum.items[1]
    identifier = identifier_of(target)
    if identifier is None:
        return x.error(
            "bad-binding", "the first operand of `set!` must be the name of a variable", target.span
        )
    known = scope.find(identifier)
    if isinstance(known, Binding):
        known.is_assigned = True
        x.check_use(known, datum.span, scope)
        return Assign(known, value, span=datum.span)
    if (
        isinstance(known, DynamicName)
        and not isinstance(target.span, type(None))
        and is_internal(x, identifier)
    ):
        return Assign(x.dynamic_variable(known), value, span=datum.span)
    if known is None:
        x.report_unbound(identifier, target.span, scope)
    else:
        what = "a name of the library" if isinstance(known, LibraryName) else "not a variable"
        x.error(
            "cannot-set",
            f"`{identifier.name}` is {what} and cannot be set",
            target.span,
            help=f"bind your own variable: (let (({identifier.name} …)) …)"
            if isinstance(known, LibraryName)
            else "choose another name",
        )
    return Literal(None)


def is_internal(x: Context, identifier: Identifier) -> bool:
    """Whether a macro of `stdlib/` inserted this identifier."""
    return getattr(identifier, "scope", None) is x.inner


# --- let and its variants --------------------------------------------------------------------------


def read_bindings(x: Context, clause: Datum, usage: str) -> list[tuple[Datum, Datum]]:
    """Return the (name, value) pairs of a binding list; report invalid items."""
    pairs: list[tuple[Datum, Datum]] = []
    if not isinstance(clause, Form) or clause.tail is not None:
        x.error("bad-binding", "a list of bindings is expected here", clause.span, help=f"write {usage}")
        return pairs
    if len(clause.items) == 2 and identifier_of(clause.items[0]) is not None:
        x.error(
            "bad-binding",
            "each binding needs its own brackets",
            clause.span,
            help="write ((name value)), with two brackets",
        )
        value = clause.items[1]
        if isinstance(value, Form) and value.items and (other := identifier_of(value.items[0])):
            # It may be a binding that follows a name without a value, as in Emacs Lisp.
            x.foreign_definitions.add(other.name)
        return [(clause.items[0], value)]
    names = clause.items[::2]
    if len(clause.items) > 2 and len(clause.items) % 2 == 0 and all(map(identifier_of, names)):
        pairs = list(zip(names, clause.items[1::2], strict=True))
        written = show(Form(tuple(Form(pair) for pair in pairs)), limit=60)
        x.error("bad-binding", "each binding needs its own brackets", clause.span, help=f"write {written}")
        return pairs
    for item in clause.items:
        if isinstance(item, Form) and len(item.items) == 2 and item.tail is None:
            pairs.append((item.items[0], item.items[1]))
        elif (identifier := identifier_of(item)) is not None:
            message = f"`{identifier.name}` has no value"
            x.error("bad-binding", message, item.span, help=f"write ({identifier.name} null)")
            pairs.append((item, Atom(None, item.place)))
        else:
            x.error(
                "bad-binding", "a binding must be a name and one value", item.span, help="write (name value)"
            )
            if isinstance(item, Form) and item.items:
                pairs.append((item.items[0], Atom(None, item.place)))
    return pairs


def bind_all(x: Context, names: list[Datum], scope: Scope, *, is_local: bool = True) -> list[Binding | None]:
    """Create a variable for each name; None for a name that cannot be bound."""
    bindings: list[Binding | None] = []
    for name in names:
        identifier = x.may_bind(name)
        if identifier is None or is_repeated(x, identifier, name, scope):
            bindings.append(None)
        else:
            bindings.append(x.bind(identifier, name.span, scope, is_local=is_local))
    return bindings


def named(value: Core, binding: Binding) -> Core:
    """Return the value; a function without a name gets the name of its variable."""
    if isinstance(value, Lambda) and not value.name:
        return attrs.evolve(value, name=binding.name)
    return value


def join(bindings: list[Binding | None], values: list[Core]) -> tuple[tuple[Binding, Core], ...]:
    """Pair variables with their values; a value without a valid variable is still evaluated."""
    pairs = []
    for binding, value in zip(bindings, values, strict=True):
        binding = binding or Binding("")
        pairs.append((binding, named(value, binding)))
    return tuple(pairs)


class SiblingNames:
    """Names of a parallel binding list, which are not visible in the values of the list."""

    def __init__(self, form_name: str, names: list[str]) -> None:
        self.form_name = form_name
        self.names = names
        self.index = 0

    def __call__(self, name: str) -> str | None:
        """Return the reason why a name of the list is not visible; None for any other name."""
        if name not in self.names:
            return None
        distance = self.names.index(name) - self.index
        to = self.names[self.index]
        if self.form_name != "let":
            return f"`{self.form_name}` binds its names after evaluating all values: put a `let` around it"
        if distance == 0:
            return f"`let` binds `{name}` after evaluating its value: use `letrec` for a recursive function"
        cannot = f"`let` binds all its names at once, so the value of `{to}` cannot see `{name}`"
        return f"{cannot}: use `let*`" if distance < 0 else f"{cannot}: use `let*` with `{name}` first"


def expand_inits(x: Context, pairs: list[tuple[Datum, Datum]], scope: Scope, form_name: str) -> Any:
    """Expand the values of a parallel binding list, in order."""
    siblings = SiblingNames(form_name, [name_text(name) for name, _ in pairs])
    outside = Scope(scope, hidden=siblings)
    values: list[Core] = []
    for index, (_, value) in enumerate(pairs):
        siblings.index = index
        values.append((yield value, outside))
    return values


def name_text(datum: Datum) -> str:
    identifier = identifier_of(datum)
    return identifier.name if identifier is not None else ""


@form(
    "let",
    LET,
    "Bind names to values that cannot see each other; with a name, define a function and call it.",
    2,
)
def expand_let(x: Context, datum: Form, scope: Scope) -> Steps:
    if identifier_of(datum.items[1]) is not None:
        if len(datum.items) < 4:
            return x.refuse_operands(datum, LET)
        return (yield _named_let(x, datum, scope))
    pairs = read_bindings(x, datum.items[1], LET)
    values: Any = yield expand_inits(x, pairs, scope, "let")
    inside = Scope(scope)
    bindings = bind_all(x, [name for name, _ in pairs], inside)
    body = yield Body(datum.items[2:], inside, datum.span)
    if not pairs:
        return body
    return Let(join(bindings, values), body, span=datum.span)


def _named_let(x: Context, datum: Form, scope: Scope) -> Steps:
    name = datum.items[1]
    pairs = read_bindings(x, datum.items[2], LET)
    values: Any = yield expand_inits(x, pairs, scope, "let")
    outside = Scope(scope)
    binding = bind_all(x, [name], outside)[0] or Binding("")
    parameters = tuple(pair[0] for pair in pairs)
    function = yield make_lambda(x, parameters, None, datum.items[3:], datum, outside, binding.name)
    binding.references += 1
    callee = Variable(binding, span=name.span)
    if isinstance(function, Lambda) and len(function.parameters) != len(values):
        # A name could not be bound; the error is reported.
        return Literal(None)
    call = Apply(callee, tuple(values), span=datum.span)
    return Letrec(((binding, function),), call, span=datum.span)


@form("let*", LET_STAR, "Bind names to values one after another; each value sees the names before it.", 2)
def expand_let_star(x: Context, datum: Form, scope: Scope) -> Steps:
    pairs = read_bindings(x, datum.items[1], LET_STAR)
    inside = Scope(scope)
    bound: list[tuple[Binding, Core]] = []
    for name, init in pairs:
        value = yield init, inside
        identifier = x.may_bind(name)
        binding = x.bind(identifier, name.span, inside, is_local=True) if identifier else Binding("")
        bound.append((binding, named(value, binding)))
    body = yield Body(datum.items[2:], Scope(inside), datum.span)
    return Let(tuple(bound), body, span=datum.span) if bound else body


@form("letrec", LETREC, "Bind names to functions that can call each other.", 2)
def expand_letrec(x: Context, datum: Form, scope: Scope) -> Steps:
    pairs = read_bindings(x, datum.items[1], LETREC)
    inside = Scope(scope)
    unit = Unit(inside)
    bindings = bind_all(x, [name for name, _ in pairs], inside)
    for binding in bindings:
        if binding is not None:
            x.pending.add(binding)
    for (_, init), binding in zip(pairs, bindings, strict=True):
        value = yield init, inside
        if binding is not None:
            x.pending.discard(binding)
            unit.definitions.add(binding)
        unit.entries.append((binding or Binding(""), named(value, binding or Binding(""))))
    body = yield Body(datum.items[2:], Scope(inside), datum.span)
    late = tuple((binding, Literal(None)) for binding in unit.frame.late)
    return Letrec((*late, *unit.entries), body, span=datum.span)


form("letrec*", LETREC.replace("letrec", "letrec*"), "The same as `letrec`.", 2)(expand_letrec)


@form(
    "import",
    '(import "file.sexp"…)',
    "Make the definitions of other files available; each file runs once.",
    1,
)
def expand_import(x: Context, datum: Form, scope: Scope) -> Steps:
    return x.refuse_place("misplaced-import", "`import` is allowed only at the top of a file", datum)
