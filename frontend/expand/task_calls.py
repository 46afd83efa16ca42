"""Calls of tools and tasks: operands are read, checked and put in order.

`(name (key value)…)`, `(name value…)` in the declared order, both mixed, and `(call name …)`. The
function that is called is made by `task_functions`.
"""

from __future__ import annotations

import attrs

from ...ir.constants import Symbol
from ...ir.diagnostics import count_words, nearest, suggest
from ...ir.records import define
from ..core.forms import Steps, form
from ..core.nodes import Apply, Binding, Core, Let, Literal, Operation, Variable
from ..core.scope import Scope, identifier_of
from ..sexp.datum import Atom, Datum, Form
from ..sexp.printer import show
from ..tasks.mcp_servers import PREFIX
from ..tasks.signature import RESERVED, TYPES, Parameter, Signature, fits
from .expansion import Context
from .task_functions import least_arguments
from .task_options import check_setting_of_call

DECLARE = "declare it in .loops/tools.yaml, in .loops/tasks/ or with `defatom`, or name it with --declare"


# --- calls ------------------------------------------------------------------------------------


@form(
    "call",
    "(call name (key value)…) or (call function value…)",
    "Call a tool, a task or a function; same as the call without `call`.",
    1,
    is_bindable=True,
)
def expand_call_form(x: Context, datum: Form, scope: Scope) -> Steps:
    head = identifier_of(datum.items[1])
    inner = Form(datum.items[1:], datum.place)
    if head is None:
        return (yield x.application(inner, scope))
    meaning = x.find(head, scope)
    if meaning is None:
        return (yield report_unknown_call(x, inner, scope))
    if type(meaning) is Signature:
        return (yield expand_call(x, inner, scope, meaning))
    return (yield x.application(inner, scope))


@define
class _Arguments:
    """The arguments of a call read so far, by name, in source order."""

    given: dict[str, tuple[Core, Datum]] = attrs.Factory(dict)
    positions: int = 0
    is_sound: bool = True
    is_misplaced: bool = False


def expand_call(x: Context, datum: Form, scope: Scope, signature: Signature) -> Steps:
    """Expand a form that calls a tool or a task."""
    if datum.tail is not None:
        return x.refuse_dotted(datum)
    arguments = _Arguments()
    for operand in datum.items[1:]:
        key = _key(x, operand, scope, signature)
        if key is None:
            yield _positional(x, operand, scope, signature, arguments)
        else:
            assert isinstance(operand, Form)
            yield _named(x, key, operand, scope, signature, arguments)
    _take_from_around(x, datum, scope, signature, arguments)
    _check_missing(x, datum, signature, arguments)
    callee = x.task_function(signature, datum.items[0].span)
    return _apply(signature, callee, arguments, datum, scope) if arguments.is_sound else Literal(None)


def _key(x: Context, operand: Datum, scope: Scope, signature: Signature) -> str | None:
    """The name of the argument that an operand gives; None for a positional argument."""
    if not isinstance(operand, Form) or not operand.items:
        return None
    head = identifier_of(operand.items[0])
    if head is None:
        return None
    has_one_value = len(operand.items) == 2 and operand.tail is None
    if has_one_value and signature.takes(head.name):
        return head.name
    return None if x.find(head, scope) is not None else head.name


def _named(
    x: Context, key: str, operand: Form, scope: Scope, signature: Signature, arguments: _Arguments
) -> Steps:
    head = operand.items[0]
    is_known = signature.takes(key)
    if not is_known:
        arguments.is_sound = False
        names = [parameter.name for parameter in signature.order]
        names += [name for name in RESERVED if signature.is_reserved(name)]
        what = f"the parameters of `{signature.name}`"
        help = suggest(key, names, what) if names else f"`{signature.name}` takes no parameters"
        message = f"`{signature.name}` has no parameter `{key}`"
        x.error("unknown-parameter", message, head.span, "unknown", help=help)
    if len(operand.items) != 2 or operand.tail is not None:
        arguments.is_sound = False
        if is_known:
            message = f"`{key}` takes one value, not {len(operand.items) - 1}"
            x.error("bad-argument", message, operand.span, help=f"write ({key} value)")
            arguments.given.setdefault(key, (Literal(None), operand))
        for item in operand.items[1:]:
            yield item, scope
        return Literal(None)
    value = yield operand.items[1], scope
    if is_known:
        _give(x, key, value, operand.items[1], head, signature, arguments)
    return Literal(None)


