"""Here-documents: delimiters and the extent of their text."""

from __future__ import annotations

import re

from ...ir.light_records import LightRecord
from ...ir.python_internals import late_pattern
from .expansions import Refuse
from .hazards import IN_DELIMITER, UncertainParse

DELIMITER = late_pattern(
    r"[ \t]*(?:'(?P<single>[\w.+-]+)'|\"(?P<double>[\w.+-]+)\"|\\(?P<escaped>[\w.+-]+)|(?P<bare>[\w.+-]+))"
    r"(?=[\s;&|<>()]|\Z)"
)
_VARIABLE_DELIMITER = late_pattern(r"[ \t]*[^\s\0]*\0")


def word_of(delimiter: re.Match[str]) -> str:
    return next(word for word in delimiter.groups() if word is not None)


class Heredoc(LightRecord):
    """A here-document whose operator was read; its text follows after the line.

    is_quoted: the delimiter is quoted, so the text is literal. words: the words of its command.
    level: number of substitutions and double quotes around its operator.
    """

    delimiter: str
    is_quoted: bool
    strips_tabs: bool
    words: list[str]
    level: int

    def extent(self, text: str, start: int, end: int) -> tuple[int, int]:
        """The end of the text that begins at `start`, and the offset after the delimiter line."""
        at = start
        while at < end:
            stop = text.find("\n", at, end)
            stop = end if stop < 0 else stop
            line = text[at:stop]
            if (line.lstrip("\t") if self.strips_tabs else line) == self.delimiter:
                return at, min(stop + 1, end)
            if not self.is_quoted and (len(line) - len(line.rstrip("\\"))) % 2:
                raise UncertainParse("a continued line in a here-document")
            at = stop + 1
        raise UncertainParse("a here-document", is_unended=True)


def read_delimiter(
    text: str, at: int, end: int, refuse: Refuse, strips_tabs: bool, words: list[str], level: int
) -> tuple[Heredoc, int]:
    """Read the delimiter after the operator that ends at `at`; returns the here-document and the offset after
    it.
    """
    found = DELIMITER.match(text, at, end)
    if found is None:
        variable = _VARIABLE_DELIMITER.match(text, at, end)
        if variable is not None:
            refuse(variable.end() - 1, IN_DELIMITER)
        raise UncertainParse("a here-document whose delimiter is not one plain word")
    return Heredoc(word_of(found), found["bare"] is None, strips_tabs, words, level), found.end()
