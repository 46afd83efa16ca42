"""Code images: a compiled program as data, and its file format.

An image is untrusted input. `Image.from_bytes` rejects damaged and malformed bytes in time
and memory proportional to their length; `verify` checks the content (stack depths, ranges,
names) before a machine executes it.

    magic     8 bytes  89 'L' 'L' 'B' 0D 0A 1A 0A    detects transfers that convert line ends
    version   u16      all numbers are little-endian
    lengths   u32 u32  of the two sections, unpacked
    digests   32 32    SHA-256 of the program section (the program's hash), and of the rest
    program   constants, names, code
    debug     spans and sources, which do not affect the program's hash

The sections are packed (`packing`). In version 1 they are not packed, and the second digest covers the debug
section; version 1 is still read, and it is written if the texts in it must be visible.

A section is a u32 length, that number of bytes of JSON, then u32 words to the section's end: the arrays
that the JSON declares, in order (`_program_section`, `_debug_section`).
"""

from __future__ import annotations

import sys
from array import array

from ...ir import light_json
from ...ir.python_internals import sha256
from ..values.faults import Place
from ..values.heap import HeapError, HeapReader, HeapWriter
from ..values.values import Value
from .packing import PackingError, pack, unpack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any, TypeAlias

Words: TypeAlias = "array[int]"

MAGIC = b"\x89LLB\r\n\x1a\n"
VERSION = 2
PLAIN = 1
_HEADER = len(MAGIC) + 2 + 4 + 4 + 32 + 32

_META_TYPES: dict[str, tuple[type, ...]] = {
    "kind": (str,),
    "paradigm": (str, type(None)),
    "scope": (list,),
    "maintain": (bool,),
    "limits": (dict,),
}
_LIMITS = (
    *("max_iterations", "max_steps", "timeout_ms"),
    *("budget_usd", "budget_tokens", "budget_calls", "budget_seconds"),
)


class ImageError(Exception):
    """Bytes that are not an image that this version can read; the message is the reason."""


class SourceText:
    """A source of the program, like `ir.spans.Source`; text is None if it is not included."""

    __slots__ = ("path", "sha256", "text")

    def __init__(self, path: str, sha256: str, text: str | None = None) -> None:
        self.path = path
        self.sha256 = sha256
        self.text = text


class FunctionCode:
    """One function: its frame layout, its states and their code.

    Attributes:
        slots: names; parameters first, then captures (`parameters` and `captures` are their numbers).
        rest: whether the last parameter receives the list of the remaining arguments.
        states: names; state 0 is the entry. `offsets[i]` is the start of state i in `code`; it ends at the
            start of the next state.
        handlers: state → (target state, slot of the fault map).
        tables: the tables of SWITCH, each string → state.
        span, state_spans, positions: indices into `Image.spans`, 0 for none; `positions` has
            pairs (offset, span), each valid up to the next offset.
    """

    __slots__ = (
        "captures",
        "code",
        "handlers",
        "max_stack",
        "name",
        "offsets",
        "parameters",
        "positions",
        "rest",
        "slots",
        "span",
        "state_spans",
        "states",
        "tables",
    )

    def __init__(
        self,
        name: str,
        parameters: int,
        captures: int,
        slots: Sequence[str],
        states: Sequence[str],
        offsets: Words,
        code: Words,
        handlers: dict[int, tuple[int, int]],
        tables: Sequence[dict[str, int]],
        max_stack: int,
        span: int = 0,
        state_spans: Words | None = None,
        positions: Words | None = None,
        rest: bool = False,
    ) -> None:
        self.name = name
        self.parameters = parameters
        self.captures = captures
        self.rest = rest
        self.slots = tuple(slots)
        self.states = tuple(states)
        self.offsets = offsets
        self.code = code
        self.handlers = handlers
        self.tables = tuple(tables)
        self.max_stack = max_stack
        self.span = span
        self.state_spans = words([0] * len(self.states)) if state_spans is None else state_spans
        self.positions = words() if positions is None else positions

    def bounds(self, state: int) -> tuple[int, int]:
        """Start and end of a state in `code`."""
        after = state + 1
        end = self.offsets[after] if after < len(self.offsets) else len(self.code)
        return self.offsets[state], end

    def span_at(self, offset: int) -> int:
        """The span of the instruction at `offset`, 0 if it has none."""
        positions = self.positions
        # Own binary search: few places are looked up in a run, and importing `bisect` takes time.
        low, high = 0, len(positions) // 2
        while low < high:
            middle = (low + high) // 2
            if positions[2 * middle] <= offset:
                low = middle + 1
            else:
                high = middle
        return positions[2 * low - 1] if low else 0


