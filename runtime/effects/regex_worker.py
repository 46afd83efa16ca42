"""Helper process of `regex`: Python's `re`, restricted to the syntax of RE2, with limited memory."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from ..host import signals
from ..models.helper_process import MAX_MESSAGE, serve

# Limit of the address space, in bytes.
MEMORY = 1 << 30
# Maximum repetition count of RE2.
_MAX_REPETITIONS = 1000
_POSIX = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "ascii": r"\x00-\x7f", "blank": r"\t ",
    "cntrl": r"\x00-\x1f\x7f", "digit": "0-9", "graph": "!-~", "lower": "a-z", "print": " -~",
    "punct": r"!-/:-@\[-`{-~", "space": r"\t\n\v\f\r ", "upper": "A-Z",
    "word": "0-9A-Za-z_", "xdigit": "0-9A-Fa-f",
}  # fmt: skip
# A token of a pattern: an escape, a class, the start of a group, a repetition, or one character.
_PIECE = re.compile(
    r"\\(?:x\{[0-9a-fA-F]+\}|.)|\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^]\\])*\]|\(\?(?:P?<\w+>|P.|[a-zA-Z-]*[:)]|.{1,2})"
    r"|(?:[*+?]|\{\d+(?:,\d*)?\})[+?]?|.",
    re.DOTALL,
)
_CLASS_PIECE = re.compile(r"\[:(\^?)(\w+):\]|\\x\{([0-9a-fA-F]+)\}|\\.|.", re.DOTALL)
# Escapes with the same meaning in both syntaxes; all other escapes with a letter are rejected.
_ESCAPES = frozenset("AbBdDsSwWafnrtvx01234567")


def main() -> None:
    serve(answer, MEMORY)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The bounds of at most `max_matches` matches, in bytes; without a text, only check the pattern."""
    # Ends an endless match if the run is killed.
    signals.setitimer(signals.ITIMER_REAL, request["limit"] + 1)
    try:
        expression = _compiled(request["pattern"])
        if request["text"] is None:
            return {"matches": []}
        return {"matches": _matches(expression, request["text"], request["max_matches"])}
    except (ValueError, re.error, OverflowError, RecursionError) as error:
        return {"error": str(error)[:MAX_MESSAGE]}
    except MemoryError:
        return {
            "error": "without RE2, a match may take 1 GiB of memory, and this one needs more",
            "limit": True,
        }
    finally:
        signals.setitimer(signals.ITIMER_REAL, 0)


def _matches(expression: re.Pattern[str], text: str, max_matches: int | None) -> list[list[list[int] | None]]:
    matches: list[list[list[int] | None]] = []
    # Character index of the last match, and its byte offset.
    characters = offset = 0
    position, match = 0, expression.search(text)
    while match is not None:
        offset += len(text[characters : match.start()].encode())
        characters = match.start()
        row: list[list[int] | None] = []
        for start, end in match.regs:
            start_offset = offset + len(text[characters:start].encode())
            row.append(None if start < 0 else [start_offset, start_offset + len(text[start:end].encode())])
        matches.append(row)
        if len(matches) == max_matches:
            break
        # Continue like RE2's binding, which differs from Python's `finditer` after an empty match.
        position = match.end() if match.end() > position else position + 1
        match = expression.search(text, position) if position <= len(text) else None
    return matches


@lru_cache(maxsize=64)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(translated(pattern), re.ASCII)


def translated(pattern: str) -> str:
    r"""Translate an RE2 pattern to Python's syntax. Raises ValueError for syntax that is not in both.

    In RE2, `$` matches only at the end of the text; in Python, it also matches before a final newline.
    """
    parts = []
    lines = re.search(r"\(\?[a-zA-Z]*m", pattern) is not None
    for piece in _PIECE.findall(pattern):
        if piece == "$":
            parts.append("$" if lines else r"\Z")
        elif piece == r"\z":
            parts.append(r"\Z")
        elif piece[0] == "\\":
            parts.append(_escape(piece))
        elif piece[0] == "[" and len(piece) > 1:
            parts.append(_class(piece))
        elif piece[:2] == "(?":
            parts.append(_group(piece))
        else:
            if piece[-1] == "+" and piece[0] in "*+?{" and len(piece) > 1:
                raise ValueError(f"invalid repetition: {piece}")
            if piece[0] == "{" and any(
                int(number) > _MAX_REPETITIONS for number in re.findall(r"\d+", piece)
            ):
                raise ValueError(f"invalid repetition size: {piece}")
            parts.append("\\{" if piece == "{" else piece)
    return "".join(parts)


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
        return piece  # Python accepts flags only at the start and reports other positions
    raise ValueError(
        f"invalid perl operator: {piece}"
        if piece[2:3] in "=!<>P(#"
        else f"`{piece}` needs RE2, which is not installed"
    )
