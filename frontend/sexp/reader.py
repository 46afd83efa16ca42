"""Reader of S-expressions: text to data; `spec/syntax.md`.

`read` never raises for bad text: it reports all errors and returns the data that can be recognised. It uses
an explicit stack, so that nesting needs no Python frames, and one dictionary look-up for each token, so that
a megabyte takes a fraction of a second. `bracket_recovery` guesses the place of a missing `)`.
"""

from __future__ import annotations

from typing import Any

from ...ir.constants import Symbol
from ...ir.diagnostics import Diagnostic, DiagnosticId, in_order
from ...ir.python_internals import CollectorRests
from ...ir.spans import Lines, Source
from . import lexer as lexis
from .bracket_recovery import Missing, close_by_indentation
from .datum import Atom, Datum, Form
from .lexer import CLOSERS, QUOTES, Problem, Token, kind_of

MAX_DEPTH = 1000
# Maximum number of diagnostics for one text; a malicious text could produce millions.
MAX_FINDINGS = 100
MAX_INDENTATION_WARNINGS = 10
# Maximum number of restarts after an unterminated string.
MAX_STRING_RESTARTS = 10


def read(source: Source, max_depth: int = MAX_DEPTH) -> tuple[list[Datum], list[Diagnostic]]:
    """Read a text; return its data, and the diagnostics in the order of the text.

    If there are errors, the data are a guess that is useful only for finding further errors. A text without
    data is not an error here.
    """
    with CollectorRests():
        return _read(source, max_depth)


def _read(source: Source, max_depth: int) -> tuple[list[Datum], list[Diagnostic]]:
    reader = _Reader(source, max_depth)
    try:
        tokens = reader.split()
        reader.build(tokens)
        misindented = reader.find_misindented()
        starts = [frame.start for frame in reader.stack[1:2]]
        if not starts and not any(finding.id in _UNBALANCED for finding in reader.findings):
            reader.warn_of_indentation(misindented, tokens)
        elif starts := [*starts, *misindented.values()]:
            # Read again from the first form that may lack a bracket, with the missing brackets inserted.
            start = min(starts)
            reader.discard_from(start)
            column = reader.lines.span(start, start).column - 1
            tokens, missing = close_by_indentation(_tail(tokens, start), start, column)
            for hole in missing:
                reader.report_missing(hole)
            reader.build(tokens, start)
            if len(reader.stack) > 1:
                reader.report_open()
    except _ReadingAborted:
        pass
    return reader.stack[0].items, in_order(reader.findings)


def _tail(tokens: list[str], start: int) -> list[str]:
    """Return the tokens from an offset on."""
    position = 0
    for index, token in enumerate(tokens):
        if position >= start:
            return tokens[index:]
        position += len(token)
    return []


def scan(text: str) -> list[Token]:
    """Return all tokens of a text, including blanks and comments; their concatenation is the text."""
    found = []
    start = 0
    for token in lexis.split(text):
        found.append(Token(kind_of(token), token, start))
        start += len(token)
    return found


class _ReadingAborted(Exception):
    """Reading ended early; a diagnostic states the reason."""


class _Frame:
    """An open bracket or prefix: `kind` is its text, `start` its offset.

    The outermost frame is the text itself, of kind "".
    """

    __slots__ = ("dot", "items", "kind", "start")

    def __init__(self, kind: str, start: int) -> None:
        self.kind = kind
        self.start = start
        self.items: list[Datum] = []
        self.dot = -1  # number of items before the dot; -1 without a dot


# Kinds of tokens that are not atoms.
_BLANK, _OPEN, _CLOSE, _PREFIX, _NIL, _NEW = (object() for _ in range(6))
_KNOWN: dict[str, Any] = {
    **lexis.WORDS,
    "nil": _NIL,
    "": _CLOSE,
    **dict.fromkeys(CLOSERS, _OPEN),
    **dict.fromkeys(CLOSERS.values(), _CLOSE),
    **dict.fromkeys((*QUOTES, "#;"), _PREFIX),
}
# Diagnostics of `split`, which precedes the matching of brackets.
_UNTERMINATED = frozenset(("unterminated-string", "unterminated-comment"))
_UNBALANCED = frozenset(("stray-bracket", "mismatched-bracket", "unclosed-form"))
_PREFIXES = frozenset((*QUOTES, "#;"))
_QUOTE_SYMBOLS = {prefix: Symbol(name) for prefix, name in QUOTES.items()}


