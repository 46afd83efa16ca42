"""Expander: data to core, one form at a time.

Walks the data once, without recursion: macros are expanded, forms are turned into core by their handlers
(`core/forms.py`), names into bindings. An error is reported and expansion continues, with a null in the place
of the wrong form. Arity of calls and reachability of code are checked by `core/checks.py`.
"""

from __future__ import annotations

from types import GeneratorType
from typing import Any

from ..core.forms import Body, FormRow, Steps
from ..core.library import LIBRARY, Spread
from ..core.nodes import Apply, Core, Literal
from ..core.scope import Scope, identifier_of
from ..sexp.datum import Atom, Form
from ..tasks.signature import Signature
from .bodies import expand_body
from .expansion import Abandoned, Context, LibraryName
from .task_calls import expand_call, is_like_call, report_unknown_call


def run(x: Context, steps: Steps) -> Core:
    """Run a handler and everything that it yields on an explicit stack; return its core."""
    stack: list[Any] = [steps]
    value: Any = None
    limit = x.limits.depth
    while stack:
        try:
            request = stack[-1].send(value)
        except StopIteration as stop:
            stack.pop()
            value = stop.value
            continue
        if type(request) is tuple:
            datum, scope = request
            if type(datum) is Atom:
                value = x.atom(datum, scope)
                continue
            request = _expand_form(x, datum, scope)
        elif type(request) is Body:
            request = expand_body(x, request)
        if type(request) is not GeneratorType:
            value = request
            continue
        if len(stack) >= limit:
            x.error(
                "nesting-too-deep",
                "forms are nested too deep",
                x.place,
                help="if a macro generated them, it may expand without end",
            )
            raise Abandoned
        stack.append(request)
        value = None
    result: Core = value
    return result


def _expand_form(x: Context, datum: Form, scope: Scope) -> Any:
    """The core of a form, or the generator that returns it."""
    expanded = x.expand_head(datum, scope)
    if isinstance(expanded, Atom):
        return x.atom(expanded, scope)
    datum = expanded
    x.place = datum.span
    if not datum.items:
        return Literal((), span=datum.span)
    meaning = x.head_meaning(datum, scope)
    if type(meaning) is FormRow:
        if not x.has_operands(datum, meaning):
            return Literal(None)
        return meaning.handler(x, datum, scope)
    if type(meaning) is LibraryName and type(LIBRARY.get(meaning.name)) is Spread:
        return _expand_apply(x, datum, scope)
    if (meaning is None or type(meaning) is Signature) and (head := identifier_of(datum.items[0])):
        signature = x.find(head, scope)
        if signature is not None:
            return expand_call(x, datum, scope, signature)
        if x.is_like_form(head.name):
            # Misspelt, or from another language: findings inside it would only repeat the error.
            x.report_unbound(head, datum.items[0].span, scope)
            return Literal(None)
        is_expected = x.session is not None and head.name in x.session.expected
        if not is_expected and is_like_call(x, datum, scope):
            return report_unknown_call(x, datum, scope)
    return x.application(datum, scope)


def _expand_apply(x: Context, datum: Form, scope: Scope) -> Steps:
    """`(apply f a … list)`."""
    call = yield x.application(datum, scope)
    if not isinstance(call, Apply) or len(call.args) < 2:
        if isinstance(call, Apply):
            x.refuse_operands(datum, "(apply function argument… list)")
        return Literal(None)
    return Apply(call.args[0], call.args[1:-1], call.args[-1], span=datum.span)
