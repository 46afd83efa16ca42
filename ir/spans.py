"""Where things stand in source text: sources and spans.

Owns positions only; how a span is shown belongs to `diagnostics`.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Literal

import attrs

from .records import frozen

# Which spans the parts of a parsed text get: see `text.parse_program`.
Places = Literal["written", "added", "own"]


@frozen
class Source:
    """One text a program was compiled from.

    `path` is what the user typed (or `<name>` for text that has no file), `text` is None where a
    code image was written without its sources, `sha256` is the hex digest of the UTF-8 text.
    """

    path: str
    sha256: str
    text: str | None = attrs.field(default=None, repr=False)


@frozen(eq=True)
class Span:
    """A stretch of a source: lines and columns count from 1, in characters; the end is exclusive."""

    path: str
    line: int
    column: int
    end_line: int
    end_column: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}"


class Lines:
    """Line table of a source: converts character offsets to spans and back."""

    def __init__(self, source: Source) -> None:
        self.path = source.path
        self.starts = [0, *(match.end() for match in re.finditer("\n", source.text or ""))]

    def span(self, start: int, end: int) -> Span:
        """The span of the characters from offset `start` to `end`, exclusive."""
        starts = self.starts
        line = bisect_right(starts, start)
        is_one_line = line == len(starts) or end < starts[line] or end <= start
        end_line = line if is_one_line else bisect_right(starts, end, line)
        return Span(self.path, line, start - starts[line - 1] + 1, end_line, end - starts[end_line - 1] + 1)

    def offset(self, line: int, column: int) -> int:
        """The offset of a line and a column, both counted from 1."""
        return self.starts[line - 1] + column - 1
