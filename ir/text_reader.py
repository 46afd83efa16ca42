"""Reads the text form of a program (`text.lark`) with an LALR parser, bottom-up, without recursion.

Owns the meaning of each rule of the grammar and the wording of its errors. Loaded only when a text is parsed.
"""

from __future__ import annotations

import hashlib
import math
import re
from _thread import allocate_lock
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import attrs
from lark import Lark, Token
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken
from lark.lexer import PatternStr

from . import nodes as ir
from .constants import Symbol
from .diagnostics import CompileError, Diagnostic, clean, suggest
from .scalars import MAX_DIGITS
from .spans import Places, Source, Span

_ESCAPE = re.compile(
    r"\\(?:u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})"
    r"|u([0-9a-fA-F]{4})|u\{([0-9a-fA-F]{1,6})\}|(.))"
)
_SINGLE = {'"': '"', "`": "`", "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_SPAN = re.compile(r'[@^](?:(\d+)|(".*")):(\d+):(\d+)-(\d+):(\d+)')
# An image has 32 bits for a line or a column.
_MAX_PLACE = (1 << 32) - 1
_MAX_NUMBER = 10
_MAX_SHOWN = 40
_MAX_EXPECTED = 8
_MAX_PROBLEMS = 100

# What a person calls the terminals of the grammar.
_TERMS = {
    "NAME": "a name",
    "QUOTED_NAME": "a name",
    "STRING": "a string",
    "SYMBOL": "a symbol",
    "INT": "a number",
    "FLOAT": "a number",
    "SHA256": "a digest",
    "SPAN": "a place",
    "EXPR_SPAN": "a place",
    "$END": "the end of the text",
}
# Words that are valid where a name is; the list of expected tokens shows "name" instead of them.
_WORDS = {
    word.upper() for word in ["program", "entry", "meta", "source", "function", "captures", "locals", "state"]
}
_WORDS |= {"REST", "FAULT", "THEN", "ELSE", "OVER"}


def read_program(text: str, path: str, places: Places) -> ir.Program:
    """See `text.parse_program`."""
    with _LOCK:
        return _reader().read(text, path, places)


class _Unreadable(Exception):
    """Reading cannot go on after this."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        self.diagnostic = diagnostic
        super().__init__(diagnostic)


# The parser binds its callbacks when it is built, which takes long; so there is one reader, used by
# one thread at a time, and what belongs to one text is set anew by `read`.
_LOCK = allocate_lock()


@cache
def _reader() -> _Reader:
    return _Reader()


Children = list[Any]


def _constant(value: Any) -> Callable[[_Reader, Children], Any]:
    """The method of a rule that always means this value."""
    return lambda reader, children: value


class _Reader:
    """One method for each rule of the grammar: the node that its children make.

    Names and literals come as tokens; an optional child that is absent comes as None.
    """

    def __init__(self) -> None:
        self.lark = Lark.open("text.lark", rel_to=__file__, parser="lalr", transformer=self)
        self.terms = {
            terminal.name: f"`{terminal.pattern.value}`"
            if isinstance(terminal.pattern, PatternStr)
            else _TERMS.get(terminal.name, terminal.name)
            for terminal in self.lark.terminals
        }
        self.begin("")

    def begin(self, path: str, places: Places = "written") -> None:
        self.path = path
        self.places = places
        self.problems: list[Diagnostic] = []
        self.sources: list[Source] = []
        self.names: dict[str, str] = {}
        self.spans: dict[str, Span | None] = {}

    def read(self, text: str, path: str, places: Places) -> ir.Program:
        self.begin(path, places)
        program: Any = None
        try:
            program = self.lark.parse(text)
        except _Unreadable as error:
            self.problems.append(error.diagnostic)
        except UnexpectedInput as error:
            self.problems.append(self.syntax_error(error, text))
        problems = self.problems
        self.begin("")
        if problems:
            digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
            raise CompileError(problems, [Source(path, digest, text)])
        assert isinstance(program, ir.Program)
        return program

    # --- errors -------------------------------------------------------------------------------

    def syntax_error(self, error: UnexpectedInput, text: str) -> Diagnostic:
        expected: Iterable[str] = ()
        line, column = int(error.line or 1), int(error.column or 1)
        end = column + 1
        if isinstance(error, UnexpectedToken):
            token = error.token
            expected = error.expected
            if token.type == "$END":
                return self.syntax_problem(_end_of(text, self.path), "the text ends too early", expected)
            message = f"unexpected {_shown(token)}"
            end = column + len(token)
        else:
            assert isinstance(error, UnexpectedCharacters)
            at = error.pos_in_stream or 0
            character = text[at : at + 1]
            expected = error.allowed or ()
            if character in '"`':
                what = "string" if character == '"' else "name"
                message = f"this {what} is not closed on its line, or holds a bare control character"
                expected = ()
            else:
                message = f"unexpected {_shown(character)}"
        return self.syntax_problem(Span(self.path, line, column, line, end), message, expected)

    def syntax_problem(self, span: Span, message: str, expected: Iterable[str]) -> Diagnostic:
        if "NAME" in expected:
            expected = set(expected) - _WORDS
        terms = sorted({self.terms.get(name, name) for name in expected})
        help_ = "expected " + " or ".join(terms) if 0 < len(terms) <= _MAX_EXPECTED else None
        return Diagnostic("ir-syntax", message, span, help=help_)

    def problem(self, token: Token, message: str, help_: str | None = None) -> None:
        if len(self.problems) < _MAX_PROBLEMS:
            self.problems.append(Diagnostic("ir-syntax", message, self.here(token), help=help_))

    def here(self, token: Token) -> Span:
        """The span of a token; no token contains a line end."""
        assert token.line is not None
        assert token.column is not None
        return Span(self.path, token.line, token.column, token.line, token.column + len(token))

    # --- tokens -------------------------------------------------------------------------------

    def name(self, token: Token) -> str:
        name = self.names.get(token)
        if name is None:
            name = self.unquoted(token) if token.type == "QUOTED_NAME" else str(token)
            self.names[str(token)] = name
        return name

    def unquoted(self, token: Token) -> str:
        """The text in quotes or backticks."""
        body = str(token)[1:-1]
        if "\\" not in body:
            return body

        def meant(match: re.Match[str]) -> str:
            high, low, unit, code, single = match.groups()
            if high is not None:
                return chr(0x10000 + ((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00)
            if unit is not None:
                return chr(int(unit, 16))
            if code is not None and int(code, 16) <= 0x10FFFF:
                return chr(int(code, 16))
            if single is None or single not in _SINGLE:
                self.problem(token, f"no escape is spelled {_shown(match.group())}")
            return _SINGLE.get(single, "")

        return _ESCAPE.sub(meant, body)

    def span(self, token: Token | None, head: Token) -> Span | None:
        """The place written in `token`, or that of `head`; see `text.parse_program`."""
        if self.places == "own" or (token is None and self.places == "added" and not self.sources):
            return self.here(head)
        if token is None:
            return None
        key = str(token)[1:]
        if key not in self.spans:
            self.spans[key] = self.written_span(token)
        return self.spans[key]

    def written_span(self, token: Token) -> Span | None:
        match = _SPAN.fullmatch(token)
        assert match is not None
        number, quoted, *places = match.groups()
        if any(len(digits) > _MAX_NUMBER or int(digits) > _MAX_PLACE for digits in places):
            self.problem(token, "a line or column number is too long")
            return None
        if quoted is not None:
            path = self.unquoted(token.update(value=quoted))
        elif len(number) <= _MAX_NUMBER and int(number) < len(self.sources):
            path = self.sources[int(number)].path
        else:
            self.problem(token, f"there is no source {_shown(number)}")
            return None
        line, column, end_line, end_column = map(int, places)
        return Span(path, line, column, end_line, end_column)

    # --- the program --------------------------------------------------------------------------

    def start(self, children: Children) -> ir.Program:
        name, entry, meta, *rest = children
        functions = tuple(item for item in rest if isinstance(item, ir.Function))
        return ir.Program(
            self.name(name), self.name(entry), functions, meta or ir.Meta(), sources=tuple(self.sources)
        )

    def source(self, children: Children) -> None:
        _, number, path, digest = children
        if str(number) != str(len(self.sources)):
            self.problem(number, f"sources are numbered in order; this one is {len(self.sources)}")
        self.sources.append(Source(self.unquoted(path), str(digest)[7:] if digest else ""))

    def meta(self, children: Children) -> ir.Meta:
        token, fields = children
        given = fields.pop("loops", ())
        if type(given) is not tuple or not all(type(loop) is dict and "function" in loop for loop in given):
            self.problem(token, "`loops` is a list of maps with a `function`")
            given = ()
        loops = tuple(ir.InnerLoop(**self.settings(token, "loops.", ir.InnerLoop, loop)) for loop in given)
        return ir.Meta(**self.settings(token, "", ir.Meta, fields), loops=loops)

    def settings(self, token: Token, within: str, cls: type[Any], given: dict[str, Any]) -> dict[str, Any]:
        """The known ones among settings, their `limits` read."""
        limits = given.pop("limits", {})
        if type(limits) is not dict:
            self.problem(token, f"`{within}limits` is a map")
            limits = {}
        for what, allowed, fields in ((within, cls, given), (f"{within}limits.", ir.Limits, limits)):
            names = [field.name for field in attrs.fields(allowed)]
            for name in [name for name in fields if name not in names]:
                self.problem(token, f"unknown setting `{what}{_shown(name, '')}`", suggest(name, names))
                del fields[name]
        return {**given, "limits": ir.Limits(**limits)}

    def function(self, children: Children) -> ir.Function:
        head, name, parameters, rest, captures, locals_, span, *states = children
        return ir.Function(
            self.name(name), parameters, tuple(states), captures or (), locals_ or (),
            rest=rest is not None, span=self.span(span, head),
        )  # fmt: skip

    def name_list(self, children: Children) -> tuple[str, ...]:
        return tuple(map(self.name, children))

    def state(self, children: Children) -> ir.State:
        head, name, handler, span, *body, exit_ = children
        return ir.State(self.name(name), tuple(body), exit_, handler, span=self.span(span, head))

    def handler(self, children: Children) -> ir.Handler:
        target, slot = children
        return ir.Handler(self.name(target), self.name(slot))

    # --- instructions -------------------------------------------------------------------------

    def assign(self, children: Children) -> ir.Instruction:
        slot, value, span = children
        return ir.Set(self.name(slot), value, span=self.span(span, slot))

    def setbox(self, children: Children) -> ir.Instruction:
        head, box, value, span = children
        return ir.SetBox(box, value, span=self.span(span, head))

    def note(self, children: Children) -> ir.Instruction:
        head, kind, fields, span = children
        return ir.Note(self.name(kind), fields, span=self.span(span, head))

    # --- exits --------------------------------------------------------------------------------

    def goto(self, children: Children) -> ir.Exit:
        head, target, span = children
        return ir.Goto(self.name(target), span=self.span(span, head))

    def branch(self, children: Children) -> ir.Exit:
        head, condition, then, otherwise, span = children
        return ir.Branch(condition, self.name(then), self.name(otherwise), span=self.span(span, head))

    def switch(self, children: Children) -> ir.Exit:
        head, subject, cases, span = children
        default: str | None = None
        pairs = []
        for case, target in cases:
            if case is not None:
                pairs.append((case, target))
            elif default is None:
                default = target
            else:
                self.problem(head, "`else` stands twice in this switch")
        return ir.Switch(subject, tuple(pairs), default, span=self.span(span, head))

    def cases(self, children: Children) -> Children:
        return children

    def case(self, children: Children) -> tuple[str | None, str]:
        case, target = children
        return self.unquoted(case), self.name(target)

    def otherwise(self, children: Children) -> tuple[str | None, str]:
        return None, self.name(children[0])

    def call(self, children: Children) -> ir.Exit:
        head, callee, args, slot, next_, span = children
        return ir.Call(callee, args, self.name(slot), self.name(next_), span=self.span(span, head))

    def tailcall(self, children: Children) -> ir.Exit:
        head, callee, args, span = children
        return ir.TailCall(callee, args, span=self.span(span, head))

    def perform(self, children: Children) -> ir.Exit:
        head, kind, args, slot, next_, span = children
        return ir.Perform(
            self.name(kind), args, self.name(slot), self.name(next_), span=self.span(span, head)
        )

    def parallel(self, children: Children) -> ir.Exit:
        head, callee, items, slot, next_, span = children
        return ir.Parallel(callee, items, self.name(slot), self.name(next_), span=self.span(span, head))

    def return_(self, children: Children) -> ir.Exit:
        head, value, span = children
        return ir.Return(value, span=self.span(span, head))

    def fail(self, children: Children) -> ir.Exit:
        head, error, span = children
        return ir.Fail(error, span=self.span(span, head))

    # --- expressions --------------------------------------------------------------------------

    def const(self, children: Children) -> ir.Expr:
        value, span = children
        return ir.Const(value, span=None if span is None else self.span(span, span))

    def slot(self, children: Children) -> ir.Expr:
        name, span = children
        return ir.Slot(self.name(name), span=self.span(span, name))

    def prim(self, children: Children) -> ir.Expr:
        op, args, span = children
        return ir.Prim(self.name(op), args, span=self.span(span, op))

    def closure(self, children: Children) -> ir.Expr:
        function, captures, span = children
        return ir.Closure(self.name(function), captures, span=self.span(span, function))

    def exprs(self, children: Children) -> tuple[ir.Expr, ...]:
        return tuple(children)

    # --- constants ----------------------------------------------------------------------------

    null, true, false = _constant(None), _constant(True), _constant(False)
    inf, minus_inf, nan = _constant(math.inf), _constant(-math.inf), _constant(math.nan)

    def integer(self, children: Children) -> Any:
        token = children[0]
        if "x" in token:
            return int(token, 16)
        if len(token) > MAX_DIGITS:
            self.problem(token, "this number is too long for decimal digits", "write it in hexadecimal, 0x…")
            return 0
        return int(token)

    def number(self, children: Children) -> Any:
        return float(children[0])

    def string(self, children: Children) -> Any:
        return self.unquoted(children[0])

    def symbol(self, children: Children) -> Any:
        token = children[0]
        name = str(token)[1:]
        return Symbol(self.unquoted(token.update(value=name)) if name.startswith("`") else name)

    def array(self, children: Children) -> Any:
        return tuple(children)

    def object(self, children: Children) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        for key, value in zip(children[::2], children[1::2], strict=True):
            name = self.unquoted(key)
            if name in entries:
                self.problem(key, f"the key {_shown(name)} stands twice in this map")
            entries[name] = value
        return entries


def _shown(text: str, quote: str = "`") -> str:
    return quote + clean(text, _MAX_SHOWN).replace("\n", " ") + quote


def _end_of(text: str, path: str) -> Span:
    lines = text.rstrip().split("\n")
    line, column = len(lines), len(lines[-1]) + 1
    return Span(path, line, column, line, column + 1)
