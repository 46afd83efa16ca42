"""Forms whose names are functions too: as a head they accept more than a function does.

`map`, `parallel-map` and `for-each` with an expression, `dict`, `error`; and what they are as values.
"""

from __future__ import annotations

from ...ir.constants import Symbol
from ...ir.spans import Span
from ..core.forms import FORMS, Body, Steps, form
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
    Operation,
    Parallel,
    Variable,
)
from ..core.scope import Alias, FunctionMark, Identifier, Scope, base_symbol, identifier_of
from ..sexp.datum import Atom, Datum, Form
from ..sexp.printer import show
from .expansion import Context

ITEM = Symbol("item")


# --- map, parallel-map and for-each ------------------------------------------------------------


@form(
    "map",
    "(map function list…) or (map expression list)",
    "The list of results of a function for each item, or of an expression in which `item` is the item.",
    is_bindable=True,
    as_value=lambda span: Library("map", span=span),
)
def expand_map(x: Context, datum: Form, scope: Scope) -> Steps:
    return (yield _over_items(x, datum, scope, "map"))


@form(
    "for-each",
    "(for-each function list…) or (for-each expression list)",
    "Like `map`, but only for effects; returns nil.",
    is_bindable=True,
    as_value=lambda span: Library("for-each", span=span),
)
def expand_for_each(x: Context, datum: Form, scope: Scope) -> Steps:
    return (yield _over_items(x, datum, scope, "for-each"))


@form(
    "parallel-map",
    "(parallel-map function list) or (parallel-map expression list)",
    "Like `map`, with concurrent calls: while one call waits for an effect, the others run.",
    is_bindable=True,
    as_value=lambda span: Library("parallel-map", span=span),
)
def expand_parallel_map(x: Context, datum: Form, scope: Scope) -> Steps:
    made = yield _over_items(x, datum, scope, "parallel-map")
    if isinstance(made, Apply) and len(made.args) == 2:
        return Parallel(*made.args, span=made.span)
    return made


def _over_items(x: Context, datum: Form, scope: Scope, name: str) -> Steps:
    callee = Library(name, span=datum.items[0].span)
    args: list[Core] = []
    operands = datum.items[1:]
    if datum.tail is None and len(operands) == 2:
        first = x.expand_head(operands[0], scope)
        if isinstance(first, Form) and first.items and x.head_meaning(first, scope) is not FORMS["lambda"]:
            args.append((yield _item_function(x, first, scope, datum)))
            operands = operands[1:]
        else:
            operands = (first, operands[1])
    elif datum.tail is not None:
        return x.refuse_dotted(datum)
    for operand in operands:
        args.append((yield operand, scope))
    return Apply(callee, tuple(args), span=datum.span)


def _item_function(x: Context, expression: Form, scope: Scope, datum: Form) -> Steps:
    """The expression as a function of `item`, the one of the scope where `map` was written."""
    head = identifier_of(datum.items[0])
    assert head is not None
    name = head.name
    item: Identifier = ITEM
    if isinstance(head, Alias):
        # `map` is part of a macro's template, and so is the `item` that it binds.
        own = (alias for known, alias in head.siblings.items() if base_symbol(known) is ITEM)
        item = next(own, Alias(ITEM, scope, {}))
    inside = Scope(scope, function=FunctionMark(name))
    binding = x.bind(item, None, inside)
    body = yield Body([expression], inside, expression.span)
    if not binding.references and not any(found.is_error for found in x.diagnostics):
        help = f"to call a computed function for each item, name it first: (let ((f …)) ({name} f list))"
        if expression.is_marked:
            is_name = identifier_of(expression.items[1]) is not None
            help = "write the function without a quote: " if is_name else "write the function first: "
            help += f"({name} {show(expression.items[1], limit=40) if is_name else 'function'} list)"
        message = f"`{name}` evaluates this expression for each item, but the expression does not use `item`"
        x.warn("item-unused", message, expression.span, help=help)
    return Lambda((binding,), (), None, body, name, span=expression.span)


# --- dict -------------------------------------------------------------------------------------


