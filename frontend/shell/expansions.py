"""Extent of the shell's own expansions: `${…}`, `((…))`, backticks, `$'…'`.

A variable inside one is refused, but the end of the expansion must be known to parse the text after it. Each
function takes the text, the offset to read from and the end of the readable text. It reports variables
through `refuse` and returns the offset after the expansion. Raises `UncertainParse` if the end is not
certain.
"""

from __future__ import annotations

from collections.abc import Callable

from ...ir.python_internals import late_pattern
from .hazards import IN_ANSI, IN_ARITHMETIC, IN_BACKTICKS, IN_PARAMETER, Hazard, UncertainParse

HOLE = "\0"
Refuse = Callable[[int, Hazard], None]

NAME = late_pattern(r"[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-]")
_ANSI = late_pattern(r"\$'(?:[^'\\]|\\[^'])*'")
_BACKTICKS = late_pattern(r"(?s:`(?:[^`\\]|\\.)*`)")
_BALANCED = late_pattern(r"(?s:(?:[^'\"\\]|\\.|'[^'\\]*'|\"(?:[^\"\\]|\\.)*\")*)")
_ARITHMETIC = late_pattern(r"[A-Za-z0-9_ \t\n+\-*/%<>=!&|^~?:,#.\[\]]+")
_PARAMETER_PLAIN = late_pattern(r"[^'\"\\`${}\0]+")
_PARAMETER_QUOTED = late_pattern(r"'[^'\"\\`$}\0]*'")
_PARAMETER_DOUBLE = late_pattern(r"\"[^'\"\\`$}\0]*\"")
_PARAMETER_ESCAPE = late_pattern(r"\\[A-Za-z0-9/.,:;*?+_ \-]")


def parameter(text: str, at: int, end: int, refuse: Refuse, *, is_quoted: bool) -> int:
    """Read from after a `${` of the shell. is_quoted: in double quotes or a here-document."""
    depth = 1
    while at < end:
        ch = text[at]
        if ch == HOLE:
            refuse(at, IN_PARAMETER)
            at += 1
        elif ch == "}":
            depth -= 1
            at += 1
            if depth == 0:
                return at
        elif ch == "$" and text.startswith("{", at + 1):
            depth += 1
            at += 2
        elif ch == "$" and text[at + 1 : at + 2] not in ("(", "'", '"', "[", "\\", "`", "$"):
            at += 1
        else:
            inside = _PARAMETER_PLAIN.match(text, at, end) or _PARAMETER_ESCAPE.match(text, at, end)
            inside = inside or _PARAMETER_QUOTED.match(text, at, end)
            if inside is None and not is_quoted:
                inside = _PARAMETER_DOUBLE.match(text, at, end)
            if inside is None:
                break
            at = inside.end()
    raise UncertainParse("a `${…}` of the shell with quotes or commands inside")


def arithmetic(text: str, at: int, end: int, refuse: Refuse, *, is_for: bool = False) -> int:
    """Read from after a `((`. is_for: in a `for ((…; …; …))`."""
    depth = 0
    while at < end:
        ch = text[at]
        if ch == HOLE:
            refuse(at, IN_ARITHMETIC)
            at += 1
        elif ch == "(":
            depth += 1
            at += 1
        elif ch == ")" and depth:
            depth -= 1
            at += 1
        elif ch == ")" and text.startswith(")", at + 1):
            return at + 2
        elif ch == "$" and text.startswith("{", at + 1):
            at = parameter(text, at + 2, end, refuse, is_quoted=True)
        elif ch == "$" and (name := NAME.match(text, at + 1, end)):
            at = name.end()
        elif ch == ";" and is_for and not depth:
            at += 1
        elif inside := _ARITHMETIC.match(text, at, end):
            at = inside.end()
        else:
            break
    raise UncertainParse("a `((` that is not plain arithmetic (`( (` begins a subshell)")


def backticks(text: str, at: int, end: int, refuse: Refuse) -> int:
    """Read from a backtick."""
    found = _BACKTICKS.match(text, at, end)
    if found is None:
        raise UncertainParse("backticks that do not end")
    _refuse_all(found[0], at, refuse, IN_BACKTICKS)
    inside = found[0][1:-1]
    if "<<" in inside or _BALANCED.fullmatch(inside) is None:
        raise UncertainParse("backticks with unbalanced quotes or a here-document inside")
    return found.end()


def ansi(text: str, at: int, end: int, refuse: Refuse) -> int:
    """Read from the `$` of a `$'…'`. Bash processes escapes in it; sh reads a `$` followed by `'…'`."""
    found = _ANSI.match(text, at, end)
    if found is None:
        raise UncertainParse("a `$'…'` that bash and sh end at different places")
    _refuse_all(found[0], at, refuse, IN_ANSI)
    return found.end()


def _refuse_all(inside: str, start: int, refuse: Refuse, hazard: Hazard) -> None:
    for offset, ch in enumerate(inside):
        if ch == HOLE:
            refuse(start + offset, hazard)
