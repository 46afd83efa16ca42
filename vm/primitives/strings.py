"""Primitives over strings, except for shell words.

Regular expressions are RE2 expressions, whose matching time is linear in the text (`ir/regex.py`).
"""

from __future__ import annotations

from ...ir.constants import Symbol
from ...ir.python_internals import re, sha256
from ...ir.regex import compiled, encoded
from ..values import bounds
from ..values.faults import PrimitiveFault
from ..values.lists import is_list, iterate
from ..values.maps import is_map
from ..values.text_form import duration_text, json_scalar, json_text, written
from ..values.values import MAX_HOST_DEPTH, equal, from_host, show
from .operands import any_list, count, expected, items, number, string

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from ...ir.regex import Expression, Match

    Value = Any

# Longest duration to format, in milliseconds.
MAX_DURATION = 1 << 60
MAX_INDENT = 16
# Nesting limit of JSON input; a value within it can leave the machine again.
MAX_JSON_DEPTH = MAX_HOST_DEPTH
# Patterns are compiled on first use, because most runs use none. NUMBER matches a decimal number.
NUMBER = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
# Shorter numbers are within Python's digit limit and fast to parse.
_FEW_DIGITS = 10
_DIRECTIVE = r"(?s)~(.?)"
_REFERENCE = rb"\\([0-9\\])"
# Digits that Python parses in one call, and decimal digits per bit.
_CHUNK = 4000
_DIGITS_A_BIT = 0.30103


# Python formats smaller integers directly, whatever its digit limit.
_PLAIN = 1 << 64


# --- values as text ---------------------------------------------------------------------------


def _joined(parts: list[str], separator: str = "") -> str:
    bounds.check_text(sum(map(len, parts)) + len(separator) * max(len(parts) - 1, 0))
    return separator.join(parts)


def text(value: Value) -> str:
    if type(value) is str:
        return value
    if value is None:
        return ""
    if type(value) is Symbol:
        return value.name
    if is_map(value) or is_list(value):
        return json_text(value)
    return json_scalar(value)


def to_string(value: Value) -> str:
    return value if type(value) is str else written(value)


def _piece(value: Value) -> str:
    """The text of an operand of `string-append`."""
    if type(value) is str:
        return value
    if value is None:
        return ""
    if type(value) is int and -_PLAIN < value < _PLAIN:
        return str(value)
    if is_list(value) or type(value) not in (int, float, bool, Symbol):
        raise expected("a string, a symbol, a number, a boolean or null", value, "`to-string` writes others")
    return value.name if type(value) is Symbol else written(value)


def join(left: Value, right: Value = " ") -> str:
    """Join a list with a separator; the two may be in either order."""
    if type(left) is str and type(right) is not str:
        left, right = right, left
    return _joined([_piece(item) for item in iterate(any_list(left))], string(right))


def format_(template: Value, *values: Value) -> str:
    """SRFI 28: `~a` like `to-string`, `~s` with strings in quotes, `~%` a line end, `~~` a tilde."""
    given = iter(values)
    parts = []
    end = 0
    for match in re.finditer(_DIRECTIVE, string(template)):
        parts.append(template[end : match.start()])
        end = match.end()
        parts.append(_directive(match[1], given))
    left_over = sum(1 for _ in given)
    if left_over:
        raise PrimitiveFault("arity", f"the template {show(template)} leaves {left_over} of its values out")
    return _joined([*parts, template[end:]])


def _directive(name: str, given: Iterator[Value]) -> str:
    if name == "~":
        return "~"
    if name == "%":
        return "\n"
    if name not in ("a", "s"):
        raise PrimitiveFault("bad-format", f"no directive is written `~{name}`; there are ~a ~s ~% ~~")
    for value in given:
        return to_string(value) if name == "a" else written(value)
    raise PrimitiveFault("arity", "the template has more places than there are values")


def tail(value: Value, size: Value) -> str:
    wanted = number(size)
    whole = text(value)
    if wanted >= len(whole):
        return whole
    return whole[-int(wanted) :] if wanted >= 1 else ""


def duration(milliseconds: Value) -> str:
    """A duration in the format of the progress display."""
    if not -MAX_DURATION < number(milliseconds) < MAX_DURATION:
        raise PrimitiveFault("too-large", f"{show(milliseconds)} ms is no duration")
    return duration_text(milliseconds)


# --- parts of what programs print -------------------------------------------------------------


def head_lines(value: Value, lines: Value) -> str:
    shown = text(value)
    end = -1
    for _ in range(min(count(lines), len(shown) + 1)):
        end = shown.find("\n", end + 1)
        if end < 0:
            return shown
    return shown[: max(end, 0)]


def tail_lines(value: Value, lines: Value) -> str:
    shown = text(value)
    start = len(shown) - shown.endswith("\n")
    for _ in range(min(count(lines), len(shown) + 1)):
        start = shown.rfind("\n", 0, start)
        if start < 0:
            return shown
    return shown[start + 1 :]


