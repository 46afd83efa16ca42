"""Quoting of the variables of a shell action by their context in the command.

Connects `template`, which finds the variables, with `shell/contexts.py`, which finds their contexts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from ..shell.code_hazards import COMMAND
from ..shell.contexts import QuotingContext, quoting_contexts
from ..shell.expansions import HOLE
from ..shell.hazards import AFTER_BACKSLASH, AFTER_DOLLAR
from .nodes import Literal, Part, Problem, Variable


def quote_variables(parts: Sequence[Part], problems: list[Problem], is_checked: bool) -> Iterator[Part]:
    """Yield the parts of a command, each variable with its quoting.

    problems: receives the hazards of variables. is_checked: allow a variable where quoting cannot make it
    safe, and check its value at run time instead of refusing the variable.
    """
    command = "".join(part.text if isinstance(part, Literal) else HOLE for part in parts)
    contexts = iter(
        quoting_contexts(command, tuple(part.is_data for part in parts if isinstance(part, Variable)))
    )
    for part in parts:
        yield (
            _quote_variable(part, next(contexts), problems, is_checked)
            if isinstance(part, Variable)
            else part
        )


def _quote_variable(
    variable: Variable, context: QuotingContext, problems: list[Problem], is_checked: bool
) -> Part:
    if not variable.is_data:
        return variable
    if context.quoting == "comment":
        return Literal(
            variable.text
        )  # unused by the command, and a value with a newline would end the comment
    hazard = context.hazard
    if hazard is not None and hazard.message == COMMAND.message and variable.namespace == "env":
        hazard = None  # control over the environment already includes `PATH`, which selects programs
    if hazard is not None:
        if variable.is_number and hazard not in (AFTER_BACKSLASH, AFTER_DOLLAR):
            return attrs.evolve(variable, quoting="number")
        help = hazard.help.replace("@", variable.text)
        message, severity = f"`{variable.text}` {hazard.message}", hazard.severity
        if is_checked and severity == "error" and hazard.plain is not None:
            blanks = ", spaces" if hazard.plain else ""
            safe = f"letters, digits{blanks} and `_./:@%+,=-`"
            help = f"it may contain only {safe}, or else the action fails; or {help}"
            variable, severity = attrs.evolve(variable, plain=hazard.plain), "warning"
        problems.append(Problem(hazard.id, message, variable.start, variable.end, help, severity))
    return attrs.evolve(variable, quoting=context.quoting or "none", around=context.around)
