"""Secret forms: encodings in which a secret may appear in texts (JSON, URL, HTML, shell, Python, base64).

Owns only the list of forms. A form is the output of an encoder for the value inside a longer text, without
the encoder's quotes. Labels are stored in journals, so the meaning of a label must not change. The form of a
character encoder contains every sequence of ASCII letters and digits of the value unchanged.
"""

from __future__ import annotations

import binascii
import json
import re

from ...ir.records import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Minimum length of a form; a shorter form would match everywhere.
SHORTEST = 4
# Minimum length of one line of a secret of several lines.
_SHORTEST_LINE = 8
_UNRESERVED = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
# Characters that URL encoders leave unchanged, in addition to `_UNRESERVED`.
_SAFE = {
    "url": "~",  # RFC 3986: quote_plus, curl, jq
    "url-path": "~/",  # Python's quote
    "url-component": "~!'()*",  # JavaScript's encodeURIComponent
    "url-whole": "~!'()*;,/?:@&=+$#",  # JavaScript's encodeURI
    "url-form": "*",  # URLSearchParams, Java's URLEncoder
    "url-old": "",  # PHP's urlencode
}
_HTML = {
    "html": ("&quot;", "&#x27;"),  # Python
    "html-decimal": ("&#34;", "&#39;"),  # Go, Jinja
    "html-short": ("&quot;", "&#39;"),  # JavaScript libraries, Ruby
    "html-php": ("&quot;", "&#039;"),
    "xml": ("&quot;", "&apos;"),
    "xml-double": ("&quot;", "'"),
    "xml-text": ('"', "'"),
}
# Characters that a here-document expands.
_HEREDOC = frozenset("\\$`")
# Characters that bash's `printf %q` escapes with a backslash.
_BASH = frozenset(" \t!\"#$&'()*,;<>?[\\]^`{|}")
_BASH_CONTROLS = {
    "\a": "\\a", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\v": "\\v", "\f": "\\f", "\r": "\\r",
    "\x1b": "\\E", "'": "\\'", "\\": "\\\\",
}  # fmt: skip
# Line lengths of base64: of the command `base64`, and of PEM.
_WRAPPED = (76, 64)


@frozen
class Forms:
    """Group of forms with their labels. core: a text that all forms contain; empty if there is none."""

    core: str
    labels: dict[str, str]  # by text


def forms(name: str, value: str) -> Iterator[Forms]:
    """Yield the forms of a secret: the value and its character encodings, then base64, then its lines.

    name: name of the variable; prefix of each label.
    """
    found = {value: name}
    stripped = value.strip()
    if len(stripped) >= SHORTEST:
        found.setdefault(stripped, f"{name}/stripped")
    if not _is_plain(value):
        for label, text in _in_commands(value):
            if len(text) >= SHORTEST:
                found.setdefault(text, f"{name}/{label}")
        if stripped != value and len(stripped) >= SHORTEST:
            for label, text in _in_commands(stripped):
                found.setdefault(text, f"{name}/stripped-{label}")
    core = max(re.findall("[0-9A-Za-z]+", stripped), key=len, default="")
    yield Forms(core, found)
    for label, text in _base64(stripped.encode("utf-8", "replace")):
        if len(text) >= SHORTEST:
            yield Forms(text, {text: f"{name}/{label}"})
    lines = [line.strip() for line in value.splitlines()]
    if len(lines) > 1:
        for n, line in enumerate(lines, 1):
            if len(line) >= _SHORTEST_LINE:
                yield Forms(line, {line: f"{name}/line-{n}"})


def _is_plain(value: str) -> bool:
    """Whether all character encoders leave the value unchanged."""
    return value.isascii() and value.translate(_PLAIN_GONE) == ""


_PLAIN_GONE = dict.fromkeys(map(ord, _UNRESERVED))


def _in_commands(value: str) -> Iterator[tuple[str, str]]:
    """Yield the character encodings, also with the quoting that llc uses for outputs in commands."""
    for label, text in list(_by_characters(value)):
        yield label, text
        if "'" in text:
            yield f"{label}-quoted", text.replace("'", "'\\''")
        if not _HEREDOC.isdisjoint(text):
            yield f"{label}-heredoc", "".join("\\" + ch if ch in _HEREDOC else ch for ch in text)