def head_bytes(value: Value, size: Value) -> str:
    return text(value).encode("utf-8", "replace")[: count(size)].decode("utf-8", "ignore")


def tail_bytes(value: Value, size: Value) -> str:
    data = text(value).encode("utf-8", "replace")
    return data[max(len(data) - count(size), 0) :].decode("utf-8", "ignore")


# --- parts of strings -------------------------------------------------------------------------


def trim_newline(value: Value) -> Value:
    """Values that are not strings are unchanged: null of an unset capture, an exit code."""
    return value.removesuffix("\n") if type(value) is str else value


def digest(value: Value) -> str:
    return sha256(string(value).encode("utf-8", "replace")).hexdigest()


def substring(value: Value, start: Value, end: Value = None) -> str:
    size = len(string(value))
    last = size if end is None else count(end)
    if not count(start) <= last <= size:
        raise PrimitiveFault(
            "out-of-range", f"no part from {show(start)} to {show(last)} in a string of {size} characters"
        )
    return value[start:last]  # type: ignore[no-any-return]


def split(value: Value, separator: Value = None) -> Value:
    """Split at white space without a separator; into characters with an empty one."""
    if separator is None:
        parts = string(value).split()
    elif string(separator):
        bounds.check_items(string(value).count(separator) + 1)
        parts = value.split(separator)
    else:
        bounds.check_items(len(string(value)))
        parts = list(value)
    bounds.check_items(len(parts))
    return tuple(parts)


def lines(value: Value) -> Value:
    whole = string(value).replace("\r\n", "\n").removesuffix("\n")
    bounds.check_items(whole.count("\n") + 1)
    return tuple(whole.split("\n")) if value else ()


def replace(value: Value, old: Value, new: Value) -> str:
    if not string(old):
        raise PrimitiveFault("type-error", "there is no empty string to replace")
    growth = len(string(new)) - len(old)
    bounds.check_text(len(string(value)) + max(growth, 0) * value.count(old))
    return value.replace(old, new)  # type: ignore[no-any-return]


def contains(value: Value, part: Value) -> bool:
    if is_list(value) or value is None:
        return any(equal(item, part) for item in items(value))
    if type(value) is not str:
        raise expected("a string or a list", value)
    return string(part) in value


def string_eq(first: Value, *others: Value) -> bool:
    texts = [string(value) for value in (first, *others)]
    return all(value == texts[0] for value in texts)


def string_lt(first: Value, *others: Value) -> bool:
    texts = [string(value) for value in (first, *others)]
    return all(texts[index - 1] < texts[index] for index in range(1, len(texts)))


def symbol_name(value: Value) -> str:
    if type(value) is Symbol:
        return value.name
    raise expected("a symbol", value)


# --- numbers and JSON in strings --------------------------------------------------------------


def parse_number(value: Value) -> Value:
    """Parse a number with surrounding white space; null if the string is not a number."""
    if type(value) is str and len(value) < _FEW_DIGITS and value.isdigit() and value.isascii():
        return _integer(value)
    spelled = string(value).strip()
    unsigned = spelled[1:] if spelled[:1] in ("+", "-") else spelled
    if unsigned.isdigit() and unsigned.isascii():
        return _integer(spelled)
    return float(spelled) if re.fullmatch(NUMBER, spelled) else None


def _integer(spelled: str) -> int:
    """Parse an integer, including those beyond Python's digit limit."""
    if len(spelled) < _FEW_DIGITS:
        number = int(spelled)
        if number.bit_length() > bounds.MAX_BITS:
            bounds.check_bits(number.bit_length())
        return number
    sign, unsigned = (-1 if spelled[0] == "-" else 1), spelled.lstrip("+-").lstrip("0")
    bounds.check_bits(int((len(unsigned) - 1) / _DIGITS_A_BIT))
    result = 0
    for start in range(0, len(unsigned), _CHUNK):
        chunk = unsigned[start : start + _CHUNK]
        result = result * 10 ** len(chunk) + int(chunk)
    bounds.check_bits(result.bit_length())
    return sign * result


def _no_constant(name: str) -> Value:
    raise ValueError(f"JSON has no {name}")


def json_parse(value: Value) -> Value:
    from json import loads

    # Checked here: the limit of Python's own parser depends on the version and on the stack depth.
    _check_json_depth(string(value))
    try:
        data = loads(string(value), parse_int=_integer, parse_constant=_no_constant)
    except ValueError as error:
        raise PrimitiveFault("bad-json", f"this is no JSON: {error}: {show(value)}") from None
    except RecursionError:
        raise PrimitiveFault("too-large", "this JSON is nested too deep") from None
    return from_host(data)


