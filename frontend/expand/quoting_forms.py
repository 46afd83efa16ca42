"""The forms `quote` and `quasiquote`."""

from __future__ import annotations

from typing import Any

from ..core.forms import FORMS, Steps, form
from ..core.nodes import Apply, Core, Library, Literal, Operation
from ..core.scope import Scope, identifier_of, is_word, value_of
from ..sexp.datum import Atom, Datum, Form
from .expansion import Context


@form("quote", "(quote datum) or 'datum", "The datum, not evaluated.", 1, 1)
def expand_quote(x: Context, datum: Form, scope: Scope) -> Steps:
    return _quoted(x, datum.items[1])
    yield


def _quoted(x: Context, datum: Datum) -> Core:
    try:
        return Literal(value_of(datum), span=datum.span)
    except ValueError:
        return x.error(
            "dotted-list",
            "a dotted pair is not a value",
            datum.span,
            help="the datum after the dot must be a list",
        )


@form(
    "quasiquote",
    "(quasiquote datum) or `datum",
    "Like `quote`, except that forms after `,` and `,@` are evaluated.",
    1,
    1,
)
def expand_quasiquote(x: Context, datum: Form, scope: Scope) -> Steps:
    return (yield _fill(x, datum.items[1], scope, 1))


def _hole(datum: Datum, word: str, scope: Scope) -> bool:
    return (
        isinstance(datum, Form)
        and len(datum.items) == 2
        and datum.tail is None
        and is_word(datum.items[0], word, scope)
    )


def _fill(x: Context, datum: Datum, scope: Scope, level: int) -> Steps:
    """The value of a template at a depth of quasiquotations: constant parts stay constants."""
    if isinstance(datum, Atom):
        return _quoted(x, datum)
    if _hole(datum, "unquote", scope):
        if level == 1:
            return (yield datum.items[1], scope)
        return (yield _rebuilt(x, datum, scope, level - 1))
    if _hole(datum, "unquote-splicing", scope):
        if level == 1:
            return x.error("bad-form", "`,@` is allowed only inside a list", datum.span)
        return (yield _rebuilt(x, datum, scope, level - 1))
    if len(datum.items) == 2 and _is_quasiquote(datum.items[0], scope):
        return (yield _rebuilt(x, datum, scope, level + 1))
    return (yield _rebuilt(x, datum, scope, level))


def _is_quasiquote(datum: Datum, scope: Scope) -> bool:
    identifier = identifier_of(datum)
    return identifier is not None and scope.find(identifier) is FORMS["quasiquote"]


def _rebuilt(x: Context, datum: Form, scope: Scope, level: int) -> Steps:
    """A list from its items, spliced ones between runs of single ones."""
    items = datum.items
    tail: Any = None
    if datum.tail is not None:
        return x.error("dotted-list", "a dotted pair is not a value", datum.span)
    if len(items) > 2 and level == 1 and is_word(items[-2], "unquote", scope):
        # `(a . ,b)` reads as (a unquote b).
        tail = yield items[-1], scope
        items = items[:-2]
    parts: list[Core] = []
    run: list[Core] = []
    for item in items:
        if level == 1 and isinstance(item, Form) and _hole(item, "unquote-splicing", scope):
            spliced = yield item.items[1], scope
            if run:
                parts.append(_list(run, datum))
                run = []
            parts.append(spliced)
        else:
            run.append((yield _fill(x, item, scope, level)))
    if run or (not parts and tail is None):
        parts.append(_list(run, datum))
    if tail is not None:
        parts.append(tail)
    if len(parts) == 1 and (tail is None and run):
        return parts[0]
    return Apply(Library("append", span=datum.span), tuple(parts), span=datum.span)


def _list(items: list[Core], datum: Form) -> Core:
    if all(isinstance(item, Literal) for item in items):
        return Literal(tuple(item.value for item in items if isinstance(item, Literal)), span=datum.span)
    return Operation("list", tuple(items), span=datum.span)