def _by_characters(value: str) -> Iterator[tuple[str, str]]:
    inner = {label: encode(value) for label, encode in _JSON.items()}
    yield from inner.items()
    for label, text in inner.items():
        for outer, encode in _JSON.items():
            yield f"{label}-in-{outer}", encode(text)
    yield "single", value.replace("'", "'\\''")
    yield "shlex", value.replace("'", "'\"'\"'")
    yield "double", "".join("\\" + ch if ch in '"$`\\' else ch for ch in value)
    yield "printf", _printf(value, True)
    yield "printf-inside", _printf(value, False)
    yield "ansi-c", "".join(_BASH_CONTROLS.get(ch) or _octal(ch, False) for ch in value)
    yield "ansi-c-ascii", "".join(_BASH_CONTROLS.get(ch) or _octal(ch, True) for ch in value)
    for label, show in (("repr", repr), ("ascii", ascii)):
        yield label, show(value)[1:-1]
        yield f"{label}-both", show("\"'" + value)[4:-1]  # as in a text with both quotes
        yield f"{label}-double", show("'" + value)[2:-1] if '"' not in value else value
    raw = value.encode("utf-8", "replace")
    yield "bytes", repr(raw)[2:-1]
    yield "bytes-both", repr(b"\"'" + raw)[5:-1]
    for label, (double, single) in _HTML.items():
        text = value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        text = text.replace('"', double).replace("'", single)
        yield label, text
        yield f"{label}-plus", text.replace("+", "&#43;")  # Go's html/template
    for label, safe in _SAFE.items():
        plain = frozenset((_UNRESERVED + safe).encode())
        for case, pattern in (("", "%{:02X}"), ("-lower", "%{:02x}")):
            text = "".join(chr(byte) if byte in plain else pattern.format(byte) for byte in raw)
            yield label + case, text
            if "+" not in safe:
                yield f"{label}-plus{case}", text.replace("%20", "+")


def _go_json(value: str) -> str:
    """Encode like Go's JSON encoder, which escapes the special characters of HTML."""
    text = json.dumps(value, ensure_ascii=False)[1:-1]
    for ch in "<>&\u2028\u2029":
        text = text.replace(ch, f"\\u{ord(ch):04x}")
    return text


_JSON: dict[str, Callable[[str], str]] = {
    "json": lambda value: json.dumps(value)[1:-1],
    "utf8-json": lambda value: json.dumps(value, ensure_ascii=False)[1:-1],
    "json-slash": lambda value: json.dumps(value)[1:-1].replace("/", "\\/"),
    "utf8-json-slash": lambda value: json.dumps(value, ensure_ascii=False)[1:-1].replace("/", "\\/"),
    "go-json": _go_json,
}


def _printf(value: str, is_start: bool) -> str:
    """Escape like bash's `printf %q` with backslashes. is_start: the value begins the word."""
    parts = []
    for index, ch in enumerate(value):
        before = value[index - 1] if index else ""
        if ch == "#":
            escaped = is_start and not index
        elif ch == "~":
            escaped = before in (":", "=") if index else is_start
        else:
            escaped = ch in _BASH
        parts.append("\\" + ch if escaped else ch)
    return "".join(parts)


def _octal(ch: str, is_ascii: bool) -> str:
    """Escape a character inside bash's `$'…'`; octal if it is not printable."""
    if ch.isprintable() and (ch.isascii() or not is_ascii):
        return ch
    return "".join(f"\\{byte:03o}" for byte in ch.encode("utf-8", "replace"))


def _base64(raw: bytes) -> Iterator[tuple[str, str]]:
    """Yield the base64 digits that depend only on the value, for each alignment to a group of three bytes."""
    for shift, first in ((0, 0), (1, 2), (2, 3)):
        digits = binascii.b2a_base64(bytes(shift) + raw, newline=False).decode("ascii")
        text = digits[first : (shift + len(raw)) * 8 // 6]
        label = f"base64-{shift}"
        yield label, text
        url = text.replace("+", "-").replace("/", "_")
        if url != text:
            yield f"{label}-url", url
        if shift == 0:
            for length in _WRAPPED:
                if len(text) > length:
                    lines = (text[at : at + length] for at in range(0, len(text), length))
                    yield f"{label}-{length}", "\n".join(lines)