class _Reader:
    def __init__(self, source: Source, max_depth: int) -> None:
        self.text = source.text or ""
        self.path = source.path
        self.lines = Lines(source)
        self.max_depth = max_depth
        self.findings: list[Diagnostic] = []
        self.stack = [_Frame("", 0)]
        self.missing_space_line = 0  # line of the last `missing-space`
        self.stray_end = -1  # end offset of the last unmatched closing bracket

    # --- findings -----------------------------------------------------------------------------

    def report(
        self, id: DiagnosticId, message: str, start: int, end: int, label: str = "", help: str | None = None
    ) -> None:
        if len(self.findings) >= MAX_FINDINGS:
            message = f"there are more than {MAX_FINDINGS} diagnostics; the others are omitted"
            self.findings.append(Diagnostic("too-many-findings", message, self.lines.span(start, end)))
            raise _ReadingAborted
        self.findings.append(Diagnostic(id, message, self.lines.span(start, end), label, help or None))

    def report_problem(self, problem: Problem, start: int) -> None:
        self.report(
            problem.id, str(problem), start + problem.start, start + problem.end, problem.label, problem.help
        )

    def report_missing(self, hole: Missing) -> None:
        start, closers = hole.start, hole.closers
        line = self.lines.span(hole.end, hole.end).line
        lacking = f"`{closers}`" if len(closers) <= 20 else f"{len(closers)} closing brackets"
        verb = "is" if len(closers) == 1 else "are"
        if hole.is_guessed:
            help = f"the indentation suggests that {lacking} {verb} missing at the end of line {line}"
        else:
            help = f"{lacking} {verb} missing, at the end of line {line} or before it"
        message = f"this `{self.text[start]}` is never closed"
        self.report("unclosed-form", message, start, start + 1, "opened here", help)

    def report_open(self) -> None:
        open = [frame for frame in self.stack if frame.kind in CLOSERS]
        closers = "".join(CLOSERS[frame.kind] for frame in reversed(open))
        self.report_missing(Missing(open[0].start, closers, len(self.text.rstrip()), False))

    # --- tokens -------------------------------------------------------------------------------

    def split(self) -> list[str]:
        """Return the tokens; report unterminated strings and comments, and end them at a likely place."""
        text = self.text
        tokens = lexis.split(text)
        settled = 0  # number of tokens that need no second check
        for _ in range(MAX_STRING_RESTARTS):
            if len(tokens) == settled:
                break
            last = tokens[-1]
            if last.startswith("#|") and not lexis.is_closed_comment(last):
                start = len(text) - len(last)
                help = "close it with `|#`; comments nest"
                self.report(
                    "unterminated-comment", "this comment is never closed", start, start + 2, "", help
                )
            if not last.startswith('"') or lexis.is_closed_string(last):
                break
            index = _unterminated_string(tokens, settled)
            start = sum(map(len, tokens[:index]))
            is_last = index + 1 == len(tokens)
            help = "" if is_last else "the next quotation mark probably begins another string"
            self.report(
                "unterminated-string", "this string is never closed", start, start + 1, "begins here", help
            )
            line_end = text.find("\n", start)
            # Closing brackets at the end of the line most likely belong to the outer forms, not to the
            # string.
            head = '"' + text[start + 1 : line_end if line_end > 0 else None].rstrip(" \t\r)]}")
            tokens[index:] = [head, *lexis.split(text, start + len(head))]
            settled = index + 1
        return tokens

    # --- data ---------------------------------------------------------------------------------

    def build(self, tokens: list[str], position: int = 0) -> None:
        """Read data from tokens into the outermost frame. position: offset of the first token.

        Unclosed brackets stay on `stack`. An empty token closes a form.
        """
        known = dict(_KNOWN)
        lines = self.lines
        stack = self.stack
        items = stack[-1].items
        is_prefixed = False
        atom_end = position
        datum: Datum
        for token in tokens:
            start = position
            position += len(token)
            value = known.get(token, _NEW)
            if value is _BLANK:
                continue
            if value is _OPEN or value is _PREFIX:
                if value is _PREFIX and start == atom_end and start:
                    self.report_missing_space(start, position)
                self.open(token, start)
                is_prefixed = value is _PREFIX
                items = stack[-1].items
                continue
            if value is _CLOSE:
                self.close(token, start, position)
                is_prefixed = stack[-1].kind in _PREFIXES
                items = stack[-1].items
                continue
            if value is _NEW:
                first = token[0]
                if first in " \t\n\r\f":
                    known[token] = _BLANK
                    continue
                if first == '"':
                    value = self.string(token, start)
                elif first == ";" or token.startswith(("#|", "#!")):
                    continue
                elif token == ".":
                    self.dot(start)
                    continue
                else:
                    value = self.word(token, start)
                    if value is _NEW:
                        continue
                    known[token] = value
            if start == atom_end and start:
                self.report_missing_space(start, position)
            atom_end = position
            place = (lines, start, position)
            datum = Form((), place) if value is _NIL else Atom(value, place)
            if is_prefixed:
                self.add(datum, position)
                is_prefixed = stack[-1].kind in _PREFIXES
                items = stack[-1].items
            else:
                items.append(datum)
        if all(frame.kind in _PREFIXES for frame in stack[1:]):
            self.report_bare_prefixes()

    def discard_from(self, start: int) -> None:
        """Discard the forms that end after an offset, and the diagnostics from there on."""
        del self.stack[1:]
        items = self.stack[0].items
        while items and self.extent(items[-1])[1] > start:
            items.pop()
        self.stray_end = -1
        place = self.lines.span(start, start)
        begin = (place.line, place.column)
        self.findings = [
            finding
            for finding in self.findings
            if finding.id in _UNTERMINATED
            or (finding.span is not None and (finding.span.line, finding.span.column) < begin)
        ]

    def open(self, token: str, start: int) -> None:
        end = start + len(token)
        if len(self.stack) > self.max_depth:
            message = f"forms are nested more than {self.max_depth:,} deep"
            help = "this is usually a mistake; --max-nesting raises the limit"
            self.report("nested-too-deep", message, start, end, "", help)
            raise _ReadingAborted
        if token == "{":
            help = "write a list as (…), a map as (dict (key value) …)"
            self.report("reserved-brace", "`{` and `}` are reserved", start, end, "", help)
        self.stack.append(_Frame(token, start))

    def close(self, token: str, start: int, end: int) -> None:
        """Close the form of a closing bracket; an empty token closes the innermost form."""
        stack = self.stack
        self.report_bare_prefixes()
        kind = stack[-1].kind
        if token and token != CLOSERS.get(kind):
            within = [frame for frame in stack if CLOSERS.get(frame.kind) == token]
            if within:
                self.report_crossed(within[-1], token, start)
                while stack[-1] is not within[-1]:
                    self.finish(start)
            elif token == "}":
                self.report("reserved-brace", "`{` and `}` are reserved", start, end)
                return
            elif kind:
                line = self.lines.span(stack[-1].start, end).line
                message = f"`{token}` does not match the `{kind}` of line {line}"
                self.report("mismatched-bracket", message, start, end, f"`{CLOSERS[kind]}` is expected")
            else:
                self.report_stray(start, end)
                return
        if stack[-1].kind:
            self.finish(end)

    def finish(self, end: int) -> None:
        """Complete the innermost form."""
        frame = self.stack.pop()
        bracket = "[" if frame.kind == "[" else "("
        form = Form(tuple(frame.items), (self.lines, frame.start, end), bracket)
        self.add(form if frame.dot < 0 else self.dotted(frame, form, end), end)
        # `add` has also completed the prefixes before the form, so the innermost frame is a bracket or the
        # text.

    def add(self, datum: Datum, end: int) -> None:
        """Add a datum to the innermost form, after wrapping it in its prefixes."""
        while True:
            frame = self.stack[-1]
            kind = frame.kind
            if kind not in _PREFIXES:
                frame.items.append(datum)
                return
            self.stack.pop()
            if kind == "#;":
                return
            start = frame.start
            name = Atom(_QUOTE_SYMBOLS[kind], (self.lines, start, start + len(kind)))
            datum = Form((name, datum), (self.lines, start, end))

    def string(self, token: str, start: int) -> str:
        if "\\" not in token and token.isprintable():
            return token[1:-1] if token.endswith('"') and len(token) > 1 else token[1:]
        problems: list[Problem] = []
        value = lexis.read_string(token, problems)
        for problem in problems:
            self.report_problem(problem, start)
        return value

    def word(self, token: str, start: int) -> Any:
        """Return the value of a word. After an error: `None`, or `_NEW` for a token that is not an atom."""
        try:
            if kind_of(token) == "bad":
                if self.text[start - 1 : start + 1] == "#\\":
                    return _NEW  # the token before, which begins with `#`, is reported
                raise lexis.bad_character(token)
            end = start + len(token)
            return lexis.read_word(token, self.text[end : end + 1])
        except Problem as problem:
            self.report_problem(problem, start)
            return _NEW if problem.id == "bad-character" else None

    # --- dots ---------------------------------------------------------------------------------

    def dot(self, start: int) -> None:
        frame = self.stack[-1]
        if frame.kind not in CLOSERS or not frame.items or frame.dot >= 0:
            help = "write it before the last datum of a list, as in (a . more)"
            self.report("stray-dot", "a dot is not allowed here", start, start + 1, "", help)
        else:
            frame.dot = len(frame.items)

    def dotted(self, frame: _Frame, form: Form, end: int) -> Form:
        behind = form.items[frame.dot :]
        if len(behind) == 1:
            return Form(form.items[:-1], form.place, form.bracket, behind[0])
        start, label = end - 1, "no datum after the dot"
        if behind:
            (start, end), label = self.extent(behind[1]), "second datum after the dot"
        self.report(
            "stray-dot", "exactly one datum must follow a dot, at the end of the list", start, end, label
        )
        return form

    # --- unbalanced text ------------------------------------------------------------------------

    def report_missing_space(self, start: int, end: int) -> None:
        """Report a missing space between two atoms, once for each line: one quotation mark can affect all
        of it.
        """
        line = self.lines.span(start, start).line
        if line == self.missing_space_line:
            return
        self.missing_space_line = line
        here, before = self.text[start], self.text[start - 1]
        if before == "#":
            return  # reported as a word that begins with `#`
        help = None
        if '"' in (here, before):
            help = 'write a quotation mark in a string as \\"'
        elif here == "'":
            help = 'write a string in double quotes: "text"; a single quote quotes the next datum'
        elif here == ",":
            help = "separate the items of a list with spaces, without commas"
        self.report("missing-space", "a space is missing before this", start, end, "", help)

    def report_bare_prefixes(self) -> None:
        while self.stack[-1].kind in _PREFIXES:
            frame = self.stack.pop()
            end = frame.start + len(frame.kind)
            self.report("stray-quote", f"no datum follows this `{frame.kind}`", frame.start, end)

    def report_crossed(self, outer: _Frame, token: str, start: int) -> None:
        """Report the brackets inside `outer` that are open at its end."""
        inner = self.stack[self.stack.index(outer) + 1 :]
        frame = inner[-1]
        closers = "".join(CLOSERS[frame.kind] for frame in reversed(inner) if frame.kind in CLOSERS)
        lacking = f"`{closers}` is" if len(closers) == 1 else f"{len(closers)} closing brackets are"
        help = f"{lacking} missing before the `{token}` in line {self.lines.span(start, start).line}"
        message = f"this `{frame.kind}` is never closed"
        self.report("unclosed-form", message, frame.start, frame.start + 1, "opened here", help)

    def report_stray(self, start: int, end: int) -> None:
        """Report unmatched closing brackets; adjacent ones are one diagnostic."""
        before, self.stray_end = self.stray_end, end
        if before >= 0 and not self.text[before:start].strip():
            return
        message = f"this `{self.text[start]}` closes nothing: no bracket is open"
        self.report("stray-bracket", message, start, end, "", self.early_end_help())

    def find_misindented(self) -> dict[int, int]:
        """Find forms that begin in the first column inside another form: their offsets, with that of the
        outer
        form.
        """
        found = {}
        for datum in self.stack[0].items:
            start, end = self.extent(datum)
            inner = [at for at in (self.text.find(mark, start, end) for mark in ("\n(", "\n[")) if at >= 0]
            if inner:
                found[min(inner) + 1] = start
        return found

    def extent(self, datum: Datum) -> tuple[int, int]:
        """Return the offsets of the begin and the end of a datum."""
        place = datum.place
        if type(place) is tuple:
            return place[1:]
        span = datum.span
        assert span is not None
        return self.lines.offset(span.line, span.column), self.lines.offset(span.end_line, span.end_column)

    def warn_of_indentation(self, misindented: dict[int, int], tokens: list[str]) -> None:
        """Warn about forms whose indentation contradicts their brackets, although the brackets balance."""
        position = count = 0
        for token in tokens if misindented else ():
            # A bracket character can be part of a string or a comment.
            if position in misindented and token in CLOSERS and count < MAX_INDENTATION_WARNINGS:
                count += 1
                line = self.lines.span(misindented[position], position).line
                message = f"this form begins in the first column, but is inside the form of line {line}"
                help = "a closing bracket may be missing before it; if not, run `llc fmt` to indent it"
                span = self.lines.span(position, position + 1)
                self.findings.append(Diagnostic("misleading-indentation", message, span, "", help, "warning"))
            position += len(token)

    def early_end_help(self) -> str | None:
        """Return the help for an unmatched bracket: the form before it that, by the indentation, ends too
        early.
        """
        data = self.stack[0].items
        for at in range(len(data) - 1, max(0, len(data) - 100), -1):
            span, before = data[at].span, data[at - 1].span
            if span is None or before is None or span.column == 1 or before.end_line == span.line:
                break
            if before.column < span.column:
                return (
                    f"the form of line {before.line} ends in line {before.end_line}, but "
                    f"line {span.line} is indented as a part of it: remove a closing bracket there"
                )
        if not data or (span := data[-1].span) is None:
            return None
        return f"the form before it, in line {span.line}, is complete"


def _unterminated_string(tokens: list[str], start: int) -> int:
    """Return the index of the string, from token `start` on, that most likely lacks its closing quotation
    mark.

    The last string is unterminated. After a missing quotation mark, text and code are exchanged, so that the
    next string ends directly before a word.
    """
    for index in range(start, len(tokens) - 1):
        if tokens[index][0] == '"' and kind_of(tokens[index + 1]) in ("atom", "bad"):
            return index
    return len(tokens) - 1