def _positional(
    x: Context, operand: Datum, scope: Scope, signature: Signature, arguments: _Arguments
) -> Steps:
    value = yield operand, scope
    at = arguments.positions
    arguments.positions += 1
    if signature.parameters is None:
        arguments.is_sound = False
        if not at:
            x.error(
                "no-order",
                f"`{signature.name}` does not declare an order of its parameters",
                operand.span,
                "an argument without a name",
                help=f"write ({signature.name} (name value)…)",
            )
        return Literal(None)
    if at < len(signature.parameters):
        _give(x, signature.parameters[at].name, value, operand, operand, signature, arguments)
        return Literal(None)
    arguments.is_sound = False
    if at == len(signature.parameters):
        count = len(signature.parameters)
        message = f"`{signature.name}` takes {count_words(count, count, 'parameter')}"
        x.error("too-many-arguments", message, operand.span, "one too many", help=f"write {signature.usage}")
    return Literal(None)


def _give(
    x: Context,
    name: str,
    value: Core,
    datum: Datum,
    place: Datum,
    signature: Signature,
    arguments: _Arguments,
) -> None:
    if name in arguments.given:
        arguments.is_sound = False
        first = arguments.given[name][1].span
        where = f"first given in line {first.line}" if first is not None else None
        x.error("repeated-key", f"`{name}` is given twice", place.span, "given again", help=where)
        # A positional argument; it was meant for another parameter.
        arguments.is_misplaced |= place is datum
        return
    arguments.given[name] = (value, datum)
    parameter = signature.parameter(name)
    if parameter is None and signature.is_reserved(name):
        arguments.is_sound &= check_setting_of_call(x, signature.name, name, value, datum)
    if parameter is not None and isinstance(value, Literal) and not _is_fit(value, parameter):
        arguments.is_sound = False
        # A literal without a span is the placeholder of a form that was refused.
        if value.span is not None:
            x.error(
                "wrong-type",
                f"`{name}` of `{signature.name}` must be {TYPES[parameter.type]}, not {_shown(value)}",
                value.span,
                f"not {TYPES[parameter.type]}",
            )
    elif parameter is not None and isinstance(value, Literal) and not _is_allowed(value, parameter):
        arguments.is_sound = False
        x.error(
            "unknown-choice",
            f"`{name}` of `{signature.name}` cannot be {_shown(value)}",
            value.span,
            help=suggest(str(value.value), parameter.choices, "it may be"),
        )


def _is_fit(value: Literal, parameter: Parameter) -> bool:
    if value.value is None or (value.value == () and not parameter.is_required):
        return not parameter.is_required or parameter.type == "any"
    return fits(value.value, parameter.type) or (parameter.type == "map" and _is_pairs(value.value))


def _is_allowed(value: Literal, parameter: Parameter) -> bool:
    """Whether a literal is one of the choices of a parameter, or left out."""
    return (value.value == () and not parameter.is_required) or parameter.allows(value.value)


def _is_pairs(value: object) -> bool:
    """Whether a value is a list of (name value), which is a map too."""
    return isinstance(value, tuple) and all(
        isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str | Symbol) for item in value
    )


def _shown(value: Literal) -> str:
    if isinstance(value.value, tuple | dict):
        return "a list" if isinstance(value.value, tuple) else "a map"
    return f"`{show(Atom(value.value), limit=60)}`"


def _take_from_around(
    x: Context, datum: Form, scope: Scope, signature: Signature, arguments: _Arguments
) -> None:
    """Fill parameters that the call omits from variables around the call (`from`)."""
    for parameter in signature.order:
        if parameter.variable and parameter.name not in arguments.given:
            identifier = Symbol(parameter.variable)
            if type(scope.find(identifier)) is Binding:
                value = x.reference(identifier, datum.items[0].span, scope)
                arguments.given[parameter.name] = (value, datum)


