"""Values as text that a shell reads back unchanged.

One idea carries three of the places: between single quotes a shell gives no character a meaning but
the single quote itself, so a value is always in single quotes and every `'` in it leaves them
for one escaped quote. A bare word is quoted even where it need not be, because what is harmless
alone may be a reserved word, a tilde, an assignment or a file descriptor where it stands; a place
inside double quotes is left and entered again, because behind a `$` or `$NAME` backslashes would not
do, and in some character sets the byte of a backslash is the end of another character.

Must not contain: the place of a value in a command (`frontend/shell/contexts.py`).
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
    """For a place inside `'…'`."""
    return _sendable(text).replace("'", "'\\''")


def shell_word(text: str) -> str:
    """For a place outside quotes; always exactly one word, or part of one."""
    return f"'{shell_single(text)}'"


def shell_double(text: str) -> str:
    """For a place inside `"…"`."""
    return f"\"'{shell_single(text)}'\""


def shell_heredoc(text: str) -> str:
    """For the text of a here-document whose delimiter is not quoted.

    `${0+}` expands to nothing. At the start of each line it keeps a value from being the line that
    ends the document, and its tabs from being stripped by `<<-`.
    """
    text = _sendable(text)
    for special in ("\\", "$", "`"):
        text = text.replace(special, "\\" + special)
    return "${0+}" + text.replace("\n", "\n${0+}")


def shell_quoted_heredoc(text: str, delimiter: str, before: str | None, after: str | None) -> str:
    """For the text of a here-document whose delimiter is quoted: as it is, for nothing can be escaped.

    before, after: the rest of its first and last line; None where another value is, which may be anything.
    Raises `PrimitiveFault` if a line could be the delimiter, or is one of which dash 0.5.12 loses a byte:
    it reads a line as far as it is like the delimiter, and forgets the byte after that if it is not ASCII.
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
    """For a place where nothing can be quoted: a whole number's digits. Raises `PrimitiveFault`."""
    digits = text_of(value) if type(value) is int or type(value) is str else ""
    if not (digits.isascii() and digits.removeprefix("-").isdecimal()):
        message = f"only a whole number can stand here in a shell action, not {show(value)}"
        raise PrimitiveFault("not-a-number", message)
    return digits


_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:@%+,=-")


def shell_plain(value: Value, blanks: Value) -> str:
    """For a place that is code: a text that means nothing in it. Raises `PrimitiveFault`."""
    text = text_of(value)
    other = next((char for char in text if char not in _PLAIN and char not in string(blanks)), None)
    if other is not None:
        message = f"this value becomes a part of code, where it cannot have {show(other)}"
        raise PrimitiveFault("unsendable-text", message)
    return text


def _sendable(text: str) -> str:
    """The text, if a program can be given it: no NUL, and every character has bytes."""
    if "\0" in text:
        raise PrimitiveFault("unsendable-text", "a text with a NUL character cannot be given to a program")
    if not text.isascii():
        try:
            # A surrogate of an undecodable byte becomes that byte again; other surrogates have none.
            text.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            message = "a text with half a surrogate pair cannot be given to a program"
            raise PrimitiveFault("unsendable-text", message) from None
    return text


def _of_text(quote: Callable[[str], str]) -> Callable[[Value], str]:
    """The primitive that quotes the text of a value."""
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
