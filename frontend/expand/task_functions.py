"""Functions that tools and tasks become in a program: one for each that it calls.

Its parameters are those of the tool or task in their order. Those with a default are optional, so the
function is a value too. What such a function does is defined in `stdlib/calls.sexp`.
"""

from __future__ import annotations

from ...ir.builder import freeze
from ...ir.records import frozen
from ...ir.spans import Span
from ..core.nodes import Apply, Binding, Core, Lambda, Let, Library, Literal, Operation, Perform, Variable
from ..core.scope import FunctionMark
from ..tasks.signature import RESERVED, Signature

# The span of these functions: in the library, so that a fault in one is reported at its call.
_HERE = Span("stdlib/calls.sexp", 1, 1, 1, 1)


@frozen(eq=False)
class Called:
    """A tool or task that the program calls: its variable and its function."""

    binding: Binding
    function: Lambda


def function_of(signature: Signature, mark: FunctionMark) -> Lambda:
    """The function of a tool or task: its parameters in order, then a task's settings, which are optional."""
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
        least = least_arguments(signature)
        required, optionals = bindings[:least], bindings[least:] + settings
        about = Literal(tuple(freeze(parameter.as_data()) for parameter in signature.parameters))
        values = Operation("list", tuple(Variable(binding) for binding in bindings))
        arguments = Apply(Library("calls:arguments"), (name, about, values))
    # The effect is in the function itself, so that the run's position shows the tool's name.
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


def least_arguments(signature: Signature) -> int:
    """How many arguments its function takes at least: up to the last parameter that is required."""
    return max((at + 1 for at, parameter in enumerate(signature.order) if parameter.is_required), default=0)
