"""Resolution of `call:` in a state: the named function, and its arguments in the order of its parameters.

Must not contain: reading of files (`linker`), the states of a call (`lower.calls`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir.diagnostics import count_words, suggest
from ..core.library import LIBRARY
from ..core.nodes import Binding, Lambda, Library, Literal
from ..core.program_parts import Definitions
from ..loop.schema import StateSpec

# Reports a diagnostic: id, message, span, label, help.
Report = Callable[..., None]


def target_of(call: str) -> tuple[str, str] | None:
    """The file and the function in `flows.sexp#summarise`; None for other forms."""
    file, mark, name = call.partition("#")
    return (file, name) if mark and file and name and not name.isspace() else None


def arguments_of(
    state: StateSpec, name: str, definitions: Definitions, binding: Binding, error: Report
) -> tuple[tuple[str, Any], ...] | None:
    """The arguments of a state's call as (place, value), in parameter order; None after a diagnostic."""
    function = next(value for known, value in definitions.entries if known is binding)
    span = state.span_of("args", "call")
    if isinstance(function, Literal) and not binding.is_assigned:
        error("not-a-function", f"`{name}` is a value, not a function", state.span_of("call"))
        return None
    least, most, parameters = 0, None, None
    if isinstance(function, Lambda) and not binding.is_assigned:
        least, most = function.least, function.most
        parameters = [known.name for known in function.parameters]
        parameters += [known.name for known, _ in function.optionals]
    elif isinstance(function, Library):
        least, most = LIBRARY[function.name].least, LIBRARY[function.name].most
    given = state.args if state.args is not None else ()
    if not isinstance(given, dict):
        if len(given) < least or (most is not None and len(given) > most):
            message = f"`{name}` takes {count_words(least, most, 'argument')}, not {len(given)}"
            help = f"its parameters are ({' '.join(parameters)})" if parameters else None
            error("wrong-arity", message, span, "", help)
            return None
        return tuple((f"args[{index}]", value) for index, value in enumerate(given))
    if parameters is None:
        message = f"the parameters of `{name}` are not known before it runs"
        error("unknown-parameter", message, span, "", "give the arguments as a list")
        return None
    return _by_name(state, name, parameters, least, error)


def _by_name(
    state: StateSpec, name: str, parameters: list[str], least: int, error: Report
) -> tuple[tuple[str, Any], ...] | None:
    given = state.args
    wrong = False
    for key in given:
        if key not in parameters:
            help = suggest(key, parameters, "its parameters are")
            error(
                "unknown-parameter",
                f"`{name}` has no parameter `{key}`",
                state.span_of(f"key:args.{key}"),
                "",
                help,
            )
            wrong = True
    last = max((index for index, known in enumerate(parameters) if known in given), default=-1)
    missing = [
        known for index, known in enumerate(parameters) if index < max(least, last + 1) and known not in given
    ]
    if missing and not wrong:
        names = ", ".join(f"`{known}`" for known in missing)
        error("missing-argument", f"`{name}` needs {names}", state.span_of("args", "call"))
        wrong = True
    if wrong:
        return None
    return tuple((f"args.{known}", given[known]) for known in parameters[: last + 1])
