"""Printer of data: text in one line that reads back equal. Layout is the work of `formatter`.

Owns only the traversal, which does not recurse; `ir.spelling` writes atoms.
"""

from __future__ import annotations

from typing import assert_never

from ...ir.constants import Symbol
from ...ir.spelling import spell_float, spell_string, spell_symbol
from .datum import Atom, Datum, Form, Value
from .lexer import CLOSERS, QUOTES

_PREFIXES = {Symbol(name): prefix for prefix, name in QUOTES.items()}


def show(datum: Datum, limit: int | None = None) -> str:
    """A datum as text, cut to `limit` characters with `…` at the end."""
    out: list[str] = []
    size = 0
    todo: list[Datum | str] = [datum]
    while todo:
        item = todo.pop()
        if isinstance(item, Atom):
            item = spell(item.value)
        elif isinstance(item, Form):
            prefix = _prefix(item)
            if prefix:
                todo.append(item.items[1])
                item = prefix
            else:
                todo.append(CLOSERS[item.bracket])
                if item.tail is not None:
                    todo += (item.tail, " . ")
                for part in reversed(item.items):
                    todo += (part, " ")
                if item.items:
                    todo.pop()  # no blank before the first
                item = item.bracket
        out.append(item)
        size += len(item)
        if limit is not None and size > limit:
            return "".join(out)[: max(limit - 1, 0)] + "…"
    return "".join(out)


def spell(value: Value) -> str:
    """An atom's value as the language writes it."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return spell_float(value)
        case str():
            return spell_string(value)
        case Symbol():
            return spell_symbol(value.name)
        case _:
            assert_never(value)


def _prefix(form: Form) -> str | None:
    """The prefix of a form such as `(quote x)`."""
    items = form.items
    if len(items) != 2 or form.tail is not None or form.bracket != "(":
        return None
    prefix = _PREFIXES.get(form.head) if form.head is not None else None
    if prefix == "," and isinstance(items[1], Atom) and spell(items[1].value).startswith("@"):
        return None  # `,@x` is something else
    return prefix
