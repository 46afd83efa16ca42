"""S-expressions: reading one megabyte with llc's reader and with a Lark grammar of the same syntax."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

from lark import Lark, Token, Transformer
from measure import Contestant, take_turns
from place import Place
from report import Section, row
from sizes import Sizes

from llc.frontend.sexp.datum import Atom, Datum, Form
from llc.frontend.sexp.formatter import format_source
from llc.frontend.sexp.lexer import read_string, read_word
from llc.frontend.sexp.reader import read
from llc.frontend.source.files import text_source
from llc.ir.constants import Symbol
from llc.ir.spans import Lines, Source

_UNIT = """\
; Step {number}: what an agent proposes is run, and judged.
(define (step-{number} input iteration)
  (let* ((plan (user:plan (goal input) (count {number})))
         (result (call system:run (command "make \\"test-{number}\\"") (timeout 30.5))))
    (if (and (= (get-field result "exit_code") 0) (not (null? plan)))
        (list 'stop result)
        `(continue ,plan ,@result))))

"""

# The syntax of `spec/syntax.md` but for nested comments, `#;` and dots, which no benchmark has; a
# reader of Lark's that has them too is no faster.
_GRAMMAR = r"""
start: _datum*
_datum: atom | form | quoted
form: OPEN _datum* CLOSE | OPEN_SQUARE _datum* CLOSE_SQUARE
quoted: PREFIX _datum
atom: WORD | STRING
OPEN: "("
CLOSE: ")"
OPEN_SQUARE: "["
CLOSE_SQUARE: "]"
PREFIX: "'" | "`" | /,@?/
STRING: /"[^"\\]*+(?:\\.[^"\\]*+)*+"/s
WORD: /[^\s()\[\]{}"';,`|\\#][^\s()\[\]{}"';,`|\\]*+/
BLANK: /[ \t\r\n]+/
COMMENT: /;[^\n]*/
%ignore BLANK
%ignore COMMENT
"""
_QUOTES = {
    prefix: Symbol(name)
    for prefix, name in {
        "'": "quote",
        "`": "quasiquote",
        ",": "unquote",
        ",@": "unquote-splicing",
    }.items()
}


def section(place: Place, sizes: Sizes) -> Section:
    found = Section(
        name="reading",
        title=f"{sizes.text_bytes / 1e6:g} MB of S-expressions",
        about=(
            "`read` returns data with their places. Lark's LALR parser, with the same tokens as regular "
            "expressions and its contextual lexer, creates the same data by a transformer during the "
            "parse, which is its fastest mode; its table is built before. Both run with the garbage "
            "collector paused. The invalid text lacks a bracket in its first form, so all of it is read "
            "twice. `llc fmt` also reads twice, to check that the data are unchanged."
        ),
    )
    text = _text(sizes.text_bytes)
    source = text_source(text)
    broken = text_source(text.replace("(count 0)", "(count 0", 1))
    lark = _lark()
    if read(source) != (lark(source), []) or not read(broken)[1]:
        raise RuntimeError("the readers differ")
    turns = take_turns(
        {
            "read": _timed(partial(read, source)),
            "lark": _timed(partial(lark, source)),
            "broken": _timed(partial(read, broken)),
            "format": _timed(partial(format_source, text)),
        },
        sizes.read_rounds,
    )
    found.add(
        row("`read`, compared with Lark", turns["read"], peer=("Lark, LALR", turns["lark"]), aim=1),
        row("`read`, absolute time", turns["read"], aim=1, aim_is_absolute=True),
        row("`read` of a text that lacks a bracket", turns["broken"], peer=("a valid text", turns["read"])),
        row("`llc fmt`, in process", turns["format"], peer=("`read`", turns["read"])),
    )
    return found


def _text(size: int) -> str:
    units = []
    number = 0
    while size > 0:
        units.append(_UNIT.format(number=number))
        size -= len(units[-1])
        number += 1
    return "".join(units)


def _timed(action: Callable[[], object]) -> Contestant:
    def run() -> float:
        started_at = perf_counter()
        made = action()
        seconds = perf_counter() - started_at
        del made  # what it costs to forget is no part of it
        return seconds

    return run


class _ToData(Transformer[Token, list[Datum]]):
    """Transformer from Lark's parse to llc's data, used during the parse."""

    lines: Lines

    def start(self, data: list[Datum]) -> list[Datum]:
        return data

    def atom(self, tokens: list[Token]) -> Datum:
        token = tokens[0]
        place = (self.lines, token.start_pos or 0, token.end_pos or 0)
        if token.type == "STRING":
            return Atom(read_string(str(token), []), place)
        return Atom(read_word(str(token)), place)

    def form(self, parts: list[Any]) -> Datum:
        place = (self.lines, parts[0].start_pos, parts[-1].end_pos)
        return Form(tuple(parts[1:-1]), place, str(parts[0]))

    def quoted(self, parts: list[Any]) -> Datum:
        token, datum = parts
        name = Atom(_QUOTES[str(token)], (self.lines, token.start_pos, token.end_pos))
        return Form((name, datum), (self.lines, token.start_pos, datum.place[2]))


def _lark() -> Callable[[Source], list[Datum]]:
    maker = _ToData()
    parser = Lark(_GRAMMAR, parser="lalr", transformer=maker, maybe_placeholders=False)

    def parse(source: Source) -> list[Datum]:
        maker.lines = Lines(source)
        gc.disable()
        try:
            found: Any = parser.parse(source.text or "")
            return list(found)
        finally:
            gc.enable()

    return parse
