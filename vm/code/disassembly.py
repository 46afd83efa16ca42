"""Disassembly of code images, as text and as data.

A listing has one label per state, and one line per instruction: its operands by name, its stack effect, the
stack height after it, and the source lines if the image has them. The input need not be valid: an image that
`verify` would reject is listed too, with `?` for operands that refer to nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from functools import lru_cache
from textwrap import wrap
from typing import Any

from ...ir.constants import constant_problem
from ...ir.diagnostics import clean
from ...ir.light_records import LightRecord
from ...ir.primitives import PRIMITIVES
from ...ir.text import print_constant
from ..values.faults import Place
from ..values.values import show
from .image import FunctionCode, Image
from .opcodes import BY_NUMBER, NO_STATE, Opcode

# Maximal length of a name or constant, and of a source line, in a listing.
_WIDTH = 60
_LINE = 100
# Maximal number of switch cases on the line of the instruction.
_FEW_CASES = 3


def disassemble(image: Image) -> str:
    """The listing of an image."""
    out = [f"image {_short(image.name)}", f"  hash {image.program_hash}"]
    meta = image.meta
    limits = {name: bound for name, bound in meta.get("limits", {}).items() if bound not in (None, {})}
    shown = {**meta, "limits": limits}
    out += [
        f"  {name} {_value(tuple(value) if type(value) is list else value)}" for name, value in shown.items()
    ]
    out += [f"  source {_short(source.path)}" for source in image.sources]
    listing = _Listing(image)
    for index, function in enumerate(image.functions):
        out.append("")
        out += listing.function(index, function)
    return "\n".join(out) + "\n"


def disassemble_functions(image: Image, functions: Iterable[int]) -> str:
    """The listing of some functions of an image, by index."""
    listing = _Listing(image)
    return "\n".join("\n".join(listing.function(index, image.functions[index])) + "\n" for index in functions)


def disassemble_json(image: Image) -> dict[str, Any]:
    """The same as JSON-able data; constants as literals of the IR's text form."""
    listing = _Listing(image)
    return {
        "name": image.name,
        "hash": image.program_hash,
        "entry": image.entry,
        "meta": image.meta,
        "constants": [_literal(constant) for constant in image.constants],
        "sources": [
            {"path": source.path, "sha256": source.sha256, "text": source.text} for source in image.sources
        ],
        "functions": [listing.function_json(function) for function in image.functions],
    }


class _Instruction(LightRecord):
    """One instruction as it is listed. `depth` is the height of the operand stack after it."""

    offset: int
    row: Opcode | None
    words: tuple[int, ...]
    operands: list[str]
    depth: int

    @property
    def name(self) -> str:
        return self.row.name if self.row is not None else ".word"

    @property
    def picture(self) -> str:
        """The row's stack effect, with the operands of a primitive by name."""
        if self.row is None:
            return ""
        signature = PRIMITIVES.get(self.operands[0]) if self.row.name == "PRIM" else None
        return self.row.picture if signature is None else f"{signature.operands} -- value".lstrip()


