"""Type inference: the kind of each slot before each state, and of results, as a fixed point over states.

`model/type_lattice.py` defines the kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush

from ...code.image import Image
from ..model import type_lattice
from ..model.function import Function, Part
from ..model.type_lattice import Kind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

# A function with the kinds of its parameters, then of its captures.
Call: TypeAlias = "tuple[int, tuple[Kind, ...]]"

# For each kind, the primitives that benefit from operands of that kind.
_WANTED = {
    "int": "add sub mul num_eq lt le gt ge quotient remainder modulo is_even is_odd is_zero is_positive "
    "is_negative",
    "box": "unbox unbox_set",
}
# Primitives over all numbers: if one operand is a float, the others should be floats too.
_OF_NUMBERS = frozenset({"add", "sub", "mul", "div", "num_eq", "lt", "le", "gt", "ge"})
WANTS = {name: kind for kind, names in _WANTED.items() for name in names.split()}
# Limits of the inference of result types: length of a function, calls of one function, and queued calls.
_MAX_WORDS = 400
_MAX_CALLS = 8
_MAX_ANALYSES = 150


class KnownTypes:
    """The kinds of all slots before each state.

    calls: for each state that ends in a call, the callee and the kinds of the arguments.
    wanted: slots that should contain integers, or boxes. result: the kind of the result; None if nothing is
    returned.
    """

    def __init__(self) -> None:
        self.at_entry: dict[int, list[Kind]] = {}
        self.calls: dict[int, tuple[Kind, list[Kind]]] = {}
        self.wanted: dict[int, Kind] = {}
        self.result: Kind | None = None


class ResultTypes:
    """Result kinds of the functions of an image, by the kinds of their arguments."""

    def __init__(self, image: Image, function_of: Callable[[int], Function]) -> None:
        self.image = image
        self.function_of = function_of
        self.constants = [type_lattice.of_value(value, image) for value in image.constants]
        # None means that no return is known yet.
        self.found: dict[Call, Kind | None] = {}
        self.counts: dict[int, int] = {}
        # The work list, the current call, and the calls that depend on each result.
        self.todo: list[Call] = []
        self.current: Call | None = None
        self.dependents: dict[Call, set[Call]] = {}

    def of_call(self, callee: Kind, arguments: Sequence[Kind]) -> Kind | None:
        """The result kind of a call; None if no return is known yet."""
        if not isinstance(callee, tuple):
            return "any"
        _, index, captures = callee
        code = self.image.functions[index]
        if code.rest and len(arguments) >= code.parameters - 1:
            arguments = [*arguments[: code.parameters - 1], "array"]
        if len(arguments) != code.parameters:
            return "any"
        return self.of_function(index, (*type_lattice.given(arguments), *type_lattice.given(captures)))

    def of_function(self, index: int, given: tuple[Kind, ...]) -> Kind | None:
        call = index, given
        if call not in self.found:
            code = self.image.functions[index]
            self.counts[index] = self.counts.get(index, 0) + 1
            if code.handlers or len(code.code) > _MAX_WORDS or self.counts[index] > _MAX_CALLS:
                self.found[call] = "any"
            else:
                self.found[call] = None
                self.todo.append(call)
        if self.current is not None:
            self.dependents.setdefault(call, set()).add(self.current)
            return self.found[call]
        self.solve()
        return self.found[call] or "any"

    def solve(self) -> None:
        """Analyse calls until a fixed point is reached."""
        analysed: set[Call] = set()
        while self.todo:
            call = self.current = self.todo.pop()
            analysed.add(call)
            old = self.found[call]
            result = infer_types(self.function_of(call[0]), call[1], self).result
            if len(analysed) > _MAX_ANALYSES:
                result = "any"
            elif old is not None:
                # A result kind only widens: later facts can make a return appear unreachable.
                result = old if result is None else type_lattice.join([old], [result])[0]
            if result != old:
                self.found[call] = result
                self.todo += self.dependents.get(call, ())
        self.current = None


def infer_types(function: Function, given: Sequence[Kind], results: ResultTypes) -> KnownTypes:
    """Infer the kinds of all slots. given: the kinds of the first slots at the entry."""
    return _Inference(function, results).run(given)


def operands_of(part: Part, slots: Sequence[Kind]) -> list[Kind]:
    """The operands of a call whose slots are already set: the function and its arguments."""
    given = part.slot + part.code.parameters
    captures = tuple(slots[given : given + part.code.captures])
    return [("function", part.index, captures), *slots[part.slot : given]]


def initialise_slots(part: Part, slots: list[Kind], given: Sequence[Kind]) -> None:
    """Initialise the slots of a function: its arguments, then empty locals."""
    count = len(part.code.slots)
    slots[part.slot : part.slot + count] = [*given, *["null"] * (count - len(given))]


class _Inference:
    def __init__(self, function: Function, results: ResultTypes) -> None:
        self.function = function
        self.results = results
        self.known = KnownTypes()
        self.todo: list[int] = []

    def run(self, given: Sequence[Kind]) -> KnownTypes:
        function, known = self.function, self.known
        for target, _ in function.code.handlers.values():
            known.at_entry[target] = ["any"] * function.slots
            heappush(self.todo, target)
        self.flow_to(function.start, [*given, *["null"] * (function.slots - len(given))])
        # In order of states, so that later states are analysed less often.
        while self.todo:
            self.state(heappop(self.todo))
        return known

    def flow_to(self, state: int, found: Sequence[Kind]) -> None:
        before = self.known.at_entry
        old = before.get(state)
        if old is None:
            before[state] = list(found)
        else:
            new = type_lattice.join(old, found)
            if new == old:
                return
            before[state] = new
        if state not in self.todo:
            heappush(self.todo, state)

    def state(self, state: int) -> None:
        if state in self.function.fallback_calls:
            slots = list(self.known.at_entry[state])
            self.exit_state(state, slots, operands_of(self.function.fallback_calls[state], slots))
            return
        function, constants = self.function, self.results.constants
        slots = list(self.known.at_entry[state])
        wanted = self.known.wanted
        # Kinds of the operand stack, and the slots from which they were loaded.
        stack: list[Kind] = []
        origins: list[int] = []
        for _, row, words in function.states[state][:-1]:
            count = row.popped(words)
            first = len(stack) - count
            taken, sources = stack[first:], origins[first:]
            del stack[first:], origins[first:]
            origin = -1
            match row.name:
                case "LOAD":
                    origin = words[0]
                    kind = slots[origin]
                case "CONST":
                    kind = constants[words[0]]
                case "PRIM":
                    name = self.results.image.constants[words[0]]
                    kind = type_lattice.of_result(name, taken)
                    wish: Kind | None = WANTS.get(name)
                    if name in _OF_NUMBERS and "float" in taken:
                        wish = "float"
                    if wish is not None:
                        for source, one in zip(sources, taken, strict=True):
                            if one == "any" and source >= 0 and wanted.get(source) != "float":
                                wanted[source] = wish
                case "CLOSURE":
                    kind = type_lattice.of_closure(words[0], taken)
                case "STORE":
                    slots[words[0]] = taken[0]
                    continue
                case "SETBOX":
                    if taken[0] == "any" and sources[0] >= 0:
                        wanted[sources[0]] = "box"
                    continue
                case _:
                    continue
            stack.append(kind)
            origins.append(origin)
        if function.states[state][-1][1].name == "BRANCH" and stack[-1] == "bool" and origins[-1] >= 0:
            for target, kind in zip(function.edges[state], ("true", "false"), strict=True):
                slots[origins[-1]] = kind
                self.flow_to(target, slots)
            return
        self.exit_state(state, slots, stack)

    def exit_state(self, state: int, slots: list[Kind], stack: list[Kind]) -> None:
        function = self.function
        _, row, words = function.states[state][-1]
        part = function.part_of[state]
        if function.restarts[state]:
            initialise_slots(
                part,
                slots,
                [*stack[len(stack) - words[0] :], *slots[part.slot + words[0] :][: part.code.captures]],
            )
            self.flow_to(part.state, slots)
            return
        result: Kind | None = "any"
        match row.name:
            case "CALL" | "TAILCALL":
                arguments = stack[len(stack) - words[0] :]
                callee = stack[-1 - words[0]]
                called = function.inlined_calls.get(state)
                if called is not None and isinstance(callee, tuple):
                    initialise_slots(called, slots, [*arguments, *callee[2]])
                    self.flow_to(called.state, slots)
                    return
                self.known.calls[state] = callee, arguments
                result = self.results.of_call(callee, arguments)
            case "RETURN":
                result = stack[-1]
        if result is None:
            return
        if row.name in ("RETURN", "TAILCALL") and function.returns_to(part) < 0:
            known = self.known.result
            self.known.result = result if known is None else type_lattice.join([known], [result])[0]
            return
        stored = function.result_slot(state)
        if stored is not None:
            slots[stored] = result
        for target in function.edges[state]:
            self.flow_to(target, slots)
