"""The helper process of `regex`: Python's `re`, restricted to what RE2 has too, with a bound on memory."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from ..host import signals
from ..models.helper_process import MAX_MESSAGE, serve

# Bytes of address space.
MEMORY = 1 << 30
# The most repetitions that RE2 allows.
_MOST = 1000
_POSIX = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "ascii": r"\x00-\x7f", "blank": r"\t ",
    "cntrl": r"\x00-\x1f\x7f", "digit": "0-9", "graph": "!-~", "lower": "a-z", "print": " -~",
    "punct": r"!-/:-@\[-`{-~", "space": r"\t\n\v\f\r ", "upper": "A-Z",
    "word": "0-9A-Za-z_", "xdigit": "0-9A-Fa-f",
}  # fmt: skip
# A piece of a pattern: an escape, a class, a group's beginning, a repetition, or one character.
_PIECE = re.compile(
    r"\\(?:x\{[0-9a-fA-F]+\}|.)|\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^]\\])*\]|\(\?(?:P?<\w+>|P.|[a-zA-Z-]*[:)]|.{1,2})"
    r"|(?:[*+?]|\{\d+(?:,\d*)?\})[+?]?|.",
    re.DOTALL,
)
_CLASS_PIECE = re.compile(r"\[:(\^?)(\w+):\]|\\x\{([0-9a-fA-F]+)\}|\\.|.", re.DOTALL)
# Escapes that mean the same in both; all others with a letter are refused.
_ESCAPES = frozenset("AbBdDsSwWafnrtvx01234567")


def main() -> None:
    serve(answer, MEMORY)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The bounds of the matches in bytes, `most` at most; without a text, whether the pattern is one."""
    # Ends an endless match if the run is killed meanwhile.
    signals.setitimer(signals.ITIMER_REAL, request["limit"] + 1)
    try:
        expression = _compiled(request["pattern"])
        if request["text"] is None:
            return {"matches": []}
        return {"matches": _matches(expression, request["text"], request["most"])}
    except (ValueError, re.error, OverflowError, RecursionError) as error:
        return {"error": str(error)[:MAX_MESSAGE]}
    except MemoryError:
        return {
            "error": "without RE2, a match may take 1 GiB of memory, and this one needs more",
            "limit": True,
        }
    finally:
        signals.setitimer(signals.ITIMER_REAL, 0)


def _matches(expression: re.Pattern[str], text: str, most: int | None) -> list[list[list[int] | None]]:
    found: list[list[list[int] | None]] = []
    characters = at = 0
    position, match = 0, expression.search(text)
    while match is not None:
        at += len(text[characters : match.start()].encode())
        characters = match.start()
        row: list[list[int] | None] = []
        for begin, end in match.regs:
            begin_at = at + len(text[characters:begin].encode())
            row.append(None if begin < 0 else [begin_at, begin_at + len(text[begin:end].encode())])
        found.append(row)
        if len(found) == most:
            break
        # As RE2's binding continues, which differs from Python's `finditer` after an empty match.
        position = match.end() if match.end() > position else position + 1
        match = expression.search(text, position) if position <= len(text) else None
    return found


@lru_cache(maxsize=64)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(translated(pattern), re.ASCII)


def translated(pattern: str) -> str:
    r"""The pattern in Python's syntax. Raises ValueError for what one of the two does not have.

    `$` is the end of the text there, and in Python it would also match before a final newline.
    """
    made = []
    lines = re.search(r"\(\?[a-zA-Z]*m", pattern) is not None
    for piece in _PIECE.findall(pattern):
        if piece == "$":
            made.append("$" if lines else r"\Z")
        elif piece == r"\z":
            made.append(r"\Z")
        elif piece[0] == "\\":
            made.append(_escape(piece))
        elif piece[0] == "[" and len(piece) > 1:
            made.append(_class(piece))
        elif piece[:2] == "(?":
            made.append(_group(piece))
        else:
            if piece[-1] == "+" and piece[0] in "*+?{" and len(piece) > 1:
                raise ValueError(f"invalid repetition: {piece}")
            if piece[0] == "{" and any(int(number) > _MOST for number in re.findall(r"\d+", piece)):
                raise ValueError(f"invalid repetition size: {piece}")
            made.append("\\{" if piece == "{" else piece)
    return "".join(made)


def _escape(piece: str) -> str:
    letter = piece[1:2]
    if not letter:
        raise ValueError("trailing \\")
    if piece.startswith(r"\x{"):
        return re.escape(_character(piece[3:-1]))
    if letter in "123456789":
        raise ValueError(f"invalid escape sequence: {piece}")
    if letter.isascii() and letter.isalnum() and letter not in _ESCAPES:
        raise ValueError(f"`{piece}` needs RE2, which is not installed")
    return piece if letter.isalnum() else re.escape(letter)


def _character(digits: str) -> str:
    if int(digits, 16) > 0x10FFFF:
        raise ValueError(f"invalid escape sequence: \\x{{{digits}}}")
    return chr(int(digits, 16))


def _class(piece: str) -> str:
    begin = 2 if piece[1] == "^" else 1
    made = [piece[:begin]]
    for match in _CLASS_PIECE.finditer(piece, begin, len(piece) - 1):
        negated, name, digits = match.groups()
        text = match[0]
        if name is not None:
            if negated or name not in _POSIX:
                raise ValueError(
                    f"`{text}` " + ("needs RE2, which is not installed" if negated else "is no class")
                )
            made.append(_POSIX[name])
        elif digits is not None:
            made.append(re.escape(_character(digits)))
        elif text[0] == "\\":
            made.append(_escape(text))
        else:
            made.append("\\" + text if text in "[&~|]" else text)
    return "".join(made) + "]"


def _group(piece: str) -> str:
    if re.fullmatch(r"\(\?P<\w+>|\(\?[ims]*(?:-[ims]+)?:", piece):
        return piece
    if re.fullmatch(r"\(\?<\w+>", piece):
        return "(?P" + piece[2:]
    if re.fullmatch(r"\(\?[ims]+\)", piece):
        return piece  # Python accepts it at the beginning only, and says so
    raise ValueError(
        f"invalid perl operator: {piece}"
        if piece[2:3] in "=!<>P(#"
        else f"`{piece}` needs RE2, which is not installed"
    )
