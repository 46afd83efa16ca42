"""Table of forms: the heads of lists that are not functions.

One row for each form: its name, pattern, meaning, and the handler that turns a use into core.
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
    """Request to expand a body, in a scope that was made for it. An empty body is an error."""

    data: Sequence[Datum]
    scope: Scope
    span: Span | None


# A handler runs as a generator. It yields what is to be expanded, gets core for it, and returns core, so
# that the depth of a program needs no stack. It can yield a datum with its scope, a `Body`, or another
# handler's generator. Its first argument is the expansion context (`expand/expansion.py`).
Steps: TypeAlias = Generator[Any, Any, Core]
Handler: TypeAlias = Callable[[Any, Form, Scope], Steps]
# The core of a form's name where it is used as a value, at a span.
AsValue: TypeAlias = Callable[[Span | None], Core]


@frozen(eq=False)
class FormRow:
    """A form. `least`..`most` operands (None: any number); `usage` is its pattern.

    is_bindable: a program may use its name for a variable, which hides the form.
    is_internal: for `stdlib/` alone. as_value: its name as a value; None if it has none.
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
