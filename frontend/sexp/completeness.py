"""Completeness of interactive input: open brackets, strings and comments, line by line.

Each line is scanned once. Input with any other error counts as complete; `reader` reports it.
"""

from __future__ import annotations

import re

from .lexer import COMMENT_EDGE, TOKEN

_STRING_END = re.compile(r'[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_PREFIXES = frozenset(("'", "`", ",", ",@", "#;"))


class Pending:
    """Open brackets, strings and comments of a text. `is_blank`: it has only blanks and comments."""

    def __init__(self, text: str = "") -> None:
        self._brackets = 0
        self._comments = 0
        self._in_string = False
        self._is_prefixed = False
        self.is_blank = True
        for line in text.splitlines(keepends=True):
            self.feed(line)

    @property
    def is_complete(self) -> bool:
        return self._brackets <= 0 and not (self._comments or self._in_string or self._is_prefixed)

    def feed(self, line: str) -> None:
        """Scan one more line, including its line end."""
        place = 0
        while place < len(line):
            if self._in_string:
                end = _STRING_END.match(line, place)
                if end is None:
                    return
                self._in_string = False
                place = end.end()
            elif self._comments:
                edge = COMMENT_EDGE.search(line, place)
                if edge is None:
                    return
                self._comments += 1 if edge[0] == "#|" else -1
                place = edge.end()
            else:
                place = self._token(line, place)

    def _token(self, line: str, place: int) -> int:
        match = TOKEN.match(line, place)
        token = match[0] if match else line[place]
        if token[0] in " \t\n\r\f;":
            return place + len(token)
        if token == "#|":
            self._comments = 1
            return place + 2
        self.is_blank = False
        self._is_prefixed = token in _PREFIXES
        if token in "([{":
            self._brackets += 1
        elif token in ")]}":
            self._brackets -= 1
        elif token[0] == '"' and (len(token) == 1 or _STRING_END.match(token, 1) is None):
            self._in_string = True
            return place + 1
        return place + len(token)
