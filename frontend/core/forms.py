"""The table of forms: what may stand at the head of a list and is no function.

One row for each form: its name, how it is written, what it means, and the handler that turns a use
into core. `spec/language.md` has the same rows (a test compares), and their names cannot be bound.
Must not be in here: the handlers (`binding_forms`, `control_forms`, `quoting_forms`, `loop_forms`,
`special_heads`), which register themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, TypeAlias

from ...ir.records import frozen

if TYPE_CHECKING:
    from ..expand.expander import Expander
    from ..sexp.datum import Datum, Form
    from .nodes import Core
    from .scope import Scope

# A handler runs as a generator: it yields what it wants expanded, a datum with its scope or another
# handler's generator, gets core for it, and returns core. So the depth of a program costs no stack.
Request: TypeAlias = "tuple[Datum, Scope] | Steps"
Steps: TypeAlias = "Generator[Any, Any, Core]"
Handler: TypeAlias = "Callable[[Expander, Form, Scope], Steps]"


@frozen(eq=False)
class FormRow:
    """A form. `least`..`most` operands (None: any number); `usage` is its pattern.

    is_bindable: a program may use its name for a variable, which then hides the form.
    is_internal: for `stdlib/` alone.
    """

    name: str
    usage: str
    doc: str
    least: int
    most: int | None
    handler: Handler
    is_bindable: bool = False
    is_internal: bool = False


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
) -> Callable[[Handler], Handler]:
    """Register a handler under a name."""

    def register(handler: Handler) -> Handler:
        row = FormRow(name, usage, doc, least, most, handler, is_bindable, is_internal)
        (INTERNAL if is_internal else FORMS)[name] = row
        return handler

    return register


def count_words(least: int, most: int | None, what: str) -> str:
    """`2 operands`, `1 to 3 operands`, `at least 1 operand`."""
    if most is None:
        return f"at least {least} {what}{'' if least == 1 else 's'}"
    if least == most:
        return f"{least or 'no'} {what}{'' if least == 1 else 's'}"
    return f"{least} to {most} {what}s"
