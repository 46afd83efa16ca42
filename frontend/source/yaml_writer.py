"""YAML writer for files that people read: keys in order, literal blocks, short values on one line.

No existing YAML writer produces the layout of the seeds. The text reads back exactly (`yaml_tree`),
except for NUL and lone surrogates, and has the same meaning in YAML 1.1.
"""

from __future__ import annotations

import json
import re
from typing import Any

from ...ir.scalars import read_scalar

_BARE_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
# Words that YAML 1.1 reads as booleans.
_OLD_WORDS = frozenset({"y", "n", "yes", "no", "on", "off"})
_MAX_SIMPLE_KEY = 120
# Words and paths that need no quotes in any position.
_PLAIN_WORD = re.compile(r"[A-Za-z_.][A-Za-z0-9_.-]*(/[A-Za-z0-9_.-]+)*", re.ASCII)
_MAX_FLOW = 80
_MAX_INLINE = 110
# Characters that a double-quoted YAML text must escape, but JSON does not.
_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufe00-\ufe0f\ufeff\ufff0-\uffff]")
_BLOCK_LINE = re.compile(
    "[\t\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufdff\uff00-\uffef\U00010000-\U0010ffff]*"
)


class Word(str):
    """A text that is written without quotes, such as a value of a fixed set; `as_word` decides for other
    texts.
    """


class Inline(dict[str, Any]):
    """A mapping that is written on one line if it fits, with its nested mappings."""


def entry(key: str, value: Any, indent: int) -> list[str]:
    """The lines of a key and its value."""
    pad = " " * indent
    name = _key(key)
    head = f"{pad}{name}:" if len(name) <= _MAX_SIMPLE_KEY else f"{pad}? {name}\n{pad}:"
    return _value_lines(head, value, indent)


def one_line(value: str | int | float | list[int]) -> str:
    """A quoted text, a number or a list of numbers on one line, valid in any position."""
    return _quote(value) if isinstance(value, str) else json.dumps(value)


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) and _is_text(key) else _quote(key)


def _value_lines(head: str, value: Any, indent: int) -> list[str]:
    """The lines of a value after `head`, which is indented by `indent`."""
    simple = _flow(value)
    if simple is not None:
        return [f"{head} {simple}"]
    if isinstance(value, str):
        body = value.removesuffix("\n")
        pad = " " * (indent + 2)
        mark = "|" if body != value else "|-"
        return [f"{head} {mark}", *(pad + line if line else "" for line in body.split("\n"))]
    lines = [head]
    if isinstance(value, dict):
        for key, item in value.items():
            lines += entry(key, item, indent + 2)
    else:
        for item in value:
            if isinstance(item, dict) and _flow(item) is None:
                inner = [line for key, part in item.items() for line in entry(key, part, indent + 4)]
                lines += [" " * (indent + 2) + "- " + inner[0][indent + 4 :], *inner[1:]]
                continue
            lines += _value_lines(" " * (indent + 2) + "-", item, indent + 2)
    return lines


def _flow(value: Any) -> str | None:
    """The value on one line; None if it needs several lines."""
    if isinstance(value, Word):
        return str(value)
    if isinstance(value, str):
        return None if _is_block(value) else _quote(value)
    if isinstance(value, Inline):
        return _inline(value)
    if isinstance(value, dict):
        return None if value else "{}"
    if isinstance(value, list | tuple):
        items = [_flow(item) if not isinstance(item, list | dict) or not item else None for item in value]
        line = f"[{', '.join(item or '' for item in items)}]"
        return line if None not in items and len(line) <= _MAX_FLOW else None
    return json.dumps(value)


def _inline(value: Any) -> str | None:
    """A value and its contents on one line; None if it does not fit."""
    if isinstance(value, dict):
        parts = []
        for key, item in value.items():
            shown = _inline(item)
            if shown is None or len(key) > _MAX_SIMPLE_KEY:
                return None
            parts.append(f"{_key(key)}: {shown}")
        line = f"{{{', '.join(parts)}}}"
    elif isinstance(value, list | tuple):
        items = [_inline(item) for item in value]
        if None in items:
            return None
        line = f"[{', '.join(item or '' for item in items)}]"
    elif isinstance(value, Word):
        return str(value)
    else:
        line = _quote(value) if isinstance(value, str) else json.dumps(value)
    return line if len(line) <= _MAX_INLINE else None


def as_word(text: str) -> str:
    """The text as a `Word` if it needs no quotes."""
    return Word(text) if _PLAIN_WORD.fullmatch(text) and _is_text(text) else text


def _is_text(word: str) -> bool:
    """Whether an unquoted word reads as a text, in YAML 1.1 too."""
    return isinstance(read_scalar(word), str) and word.lower() not in _OLD_WORDS


def _is_block(text: str) -> bool:
    """Whether a text is written as a literal block."""
    lines = text.removesuffix("\n").split("\n")
    return (
        len(lines) > 1
        and lines[0][:1] not in ("", " ", "\t")
        and lines[-1] != ""
        and all(_BLOCK_LINE.fullmatch(line) for line in lines)
    )


def _quote(text: str) -> str:
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(text, ensure_ascii=False))
