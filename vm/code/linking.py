"""Incremental linking: an image of all functions that a session has compiled so far.

A function keeps its index when others are added, so function values remain valid.
`Linker.forget` drops unreachable functions and renumbers the function values that remain.
Must not contain: the session (`runtime/terminal/session.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import attrs

from ...ir.builder import FunctionBuilder
from ...ir.nodes import Function, Meta, Slot, TailCall
from ...ir.spans import Source
from ..values.lists import Pair, Queue, Slice
from ..values.maps import MapVersion, read
from ..values.values import BOXES, FunctionValue, Value
from .emit import Constants, FunctionEmitter, Spans
from .image import FunctionCode, Image, SourceText, words
from .lift import Lifter
from .opcodes import decode

# The entry function of every image: it calls its argument.
ENTRY = "session"
_HOLDERS = frozenset({tuple, Pair, Slice, Queue, dict, MapVersion, *BOXES, FunctionValue})


class Linker:
    """A growing image. `count` is the number of its functions."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._begin()
        entry = FunctionBuilder(ENTRY, ["function"])
        entry.state("start", (), TailCall(Slot("function"), ()))
        self.add([entry.build()])

    def _begin(self) -> None:
        self._constants = Constants()
        self._spans = Spans(())
        # The spans as words, shared by all images: indices never change.
        self._places = words()
        self._code: list[FunctionCode] = []
        self._index: dict[str, int] = {}
        self._sources: dict[str, SourceText] = {}
        self._image: Image | None = None

    @property
    def count(self) -> int:
        return len(self._code)

    def add(self, functions: Sequence[Function], sources: Iterable[Source] = ()) -> None:
        """Emit functions, which may refer to each other and to earlier ones. Raises EmitError."""
        index = self._index
        count = len(self._code)
        index.update((function.name, count + n) for n, function in enumerate(functions))
        code = []
        try:
            for function in functions:
                code.append(FunctionEmitter(function, index, self._constants, self._spans).emit())
        except BaseException:
            for function in functions:
                del index[function.name]
            raise
        self._code += code
        self._places.extend(self._spans.rows[len(self._places) :])
        for source in sources:
            self._sources[source.path] = SourceText(source.path, source.sha256, source.text)
        self._image = None

    @property
    def image(self) -> Image:
        """The current image; images that were returned before do not change."""
        if self._image is None:
            self._image = Image(
                name=self.name,
                entry=self._index[ENTRY],
                meta={**attrs.asdict(Meta(scope=())), "scope": []},
                constants=self._constants.values,
                functions=self._code,
                paths=list(self._spans.paths),
                spans=self._places,
                sources=list(self._sources.values()),
            )
        return self._image

    def function(self, name: str, captures: Iterable[Value] = ()) -> FunctionValue:
        """The function value of a name, with its captures."""
        return FunctionValue(self._index[name], tuple(captures))

    @property
    def names(self) -> Collection[str]:
        """The names of the functions."""
        return self._index.keys()

    def __contains__(self, name: str) -> bool:
        return name in self._index

    def index(self, name: str) -> int:
        return self._index[name]

    def lifted(self, functions: Iterable[int]) -> tuple[Function, ...]:
        """The functions with these indices, as program model."""
        image = self.image
        return tuple(Lifter(image, image.functions[index]).function() for index in functions)

    def made_by(self, function: int) -> list[int]:
        """A function and all functions whose closures it creates, transitively, in the order of the image."""
        return sorted(_reached(self.image, [function]))

    def forget(self, values: Iterable[Value]) -> None:
        """Drop every function that is not reachable from these values."""
        image = self.image
        held = functions_in(values)
        kept = sorted(_reached(image, [image.entry, *(value.function for value in held)]))
        functions = self.lifted(kept)
        sources = self._sources
        self._begin()
        self.add(functions)
        self._sources = {path: sources[path] for path in self._spans.paths if path in sources}
        renumbered = {old: new for new, old in enumerate(kept)}
        for value in held:
            value.function = renumbered[value.function]


def functions_in(values: Iterable[Value]) -> list[FunctionValue]:
    """All function values that are reachable from these values, without duplicates."""
    found = []
    seen: set[int] = set()
    todo = [*values]
    while todo:
        value = todo.pop()
        kind = type(value)
        if kind not in _HOLDERS or id(value) in seen:
            continue
        seen.add(id(value))
        if kind is tuple or kind is Slice or kind is Queue:
            todo += [item for item in value if type(item) in _HOLDERS]
        elif kind is dict or kind is MapVersion:
            todo += [item for item in read(value).values() if type(item) in _HOLDERS]
        elif kind is Pair:
            todo += (value.tail, value.head)
        elif kind in BOXES:
            todo.append(value.value)
        else:
            found.append(value)
            todo += value.captures
    return found


def _reached(image: Image, functions: Collection[int]) -> set[int]:
    """The transitive closure of functions whose closures are created."""
    found = set(functions)
    todo = list(found)
    while todo:
        code = image.functions[todo.pop()].code
        for _, row, operands in decode(code, 0, len(code)):
            if row.name == "CLOSURE" and operands[0] not in found:
                found.add(operands[0])
                todo.append(operands[0])
    return found
