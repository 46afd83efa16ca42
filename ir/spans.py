"""Where things stand in source text: sources and spans.

Owns positions only; how a span is shown belongs to `diagnostics`.
"""

from __future__ import annotations

import attrs

from .records import frozen


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
