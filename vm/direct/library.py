"""The Python functions of an image, made when they are first called, and the names in their text.

`F3` is function 3; `E3_7` enters it at state 7 with all slots in a list; `C2` is a table, by function, of
what calls each with two arguments, which puts them in order (`A…`) or says that they do not fit.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import chain, repeat

from ...ir.symbols import Symbol
from ..faults import PrimitiveFault
from ..lists import Pair
from ..machine import takes
from ..primitives import HANDLERS
from ..steps import fail
from ..values import Box, FunctionValue, show
from .translate import Translator

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType
    from typing import Any

    from ..faults import Place
    from ..image import Image
    from ..values import Value
    from .text import Text

# A call by a table is the first in its line (`text.mark`); what a text holds never is.
_TABLES = re.compile(r"(?m)^C(\d+)\[")


class Untranslatable(Exception):
    """A function cannot be had as Python; why, in words."""


class Library:
    """What an image is in Python."""

    def __init__(self, image: Image) -> None:
        self.image = image
        self.translator = Translator(image)
        # Python's code objects to the function's index and, by line, offsets in its code.
        self.codes: dict[CodeType, tuple[int, list[int]]] = {}
        self.entries: dict[tuple[int, int], Callable[[list[Value]], Value]] = {}
        self.starts = {
            index: [code.bounds(state)[0] for state in range(len(code.states))]
            for index, code in enumerate(image.functions)
        }
        self.places: dict[tuple[int, int], Place | None] = {}
        self.names: dict[str, Any] = {
            "Box": Box,
            "FunctionValue": FunctionValue,
            "Pair": Pair,
            "Symbol": Symbol,
            "PrimitiveFault": PrimitiveFault,
            "tick": repeat(None, 0),
            "chain": chain,
            "ONE": (None,),
            "NO_CASE": _no_case,
            "NO_BOX": _no_box,
            "NO_FUNCTION": _no_function,
            "FAIL": _fail_with,
            "APPLIED": self.applied,
            "CALL": self.call,
            "RESOLVE": self.resolve,
            "LOAD": self.load,
            **{f"P_{name}": handler for name, handler in HANDLERS.items()},
            **{f"K{index}": value for index, value in enumerate(image.constants)},
        }
        for index, code in enumerate(image.functions):
            self.define(f"F{index}", code.parameters, f"LOAD({index})")

    def state_of(self, function: int, offset: int) -> int:
        return bisect_right(self.starts[function], offset) - 1

    def place(self, function: int, offset: int) -> Place | None:
        key = function, offset
        if key not in self.places:
            self.places[key] = self.image.place_at(self.image.functions[function], offset)
        return self.places[key]

    # --- functions ------------------------------------------------------------------------

    def define(self, name: str, count: int, target: str) -> Any:
        """A function of so many arguments that calls what an expression gives with them."""
        given = "".join(f", a{number}" for number in range(count))
        exec(f"def {name}(c{given}):\n return {target}(c{given})\n", self.names)
        return self.names[name]

    def add(self, function: int, write: Callable[[], Text]) -> Any:
        """What a text defines. Raises Untranslatable, whatever keeps it from being written or compiled."""
        name = self.image.functions[function].name
        try:
            text = write()
            code = compile(text.source, f"<{name}>", "exec")
        except Exception as error:
            # Python has bounds of its own for a text, and an error of ours need not end a run.
            raise Untranslatable(f"`{name}`: {type(error).__name__}: {error}") from error
        for count in {int(number) for number in _TABLES.findall(text.source)}:
            self.table(count)
        exec(code, self.names)
        made = self.names[text.name]
        self.codes[made.__code__] = (function, text.offsets)
        return made

    def load(self, function: int) -> Any:
        """The function, translated; callers find it under its name from now on."""
        try:
            return self.add(function, lambda: self.translator.function(function))
        except Untranslatable as error:
            return self.interpreted(function, str(error))

    def interpreted(self, function: int, why: str) -> Any:
        """What takes the place of a function that cannot be translated: it never returns."""
        count = self.image.functions[function].captures

        def leave(captures: tuple[Value, ...], *arguments: Value) -> Value:
            if len(captures) != count:  # arguments are filled in, and this takes none
                return self.applied(function, captures)
            return self.names["LEAVE"](why, function, (*arguments, *captures))

        return leave

    def entry(self, function: int, state: int) -> Callable[[list[Value]], Value]:
        """The function from a state on, with all its slots as one argument. Raises Untranslatable."""
        made = self.entries.get((function, state))
        if made is None:
            made = self.add(function, lambda: self.translator.entry(function, state))
            self.entries[function, state] = made
        return made

    def table(self, count: int) -> list[Any]:
        """By function: what calls it with so many arguments."""
        name = f"C{count}"
        if name not in self.names:
            self.names[name] = [
                self.define(f"R{index}_{count}", count, f"RESOLVE({index}, {count}, c)")
                for index in range(len(self.image.functions))
            ]
        return self.names[name]  # type: ignore[no-any-return]

    def resolve(self, function: int, count: int, captures: tuple[Value, ...]) -> Any:
        """What calls a function with so many arguments besides those that are filled in."""
        code = self.image.functions[function]
        filled = len(captures) - code.captures
        if filled > 0:
            return self.adapter(function, count, filled)
        if code.rest or count != code.parameters:
            made = self.adapter(function, count, 0)
        else:
            made = self.names[f"F{function}"]
            if made.__code__ not in self.codes:
                made = self.load(function)
        self.table(count)[function] = made
        return made

    def adapter(self, function: int, count: int, filled: int) -> Any:
        """A function that puts arguments in the order that a function has them in."""
        name = f"A{function}_{count}_{filled}"
        if name in self.names:
            return self.names[name]
        code = self.image.functions[function]
        if not filled and count and (text := self.translator.spread(function, count)) is not None:
            return self.add(function, lambda: text)
        texts = [f"a{number}" for number in range(count)] + [f"c[{number}]" for number in range(filled)]
        if code.rest and len(texts) >= code.parameters - 1:
            more = texts[code.parameters - 1 :]
            texts = [*texts[: code.parameters - 1], f"({''.join(f'{text}, ' for text in more)})"]
        elif len(texts) != code.parameters:
            raise PrimitiveFault("arity", f"`{code.name}` takes {takes(code)}, not {len(texts)}")
        given = ", ".join(["c", *(f"a{number}" for number in range(count))])
        own = f"c[{filled}:]" if filled else "c"
        # Whoever calls with no arguments may have filled some in.
        test = f" if len(c) != {code.captures}:\n  return APPLIED({function}, c)\n"
        body = f" return F{function}({', '.join([own, *texts])})\n"
        exec(f"def {name}({given}):\n{'' if count or filled else test}{body}", self.names)
        return self.names[name]

    def applied(self, function: int, captures: tuple[Value, ...]) -> Value:
        """A function without parameters was called with arguments filled in."""
        return self.adapter(function, 0, len(captures) - self.image.functions[function].captures)(captures)

    def call(self, function: FunctionValue, arguments: tuple[Value, ...]) -> Value:
        """A call that can be seen not to fit."""
        return self.resolve(function.function, len(arguments), function.captures)(
            function.captures, *arguments
        )


def _no_case(subject: Value, names: list[str]) -> None:
    cases = ", ".join(f"`{case}`" for case in names[:12]) + (", …" if len(names) > 12 else "")
    raise PrimitiveFault("no-case", f"no case for {show(subject)} (cases: {cases or 'none'})")


def _no_box(value: Value) -> None:
    raise PrimitiveFault("type-error", f"cannot set {show(value)}: it is no box")


def _no_function(value: Value, *arguments: Value) -> None:
    raise PrimitiveFault("not-a-function", f"cannot call {show(value)}: it is no function")


class _Stack:
    """The operand stack of an instruction that is done outside of the machine."""

    def __init__(self, *values: Value) -> None:
        self.stack = list(values)


def _fail_with(error: Value) -> None:
    fail(_Stack(error), None, None)  # type: ignore[arg-type]
