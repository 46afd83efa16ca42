"""Calls of tools and tasks: their operands read, checked and put in order.

`(name (key value)…)`, `(name value…)` in the declared order, both mixed, and `(call name …)`. A tool
or task that a program calls becomes a function of it: its parameters in their order, those that may
be left out being optional, so it is a value too. What such a function does is `stdlib/calls.sexp`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from ...ir.builder import freeze
from ...ir.diagnostics import nearest, suggest
from ...ir.records import define, frozen
from ...ir.spans import Span
from ..core.forms import Steps, form
from ..core.nodes import Apply, Binding, Core, Lambda, Let, Library, Literal, Operation, Perform, Variable
from ..core.scope import FunctionMark, Identifier, Scope, base_symbol, identifier_of
from ..sexp.datum import Atom, Datum, Form
from ..sexp.printer import show
from ..tasks.mcp import PREFIX
from ..tasks.signature import RESERVED, TYPES, Parameter, Signature, fits

if TYPE_CHECKING:
    from .expander import Expander

DECLARE = "declare it in .loops/tools.yaml, in .loops/tasks/ or with `defatom`, or name it with --declare"


# Where the functions stand that tools and tasks become: in the library, so that what goes wrong in one
# is told at its call.
_HERE = Span("stdlib/calls.sexp", 1, 1, 1, 1)


@frozen(eq=False)
class Called:
    """A tool or task that the program calls: its variable, and the function that it is."""

    binding: Binding
    function: Lambda


# --- names ------------------------------------------------------------------------------------


def find(x: Expander, identifier: Identifier, scope: Scope) -> Any:
    """What a name means here, tools and tasks among it; None if it is unbound.

    A tool comes before a task, one that the program defines itself among them.
    """
    meaning = scope.find(identifier)
    if meaning is not None and type(meaning) is not Signature:
        return meaning
    return x.declared.find(base_symbol(identifier).name, meaning)


def reference(x: Expander, signature: Signature, span: Span | None, scope: Scope) -> Variable:
    """A tool or task as a value: the function that calls it."""
    called = x.called.get(signature.name)
    if called is None:
        mark = FunctionMark(signature.name)
        called = Called(Binding(signature.name, signature.span, x.main), _function(signature, mark))
        x.called[signature.name] = called
        source = signature.source
        if source is not None and source not in x.sources:
            x.sources.append(source)
        for other in x.declared.hidden_by(signature):
            x.warn(
                "tool-before-task",
                f"`{other.name}` is a tool and a task; the tool is called",
                span,
                help="give one of them another name",
            )
    binding = called.binding
    binding.references += 1
    if scope.function is not x.main:
        binding.is_captured = True
    return Variable(binding, span=span)


def _function(signature: Signature, mark: FunctionMark) -> Lambda:
    """Parameters in order; what a task takes beside them comes last and is optional."""
    settings: list[Binding] = []
    if signature.is_task:
        settings = [Binding(name, None, mark) for name in RESERVED if signature.is_reserved(name)]
    name = Literal(signature.name)
    if signature.parameters is None:
        given = Binding("arguments", None, mark)
        required, optionals = [given], settings
        arguments: Core = Variable(given)
    else:
        bindings = [Binding(parameter.name, None, mark) for parameter in signature.parameters]
        least = _least(signature)
        required, optionals = bindings[:least], bindings[least:] + settings
        about = Literal(tuple(freeze(parameter.as_data()) for parameter in signature.parameters))
        values = Operation("list", tuple(Variable(binding) for binding in bindings))
        arguments = Apply(Library("calls:arguments"), (name, about, values))
    # The effect stands in the function itself, so that the tool's name is where a run is.
    checked, result = Binding("arguments", None, mark), Binding("result", None, mark)
    fields: tuple[tuple[str, Core], ...]
    definition = Literal(freeze(signature.definition))
    match signature.effect:
        case "shell":
            names = (("command", "command"), ("cwd", "cwd"), ("timeout_s", "timeout"))
            fields = tuple(
                (field, Operation("get_or", (Variable(checked), Literal(key)))) for field, key in names
            )
        case "context":
            fields = tuple(
                (
                    "timeout_s" if parameter.name == "timeout" else parameter.name,
                    Operation("get_or", (Variable(checked), Literal(parameter.name))),
                )
                for parameter in signature.order
            )
        case "task":
            fields = (
                ("name", name),
                ("inputs", Variable(checked)),
                *(
                    (binding.name, Apply(Library(f"calls:{binding.name}"), (name, Variable(binding))))
                    for binding in settings
                ),
                ("definition", definition),
                ("on_unknown", Literal(signature.on_unknown)),
            )
        case _:
            fields = (
                ("name", name),
                ("args", Variable(checked)),
                ("definition", definition),
                ("timeout_s", Literal(signature.timeout_s)),
                ("on_unknown", Literal(signature.on_unknown)),
            )
    bound = ((checked, arguments), (result, Perform(signature.effect, fields, span=_HERE)))
    gives = "found" if signature.effect == "context" else signature.effect
    body = Let(bound, Apply(Library(f"calls:{gives}"), (name, Variable(result))))
    absent = tuple((binding, Literal(None)) for binding in optionals)
    return Lambda(tuple(required), absent, None, body, signature.name, span=_HERE)


def _least(signature: Signature) -> int:
    """How many arguments its function takes at least: up to the last parameter that is required."""
    return max((at + 1 for at, parameter in enumerate(signature.order) if parameter.is_required), default=0)


# --- calls ------------------------------------------------------------------------------------


@form(
    "call",
    "(call name (key value)…) or (call function value…)",
    "Call a tool, a task or a function: the same as without `call`.",
    1,
    is_bindable=True,
)
def expand_call_form(x: Expander, datum: Form, scope: Scope) -> Steps:
    head = identifier_of(datum.items[1])
    inner = Form(datum.items[1:], datum.place)
    if head is None:
        return (yield x.application(inner, scope))
    meaning = find(x, head, scope)
    if meaning is None:
        return (yield refuse_unknown(x, inner, scope))
    if type(meaning) is Signature:
        return (yield expand_call(x, inner, scope, meaning))
    return (yield x.application(inner, scope))


@define
class _Arguments:
    """The arguments of a call as they are read: by name, in the order in which they stand."""

    given: dict[str, tuple[Core, Datum]] = attrs.Factory(dict)
    positions: int = 0
    is_sound: bool = True
    is_misplaced: bool = False


def expand_call(x: Expander, datum: Form, scope: Scope, signature: Signature) -> Steps:
    """The call of a tool or task that a form is."""
    if datum.tail is not None:
        return x.dotted(datum)
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
    callee = reference(x, signature, datum.items[0].span, scope)
    return _apply(signature, callee, arguments, datum, scope) if arguments.is_sound else Literal(None)


def _key(x: Expander, operand: Datum, scope: Scope, signature: Signature) -> str | None:
    """The name of the argument that an operand gives; None for an expression that is one by its place."""
    if not isinstance(operand, Form) or not operand.items:
        return None
    head = identifier_of(operand.items[0])
    if head is None:
        return None
    has_one_value = len(operand.items) == 2 and operand.tail is None
    if has_one_value and signature.takes(head.name):
        return head.name
    return None if find(x, head, scope) is not None else head.name


def _named(
    x: Expander, key: str, operand: Form, scope: Scope, signature: Signature, arguments: _Arguments
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
            message = f"`{key}` is given one value, not {len(operand.items) - 1}"
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
    x: Expander, operand: Datum, scope: Scope, signature: Signature, arguments: _Arguments
) -> Steps:
    value = yield operand, scope
    at = arguments.positions
    arguments.positions += 1
    if signature.parameters is None:
        arguments.is_sound = False
        if not at:
            x.error(
                "no-order",
                f"`{signature.name}` declares no order of its parameters",
                operand.span,
                "this has no name",
                help=f"write ({signature.name} (name value)…)",
            )
        return Literal(None)
    if at < len(signature.parameters):
        _give(x, signature.parameters[at].name, value, operand, operand, signature, arguments)
        return Literal(None)
    arguments.is_sound = False
    if at == len(signature.parameters):
        count = len(signature.parameters)
        takes = f"{count} parameter{'' if count == 1 else 's'}" if count else "no parameters"
        message = f"`{signature.name}` takes {takes}"
        x.error("too-many-arguments", message, operand.span, "one too many", help=f"write {signature.usage}")
    return Literal(None)


def _give(
    x: Expander,
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
        where = f"it was given in line {first.line}" if first is not None else None
        x.error("repeated-key", f"`{name}` is given twice", place.span, "given again", help=where)
        # By its place, it was meant for another parameter.
        arguments.is_misplaced |= place is datum
        return
    arguments.given[name] = (value, datum)
    parameter = signature.parameter(name)
    if parameter is None and signature.is_reserved(name):
        from .task_options import check_reserved

        arguments.is_sound &= check_reserved(x, signature.name, name, value, datum)
    if parameter is not None and isinstance(value, Literal) and not _is_fit(value, parameter):
        arguments.is_sound = False
        # A literal without a place stands for what was refused.
        if value.span is not None:
            x.error(
                "wrong-type",
                f"`{name}` of `{signature.name}` is {TYPES[parameter.type]}, not {_shown(value)}",
                value.span,
                f"not {TYPES[parameter.type]}",
            )
    elif parameter is not None and isinstance(value, Literal) and not parameter.allows(value.value):
        arguments.is_sound = False
        x.error(
            "unknown-choice",
            f"`{name}` of `{signature.name}` cannot be {_shown(value)}",
            value.span,
            help=suggest(str(value.value), parameter.choices, "it may be"),
        )


def _is_fit(value: Literal, parameter: Parameter) -> bool:
    if value.value is None:
        return not parameter.is_required or parameter.type == "any"
    return fits(value.value, parameter.type)


def _shown(value: Literal) -> str:
    if isinstance(value.value, tuple | dict):
        return "a list" if isinstance(value.value, tuple) else "a map"
    return f"`{show(Atom(value.value), limit=60)}`"


def _take_from_around(
    x: Expander, datum: Form, scope: Scope, signature: Signature, arguments: _Arguments
) -> None:
    """What a call leaves out and the task takes from a variable around the call (`from`)."""
    from ...ir.symbols import Symbol

    for parameter in signature.order:
        if parameter.variable and parameter.name not in arguments.given:
            identifier = Symbol(parameter.variable)
            if type(scope.find(identifier)) is Binding:
                value = x.reference(identifier, datum.items[0].span, scope)
                arguments.given[parameter.name] = (value, datum)


def _check_missing(x: Expander, datum: Form, signature: Signature, arguments: _Arguments) -> None:
    missing = [
        parameter.name
        for parameter in signature.order
        if parameter.is_required and parameter.name not in arguments.given
    ]
    if not missing or arguments.is_misplaced or arguments.positions > len(signature.order):
        return
    # A misspelt name is the same mistake as the parameter that it leaves out.
    is_told = not arguments.is_sound and any(
        found.id == "unknown-parameter" and found.help == f"did you mean `{name}`?"
        for found in x.diagnostics[-len(datum.items) :]
        for name in missing
    )
    arguments.is_sound = False
    if not is_told:
        names = ", ".join(f"`{name}`" for name in missing)
        word = "parameter" if len(missing) == 1 else "parameters"
        message = f"the call of `{signature.name}` lacks the {word} {names}"
        x.error("missing-parameter", message, datum.span, help=f"write {signature.usage}")


def _apply(signature: Signature, callee: Variable, arguments: _Arguments, datum: Form, scope: Scope) -> Core:
    """The call of the function, with the arguments evaluated in the order in which they stand."""
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
    least = max(1 if signature.parameters is None else 0, _least(signature))
    while len(args) > least and isinstance(args[-1], Literal) and args[-1].value is None:
        args.pop()
    # No tail call: while the world is asked, a run is where the author's call stands.
    result = Binding(signature.name, None, scope.function)
    result.references = 1
    bindings.append((result, Apply(callee, tuple(args), span=datum.span)))
    return Let(tuple(bindings), Variable(result, span=datum.span), span=datum.span)


# --- what is not declared ---------------------------------------------------------------------


def is_like_call(x: Expander, datum: Form, scope: Scope) -> bool:
    """Whether a form with an unbound head was most likely meant to call a tool or task."""
    head = identifier_of(datum.items[0])
    if head is not None and ":" in head.name:
        return True
    operands = datum.items[1:]
    return bool(operands) and all(_is_pair_of_unbound(x, operand, scope) for operand in operands)


def _is_pair_of_unbound(x: Expander, operand: Datum, scope: Scope) -> bool:
    if not isinstance(operand, Form) or len(operand.items) != 2:
        return False
    head = identifier_of(operand.items[0])
    return head is not None and find(x, head, scope) is None


def refuse_unknown(x: Expander, datum: Form, scope: Scope) -> Steps:
    """A call of what nobody declared: said once, and the values in it are looked through."""
    head = identifier_of(datum.items[0])
    assert head is not None
    if head.name.startswith(PREFIX):
        message, help = x.declared.mcp.trouble(head.name)
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