class _Listing:
    def __init__(self, image: Image) -> None:
        self.image = image
        self.lines = {
            source.path: source.text.split("\n") for source in image.sources if source.text is not None
        }

    # --- code -------------------------------------------------------------------------------

    def code(self, function: FunctionCode, state: int) -> list[_Instruction]:
        """A state's instructions; words that are not an instruction are listed one by one."""
        code = function.code
        start, end = function.bounds(state)
        found = []
        depth = 0
        offset = start
        while offset < min(end, len(code)):
            row = BY_NUMBER.get(code[offset])
            after = offset + 1 + (len(row.operands) if row is not None else 0)
            if row is None or after > min(end, len(code)):
                found.append(_Instruction(offset, None, (code[offset],), [str(code[offset])], depth))
                offset += 1
                continue
            words = tuple(code[offset + 1 : after])
            depth += row.pushes - row.popped(words)
            operands = [self.operand(function, *pair) for pair in zip(row.operands, words, strict=True)]
            found.append(_Instruction(offset, row, words, operands, depth))
            offset = after
        return found

    def operand(self, function: FunctionCode, kind: str, word: int) -> str:
        """An operand by name, or its number with `?` if it refers to nothing."""
        image = self.image
        match kind:
            case "constant":
                return _value(image.constants[word]) if word < len(image.constants) else f"{word}?"
            case "primitive" | "note" | "effect":
                name = image.constants[word] if word < len(image.constants) else None
                return _short(name) if type(name) is str else f"{word}?"
            case "slot":
                return _short(function.slots[word]) if word < len(function.slots) else f"{word}?"
            case "function":
                return _short(image.functions[word].name) if word < len(image.functions) else f"{word}?"
            case "state" | "state?":
                if kind == "state?" and word == NO_STATE:
                    return "-"
                return self.label(function, word)
            case "table":
                if word >= len(function.tables):
                    return f"{word}?"
                cases = self.cases(function, word)
                return f"{{{', '.join(cases)}}}" if len(cases) <= _FEW_CASES else f"table {word}"
            case _:
                return str(word)

    def cases(self, function: FunctionCode, table: int) -> list[str]:
        rows = function.tables[table].items()
        return [f"{_value(case)} -> {self.label(function, target)}" for case, target in rows]

    def long_table(self, function: FunctionCode, instruction: _Instruction) -> list[str]:
        """The cases of a table with too many cases for one line, as further lines."""
        if instruction.name != "SWITCH" or instruction.words[0] >= len(function.tables):
            return []
        cases = self.cases(function, instruction.words[0])
        return cases if len(cases) > _FEW_CASES else []

    def label(self, function: FunctionCode, state: int) -> str:
        return _short(function.states[state]) if 0 <= state < len(function.states) else f"{state}?"

    # --- places -----------------------------------------------------------------------------

    def place(self, index: int) -> Place | None:
        return self.image.place(index) if 0 <= 5 * index <= len(self.image.spans) else None

    def source_line(self, place: Place) -> str:
        """`path:line | text` for the first line of a place."""
        path, line = place[0], place[1]
        lines = self.lines.get(path, [])
        head = f"; {_short(path)}:{line}"
        return f"{head} | {clean(lines[line - 1].rstrip(), _LINE)}" if 0 < line <= len(lines) else head

    # --- for people -------------------------------------------------------------------------

    def function(self, index: int, function: FunctionCode) -> list[str]:
        first, second = function.parameters, function.parameters + function.captures
        parameters = ", ".join(map(_short, function.slots[:first]))
        entry = " (entry)" if index == self.image.entry else ""
        parameters += "…" if function.rest else ""
        out = [f"function {_short(function.name)}({parameters}){entry}, stack {function.max_stack}"]
        for what, names in (("captures", function.slots[first:second]), ("locals", function.slots[second:])):
            if names:
                text = f"{what} {', '.join(map(_short, names))}"
                out += wrap(text, _LINE, initial_indent="  ", subsequent_indent="    ")
        starts = function.positions[::2]
        shown: tuple[str, int] | None = None
        for state in range(min(len(function.states), len(function.offsets))):
            handler = function.handlers.get(state)
            caught = ""
            if handler is not None:
                target, slot = handler
                caught = (
                    f"  on fault -> {self.label(function, target)}({self.operand(function, 'slot', slot)})"
                )
            out.append(f"  {_short(function.states[state])}:{caught}")
            for instruction in self.code(function, state):
                row = bisect_right(starts, instruction.offset) - 1
                place = self.place(function.positions[2 * row + 1]) if row >= 0 else None
                if place is not None and place[:2] != shown:
                    out.append(f"          {self.source_line(place)}")
                    shown = place[:2]
                text = f"{instruction.offset:7}  {instruction.name:<9}{' '.join(instruction.operands)}"
                out.append(f"{text:<58}  ( {instruction.picture} )  {instruction.depth}")
                out += [f"{'':18}{case}" for case in self.long_table(function, instruction)]
        return out

    # --- for programs -----------------------------------------------------------------------

    def function_json(self, function: FunctionCode) -> dict[str, Any]:
        first, second = function.parameters, function.parameters + function.captures
        return {
            "name": function.name,
            "parameters": list(function.slots[:first]),
            **({"rest": True} if function.rest else {}),
            "captures": list(function.slots[first:second]),
            "locals": list(function.slots[second:]),
            "max_stack": function.max_stack,
            "span": self.span_json(function.span),
            "states": [
                self.state_json(function, state)
                for state in range(min(len(function.states), len(function.offsets)))
            ],
        }

    def state_json(self, function: FunctionCode, state: int) -> dict[str, Any]:
        handler = function.handlers.get(state)
        span = function.state_spans[state] if state < len(function.state_spans) else 0
        return {
            "name": function.states[state],
            "offset": function.offsets[state],
            "span": self.span_json(span),
            "handler": None
            if handler is None
            else {
                "target": self.label(function, handler[0]),
                "slot": self.operand(function, "slot", handler[1]),
            },
            "code": [
                {
                    "offset": instruction.offset,
                    "op": instruction.name,
                    "words": list(instruction.words),
                    "operands": instruction.operands,
                    "stack": instruction.picture,
                    "depth": instruction.depth,
                    "span": self.span_json(function.span_at(instruction.offset)),
                }
                for instruction in self.code(function, state)
            ],
        }

    def span_json(self, index: int) -> dict[str, Any] | None:
        place = self.place(index)
        if place is None:
            return None
        return dict(zip(("file", "line", "column", "end_line", "end_column"), place, strict=True))


@lru_cache(maxsize=1 << 16)
def _short(text: str) -> str:
    return clean(text, _WIDTH).replace("\n", "�")


def _value(value: Any) -> str:
    """A shortened constant."""
    text = show(value)
    return clean(text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…")


def _literal(value: Any) -> str:
    """A constant in the IR's text form; an invalid one is shortened."""
    return print_constant(value) if constant_problem(value) is None else _value(value)
