"""Quoting of values so that a shell reads them back unchanged.

Within single quotes a shell gives no character a special meaning except the single quote itself. A value is
therefore always placed in single quotes, and each `'` in it ends the quotes, adds one escaped quote, and
starts them again. A bare word is always quoted, because text that is harmless alone can be a reserved word, a
tilde, an assignment or a file descriptor in its context. A place inside double quotes ends and restarts them:
backslashes do not protect text after `$` or `$NAME`, and in some character sets the byte of a backslash is
the end of another character.

Must not contain: the classification of places in a command (`frontend/shell/contexts.py`).
"""

from __future__ import annotations

from ..values.faults import PrimitiveFault
from ..values.values import show
from .operands import string
from .strings import text as text_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Value = Any


def shell_single(text: str) -> str:
    """Quote for a place inside `'…'`."""
    return _sendable(text).replace("'", "'\\''")


def shell_word(text: str) -> str:
    """Quote for a place outside quotes; the result is always exactly one word, or part of one."""
    return f"'{shell_single(text)}'"


def shell_double(text: str) -> str:
    """Quote for a place inside `"…"`."""
    return f"\"'{shell_single(text)}'\""


def shell_heredoc(text: str) -> str:
    """Quote for the text of a here-document with an unquoted delimiter.

    `${0+}` expands to nothing. At the start of each line it prevents the line from being the
    delimiter, and prevents `<<-` from stripping its tabs.
    """
    text = _sendable(text)
    for special in ("\\", "$", "`"):
        text = text.replace(special, "\\" + special)
    return "${0+}" + text.replace("\n", "\n${0+}")


def shell_quoted_heredoc(text: str, delimiter: str, before: str | None, after: str | None) -> str:
    """Check a value for a here-document with a quoted delimiter; the text is used as it is, without escapes.

    before, after: the rest of the first and of the last line; None if another, unknown value is there. Raises
    `PrimitiveFault` if a line could be the delimiter, or if dash 0.5.12 would lose a byte of a line: it reads
    a line as long as it equals the delimiter, and drops the next byte if it is not ASCII.
    """
    lines = _sendable(text).split("\n")
    last = len(lines) - 1
    for index, line in enumerate(lines):
        is_open = (index == 0 and before is None) or (index == last and after is None)
        whole = (before or "" if index == 0 else "") + line + (after or "" if index == last else "")
        if whole == delimiter or (is_open and whole and whole in delimiter):
            message = f"a line of this value could be the delimiter `{delimiter}` of its here-document"
            raise PrimitiveFault("unsendable-text", f"{message}; use a word that no value has")
        alike = next((n for n in range(len(delimiter), 0, -1) if whole.startswith(delimiter[:n])), 0)
        if alike and not whole[alike : alike + 1].isascii():
            message = f"a line of this value begins like the delimiter `{delimiter}` of its here-document"
            message += ", where some shells lose a byte; use a word that no value begins like"
            raise PrimitiveFault("unsendable-text", message)
    return text


def shell_number(value: Value) -> str:
    """The digits of an integer, for a place where quoting is impossible. Raises `PrimitiveFault`."""
    digits = text_of(value) if type(value) is int or type(value) is str else ""
    if not (digits.isascii() and digits.removeprefix("-").isdecimal()):
        message = f"only a whole number can stand here in a shell action, not {show(value)}"
        raise PrimitiveFault("not-a-number", message)
    return digits


_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:@%+,=-")


def shell_plain(value: Value, blanks: Value) -> str:
    """Check a text for a place that is code: it must have no meaning there. Raises `PrimitiveFault`."""
    text = text_of(value)
    other = next((char for char in text if char not in _PLAIN and char not in string(blanks)), None)
    if other is not None:
        message = f"this value becomes a part of code, where it cannot have {show(other)}"
        raise PrimitiveFault("unsendable-text", message)
    return text


def _sendable(text: str) -> str:
    """The text, if it can be passed to a program: without NUL, and encodable."""
    if "\0" in text:
        raise PrimitiveFault("unsendable-text", "a text with a NUL character cannot be given to a program")
    if not text.isascii():
        try:
            # `surrogateescape` turns the surrogate of an undecodable byte back into the byte; other
            # surrogates have no encoding.
            text.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            message = "a text with half a surrogate pair cannot be given to a program"
            raise PrimitiveFault("unsendable-text", message) from None
    return text


def _of_text(quote: Callable[[str], str]) -> Callable[[Value], str]:
    """A primitive that quotes the text of a value."""
    return lambda value: quote(text_of(value))


def _quoted_heredoc(value: Value, delimiter: Value, before: Value, after: Value) -> str:
    parts = (part if part is None else string(part) for part in (before, after))
    return shell_quoted_heredoc(text_of(value), string(delimiter), *parts)


HANDLERS: dict[str, Callable[..., Value]] = {
    "shell_word": _of_text(shell_word),
    "shell_single": _of_text(shell_single),
    "shell_double": _of_text(shell_double),
    "shell_heredoc": _of_text(shell_heredoc),
    "shell_quoted_heredoc": _quoted_heredoc,
    "shell_plain": shell_plain,
    "shell_number": shell_number,
}