class Image:
    """A compiled program.

    Attributes:
        entry: index of the entry function.
        meta: `ir.nodes.Meta` as JSON-like data.
        constants: plain values (no functions or boxes).
        spans: span i ≥ 1 is five words from 5 * (i - 1): path, line, column, end line, end column;
            path is an index into `paths`.
        loaded: the functions as machines execute them; created by the first machine.
    """

    __slots__ = (
        "_hash",
        "constants",
        "entry",
        "functions",
        "loaded",
        "meta",
        "name",
        "paths",
        "sources",
        "spans",
    )

    def __init__(
        self,
        name: str,
        entry: int,
        meta: dict[str, Any],
        constants: Sequence[Value],
        functions: Sequence[FunctionCode],
        paths: Sequence[str] = (),
        spans: Words | None = None,
        sources: Sequence[SourceText] = (),
    ) -> None:
        self.name = name
        self.entry = entry
        self.meta = meta
        self.constants = tuple(constants)
        self.functions = tuple(functions)
        self.paths = tuple(paths)
        self.spans = words() if spans is None else spans
        self.sources = tuple(sources)
        self.loaded: object = None
        self._hash: str | None = None

    @property
    def program_hash(self) -> str:
        """The program's hash: a hex digest of the program without spans and sources."""
        if self._hash is None:
            self._hash = sha256(_program_section(self)).hexdigest()
        return self._hash

    def place(self, span: int) -> Place | None:
        """The place with a span index."""
        if span == 0:
            return None
        path, line, column, end_line, end_column = self.spans[5 * span - 5 : 5 * span]
        return (self.paths[path], line, column, end_line, end_column)

    def place_at(self, function: FunctionCode, offset: int) -> Place | None:
        """The innermost known place of the instruction at `offset` in a function's code."""
        return self.place(function.span_at(offset))

    def to_bytes(self, packed: bool = True) -> bytes:
        """The image as the content of a file. packed: False leaves its texts readable."""
        program, debug = _program_section(self), _debug_section(self)
        lengths = len(program).to_bytes(4, "little") + len(debug).to_bytes(4, "little")
        content = pack((program, debug)) if packed else None
        if content is None:
            start = MAGIC + PLAIN.to_bytes(2, "little") + lengths
            return b"".join((start, sha256(program).digest(), sha256(debug).digest(), program, debug))
        start = MAGIC + VERSION.to_bytes(2, "little") + lengths
        return b"".join((start, sha256(program).digest(), sha256(content).digest(), content))

    @staticmethod
    def from_bytes(data: bytes) -> Image:
        """Read an image. Raises ImageError for other, damaged or newer data."""
        if data[: len(MAGIC)] != MAGIC:
            if data and MAGIC.startswith(data[: len(MAGIC)]):
                raise ImageError("the image is truncated")
            raise ImageError("this is not a code image")
        version = int.from_bytes(data[8:10], "little")
        if len(data) >= 10 and not PLAIN <= version <= VERSION:
            age = "a newer llc" if version > VERSION else "no llc there ever was"
            raise ImageError(f"the image was made by {age} (format {version}; this one reads {VERSION})")
        lengths = int.from_bytes(data[10:14], "little"), int.from_bytes(data[14:18], "little")
        content = data[_HEADER:]
        if len(data) < _HEADER or (version == PLAIN and len(content) < sum(lengths)):
            raise ImageError("the image is truncated")
        if version == PLAIN and len(content) > sum(lengths):
            raise ImageError("the image is damaged: something follows its end")
        signed = content[lengths[0] :] if version == PLAIN else content
        if data[50:82] != sha256(signed).digest():
            raise ImageError("the image is truncated or damaged: its content does not match its digest")
        try:
            program, debug = (content[: lengths[0]], signed) if version == PLAIN else unpack(content, lengths)
        except PackingError as error:
            raise ImageError(f"the image is malformed: {error}") from None
        if data[18:50] != sha256(program).digest():
            raise ImageError("the image is damaged: its content does not match its digest")
        try:
            image = _read_program(_Section(program))
            _read_debug(_Section(debug), image)
        except (_Malformed, HeapError) as error:
            raise ImageError(f"the image is malformed: {error}") from None
        image._hash = data[18:50].hex()
        return image