@form(
    "dict",
    "(dict (key value)…)",
    "Create a map. A key is a name, a string, or an expression in parentheses.",
    is_bindable=True,
)
def expand_dict(x: Context, datum: Form, scope: Scope) -> Steps:
    entries: list[tuple[str | Core, Core, Datum]] = []
    seen: set[str] = set()
    keys = datum.items[1::2]
    if len(datum.items) % 2 and keys and not any(isinstance(key, Form) for key in keys):
        written = " ".join(
            f"({show(key, limit=30).removeprefix(':')} {show(value, limit=30)})"
            for key, value in zip(keys[:3], datum.items[2::2], strict=False)
        )
        help = f"write (dict {written}{' …' if len(keys) > 3 else ''})"
        return x.error("bad-clause", "an entry of `dict` must be (key value)", datum.span, help=help)
    for item in datum.items[1:]:
        if not isinstance(item, Form) or len(item.items) != 2 or item.tail is not None:
            x.error(
                "bad-clause",
                "an entry of `dict` must be (key value)",
                item.span,
                help="write (dict (key value)…)",
            )
            continue
        key = _static_key(item.items[0], scope)
        if key is None:
            computed = yield item.items[0], scope
            entries.append((computed, (yield item.items[1], scope), item))
            continue
        if key in seen:
            x.error("repeated-key", f"the key `{key}` occurs twice", item.items[0].span)
        seen.add(key)
        entries.append((key, (yield item.items[1], scope), item))
    pairs: list[Core] = []
    core: Core | None = None
    for name, value, item in entries:
        if isinstance(name, str) and core is None:
            pairs += [Literal(name), value]
            continue
        if core is None:
            core = Operation("map", tuple(pairs), span=datum.span)
        place = Literal(name) if isinstance(name, str) else name
        core = Apply(Library("put"), (core, place, value), span=item.span)
    return core if core is not None else Operation("map", tuple(pairs), span=datum.span)


def _static_key(datum: Datum, scope: Scope) -> str | None:
    """A key known at compile time: a name, a string, a quoted symbol."""
    if isinstance(datum, Atom):
        identifier = identifier_of(datum)
        if identifier is not None:
            return identifier.name
        return datum.value if isinstance(datum.value, str) else None
    symbol = quoted_symbol(datum, scope)
    return symbol.name if symbol is not None else None


def quoted_symbol(datum: Datum, scope: Scope) -> Symbol | None:
    """The symbol of `'symbol`, None for anything else."""
    if isinstance(datum, Form) and len(datum.items) == 2:
        head, name = (identifier_of(item) for item in datum.items)
        if head is not None and name is not None and scope.find(head) is FORMS["quote"]:
            return Symbol(name.name)
    return None


# --- error ------------------------------------------------------------------------------------


def _error_function(span: Span | None) -> Core:
    """`error` as a value: a function of a message and further values."""
    mark = FunctionMark("error")
    message, values = Binding("message", None, mark), Binding("values", None, mark)
    more = Apply(
        Library("string-append"),
        (Variable(message), Literal(" "), Apply(Library("to-string"), (Variable(values),))),
    )
    fault = Operation("map", (Literal("kind"), Literal("user"), Literal("message"), more))
    body = If(Variable(values), Fail(fault, span=span), Fail(Variable(message), span=span))
    return Lambda((message,), (), values, body, "error", span=span)


@form(
    "error",
    "(error ['kind] message value…)",
    "Raise a fault; with a caught fault, raise it again.",
    1,
    is_bindable=True,
    as_value=_error_function,
)
def expand_error(x: Context, datum: Form, scope: Scope) -> Steps:
    operands = datum.items[1:]
    kind = quoted_symbol(operands[0], scope)
    if kind is not None:
        operands = operands[1:]
    values: list[Core] = []
    for operand in operands:
        values.append((yield operand, scope))
    if kind is None and len(values) == 1:
        return Fail(values[0], span=datum.span)
    name = kind.name if kind is not None else "user"
    if not values:
        values = [Literal(name)]
    bindings = [
        Binding("message" if index == 0 else "value", None, scope.function) for index in range(len(values))
    ]
    parts: list[Core] = [_read(bindings[0], datum)]
    for binding in bindings[1:]:
        parts += [Literal(" "), Apply(Library("to-string"), (_read(binding, datum),), span=datum.span)]
    message = Apply(Library("string-append"), tuple(parts), span=datum.span) if len(parts) > 1 else parts[0]
    fields: list[Core] = [Literal("kind"), Literal(name), Literal("message"), message]
    if len(bindings) > 1:
        listed = Operation("list", tuple(_read(binding, datum) for binding in bindings[1:]))
        details = Operation("map", (Literal("values"), listed))
        fields += [Literal("details"), details]
    fault = Fail(Operation("map", tuple(fields)), span=datum.span)
    return Let(tuple(zip(bindings, values, strict=True)), fault, span=datum.span)


def _read(binding: Binding, datum: Datum) -> Variable:
    binding.references += 1
    return Variable(binding, span=datum.span)
