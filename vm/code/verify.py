"""Verification of code images: one pass over the code of each state, tracking the stack depth.

An image is untrusted input. `Image.from_bytes` has checked its format; this module checks its content against
the opcode table: the operand stack never underflows or exceeds the declared height, operands are in range and
of the declared kind, and the code of each state ends in its only exit and fills exactly its part of the code.
States begin with an empty stack and exits name states, so one pass over the code is a proof. Limits are
proved for the lifted program (`lift`, `ir.verify`).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from itertools import pairwise

from ...ir.constants import constant_problem
from ...ir.diagnostics import Diagnostic, DiagnosticId, clean
from ...ir.effects import EFFECTS, NOTES
from ...ir.primitives import PRIMITIVES
from ...ir.spans import Span
from ..values.values import Value
from .image import FunctionCode, Image
from .opcodes import BY_NUMBER, NO_STATE, Opcode

# Limit of stacks and frames; compilers do not produce larger ones.
MAX_STACK = 1 << 20


def verify_image(image: Image) -> Iterator[Diagnostic]:
    """Diagnostics of everything that prevents execution; without any, the image can be executed and
    lifted.
    """
    yield from _image(image)
    for index, constant in enumerate(image.constants):
        problem = constant_problem(constant)
        if problem is not None:
            yield _diagnostic("bad-constant", f"constant {index}: {problem}")
    names = _names(image.constants)
    for function in image.functions:
        yield from _Verifier(image, function, names).run()


def _image(image: Image) -> Iterator[Diagnostic]:
    if not 0 <= image.entry < len(image.functions):
        yield _diagnostic("bad-image", f"the entry is function {image.entry} of {len(image.functions)}")
    elif image.functions[image.entry].captures:
        yield _diagnostic("bad-image", "the entry has captures")
    elif image.functions[image.entry].rest:
        yield _diagnostic("bad-image", "the entry takes any number of arguments")
    yield from _unique("function", (function.name for function in image.functions))
    spans = len(image.spans) // 5
    if len(image.spans) % 5 or max(image.spans[::5], default=0) >= max(len(image.paths), 1):
        yield _diagnostic("bad-image", "the table of places is damaged")
    for function in image.functions:
        positions = function.positions
        used = (function.span, *function.state_spans, *positions[1::2])
        starts = positions[::2]
        rising = all(one < next for one, next in pairwise(starts))
        if max(used) > spans or len(function.state_spans) != len(function.states) or not rising:
            yield _diagnostic("bad-image", f"the places of function {_name(function.name)} are damaged")


def _unique(what: str, names: Iterable[str], function: FunctionCode | None = None) -> Iterator[Diagnostic]:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            yield _diagnostic("bad-image", f"two {what}s are called {_name(name)}{_where(function)}")
        seen.add(name)


class _Verifier:
    """Verifies one function of an image."""

    def __init__(self, image: Image, function: FunctionCode, names: dict[str, frozenset[int]]) -> None:
        self.image = image
        self.function = function
        # The valid words for each kind of operand.
        self.legal: dict[str, Container[int]] = {
            **names,
            "constant": range(len(image.constants)),
            "slot": range(len(function.slots)),
            "state": range(len(function.states)),
            "state?": {NO_STATE, *range(len(function.states))},
            "function": range(len(image.functions)),
            "table": range(len(function.tables)),
            "count": range(MAX_STACK),
        }
        self.rules = {
            number: (row, tuple(self.legal[kind] for kind in row.operands), 1 + len(row.operands))
            for number, row in BY_NUMBER.items()
        }
        # Valid instructions with a count; a few occur very often.
        self.counted: set[tuple[int, ...]] = set()

    def run(self) -> Iterator[Diagnostic]:
        function = self.function
        yield from _unique("slot", function.slots, function)
        yield from _unique("state", function.states, function)
        if not 0 <= function.parameters + function.captures <= len(function.slots):
            yield self.bad("there are fewer slots than parameters and captures")
        elif function.rest and not function.parameters:
            yield self.bad("there is no parameter for the arguments left over")
        if function.max_stack > MAX_STACK:
            yield self.bad("the operand stack is too high")
        for number, table in enumerate(function.tables):
            for case, target in table.items():
                if not 0 <= target < len(function.states):
                    yield self.bad(f"case {_name(case)} of table {number} leads nowhere")
        for state, (target, slot) in function.handlers.items():
            if max(state, target) >= len(function.states) or slot >= len(function.slots):
                yield self.bad(f"the handler of state {state} is out of range")
        offsets = [*function.offsets, len(function.code)]
        if len(offsets) != len(function.states) + 1 or not function.states or offsets[0] != 0:
            yield self.bad("the states do not cover the code")
            return
        for number in range(len(function.states)):
            if offsets[number] >= offsets[number + 1] or offsets[number + 1] > len(function.code):
                yield self.bad(f"state {_name(function.states[number])} has no code")
                return
        code = function.code.tolist()
        for number in range(len(function.states)):
            yield from self.state(number, code, offsets[number], offsets[number + 1])

    def bad(self, what: str) -> Diagnostic:
        return _diagnostic("bad-image", what + _where(self.function))

    def problem(self, id: DiagnosticId, state: int, offset: int, what: str) -> Diagnostic:
        function = self.function
        message = f"state {_name(function.states[state])} of function {_name(function.name)} {what}"
        return _diagnostic(id, f"{message} (at {offset})", self.image, function, offset)

    def state(self, state: int, code: list[int], start: int, end: int) -> Iterator[Diagnostic]:
        """Verify a state's code; stops where the following words could not be decoded."""
        height, rules = self.function.max_stack, self.rules
        depth = 0
        offset = start
        while True:
            rule = rules.get(code[offset])
            if rule is None:
                yield self.problem("bad-opcode", state, offset, f"has no opcode but {code[offset]}")
                return
            row, legal, size = rule
            after = offset + size
            if after > end:
                yield self.problem("bad-opcode", state, offset, f"ends within {row.name}")
                return
            if size == 2 and not row.pops_count:  # most of the code
                if code[offset + 1] not in legal[0]:
                    yield from self.operands(state, offset, row, code[offset + 1 : after])
                depth -= row.pops
            else:
                operands = code[offset + 1 : after]
                if not row.pops_count or (row.number, *operands) not in self.counted:
                    yield from self.operands(state, offset, row, operands)
                depth -= row.popped(operands)
            if depth < 0:
                yield self.problem("stack-underflow", state, offset, f"has {row.name} with too few operands")
                return
            depth += row.pushes
            if depth > height:
                higher = f"needs a higher stack than the {height} that is declared"
                yield self.problem("stack-overflow", state, offset, higher)
                return
            if row.is_exit:
                break
            offset = after
            if offset >= end:
                yield self.problem("no-exit", state, offset, "has no exit")
                return
        if after != end:
            yield self.problem("code-after-exit", state, after, "has code after its exit")
        if depth:
            yield self.problem("stack-leftover", state, offset, "leaves values on the stack")

    def operands(self, state: int, offset: int, row: Opcode, operands: list[int]) -> Iterator[Diagnostic]:
        """Diagnostics for the operands of an instruction and the number of values that it pops."""
        sound = True
        for kind, word in zip(row.operands, operands, strict=True):
            if word not in self.legal[kind]:
                sound = False
                wrong = f"has {row.name} with {word}, which is no {kind.rstrip('?')}"
                yield self.problem("bad-operand", state, offset, wrong)
        if row.pops_count:
            what = self.count_problem(row, operands)
            if what is not None:
                yield self.problem("bad-operand", state, offset, what)
            elif sound:
                self.counted.add((row.number, *operands))

    def count_problem(self, row: Opcode, operands: Iterable[int]) -> str | None:
        """The problem with an instruction's number of operands; None if there is none."""
        words = dict(zip(row.operands, operands, strict=True))
        count = words["count"]
        if "primitive" in words:
            name = self.constant(words["primitive"])
            signature = PRIMITIVES.get(name) if type(name) is str else None
            if signature is None:
                return None
            most = signature.most
            if (
                count < signature.least
                or (most is not None and count > most)
                or (name == "map" and count % 2)
            ):
                return f"gives `{name}` {count} operands; it takes `{signature.operands}`"
        elif "function" in words and words["function"] < len(self.image.functions):
            callee = self.image.functions[words["function"]]
            if count != callee.captures:
                return f"gives {_name(callee.name)} {count} captures, not {callee.captures}"
        return None

    def constant(self, index: int) -> object:
        return self.image.constants[index] if index < len(self.image.constants) else None


def _names(constants: tuple[Value, ...]) -> dict[str, frozenset[int]]:
    """For each kind of operand that is a name, the constants that are valid names."""
    tables: dict[str, Container[str]] = {"primitive": PRIMITIVES, "note": NOTES, "effect": EFFECTS}
    texts = [(index, name) for index, name in enumerate(constants) if type(name) is str]
    return {
        kind: frozenset(index for index, name in texts if name in table) for kind, table in tables.items()
    }


def _name(name: str) -> str:
    return f"`{clean(name, 80)}`"


def _where(function: FunctionCode | None) -> str:
    return f" in function {_name(function.name)}" if function is not None else ""


def _diagnostic(
    id: DiagnosticId,
    message: str,
    image: Image | None = None,
    function: FunctionCode | None = None,
    offset: int = 0,
) -> Diagnostic:
    place = None
    if image is not None and function is not None:
        span = function.span_at(offset)
        place = image.place(span) if 5 * span <= len(image.spans) else None
    return Diagnostic(id, message, Span(*place) if place else None)
