"""The text form of a program: printed here, read back by `text_reader`.

What is printed reads back to an equal program, constants with their types and, where they are printed, spans
too (`spec/ir.md`, Text form). Printing needs no parser and parsing loads one only when it is used.

Must not contain: what makes a program good (`verify`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from json.encoder import encode_basestring
from typing import Any, assert_never

import attrs

from . import nodes
from .constants import Symbol
from .python_internals import late_pattern
from .spans import Places, Source, Span

# Words the grammar accepts where a name could stand too; a name that is one is printed in backticks.
_HEADS = {"setbox", "note"}
_HEADS |= {"goto", "branch", "switch", "call", "tailcall", "perform", "parallel", "return", "fail"}
KEYWORDS = _HEADS | {"on", "closure", "null", "true", "false", "inf", "nan"}
BARE_NAME = late_pattern(r"[A-Za-z_/][A-Za-z0-9_./]*(?:-[A-Za-z0-9_./]+)*")
# What JSON leaves bare and an editor, a terminal or a text file would not keep. A surrogate is
# written `\u{d83d}`, since two `\ud83d`-like escapes in a row mean one character.
_UNSAFE = late_pattern("[\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff]")
_WIDTH = 100
# Python refuses to print larger integers in decimal (sys.set_int_max_str_digits).
_DECIMAL_BITS = 10_000


def print_program(program: nodes.Program, spans: bool = True) -> str:
    """`program` as text that `parse_program` reads back to an equal program.

    Without `spans`, places are left out and only they are lost. Raises TypeError for a constant
    that is no value of the language (`verify` finds those).
    """
    printer = _Printer(program.sources, spans)
    printer.program(program)
    return "".join(printer.out)


def parse_program(text: str, path: str, places: Places = "written") -> nodes.Program:
    """The program written in `text`; raises CompileError with places in `path`.

    places: the spans that its parts get: those that the text writes; `added`: in a text that lists no
    sources, a part without a span gets its place in this text; `own`: each part its place in this text.
    """
    from .text_reader import read_program

    return read_program(text, path, places)


def quote(text: str) -> str:
    """`text` as a string literal: JSON, with everything escaped that a text file might not keep."""
    return _UNSAFE.sub(_escape, encode_basestring(text))


def quote_name(name: str) -> str:
    """`name` bare where that is clear, else in backticks with the escapes of a string."""
    if BARE_NAME.fullmatch(name) and name not in KEYWORDS:
        return name
    inner = json.dumps(name, ensure_ascii=False)[1:-1].replace('\\"', '"').replace("`", "\\`")
    return "`" + _UNSAFE.sub(_escape, inner) + "`"


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\u{{{code:x}}}" if 0xD800 <= code <= 0xDFFF else f"\\u{code:04x}"


def print_constant(value: Any) -> str:
    """A constant as text of an expression; TypeError if it is not a value of the language."""
    out: list[str] = []
    # A text on the stack is printed as it is; a value stands boxed in a one-tuple of its own list.
    stack: list[str | list[Any]] = [[value]]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            out.append(item)
            continue
        value = item[0]
        kind = type(value)
        if kind is str:
            out.append(quote(value))
        elif kind is int:
            out.append(hex(value) if value.bit_length() > _DECIMAL_BITS else str(value))
        elif kind is tuple:
            out.append("[")
            stack.append("]")
            for index in range(len(value) - 1, -1, -1):
                stack.append([value[index]])
                if index:
                    stack.append(", ")
        elif kind is dict:
            out.append("{")
            stack.append("}")
            entries = list(value.items())
            for index in range(len(entries) - 1, -1, -1):
                key, content = entries[index]
                if type(key) is not str:
                    raise TypeError(f"a map's key must be a string, not {type(key).__name__}")
                stack.append([content])
                stack.append((", " if index else "") + quote(key) + ": ")
        elif kind is float:
            out.append(repr(value))
        elif value is None:
            out.append("null")
        elif kind is bool:
            out.append("true" if value else "false")
        elif kind is Symbol:
            out.append("'" + quote_name(value.name))
        else:
            raise TypeError(f"no value of the language: {kind.__name__}")
    return "".join(out)


def meta_map(meta: nodes.Meta) -> dict[str, Any]:
    """`meta` as the map its text form shows; bounds that are not set are left out."""
    shown: dict[str, Any] = {
        "kind": meta.kind,
        "paradigm": meta.paradigm,
        "scope": meta.scope,
        "maintain": meta.maintain,
        "limits": _bounds(meta.limits),
    }
    if meta.loops:
        shown["loops"] = tuple({**attrs.asdict(loop), "limits": _bounds(loop.limits)} for loop in meta.loops)
    return shown


def _bounds(limits: nodes.Limits) -> dict[str, Any]:
    return {name: bound for name, bound in attrs.asdict(limits).items() if bound not in (None, {})}


class _Printer:
    """Appends pieces of text to `out`; names and places are rendered once each."""

    def __init__(self, sources: Iterable[Source], spans: bool) -> None:
        self.out: list[str] = []
        self.sources = tuple(sources)
        self.spans = spans
        self.index: dict[str, str] = {}
        for number, source in enumerate(self.sources):
            self.index.setdefault(source.path, str(number))
        self.names: dict[str, str] = {}

    def name(self, name: str) -> str:
        shown = self.names.get(name)
        if shown is None:
            shown = self.names[name] = quote_name(name)
        return shown

    def place(self, span: Span) -> str:
        path = self.index.get(span.path) or quote(span.path)
        return f"{path}:{span.line}:{span.column}-{span.end_line}:{span.end_column}"

    def end(self, span: Span | None) -> None:
        """The place of a function, state, instruction or exit, and the end of its line."""
        if span is not None and self.spans:
            self.out.append(f" @{self.place(span)}\n")
        else:
            self.out.append("\n")

    def program(self, program: nodes.Program) -> None:
        out = self.out
        out.append(f"program {self.name(program.name)} entry {self.name(program.entry)}\n")
        out.append(f"meta {print_constant(meta_map(program.meta))}\n")
        for number, source in enumerate(self.sources):
            digest = f" sha256:{source.sha256}" if re.fullmatch("[0-9a-f]+", source.sha256) else ""
            out.append(f"source {number} {quote(source.path)}{digest}\n")
        for function in program.functions:
            self.function(function)

    def function(self, function: nodes.Function) -> None:
        out = self.out
        head = f"\nfunction {self.name(function.name)}("
        out.append(head)
        column = self.wrapped(function.parameters, len(head) - 1)
        if function.rest:
            out.append(" rest")
            column += 5
        for word, names in (("captures", function.captures), ("locals", function.locals)):
            if names:
                out.append(f" {word}(")
                column = self.wrapped(names, column + len(word) + 2)
        self.end(function.span)
        for state in function.states:
            self.state(state)

    def wrapped(self, names: tuple[str, ...], column: int) -> int:
        """Names and the closing bracket over as many lines as they need; the column reached."""
        out = self.out
        for index, name in enumerate(names):
            shown = self.name(name)
            separator = ", " if index else ""
            if column + len(separator) + len(shown) >= _WIDTH:
                separator, column = separator.rstrip() + "\n    ", 4 - len(separator)
            out.append(separator + shown)
            column += len(separator) + len(shown)
        out.append(")")
        return column + 1

    def state(self, state: nodes.State) -> None:
        handler = state.handler
        if handler is None:
            self.out.append(f"  state {self.name(state.name)}")
        else:
            self.out.append(
                f"  state {self.name(state.name)}"
                f" on fault -> {self.name(handler.target)}({self.name(handler.slot)})"
            )
        self.end(state.span)
        for instruction in state.body:
            self.instruction(instruction)
        self.exit(state.exit)

    def instruction(self, instruction: nodes.Instruction) -> None:
        if isinstance(instruction, nodes.Set):
            self.out.append(f"    {self.name(instruction.slot)} = ")
            self.expression(instruction.value)
        elif isinstance(instruction, nodes.Note):
            self.out.append(f"    note {self.name(instruction.kind)} ")
            self.expression(instruction.fields)
        else:
            self.out.append("    setbox ")
            self.expression(instruction.box)
            self.out.append(" ")
            self.expression(instruction.value)
        self.end(instruction.span)

    def exit(self, exit_: nodes.Exit) -> None:
        out = self.out
        name = self.name
        match exit_:
            case nodes.Goto():
                out.append(f"    goto {name(exit_.target)}")
            case nodes.Branch():
                out.append("    branch ")
                self.expression(exit_.condition)
                out.append(f" {name(exit_.then)} {name(exit_.otherwise)}")
            case nodes.Switch():
                out.append("    switch ")
                self.expression(exit_.subject)
                cases = [f"{quote(case)} -> {name(target)}" for case, target in exit_.cases]
                if exit_.default is not None:
                    cases.append(f"else -> {name(exit_.default)}")
                out.append(f" {{{', '.join(cases)}}}")
            case nodes.Call():
                out.append("    call ")
                self.callee(exit_.callee)
                self.arguments(exit_.args)
                out.append(f" -> {name(exit_.slot)} then {name(exit_.next)}")
            case nodes.TailCall():
                out.append("    tailcall ")
                self.callee(exit_.callee)
                self.arguments(exit_.args)
            case nodes.Perform():
                out.append(f"    perform {name(exit_.kind)} ")
                self.expression(exit_.args)
                out.append(f" -> {name(exit_.slot)} then {name(exit_.next)}")
            case nodes.Parallel():
                out.append("    parallel ")
                self.callee(exit_.callee)
                out.append(" over ")
                self.expression(exit_.items)
                out.append(f" -> {name(exit_.slot)} then {name(exit_.next)}")
            case nodes.Return():
                out.append("    return ")
                self.expression(exit_.value)
            case nodes.Fail():
                out.append("    fail ")
                self.expression(exit_.error)
            case _:
                assert_never(exit_)
        self.end(exit_.span)

    def callee(self, callee: nodes.Expr) -> None:
        if isinstance(callee, nodes.Slot | nodes.Closure):
            self.expression(callee)
        else:
            self.out.append("(")
            self.expression(callee)
            self.out.append(")")

    def arguments(self, args: tuple[nodes.Expr, ...]) -> None:
        self.out.append("(")
        for index, arg in enumerate(args):
            if index:
                self.out.append(", ")
            self.expression(arg)
        self.out.append(")")

    def expression(self, expr: nodes.Expr) -> None:
        """Without recursion: an expression may be nested deeper than Python's stack."""
        out = self.out
        names = self.names
        spans = self.spans
        stack: list[nodes.Expr | str] = [expr]
        while stack:
            item = stack.pop()
            if isinstance(item, str):
                out.append(item)
                continue
            end = f"^{self.place(item.span)}" if spans and item.span is not None else ""
            if isinstance(item, nodes.Slot):
                out.append((names.get(item.name) or self.name(item.name)) + end)
            elif isinstance(item, nodes.Const):
                out.append(print_constant(item.value) + end)
            else:
                if isinstance(item, nodes.Prim):
                    out.append(f"{names.get(item.op) or self.name(item.op)}(")
                    args = item.args
                else:
                    out.append(f"closure {self.name(item.function)}(")
                    args = item.captures
                stack.append(")" + end)
                for index in range(len(args) - 1, -1, -1):
                    stack.append(args[index])
                    if index:
                        stack.append(", ")
