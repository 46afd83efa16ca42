"""Table of forms: the heads of lists that are not functions.

A row has the name of a form, its pattern, its meaning, and the handler that expands a use to core.
`spec/language.md` has the same rows (a test compares them). Must not contain: the handlers, which
register themselves (`expand/*_forms.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeAlias

from ...ir.records import frozen
from ...ir.spans import Span
from ..sexp.datum import Datum, Form
from .nodes import Core
from .reserved_names import FORM_NAMES
from .scope import Scope


@frozen(eq=False)
class Body:
    """Request to expand a body in its own new scope. An empty body is an error."""

    data: Sequence[Datum]
    scope: Scope
    span: Span | None


# A handler is a generator: it yields the parts to expand, receives their core, and returns core, so that
# nested programs need no Python stack. It can yield a datum with its scope, a `Body`, or the generator of
# another handler. Its first argument is the expansion context (`expand/expansion.py`).
Steps: TypeAlias = Generator[Any, Any, Core]
Handler: TypeAlias = Callable[[Any, Form, Scope], Steps]
# Core for a form's name used as a value, at a span.
AsValue: TypeAlias = Callable[[Span | None], Core]


@frozen(eq=False)
class FormRow:
    """A form.

    Attributes:
        usage: its pattern.
        least, most: minimum and maximum number of operands; most None: any number.
        is_bindable: whether a program may use its name for a variable, which hides the form.
        is_internal: whether only `stdlib/` may use it.
        as_value: its name as a value; None if it has no value.
    """

    name: str
    usage: str
    doc: str
    least: int
    most: int | None
    handler: Handler
    is_bindable: bool = False
    is_internal: bool = False
    as_value: AsValue | None = None


FORMS: dict[str, FormRow] = {}
INTERNAL: dict[str, FormRow] = {}


def form(
    name: str,
    usage: str,
    doc: str,
    least: int = 0,
    most: int | None = None,
    *,
    is_bindable: bool = False,
    is_internal: bool = False,
    as_value: AsValue | None = None,
) -> Callable[[Handler], Handler]:
    """Register a handler under a name."""

    def register(handler: Handler) -> Handler:
        if not is_internal and name not in FORM_NAMES:
            raise AssertionError(f"add the form `{name}` to FORM_NAMES in core/reserved_names.py")
        row = FormRow(name, usage, doc, least, most, handler, is_bindable, is_internal, as_value)
        (INTERNAL if is_internal else FORMS)[name] = row
        return handler

    return register
