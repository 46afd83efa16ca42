"""Plain scalars of YAML 1.2's core schema: the typed value of a text without quotes.

Shared by the YAML reader and by the options that set variables (`--context K=V`), so that a value means
the same in a file and on the command line.
"""

from __future__ import annotations

from .python_internals import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
_NUMBER = (  # compiled when it is first needed
    r"(?P<int>[-+]?[0-9]+)|0o(?P<octal>[0-7]+)|0x(?P<hex>[0-9a-fA-F]+)"
    r"|(?P<float>[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?)"
)
# Python refuses to read longer integers in decimal (sys.set_int_max_str_digits).
MAX_DIGITS = 4000


def read_scalar(text: str) -> Any:
    """The value of a plain scalar. Raises ValueError for a number with too many digits."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    match = re.fullmatch(_NUMBER, text)
    if match is None:
        return text
    if len(text) > MAX_DIGITS:
        raise ValueError("a number is too long")
    if match["int"] is not None:
        return int(text)
    if match["octal"] is not None:
        return int(match["octal"], 8)
    if match["hex"] is not None:
        return int(match["hex"], 16)
    return float(text)


def scalar_or_text(text: str) -> Any:
    """The value of a plain scalar; the text itself for a number with too many digits."""
    try:
        return read_scalar(text)
    except ValueError:
        return text
