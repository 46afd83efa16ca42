"""Lexer of S-expressions: text to tokens, and tokens to atoms; `spec/syntax.md`.

The tokens of a text, including blanks and comments, join to the text again, so a token's offset is
the length of the tokens before it. Must not contain: brackets and nesting.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from ...ir.constants import Symbol
from ...ir.diagnostics import DiagnosticId
from ...ir.scalars import MAX_DIGITS
from ...ir.spelling import CURLY, ENDS, NUMERIC
from .datum import Value

# Maximum number of diagnostics for one token.
MAX_PROBLEMS = 100

TOKEN = re.compile(
    rf"""
      [ \t\n\r\f]++
    | [()\[\]{{}}]
    | [^{ENDS}\#][^{ENDS}]*+
    | "[^"\\]*+(?:\\.[^"\\]*+)*+"
    | ;[^\n\r]*+
    | ,@? | ['`]
    | \#[;|]
    | (?<![^\n])\#\ [^\n\r]*+
    | \#[^{ENDS}]*+
    | \|[^|\\\n\r]*+(?:\\[^\n\r][^|\\\n\r]*+)*+\|?
    | "[^"\\]*+(?:\\.[^"\\]*+)*+\\?
    | .
    """,
    re.VERBOSE | re.DOTALL,
)
COMMENT_EDGE = re.compile(r"#\||\|#")
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)

QUOTES = {"'": "quote", "`": "quasiquote", ",": "unquote", ",@": "unquote-splicing"}
CLOSERS = {"(": ")", "[": "]", "{": "}"}
# Words with a value, which are not symbols. `nil` is the empty list.
WORDS: dict[str, bool | float | None] = {
    "null": None,
    "true": True,
    "false": False,
    "+inf.0": math.inf,
    "-inf.0": -math.inf,
    "+nan.0": math.nan,
    "-nan.0": math.nan,
}


class Problem(Exception):
    """An error in a token; `start` and `end` are offsets in the token."""

    def __init__(
        self, id: DiagnosticId, message: str, start: int, end: int, label: str = "", help: str = ""
    ) -> None:
        super().__init__(message)
        self.id = id
        self.start = start
        self.end = end
        self.label = label
        self.help = help or None


def split(text: str, start: int = 0) -> list[str]:
    """Split `text` into tokens, from an offset on."""
    tokens = []
    if not start and text.startswith("#!"):
        start = len(text.partition("\n")[0])
        tokens.append(text[:start])
    while text.find("#|", start) >= 0:
        # A regular expression cannot match nested comments: continue after the comment.
        for match in TOKEN.finditer(text, start):
            if match[0] == "#|":
                start = _comment_end(text, match.start()) or len(text)
                tokens.append(text[match.start() : start])
                break
            tokens.append(match[0])
        else:
            return tokens
    return [*tokens, *TOKEN.findall(text, start)] if tokens else TOKEN.findall(text, start)


def _comment_end(text: str, start: int) -> int:
    """Return the offset after the block comment at `start`; 0 if it is unterminated."""
    depth = 0
    for edge in COMMENT_EDGE.finditer(text, start):
        depth += 1 if edge[0] == "#|" else -1
        if not depth:
            return edge.end()
    return 0


class Token(NamedTuple):
    """A token with its kind, one of `KINDS`, and its offset."""

    kind: str
    text: str
    start: int


KINDS = ("blank", "open", "close", "prefix", "atom", "comment", "block-comment", "datum-comment", "bad")


def kind_of(token: str) -> str:
    """The kind of a token, one of `KINDS`. `bad`: not allowed anywhere; a malformed atom is an atom."""
    first = token[0]
    if first in " \t\n\r\f":
        return "blank"
    if first in "([{":
        return "open"
    if first in ")]}":
        return "close"
    if first in "'`,":
        return "prefix"
    if first == ";":
        return "comment"
    if first == "#" and len(token) > 1:
        if token[1] == ";":
            return "datum-comment"
        if token[1] == "|":
            return "block-comment"
        if token[1] == "!":
            return "comment"
    if first == "\\" or (len(token) == 1 and re.match(r"[\s\x00-\x1f\x7f]", token)):
        return "bad"
    return "atom"


def is_closed_comment(token: str) -> bool:
    """Whether a block comment is terminated."""
    return _comment_end(token, 0) == len(token)


def is_closed_string(token: str) -> bool:
    return _STRING.fullmatch(token) is not None


# --- words ------------------------------------------------------------------------------------

_DIGITS = r"[0-9]++(?:_[0-9]++)*+"
_INTEGER = re.compile(rf"[-+]?{_DIGITS}")
_FLOAT = re.compile(rf"[-+]?(?:{_DIGITS}(?:\.(?:{_DIGITS})?|(?=[eE]))|\.{_DIGITS})(?:[eE][-+]?{_DIGITS})?")
_CURLY = re.compile(f"[{CURLY}]")
# Help for `#`, by the next character: the meaning of `#` with it in other languages.
_AFTER_HASH = {
    "(": "write a list of values as '(a b) or (list a b), a function as (lambda (x) …)",
    "'": "write the name of a function without a mark: (map abs list)",
    "\\": 'there is no character type; write a string: "a"',
    "{": "there is no set type; (unique list) is a list without duplicates",
    '"': "write (regex-match pattern string), with the pattern as a string",
}
_SCHEME = {"#t": "true", "#f": "false", "#true": "true", "#false": "false"}


def read_word(token: str, following: str = "") -> Value:
    """Return the value of a word other than `nil` and `.`. Raises `Problem` if it is neither number nor
    symbol.

    following: the next character, for the help.
    """
    if token in WORDS:
        return WORDS[token]
    first = token[0]
    if first == "|":
        return _read_barred(token)
    if NUMERIC.match(token):
        return _read_number(token)
    if first == "#":
        raise _unknown_hash(token, following)
    if not token.isascii():
        _refuse_characters(token)
    return Symbol(token)


def _read_number(token: str) -> int | float:
    whole = len(token)
    is_integer = _INTEGER.fullmatch(token)
    if not is_integer and not _FLOAT.fullmatch(token):
        raise Problem("bad-number", f"`{_short(token)}` is not a number", 0, whole, "", _number_help(token))
    if whole > MAX_DIGITS:
        raise Problem("bad-number", f"a number may have at most {MAX_DIGITS:,} digits", 0, whole)
    if is_integer:
        return int(token)
    value = float(token)
    if math.isinf(value):
        help = f"write infinity as {'-' if value < 0 else '+'}inf.0"
        raise Problem("bad-number", f"`{_short(token)}` is larger than the largest float", 0, whole, "", help)
    return value


def _number_help(token: str) -> str:
    short = _short(token)
    if match := re.fullmatch(r"([-+]?\d+)/(\d+)", token, re.ASCII):
        return f"there are no fractions; write a division: (/ {_short(match[1])} {_short(match[2])})"
    if re.fullmatch(r"[-+]?0[xX][0-9a-fA-F]{1,16}", token):
        return f"numbers are decimal: write {int(token, 16)}"
    return f'write a string in quotes, "{short}", and a symbol that begins like a number in bars, |{short}|'


def _unknown_hash(token: str, following: str) -> Problem:
    short = _short(token)
    if token in _SCHEME:
        return Problem(
            "bad-symbol", f"`{short}` is a word of Scheme", 0, len(token), "", f"write {_SCHEME[token]}"
        )
    if token.startswith("# "):
        return Problem("bad-symbol", "`#` does not begin a comment", 0, 1, "", "write a comment after `;`")
    if token == "#":
        help = _AFTER_HASH.get(following, "write a comment after `;`")
    else:
        help = (
            f"`#` begins only the comments `#|…|#` and `#;`; write a symbol with `#` between bars: |{short}|"
        )
    return Problem("bad-symbol", f"`{short}` is not a symbol", 0, len(token), "", help)


def _refuse_characters(token: str) -> None:
    if match := _CURLY.search(token):
        help = "write \" around a string and ' to quote a datum"
        raise Problem(
            "stray-quote", f"`{match[0]}` is not a quotation mark of the language", *match.span(), "", help
        )
    for at, character in enumerate(token):
        if not character.isprintable():
            raise _unfit(character, at)


def _unfit(character: str, at: int = 0) -> Problem:
    code = f"U+{ord(character):04X}"
    return Problem("bad-character", f"the invisible character {code} is not allowed here", at, at + 1)


def bad_character(token: str) -> Problem:
    """Return the error for a token of kind `bad`."""
    if token == "\\":
        help = "a backslash is an escape only in strings"
        return Problem("bad-character", "`\\` is not allowed here", 0, 1, "", help)
    problem = _unfit(token)
    if token.isspace():
        problem.help = "replace it with a space"
    return problem


def _short(token: str) -> str:
    return token if len(token) <= 40 else f"{token[:30]}…"


# --- contents of strings and barred symbols ---------------------------------------------------

_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.|$)", re.DOTALL)
_UNFIT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_LETTERS = {'"': '"', "\\": "\\", "n": "\n", "t": "\t", "r": "\r", "|": "|"}
_ESCAPES = '\\" \\\\ \\n \\t \\r \\u0041'


def read_string(token: str, problems: list[Problem]) -> str:
    """Return the text of a string token; append its errors to `problems`."""
    body = token[1:-1] if is_closed_string(token) else token[1:]
    return _unescape(body, problems)


def _read_barred(token: str) -> Symbol:
    if len(token) < 2 or not token.endswith("|") or re.search(r"(?<!\\)(?:\\\\)*\\\|\Z", token):
        help = "close the symbol in the same line: |a b|"
        raise Problem("unterminated-symbol", "this `|` is never closed", 0, 1, "begins here", help)
    problems: list[Problem] = []
    name = _unescape(token[1:-1], problems)
    if problems:
        raise problems[0]
    return Symbol(name)


def _unescape(body: str, problems: list[Problem]) -> str:
    """Replace the escapes in `body`. Offsets in `problems` are those in the token, which begins one character
    earlier.
    """
    for match in _UNFIT.finditer(body):
        character = match[0]
        at = match.start() + 1
        message = f"the invisible character U+{ord(character):04X} is not allowed in a string"
        problems.append(Problem("bad-character", message, at, at + 1, "", f"write \\u{ord(character):04x}"))
        if len(problems) > MAX_PROBLEMS:
            break
    if "\\" not in body:
        return _with_line_ends(body)
    out = []
    end = 0
    half = ""  # first escape of a surrogate pair, as hexadecimal digits
    for match in _ESCAPE.finditer(body):
        out.append(_with_line_ends(body[end : match.start()]))
        escape = match[1]
        is_joined = bool(half) and match.start() == end
        end = match.end()
        if len(escape) == 5:
            code = int(escape[1:], 16)
            if is_joined and 0xDC00 <= code < 0xE000:
                out[-2:] = [chr(0x10000 + ((int(half, 16) - 0xD800) << 10) + code - 0xDC00)]
                half = ""
                continue
            half = escape[1:] if 0xD800 <= code < 0xDC00 else ""
            out.append(chr(code))
            continue
        half = ""
        letter = _LETTERS.get(escape)
        # An unterminated string may end in a backslash; its missing end is already reported.
        if letter is None and escape and len(problems) <= MAX_PROBLEMS:
            problems.append(_bad_escape(escape, match.start() + 1, match.end() + 1))
        out.append(letter or escape)
    out.append(_with_line_ends(body[end:]))
    return "".join(out)


def _with_line_ends(text: str) -> str:
    """Convert line ends to line feeds, so that a string does not depend on the line ends of its file."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def _bad_escape(escape: str, start: int, end: int) -> Problem:
    if escape == "u":
        message, help = "`\\u` must be followed by four hexadecimal digits", "such as \\u00e9"
    elif escape in ("x", "U"):
        message, help = f"unknown escape `\\{escape}`", "write the code of a character as \\u00e9"
    else:
        shown = (
            escape
            if escape.isprintable()
            else "before a line end"
            if escape in "\n\r"
            else "before this character"
        )
        message = f"unknown escape `\\{shown}`" if len(shown) == 1 else f"a `\\` {shown} is not an escape"
        help = f"the escapes are {_ESCAPES}; write \\\\ for a backslash"
    return Problem("bad-escape", message, start, end, "", help)
