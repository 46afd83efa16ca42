"""The Python functions of an image, created on their first call, and the namespace of their texts.

`F3` is function 3, `L3` its value if it has no captures, and `V3_1` a version of it for certain argument
kinds. `E3_7` enters it at state 7 with all slots in a list. `C2` is a table, by function, of adapters for
calls with two arguments, which order the arguments (`A…`) or raise the arity fault.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, repeat
from operator import length_hint
from sys import getrefcount
from types import CodeType

from ....ir.constants import Symbol
from ...code.image import Image
from ...machine.control import takes
from ...machine.frames import Frame, Functions
from ...machine.steps import fault_of
from ...primitives.handlers import HANDLERS, applied
from ...primitives.operands import items
from ...values import maps
from ...values.faults import Place as Span
from ...values.faults import PrimitiveFault
from ...values.lists import Pair, Queue, Slice
from ...values.maps import MapVersion
from ...values.values import Box, FunctionValue, Value, show
from ..analysis import uniqueness
from ..codegen.inline import trusted_limits
from ..codegen.python_text import Places, Text
from ..codegen.translate import CompiledText, Translator
from ..model import type_lattice
from ..model.type_lattice import Kind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias

Entry: TypeAlias = "Callable[[Sequence[Value]], Value]"

# A call with a list of arguments. Up to this number, arguments are passed one by one, because only such calls
# do not use the limited C stack. Applied arguments come after them.
_ARGUMENTS = 4
_ITEMS = [f"values[{number}]" for number in range(_ARGUMENTS)]
_APPLY = """
def APPLY(function, values):
 index, captures, count = function.function, function.captures, len(values)
 if len(captures) == CAPTURES[index]:
