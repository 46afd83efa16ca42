"""Parser of a tool's `command`: literal text and `${parameter}`.

A list is a program with its arguments, run without a shell: each item is one word, whatever the values
contain. A text is a shell command: each `${parameter}` is quoted for its context, and refused where no
quoting is safe (`shell/contexts.py`). `$${` is a literal `${`. A piece is a text, or `{"of": parameter}` for
a value, which `runtime/effects/tools/tool.py` inserts.
"""

from __future__ import annotations

from typing import Any

from ...ir.diagnostics import Diagnostic, suggest
from ...ir.python_internals import late_pattern
from ..shell.contexts import quoting_contexts
from ..shell.expansions import HOLE
from ..source.document import Document, Node, Scalar, Sequence
from .signature import Parameter

_VARIABLE = late_pattern(r"\$\$\{|\$\{(?P<name>[^\W\d][\w-]*)\}")
_OPENING = late_pattern(r"\$\{")


def argv_pieces(document: Document, node: Sequence, parameters: tuple[Parameter, ...]) -> list[list[Any]]:
    """The words of a command that is a list, each as pieces."""
    words = []
    for item in node.items:
        if not isinstance(item, Scalar) or item.value is None:
            document.fail("wrong-type", "a word of `command` must be a text", document.span(item), "not this")
            continue
        words.append(_split(document, item, item.text, parameters, is_shell=False))
    if not node.items:
        document.fail("empty-command", "`command` is empty", document.span(node))
    return words


def shell_pieces(document: Document, node: Node, text: str, parameters: tuple[Parameter, ...]) -> list[Any]:
    """The pieces of a command that is a text, each value with its quoting."""
    pieces = _split(document, node, text, parameters, is_shell=True)
    command = "".join(piece if isinstance(piece, str) else HOLE for piece in pieces)
    values = [piece for piece in pieces if isinstance(piece, dict)]
    for piece, place in zip(values, quoting_contexts(command, (True,) * len(values)), strict=True):
        name = piece["of"]
        piece["quoting"] = place.quoting or "word"
        if place.around:
            piece["around"] = list(place.around)
        if place.hazard is not None and place.quoting != "comment":
            hazard = place.hazard
            at = text.find(f"${{{name}}}")
            span = document.within(document.span(node), text, at, at + len(name) + 3)
            message = f"`${{{name}}}` {hazard.message}"
            help = hazard.help.replace("@", f"${{{name}}}")
            document.report(Diagnostic(hazard.id, message, span, "here", help, hazard.severity))
    return pieces


def _split(
    document: Document, node: Node, text: str, parameters: tuple[Parameter, ...], *, is_shell: bool
) -> list[Any]:
    """Split a text into pieces; reports names that are not parameters."""
    names = [parameter.name for parameter in parameters]
    pieces: list[Any] = []
    literal = ""
    at = 0
    for found in _VARIABLE.finditer(text):
        literal += _plain(document, node, text, at, found.start(), is_shell)
        at = found.end()
        name = found["name"]
        if name is None:
            literal += "${"
        elif name in names:
            if literal:
                pieces.append(literal)
            pieces.append({"of": name})
            literal = ""
        else:
            span = document.within(document.span(node), text, *found.span())
            help = suggest(name, names, "its parameters are") or "it declares no parameters"
            own = f"a variable of the shell is written `${name}`" if is_shell else "a literal `${` is `$${`"
            message = f"`${{{name}}}` is not a parameter of the tool"
            document.fail("unknown-parameter", message, span, "here", f"{help}; {own}")
    literal += _plain(document, node, text, at, len(text), is_shell)
    return [*pieces, literal] if literal or not pieces else pieces


def _plain(document: Document, node: Node, text: str, start: int, end: int, is_shell: bool) -> str:
    """Text without parameters. In a shell command `${…}` may belong to the shell; in a list it is an
    error.
    """
    part = text[start:end]
    opening = None if is_shell else _OPENING.search(part)
    if opening is not None:
        span = document.within(document.span(node), text, start + opening.start(), start + opening.end())
        document.fail(
            "malformed-variable",
            "not a parameter: `${`",
            span,
            "here",
            "write ${name}, or `$${` for a literal `${`",
        )
    return part
