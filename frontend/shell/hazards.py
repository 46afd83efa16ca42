"""Hazards of variables in shell commands, with messages and help.

`contexts` and `interpreters` decide where they apply.
"""

from __future__ import annotations

from ...ir.diagnostics import DiagnosticId
from ...ir.records import frozen


@frozen
class Hazard:
    """A reason why a variable is unsafe at its place. `@` in `help` is replaced by the variable.

    plain: white space that a value may contain, besides safe characters (`shell_plain`), to be safe here;
        None: no value is safe.
    is_shell: a shell evaluates the text here, so a fixed text is code too.
    """

    id: DiagnosticId
    message: str
    help: str
    severity: str = "error"
    plain: str | None = ""
    is_shell: bool = False


class UncertainParse(Exception):
    """The text after `what` cannot be parsed with certainty.

    is_unended: the construct is not closed at the end of the text, so the shell would reject the command.
    """

    def __init__(self, what: str, *, is_unended: bool = False) -> None:
        self.what = what
        self.is_unended = is_unended


def _refusal(message: str, help: str, plain: str | None = "") -> Hazard:
    return Hazard("unquotable-variable", message, help, plain=plain)


_VARIABLE_FIRST = 'put it in a shell variable on a line before: `v=@`, then use `"$v"` here'

UNCLEAR = _refusal("where its quoting is not certain", _VARIABLE_FIRST)
AFTER_BACKSLASH = _refusal(
    "follows a backslash, which would undo its quoting",
    "remove the backslash; for a literal `${` write `$${`",
    None,
)
AFTER_DOLLAR = _refusal(
    "follows a `$`, which would change the quotes put around it",
    "write `'$'` for a dollar sign before it",
    None,
)
IN_PARAMETER = _refusal(
    "is inside the shell's own `${…}`, where quotes mean different things in different shells",
    "put it in a shell variable first: `v=@`, then use `$v` inside the `${…}`",
)
IN_BACKTICKS = _refusal(
    "is inside backticks, which process quotes twice", "write `$( … )` instead of backticks"
)
IN_ARITHMETIC = _refusal(
    "is in arithmetic, where bash may run the value as code",
    "compare with `[ @ -gt 0 ]`, or give it to a program such as `expr` as an argument",
    " \n",
)
IN_ANSI = _refusal("is inside `$'…'`, where backslashes are escapes", "end the `$'…'` before it: `$'\\t'@`")
IN_STRIPPED_HEREDOC = _refusal(
    "is in a here-document that begins with `<<-` and a quoted delimiter, where its tabs would be removed",
    "write `<<` instead of `<<-`",
)
IN_HEREDOC_COMMAND = _refusal(
    "is in a command inside a here-document, or in a here-document inside `$( … )`",
    'put it in a shell variable first: `v=@`, then use `"$v"` here',
)
IN_DUPLICATION = _refusal(
    "is the target of `>&`, which bash expands twice", "write `> @ 2>&1` to send both outputs to a file"
)
UNENDED = _refusal(
    "is in a command with @ left open at its end", "close it; the shell would refuse the command", None
)
NEAR_DELIMITER = _refusal(
    "is on a line of a here-document that would end it if its values were empty",
    "use another word for the delimiter",
    None,
)
LIKE_DELIMITER = _refusal(
    "is on a line of a here-document that would begin like its delimiter if other values were empty",
    "use another word for the delimiter",
    None,
)
IN_DELIMITER = _refusal("is the delimiter of a here-document", "write a fixed word such as EOF", None)