def _check_json_depth(text: str) -> None:
    if text.count("[") + text.count("{") <= MAX_JSON_DEPTH:
        return
    depth = 0
    for mark in re.findall(r'"(?:[^"\\]|\\.)*+"?|[][{}]', text, re.DOTALL):
        if mark in "[{":
            depth += 1
            if depth > MAX_JSON_DEPTH:
                raise PrimitiveFault(
                    "too-large", f"this JSON is nested too deep: more than {MAX_JSON_DEPTH} brackets are open"
                )
        elif mark in "]}":
            depth -= 1


def json_format(value: Value, indent: Value = 0) -> str:
    if count(indent) > MAX_INDENT:
        raise expected(f"an indentation of at most {MAX_INDENT}", indent)
    return json_text(value, indent, strict=True)


# --- regular expressions ----------------------------------------------------------------------


def _expression(pattern: Value) -> Expression:
    try:
        return compiled(string(pattern))
    except ValueError as error:
        message = f"{show(pattern)} is no regular expression: {str(error)[:200]}"
        raise PrimitiveFault("bad-pattern", message) from None


# RE2 works on bytes: text is encoded on the way in and decoded on the way out, so no offsets need
# translation.


def _decoded(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "replace")


def regex_match(pattern: Value, value: Value) -> Value:
    """The first match followed by its groups; null without a match."""
    expression = _expression(pattern)
    try:
        found = expression.search(encoded(string(value)))
    except ValueError as error:
        raise PrimitiveFault("too-large", str(error)) from None
    if found is None:
        return None
    return (_decoded(found.group()), *map(_decoded, found.groups()))


def _matches(pattern: Value, data: bytes) -> Iterator[Match]:
    """All matches from left to right; an empty match is only between characters, and once per position."""
    expression = _expression(pattern)
    try:
        matches = expression.finditer(data)
    except ValueError as error:
        raise PrimitiveFault("too-large", str(error)) from None
    last = -1  # the RE2 binding reports an empty match at the end twice
    for number_, found in enumerate(matches, 1):
        bounds.check_items(number_)
        at = found.start()
        if at == found.end():
            if at == last or (at < len(data) and data[at] & 0xC0 == 0x80):
                continue
            last = at
        yield found


def regex_find_all(pattern: Value, value: Value) -> Value:
    """Each match; where the pattern has groups, the list of the match and its groups."""
    made: list[Value] = []
    for found in _matches(pattern, encoded(string(value))):
        groups = found.groups()
        made.append((_decoded(found.group()), *map(_decoded, groups)) if groups else _decoded(found.group()))
    return tuple(made)


def regex_replace(pattern: Value, value: Value, replacement: Value) -> str:
    r"""With `\1` for what the first group matched, `\0` for the whole match, `\\` for a backslash."""
    data, template = encoded(string(value)), encoded(string(replacement))
    parts = []
    size = end = 0
    for found in _matches(pattern, data):
        parts += [data[end : found.start()], _filled(template, found)]
        end = found.end()
        size += len(parts[-1]) + len(parts[-2])
        bounds.check_text(size)
    return _joined([b"".join([*parts, data[end:]]).decode("utf-8", "replace")])


def _filled(template: bytes, found: Match) -> bytes:
    def meant(reference: re.Match[bytes]) -> bytes:
        if reference[1] == b"\\":
            return b"\\"
        group = int(reference[1])
        if group > len(found.groups()):
            raise PrimitiveFault("bad-pattern", f"the pattern has no group {group}")
        return found.group(group) or b""

    return re.sub(_REFERENCE, meant, template)


HANDLERS: dict[str, Callable[..., Value]] = {
    "concat": lambda *values: _joined([value if type(value) is str else text(value) for value in values]),
    "text": text,
    "to_string": to_string,
    "string_append": lambda *values: _joined([_piece(value) for value in values]),
    "join": join,
    "format": format_,
    "trim_newline": trim_newline,
    "digest": digest,
    "tail": tail,
    "head_lines": head_lines,
    "tail_lines": tail_lines,
    "head_bytes": head_bytes,
    "tail_bytes": tail_bytes,
    "duration": duration,
    "string_length": lambda value: len(string(value)),
    "substring": substring,
    "split": split,
    "lines": lines,
    "trim": lambda value: string(value).strip(),
    "replace": replace,
    "upper": lambda value: _joined([string(value).upper()]),
    "lower": lambda value: _joined([string(value).lower()]),
    "contains": contains,
    "starts_with": lambda value, prefix: string(value).startswith(string(prefix)),
    "ends_with": lambda value, suffix: string(value).endswith(string(suffix)),
    "string_eq": string_eq,
    "string_lt": string_lt,
    "is_string": lambda value: type(value) is str,
    "is_symbol": lambda value: type(value) is Symbol,
    "to_symbol": lambda value: Symbol(string(value)),
    "symbol_name": symbol_name,
    "parse_number": parse_number,
    "json_parse": json_parse,
    "json_format": json_format,
    "regex_match": regex_match,
    "regex_find_all": regex_find_all,
    "regex_replace": regex_replace,
}
