"""Hazards of values that a shell or a program evaluates as code, with the suggested alternatives.

Owns the messages; `interpreters` decides where they apply.
"""

from __future__ import annotations

from . import hazards
from .hazards import Hazard


def code_hazard(
    message: str, help: str, severity: str = "error", plain: str = "", *, is_shell: bool = False
) -> Hazard:
    return Hazard("variable-in-code", message, help, severity, plain, is_shell)


MAKE_FIX = 'put it in the environment: `value=@ make …`, and write `"$$value"` in the recipe'
IN_RUNNING_CODE = code_hazard(
    "runs texts as code",
    "let the program print what it found, and run a fixed command with that in double quotes",
)
IN_SUBSCRIPT = code_hazard(
    "is in an array subscript, which bash evaluates and may run", "use a plain variable: `v=@`"
)

AS_NAME = code_hazard(
    "names a shell variable, and bash may run a subscript in a name",
    "write a fixed name; a value belongs after a `=`",
)

AS_FORMAT = code_hazard(
    "begins the format of `printf`, which may be `-v NAME[…]`, and bash may run a subscript in a name",
    "write a fixed format: `printf '%s' @`",
)

AS_NUMBER = code_hazard(
    "becomes a number, a list or a reference, which bash evaluates and may run",
    "write a plain assignment: `v=@`, or `v=(@)` for a list",
)

IN_ARITHMETIC_TEST = code_hazard(
    "is compared as a number inside `[[ … ]]`, where bash evaluates and may run it",
    "write `[ … ]`, which takes numbers only",
)

IN_ARITHMETIC = code_hazard(
    "is evaluated as arithmetic, where bash may run it as code", hazards.IN_ARITHMETIC.help
)

IN_NAME_TEST = code_hazard(
    "names a variable to be tested, and bash may run a subscript in a name", "write a fixed name"
)

EVALUATED = code_hazard(
    "is evaluated again by a shell here",
    'write fixed code: `export v=@` before it, and `"$v"` in the code, inside single quotes',
    is_shell=True,
)

AS_COMMAND = code_hazard("is a command to a program, which may run it as code", "write a fixed text here")

REMOTE = code_hazard(
    "is evaluated again by the remote shell",
    "send it on standard input instead: `printf '%s\\n' @ | ssh host 'read -r v; …'`",
)

IN_MAKE = code_hazard(
    "becomes a variable of make, which expands a `$` in it and may run it", MAKE_FIX, is_shell=True
)

RUN_BY_PROGRAM = code_hazard(
    "is a setting that programs run, or load code from",
    "write a fixed text; a value belongs in another variable",
    is_shell=True,
)

IN_GIT = code_hazard(
    "is part of a setting or a command that git runs",
    "write a fixed text; put the value in the environment or a file",
    is_shell=True,
)

IN_GIT_PULL = code_hazard(
    "may be an option of `git pull`, which ignores a `--`",
    "write `git fetch -- @` and `git merge FETCH_HEAD`",
)

COMMAND = code_hazard(
    "becomes the name of a command, or a whole command",
    "write the command's name, and the value after it as an argument",
    is_shell=True,
)

AS_OPTION = code_hazard(
    "may be an option that runs a command, such as `--to-command=…`",
    "write `--` before it, so that it is not read as an option",
)

AS_OPTIONS = code_hazard(
    "is split into words without double quotes, and these may be options that run a command",
    'write it in double quotes: `"$v"`',
)

RUN_BY_SHELL = code_hazard(
    "is run by every shell that starts",
    "write a fixed file; a value belongs in another variable",
    is_shell=True,
)