def _check_missing(x: Context, datum: Form, signature: Signature, arguments: _Arguments) -> None:
    missing = [
        parameter.name
        for parameter in signature.order
        if parameter.is_required and parameter.name not in arguments.given
    ]
    if not missing or arguments.is_misplaced or arguments.positions > len(signature.order):
        return
    # A misspelt name and the missing parameter are the same mistake.
    is_told = not arguments.is_sound and any(
        found.id == "unknown-parameter" and found.help == f"did you mean `{name}`?"
        for found in x.diagnostics[-len(datum.items) :]
        for name in missing
    )
    arguments.is_sound = False
    if not is_told:
        names = ", ".join(f"`{name}`" for name in missing)
        word = "parameter" if len(missing) == 1 else "parameters"
        message = f"the call of `{signature.name}` is missing the {word} {names}"
        x.error("missing-parameter", message, datum.span, help=f"write {signature.usage}")


def _apply(signature: Signature, callee: Variable, arguments: _Arguments, datum: Form, scope: Scope) -> Core:
    """The call of the function, with the arguments evaluated in source order."""
    given = arguments.given
    names = [parameter.name for parameter in signature.order]
    settings = [name for name in RESERVED if signature.is_reserved(name)]
    if signature.parameters is None:
        names = [name for name in given if name not in settings]
    order = names + settings
    values: dict[str, Core] = {name: value for name, (value, _) in given.items()}
    bindings: list[tuple[Binding, Core]] = []
    if [name for name in order if name in given] != list(given):
        for name, (value, place) in given.items():
            if isinstance(value, Literal):
                continue
            binding = Binding(name, None, scope.function)
            binding.references = 1
            bindings.append((binding, value))
            values[name] = Variable(binding, span=place.span)
    args: list[Core] = [values.get(name, Literal(None)) for name in order]
    if signature.parameters is None:
        entries = [part for name in names for part in (Literal(name), values[name])]
        args = [Operation("map", tuple(entries)), *args[len(names) :]]
    least = max(1 if signature.parameters is None else 0, least_arguments(signature))
    while len(args) > least and isinstance(args[-1], Literal) and args[-1].value is None:
        args.pop()
    # No tail call: while the effect is performed, the run's position is the author's call.
    result = Binding(signature.name, None, scope.function)
    result.references = 1
    bindings.append((result, Apply(callee, tuple(args), span=datum.span)))
    return Let(tuple(bindings), Variable(result, span=datum.span), span=datum.span)


# --- what is not declared ---------------------------------------------------------------------


def is_like_call(x: Context, datum: Form, scope: Scope) -> bool:
    """Whether a form with an unbound head was most likely meant to call a tool or task."""
    head = identifier_of(datum.items[0])
    if head is not None and ":" in head.name:
        return True
    operands = datum.items[1:]
    return bool(operands) and all(_is_pair_of_unbound(x, operand, scope) for operand in operands)


def _is_pair_of_unbound(x: Context, operand: Datum, scope: Scope) -> bool:
    if not isinstance(operand, Form) or len(operand.items) != 2:
        return False
    head = identifier_of(operand.items[0])
    return head is not None and x.find(head, scope) is None


def report_unknown_call(x: Context, datum: Form, scope: Scope) -> Steps:
    """Report a call of an undeclared tool or task once, and expand the values in it."""
    head = identifier_of(datum.items[0])
    assert head is not None
    if head.name.startswith(PREFIX):
        message, help = x.declared.mcp.explain_missing(head.name)
        if not any(found.message == message for found in x.diagnostics):
            x.error("unknown-mcp-tool", message, datum.items[0].span, "called here", help=help)
    elif not x.declared.is_broken:
        x.suggestions += 1
        near = None
        if x.suggestions <= 20:
            near = nearest(head.name, [*x.declared.names(), *scope.visible_names()])
        x.error(
            "unknown-task",
            f"no task or tool is called `{head.name}`",
            datum.items[0].span,
            "called here",
            help=f"did you mean `{near}`?" if near else DECLARE,
        )
    for operand in datum.items[1:]:
        if _is_pair_of_unbound(x, operand, scope):
            assert isinstance(operand, Form)
            yield operand.items[1], scope
        else:
            yield operand, scope
    return Literal(None)