"""
for _count in range(1, _ARGUMENTS + 1):
    _APPLY += f"  if count == {_count}:\n   return C{_count}[index](captures, {', '.join(_ITEMS[:_count])})\n"
_APPLY += " return APPLIED(index, (*values, *captures))\n"
# Limit of the entries of a function at one state, which differ in the types of its slots.
_ENTRIES = 8


class Untranslatable(Exception):
    """A function cannot be translated; the message is the reason."""


class Library:
    """The Python functions of an image."""

    def __init__(self, image: Image) -> None:
        self.image = image
        self.translator = translator_of(image)
        # By Python code object and line: the frames of the machine, outermost first.
        self.codes: dict[CodeType, Places] = {}
        self.entries: dict[tuple[int, int], dict[tuple[Kind, ...], Entry]] = {}
        self.starts = {
            index: [code.bounds(state)[0] for state in range(len(code.states))]
            for index, code in enumerate(image.functions)
        }
        self.places: dict[tuple[int, int], Span | None] = {}
        self.names: dict[str, Any] = {
            "Box": Box,
            "FunctionValue": FunctionValue,
            "Pair": Pair,
            "LONG": frozenset({Slice, Queue}),
            "MapVersion": MapVersion,
            "Symbol": Symbol,
            "PrimitiveFault": PrimitiveFault,
            "tick": repeat(None, 0),
            "chain": chain,
            "ONE": (None,),
            "NIL": (),
            "NO_CASE": _no_case,
            "NO_BOX": _no_box,
            "NO_FUNCTION": _no_function,
            "FAIL": _fail_with,
            "REFS": getrefcount,
            "LEFT": length_hint,
            "GROW": uniqueness.grow,
            "FINISHED": uniqueness.finished_list,
            "REVERSED": uniqueness.reversed_list,
            "FULL": uniqueness.raise_full,
            "PUT": maps.put,
            "APPLIED": self.applied,
            "APPLICABLE": _applicable,
            "APPLY": self.apply,
            "CAPTURES": [code.captures for code in image.functions],
            "CALL": self.call,
            "ENTER": self.enter,
            **{f"P_{name}": handler for name, handler in HANDLERS.items()},
            **{f"K{index}": value for index, value in enumerate(image.constants)},
        }
        for index, code in enumerate(image.functions):
            if not code.captures:
                self.names[f"L{index}"] = FunctionValue(index, ())
            self.names[f"F{index}"] = partial(self.first_call, index, f"F{index}")

    def state_of(self, function: int, offset: int) -> int:
        return bisect_right(self.starts[function], offset) - 1

    def place(self, function: int, offset: int) -> Span | None:
        key = function, offset
        if key not in self.places:
            self.places[key] = self.image.place_at(self.image.functions[function], offset)
        return self.places[key]

    # --- functions ------------------------------------------------------------------------

    def add(self, function: int, key: Any, write: Callable[[], Text]) -> Any:
        """Write, compile and add a text; return what it defines. Raises Untranslatable for any failure."""
        made = self.translator.compiled.get(key)
        if made is None:
            title = self.image.functions[function].name
            try:
                made = CompiledText(write(), title)
            except Exception as error:
                # Python has its own limits for source text, and a defect of llc here need not end a run.
                raise Untranslatable(f"`{title}`: {type(error).__name__}: {error}") from error
            self.translator.compiled[key] = made
        for count in made.tables:
            self.table(count)
        for version in made.uses:
            self.name(version)
        exec(made.code, self.names)
        found = self.names[made.name]
        self.codes[found.__code__] = made.places
        return found

    def name(self, version: str) -> None:
        """Register a version of a function, to be translated on its first call."""
        if version not in self.names:
            self.names[version] = partial(self.first_call, self.translator.named[version].index, version)

    def first_call(self, function: int, name: str, *given: Value) -> Value:
        """The first call of a function or version, which translates it."""
        return self.load(function, name)(*given)

    def load(self, function: int, name: str) -> Any:
        """Translate the function with this name and make it available to callers."""
        if not isinstance(self.names[name], partial):
            return self.names[name]
        translator = self.translator
        try:
            if name == f"F{function}":
                return self.add(function, name, lambda: translator.generic(function))
            return self.add(function, name, lambda: translator.specialised(name))
        except Untranslatable as error:
            made = self.names[name] = self.interpreted(function, name, str(error))
            return made

    def interpreted(self, function: int, name: str, reason: str) -> Any:
        """The substitute for a function that cannot be translated: it switches to the interpreter and never
        returns.
        """
        count = self.image.functions[function].captures

        def leave(captures: tuple[Value, ...], *arguments: Value) -> Value:
            if len(captures) != count:  # there are applied arguments, which this function does not take
                return self.applied(function, captures)
            return self.names["LEAVE"](reason, function, (*arguments, *captures))

        return (
            leave if name == f"F{function}" else lambda *given: self.names["LEAVE"](reason, function, given)
        )

    def entry(self, function: int, state: int, slots: Sequence[Value]) -> Entry:
        """The function from a state on, with all its slots as one argument. Raises Untranslatable."""
        entries = self.entries.setdefault((function, state), {})
        given = tuple(type_lattice.of_value(value, self.image) for value in slots)
        if given not in entries:
            if len(entries) >= _ENTRIES:
                given = ("any",) * len(given)
            key = function, state, given
            entries[given] = self.add(function, key, lambda: self.translator.entry(*key))
        return entries[given]

    def beginning(self, frame: Frame) -> Entry | None:
        """The whole function, for a frame at its start; entering it charges the tick again."""
        code = frame.function.code
        count = code.parameters + code.captures
        if frame.state or any(value is not None for value in frame.slots[count:]):
            return None
        index = frame.function.index
        given = type_lattice.given([type_lattice.of_value(one, self.image) for one in frame.slots[:count]])
        name = self.translator.fitting_version(index, given)
        self.name(name)
        return lambda slots: self.load(index, name)(*slots[:count])

    def is_worth_entering(self, function: int, state: int) -> bool:
        """Whether the function was entered at this state before; a single entry is not worth a
        translation.
        """
        places, place = self.translator.entered, (function, state)
        if place in places:
            return True
        places.add(place)
        return False

    def enter(self, function: int, state: int, slots: Sequence[Value]) -> Value:
        """Continue at a state, where the text of an entry ends at an enclosing loop."""
        try:
            entry = self.entry(function, state, slots)
        except Untranslatable as error:
            return self.names["LEAVE"](str(error), function, slots, state)
        return entry(slots)

    def table(self, count: int) -> list[Any]:
        """The adapters for calls with `count` arguments, by function."""
        name = f"C{count}"
        if name not in self.names:
            functions = range(len(self.image.functions))
            self.names[name] = [partial(self.resolved, index, count) for index in functions]
        return self.names[name]  # type: ignore[no-any-return]

    def resolved(self, function: int, count: int, captures: tuple[Value, ...], *given: Value) -> Value:
        """The first call of a function with `count` arguments."""
        return self.resolve(function, count, captures)(captures, *given)

    def resolve(self, function: int, count: int, captures: tuple[Value, ...]) -> Any:
        """The adapter for calls of a function with `count` arguments in addition to the applied ones."""
        code = self.image.functions[function]
        applied_count = len(captures) - code.captures
        if applied_count > 0:
            if count == 0 and code.parameters:
                # It may call itself in this way: further calls do not use the limited C stack.
                self.table(0)[function] = lambda captures: self.applied(function, captures)
            return self.adapter(function, count, applied_count)
        if code.rest or count != code.parameters:
            made = self.adapter(function, count, 0)
        else:
            made = self.load(function, f"F{function}")
        self.table(count)[function] = made
        return made

    def adapter(self, function: int, count: int, applied_count: int) -> Any:
        """A Python function that passes arguments in the order of a function's parameters."""
        name = f"A{function}_{count}_{applied_count}"
        if name in self.names:
            return self.names[name]
        code = self.image.functions[function]
        if (
            not applied_count
            and count
            and (text := self.translator.unpacked_adapter(function, count)) is not None
        ):
            return self.add(function, name, lambda: text)
        texts = [f"a{number}" for number in range(count)] + [
            f"c[{number}]" for number in range(applied_count)
        ]
        if code.rest and len(texts) >= code.parameters - 1:
            more = texts[code.parameters - 1 :]
            texts = [*texts[: code.parameters - 1], f"({''.join(f'{text}, ' for text in more)})"]
        elif len(texts) != code.parameters:
            raise PrimitiveFault("arity", f"`{code.name}` takes {takes(code)}, not {len(texts)}")
        given = ", ".join(["c", *(f"a{number}" for number in range(count))])
        own = f"c[{applied_count}:]" if applied_count else "c"
        # A call without arguments may have applied arguments.
        test = f" if len(c) != {code.captures}:\n  return APPLIED({function}, c)\n"
        body = f" return F{function}({', '.join([own, *texts])})\n"
        exec(f"def {name}({given}):\n{'' if count or applied_count else test}{body}", self.names)
        return self.names[name]

    def applied(self, function: int, captures: tuple[Value, ...]) -> Value:
        """Call a function with its applied arguments only."""
        code = self.image.functions[function]
        if code.rest and code.parameters < 3:
            # For any number of arguments: an adapter for each number would be created and kept.
            own, given = captures[len(captures) - code.captures :], captures[: len(captures) - code.captures]
            if code.parameters == 1:
                return self.names[f"F{function}"](own, given)
            if given:
                return self.names[f"F{function}"](own, given[0], given[1:])
        return self.adapter(function, 0, len(captures) - self.image.functions[function].captures)(captures)

    def apply(self, function: FunctionValue, values: tuple[Value, ...]) -> Value:
        """The first call of a function with a list of arguments."""
        for count in range(1, _ARGUMENTS + 1):
            self.table(count)
        exec(_APPLY, self.names)
        return self.names["APPLY"](function, values)

    def call(self, function: FunctionValue, arguments: tuple[Value, ...]) -> Value:
        """A call whose arguments do not match the parameters."""
        return self.resolve(function.function, len(arguments), function.captures)(
            function.captures, *arguments
        )


def _applicable(function: Value, values: Value) -> tuple[Value, ...]:
    """The arguments of `apply`, after checks of the function and the list."""
    applied(function, values)
    return items(values)


def translator_of(image: Image) -> Translator:
    """The translator that the machines of an image share while the limits are unchanged."""
    loaded = image.loaded
    assert isinstance(loaded, Functions)
    translator: Translator | None = loaded.translators.get(trusted_limits())
    if translator is None:
        translator = loaded.translators[trusted_limits()] = Translator(image)
    return translator


def _no_case(subject: Value, names: list[str]) -> None:
    cases = ", ".join(f"`{case}`" for case in names[:12]) + (", …" if len(names) > 12 else "")
    raise PrimitiveFault("no-case", f"no case for {show(subject)} (cases: {cases or 'none'})")


def _no_box(value: Value) -> None:
    raise PrimitiveFault("type-error", f"cannot set {show(value)}: it is no box")


def _no_function(value: Value, *arguments: Value) -> None:
    raise PrimitiveFault("not-a-function", f"cannot call {show(value)}: it is not a function")


def _fail_with(error: Value) -> None:
    raise fault_of(error)