def words(items: Iterable[int] = ()) -> Words:
    """An array of 32-bit words. Raises OverflowError for other numbers."""
    return array("I", items)


# --- writing ----------------------------------------------------------------------------------


def _program_section(image: Image) -> bytes:
    heap = HeapWriter()
    constants = [heap.write(constant) for constant in image.constants]
    body = words()
    functions = []
    for function in image.functions:
        functions.append(
            {
                "name": function.name,
                "parameters": function.parameters,
                **({"rest": True} if function.rest else {}),
                "captures": function.captures,
                "slots": function.slots,
                "states": function.states,
                "tables": function.tables,
                "max_stack": function.max_stack,
                "code": len(function.code),
                "handlers": len(function.handlers),
            }
        )
        body += function.offsets
        body += function.code
        for state, (target, slot) in function.handlers.items():
            body.extend((state, target, slot))
    content = {
        "name": image.name,
        "entry": image.entry,
        "meta": image.meta,
        "constants": constants,
        "heap": heap.nodes,
        "functions": functions,
    }
    return _section(content, body)


def _debug_section(image: Image) -> bytes:
    body = words(image.spans)
    functions = []
    for function in image.functions:
        functions.append({"span": function.span, "positions": len(function.positions) // 2})
        body += function.state_spans
        body += function.positions
    content = {
        "paths": image.paths,
        "sources": [[source.path, source.sha256, source.text] for source in image.sources],
        "spans": len(image.spans) // 5,
        "functions": functions,
    }
    return _section(content, body)


def _section(content: dict[str, Any], body: Words) -> bytes:
    text = light_json.dumps_compact_ascii(content).encode("ascii")
    if sys.byteorder == "big":
        body = body[:]
        body.byteswap()
    return len(text).to_bytes(4, "little") + text + body.tobytes()


# --- reading ----------------------------------------------------------------------------------


class _Malformed(Exception):
    """Malformed content of a section."""


class _Section:
    """A section being read: its JSON, and its words, which are consumed from the front."""

    def __init__(self, data: bytes) -> None:
        length = int.from_bytes(data[:4], "little")
        tail = data[4 + length :]
        if len(data) < 4 + length or len(tail) % 4:
            raise _Malformed("a section's length is wrong")
        try:
            self.content: Any = light_json.loads(data[4 : 4 + length].decode("ascii"))
        except (ValueError, RecursionError):
            raise _Malformed("a section is not JSON") from None
        self._words = words()
        self._words.frombytes(tail)
        if sys.byteorder == "big":
            self._words.byteswap()
        self._taken = 0

    def take(self, count: int) -> Words:
        end = self._taken + count
        if end > len(self._words):
            raise _Malformed("a section has too few words")
        taken = self._words[self._taken : end]
        self._taken = end
        return taken

    def finish(self) -> None:
        if self._taken != len(self._words):
            raise _Malformed("a section has words to spare")


def _get(content: Any, key: str, *kinds: type) -> Any:
    """A required entry of one of the given types."""
    if type(content) is not dict:
        raise _Malformed("an object is missing")
    value = content.get(key)
    if type(value) not in kinds:
        raise _Malformed(f"`{key}` is missing or of a wrong type")
    if type(value) is int and not 0 <= value <= 0xFFFFFFFF:
        raise _Malformed(f"`{key}` is out of range")
    return value


def _strings(content: Any, key: str) -> list[str]:
    items: list[str] = _get(content, key, list)
    if not all(type(item) is str for item in items):
        raise _Malformed(f"`{key}` holds something that is no string")
    return items


def _read_program(section: _Section) -> Image:
    content = section.content
    heap = HeapReader(_get(content, "heap", list))
    constants = [heap.read(reference) for reference in _get(content, "constants", list)]
    functions = [_read_function(row, section) for row in _get(content, "functions", list)]
    section.finish()
    return Image(
        name=_get(content, "name", str),
        entry=_get(content, "entry", int),
        meta=_read_meta(_get(content, "meta", dict)),
        constants=constants,
        functions=functions,
    )


def _read_meta(meta: dict[str, Any]) -> dict[str, Any]:
    for key, kinds in _META_TYPES.items():
        _get(meta, key, *kinds)
    _strings(meta, "scope")
    loops = meta.get("loops", [])
    if type(loops) is not list:
        raise _Malformed("`loops` has a wrong value")
    for loop in loops:
        if type(loop) is not dict or loop.keys() != {"function", "name", "maintain", "limits"}:
            raise _Malformed("`loops` has a wrong value")
        _get(loop, "function", str)
        _get(loop, "name", str)
        _get(loop, "maintain", bool)
        _get(loop, "limits", dict)
    for limits in (meta["limits"], *(loop["limits"] for loop in loops)):
        for key, value in limits.items():
            if key == "state_budgets" and _are_budgets(value):
                continue
            if key not in _LIMITS or type(value) not in (int, float, type(None)):
                raise _Malformed("the limits are of a wrong type")
    if meta.keys() - _META_TYPES.keys() - {"loops"}:
        raise _Malformed("`meta` has an unknown entry")
    return meta


def _are_budgets(value: Any) -> bool:
    """Whether a value is a map of states, each with limits by unit."""
    return type(value) is dict and all(
        type(bounds) is dict and all(type(bound) in (int, float) for bound in bounds.values())
        for bounds in value.values()
    )


def _read_function(row: Any, section: _Section) -> FunctionCode:
    slots, states = _strings(row, "slots"), _strings(row, "states")
    parameters, captures = _get(row, "parameters", int), _get(row, "captures", int)
    if parameters + captures > len(slots):
        raise _Malformed("a function has fewer slots than parameters and captures")
    rest = row.get("rest", False)
    if type(rest) is not bool or (rest and not parameters):
        raise _Malformed("`rest` has a wrong value")
    tables = _get(row, "tables", list)
    for table in tables:
        if type(table) is not dict or not all(type(target) is int for target in table.values()):
            raise _Malformed("a switch table is of a wrong type")
    offsets = section.take(len(states))
    code = section.take(_get(row, "code", int))
    rows = section.take(3 * _get(row, "handlers", int))
    handlers = {rows[i]: (rows[i + 1], rows[i + 2]) for i in range(0, len(rows), 3)}
    if 3 * len(handlers) != len(rows):
        raise _Malformed("a state has two handlers")
    return FunctionCode(
        _get(row, "name", str),
        parameters,
        captures,
        slots,
        states,
        offsets,
        code,
        handlers,
        tables,
        _get(row, "max_stack", int),
        rest=rest,
    )


def _read_debug(section: _Section, image: Image) -> None:
    content = section.content
    image.paths = tuple(_strings(content, "paths"))
    sources = []
    for row in _get(content, "sources", list):
        if type(row) is not list or [type(item) for item in row[:2]] != [str, str] or len(row) != 3:
            raise _Malformed("a source is of a wrong type")
        if type(row[2]) not in (str, type(None)):
            raise _Malformed("a source is of a wrong type")
        sources.append(SourceText(*row))
    image.sources = tuple(sources)
    count = _get(content, "spans", int)
    image.spans = section.take(5 * count)
    if max(image.spans[::5], default=-1) >= len(image.paths):
        raise _Malformed("a span names a path that is not there")
    rows = _get(content, "functions", list)
    if len(rows) != len(image.functions):
        raise _Malformed("the sections disagree")
    for function, row in zip(image.functions, rows, strict=True):
        function.span = _get(row, "span", int)
        function.state_spans = section.take(len(function.states))
        function.positions = section.take(2 * _get(row, "positions", int))
        used = (function.span, max(function.state_spans, default=0), max(function.positions[1::2], default=0))
        if max(used) > count:
            raise _Malformed("a span that is not there is used")
    section.finish()
