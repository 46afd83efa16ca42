"""Translation of the instructions of a state. Expressions stay on an operand stack until they are stored.

An expression is emitted where its value is used, in the evaluation order of the machine: when an
expression must be emitted before others, the ones that precede it on the stack are emitted first (`take`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from ..analysis.liveness import SINGLETONS
from ..analysis.type_inference import WANTS, KnownTypes
from ..analysis.uniqueness import ALONE, InPlace
from ..model import type_lattice
from ..model.function import Function, operation
from ..model.type_lattice import INTEGERS, Kind
from .inline import ALTERNATIVES, IN_ORDER, RULES, Rule, are_map_and_key, limits_allow
from .python_text import MARK, Statement, grow, mark
from .type_flags import Flags

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

# The name of the version of a function for the kinds of its parameters and captures.
Version: TypeAlias = "Callable[[int, tuple[Kind, ...]], str]"


# Placeholder of an operand while its enclosing expression is built; length limit of an expression.
_PLACE = "xx"
_LONGEST = 400
_VARIABLE = re.compile(r"[sxL]\d+")
# The names in a text.
_WORDS = re.compile(r"\w+")


class Operand:
    """An expression on the stack: its text, its kind, and whether its text can be repeated.

    captures: the captures of a closure that is created here. choice: for a conditional expression, the
    condition, both alternatives, and the kind of the first. applied: for a function with an applied list of
    arguments, the names of both.
    """

    def __init__(self, text: str, kind: Kind, is_atom: bool, captures: list[str] | None = None) -> None:
        self.text = text
        self.kind = kind
        self.is_atom = is_atom
        self.captures = captures
        self.choice: tuple[str, str, str, Kind] | None = None
        self.applied: tuple[str, str] | None = None


class Optimizations:
    """Optimisations that are valid for one text; see `uniqueness` and `range_checks`.

    Attributes:
        growing: names of the slots with growing lists.
        maps: `put` instructions that may change their map in place: offset → name of the map's slot.
        boxes: `put` instructions that may change the map of a box in place (`InPlace`).
        below: `nth` instructions without a range check.
        once_per_iteration: growing lists that get one item per iteration.
    """

    def __init__(
        self, growing: Iterable[int] = (), inplace: InPlace | None = None, below: Iterable[int] = ()
    ) -> None:
        self.growing = {f"s{slot}" for slot in growing}
        self.maps = {offset: f"s{slot}" for offset, slot in inplace.maps.items()} if inplace else {}
        self.boxes = inplace.boxes if inplace else {}
        self.once_per_iteration = (
            {f"s{slot}" for slot in inplace.growing} & self.growing if inplace else set()
        )
        self.below = set(below)


class Instructions:
    """Writes the instructions of states, one after another.

    kinds: the current kind of each slot. stack: the operands. out: the statements so far.
    """

    def __init__(
        self,
        function: Function,
        known: KnownTypes,
        version: Version,
        optimizations: Optimizations | None = None,
    ) -> None:
        self.function = function
        self.optimizations = optimizations or Optimizations()
        self.image = function.image
        self.known = known
        self.version = version
        self.kinds: list[Kind] = []
        self.stack: list[Operand] = []
        self.out: list[Statement] = []
        self.flags = Flags()
        self.temporaries = 0
        # The expression from which each temporary was computed.
        self.sources: dict[str, str] = {}
        # What replaces each STORE (`Liveness.plan`), and whether the following LOAD has been replaced.
        self.plans: dict[int, str] = {}
        self.skips_load = False
        # Added to the offsets of this state's marks.
        self.mark_shift = 0
        # The local that counts upwards from 0 or more; the list over whose items a loop iterates
        # (`counted_loops`).
        self.rising_index = ""
        self.items = ""
        # The lists that are known to have room for another item.
        self.has_room: set[str] = set()
        # A slot that is read only once, immediately, and the expression of its value.
        self.forwarded: tuple[int, str] = -1, ""

    def begin_state(self, state: int) -> None:
        self.temporaries = 0
        self.sources = {}
        self.kinds = list(self.known.at_entry[state])
        self.stack = []
        self.out = []

    def mark(self, offset: int) -> str:
        return mark(offset | self.mark_shift)

    def emit(self, offset: int, name: str, operands: tuple[int, ...]) -> None:
        match name:
            case "CONST":
                text, kind = self.constant(operands[0])
                self.stack.append(Operand(text, kind, True))
            case "LOAD" if self.skips_load:
                self.skips_load = False
            case "LOAD" if self.forwarded[0] == operands[0]:
                self.stack.append(Operand(self.forwarded[1], "any", False))
                self.forwarded = -1, ""
            case "LOAD":
                kind = self.kinds[operands[0]]
                text = SINGLETONS.get(kind, "") if isinstance(kind, str) else ""
                self.stack.append(Operand(text or self.function.names[operands[0]], kind, True))
            case "PRIM":
                self.primitive(offset, self.image.constants[operands[0]], operands[1])
            case "CLOSURE":
                taken = self.take(operands[1])
                captures = [one.text for one in taken]
                text = (
                    f"FunctionValue({operands[0]}, {tuple_display(captures)})"
                    if captures
                    else f"L{operands[0]}"
                )
                kind = type_lattice.of_closure(operands[0], [one.kind for one in taken])
                self.stack.append(Operand(text, kind, not captures, captures))
            case "STORE":
                value = self.stack.pop()
                self.kinds[operands[0]] = value.kind
                plan = self.plans.get(offset)
                name = f"s{operands[0]}"
                if name in self.optimizations.growing and value.text != name and plan != "drop":
                    self.out.append(grow(name, value.text))
                    value = Operand(name, "any", True)
                if plan == "keep":
                    self.stack.append(value)
                    self.skips_load = True
                elif plan == "drop":
                    self.out += effect_statements(value.text)
                else:
                    if value.text != name:
                        self.out.append(f"{name} = {value.text}")
                    self.out += self.flags.update(name, value.kind)
            case "SETBOX":
                box, value = self.take(2)
                if not box.text.isidentifier():
                    self.out.append(f"({self.mark(offset)}NO_BOX({box.text}))")
                elif box.kind == "box":
                    self.out.append(f"{box.text}.value = {value.text}")
                else:
                    self.out.append((f"if type({box.text}) is Box", [f"{box.text}.value = {value.text}"]))
                    self.out.append(("else", [f"({self.mark(offset)}SET_BOX({box.text}, {value.text}))"]))
            case "NOTE":
                kind = self.constant(operands[0])[0]
                self.out.append(f"({self.mark(offset)}NOTE({kind}, {self.stack.pop().text}))")
            case _:
                raise AssertionError(f"{name} is not known here")

    def take(self, count: int, are_atoms: bool = True) -> list[Operand]:
        """Pop the topmost operands, in the order in which they were pushed."""
        first = len(self.stack) - count
        if are_atoms:
            last = max((i for i, one in enumerate(self.stack) if i >= first and not one.is_atom), default=-1)
            # Operands below must be evaluated before a statement that is emitted now.
            for index in range(last + 1):
                if index >= first or self.stack[index].captures is None:
                    self.stack[index] = self.atom(self.stack[index])
        taken = self.stack[first:]
        del self.stack[first:]
        return taken

    def atom(self, operand: Operand) -> Operand:
        """The operand as a name."""
        if operand.is_atom:
            return operand
        self.temporaries += 1
        name = f"x{self.temporaries}"
        self.out.append(f"{name} = {operand.text}")
        self.sources[name] = operand.text
        return Operand(name, operand.kind, True)

    def primitive(self, offset: int, name: str, count: int) -> None:
        rule = RULES.get(name) if limits_allow(name) else None
        if rule is not None and self.nest_operand(offset, name, count, rule):
            return
        taken = self.take(count, rule is not None and name not in IN_ORDER)
        if self.emit_optimized(offset, name, taken) or (
            name == "applied" and self.emit_applied(offset, *taken)
        ):
            return
        kind = type_lattice.of_result(name, [one.kind for one in taken])
        # The call of the primitive, if it is needed, must be on its own line.
        slow = f"{self.mark(offset)}P_{name}({', '.join(one.text for one in taken)})"
        typed = [(one.text, one.kind) for one in taken]
        found = None if rule is None else rule(typed)
        if found is None:
            self.stack.append(Operand(f"({slow})", kind, False))
            return
        quick, condition = map(self.flags.replace_tests, found)
        second = ALTERNATIVES[name](typed) if condition and name in ALTERNATIVES else None
        has_second = second is not None and second != found
        if has_second:
            other, when = map(self.flags.replace_tests, second)  # type: ignore[arg-type]
            slow = f"{other} if {when} else {slow}"
        self.stack.append(_conditional(quick, condition, slow, kind, type_lattice.of_quick(name, kind)))
        if has_second and name not in WANTS:
            # Both alternatives are equally likely: code specialised for the first would be slow for the
            # second.
            self.stack[-1].choice = None

    def nest_operand(self, offset: int, name: str, count: int, rule: Rule) -> bool:
        """Nest the expression of an operand in that of the primitive; False if that is not possible."""
        taken = self.stack[len(self.stack) - count :]
        inner = [index for index, one in enumerate(taken) if not one.is_atom]
        if len(inner) != 1 or self.is_optimized(offset, name):
            return False
        operand = taken[inner[0]]
        if operand.choice is None or len(operand.text) > _LONGEST:
            return False
        first, first_condition, first_slow, first_kind = operand.choice
        typed = [(one.text, one.kind) for one in taken]
        typed[inner[0]] = _PLACE, first_kind
        found = rule(typed)
        if found is None or found[0].count(_PLACE) != 1 or _PLACE in found[1]:
            return False
        del self.stack[len(self.stack) - count :]
        quick, condition = map(self.flags.replace_tests, found)
        texts = [one.text for one in taken]
        if not condition:
            texts[inner[0]] = first_slow
        slow = f"{self.mark(offset)}P_{name}({', '.join(texts)})"
        both = " and ".join(test for test in (first_condition, condition) if test)
        kind = type_lattice.of_result(name, [one.kind for one in taken])
        text = quick.replace(_PLACE, f"({first})")
        self.stack.append(_conditional(text, both, slow, kind, type_lattice.of_quick(name, kind)))
        return True

    def emit_applied(self, offset: int, function: Operand, values: Operand) -> bool:
        """Translate `applied` together with the following call, which would take it apart (`call`)."""
        function, values = map(self.atom, (function, values))
        if not _VARIABLE.fullmatch(function.text):
            return False
        are_quick = f"type({values.text}) is tuple"
        if not isinstance(function.kind, tuple):
            are_quick = f"type({function.text}) is FunctionValue and {are_quick}"
        slow = f"{self.mark(offset)}APPLICABLE({function.text}, {values.text})"
        items = self.atom(Operand(f"({values.text} if {are_quick} else {slow})", "array", False)).text
        captures = f"(*{items}, *{function.text}.captures)"
        made = Operand(f"FunctionValue({function.text}.function, {captures})", "any", False)
        made.applied = function.text, items
        self.stack.append(made)
        return True

    def is_optimized(self, offset: int, name: str) -> bool:
        """Whether an optimisation that is specific to this text applies (`emit_optimized`)."""
        own = self.optimizations
        return (
            offset in own.maps
            or offset in own.boxes
            or offset in own.below
            or (name in ("cons", "reverse") and bool(own.growing))
        )

    def emit_optimized(self, offset: int, name: str, taken: list[Operand]) -> bool:
        """Write a primitive with an optimisation that is specific to this text; False if none applies."""
        texts = [one.text for one in taken]
        growing = self.optimizations.growing
        if name == "cons" and texts[1] in growing:
            item, slot = texts
            self.flush_operands()
            if slot not in self.has_room:
                self.out.append((f"if len({slot}) > m{slot[1:]}", [f"({self.mark(offset)}FULL())"]))
            self.out.append(f"{slot}.append({item})")
            self.stack.append(Operand(slot, "any", True))
        elif name == "reverse" and texts[0] in growing:
            text = f"(tuple({texts[0]}[1:]) if {texts[0]}[0] is NIL else REVERSED({texts[0]}))"
            self.stack.append(Operand(text, "array", False))
        elif offset in self.optimizations.maps and self.is_alone(self.optimizations.maps[offset], taken):
            slot, key, value = texts
            self.flush_operands()
            typed = [(one.text, one.kind) for one in taken]
            tests = " and ".join([f"REFS({slot}) == {ALONE}", *are_map_and_key(*typed[:2])])
            quick = RULES["put"](typed)
            assert quick is not None
            second = ALTERNATIVES["put"](typed)
            assert second is not None
            slow = f"{second[0]} if {second[1]} else {self.mark(offset)}P_put({', '.join(texts)})"
            other = _conditional(*quick, slow, "map", "map")
            self.out.append((f"if {tests}", [f"{slot}[{key}] = {value}"]))
            self.out.append(("else", [f"{slot} = {other.text}"]))
            self.stack.append(Operand(slot, "map", True))
        elif offset in self.optimizations.boxes:
            self.emit_box_put(offset, taken)
        elif offset in self.optimizations.below:
            (index, kind), (items, _) = typed = [(one.text, one.kind) for one in taken]
            if taken[0].kind == "array":
                (items, _), (index, kind) = typed
            if kind not in INTEGERS:
                return False
            if self.items and index == self.rising_index:
                self.stack.append(Operand("i", "any", True))
                return True
            if index == self.rising_index:
                self.stack.append(Operand(f"({items}[{index}])", "any", False))
                return True
            call = f"{self.mark(offset)}P_nth({index}, {items})"
            self.stack.append(Operand(f"({items}[{index}] if {index} >= 0 else {call})", "any", False))
        else:
            return False
        return True

    def is_alone(self, slot: str, taken: list[Operand]) -> bool:
        """Whether the local of a slot is the map operand of a `put` and no other operand."""
        others = [one for one in (*taken[1:], *self.stack) if one.is_atom or one.captures is not None]
        return taken[0].text == slot and not any(slot in _WORDS.findall(one.text) for one in others)

    def emit_box_put(self, offset: int, taken: list[Operand]) -> None:
        """Translate a `put` between `unbox` and SETBOX of the same box. Other references to the map are
        released first.
        """
        self.flush_operands()
        slot, kept = self.optimizations.boxes[offset]
        old, key, value = (one.text for one in taken)
        source = self.sources.get(old)
        holders = [name for name, text in self.sources.items() if text == source and name not in (key, value)]
        holders += [f"s{kept}"] if kept >= 0 else []
        if holders:
            self.out.append(f"{' = '.join(holders)} = None")
        map_ = f"{self.function.names[slot]}.value"
        typed = (map_, "any"), (taken[1].text, taken[1].kind)
        tests = " and ".join([f"REFS({map_}) == {ALONE}", *are_map_and_key(*typed)])
        self.out.append((f"if {tests}", [f"{map_}[{key}] = {value}"]))
        self.out.append(("else", [f"{map_} = ({self.mark(offset)}P_put({map_}, {key}, {value}))"]))
        self.stack.append(Operand(map_, "map", False))

    def flush_operands(self) -> None:
        """Emit all operands on the stack before a statement."""
        for index, one in enumerate(self.stack):
            if one.captures is None:
                self.stack[index] = self.atom(one)

    def call(self, offset: int, count: int) -> str:
        callee = self.stack[-1 - count]
        if isinstance(callee.kind, tuple) and (callee.is_atom or callee.captures is not None):
            return self.call_known(offset, count, callee, callee.kind[1])
        if callee.applied is not None:
            function, values = callee.applied
            first = [one.text for one in self.take(count, False)]
            self.stack.pop()
            whole = tuple_display([*first, f"*{values}"]) if first else values
            return f"({self.mark(offset)}APPLY({function}, {whole}))"
        operands = self.take(count + 1, not callee.is_atom)
        value, *texts = [one.text for one in operands]
        given = "".join(f", {text}" for text in texts)
        if not value.isidentifier():
            return f"({self.mark(offset)}NO_FUNCTION({value}{given}))"
        call = f"{self.mark(offset)}C{count}[{value}.function]({value}.captures{given})"
        # An argument may be on its own line, so the other call must be too.
        wrong = f"{self.mark(offset)}NO_FUNCTION({value}{given})"
        return f"({call} if type({value}) is FunctionValue else {wrong})"

    def call_known(self, offset: int, count: int, callee: Operand, function: int) -> str:
        """A call of a known function."""
        code = self.image.functions[function]
        arguments = self.take(count, False)
        self.stack.pop()
        texts = [one.text for one in arguments]
        assert isinstance(callee.kind, tuple)
        given = [one.kind for one in arguments]
        own = f"{callee.text}.captures" if callee.captures is None else tuple_display(callee.captures)
        if operation(self.image, function, count) is not None:
            return f"({self.mark(offset)}C{count}[{function}]({', '.join([own, *texts])}))"
        if code.rest and count >= code.parameters - 1:
            texts[code.parameters - 1 :] = [tuple_display(texts[code.parameters - 1 :])]
            given[code.parameters - 1 :] = ["array"]
        elif count != code.parameters:
            return f"({self.mark(offset)}CALL({callee.text}, {tuple_display(texts)}))"
        version = type_lattice.given([*given, *callee.kind[2]])
        if any(kind != "any" for kind in version):
            name = self.version(function, version)
            return f"({self.mark(offset)}{name}({', '.join([*texts, *self.captures(callee)])}))"
        return f"({self.mark(offset)}F{function}({', '.join([own, *texts])}))"

    def captures(self, callee: Operand) -> list[str]:
        """The captures of a known function."""
        assert isinstance(callee.kind, tuple)
        if callee.captures is not None:
            return callee.captures
        return [f"{callee.text}.captures[{number}]" for number in range(len(callee.kind[2]))]

    def constant(self, index: int) -> tuple[str, Kind]:
        value = self.image.constants[index]
        if value is None or type(value) is bool:
            return repr(value), "null" if value is None else "bool"
        if type(value) is int and value.bit_length() < 256:
            return repr(value), type_lattice.of_value(value, self.image)
        # Constants that could be mistaken for a call in the text are not written as literals (`primitive`).
        if type(value) is str and len(value) < 80 and value.isprintable() and "(" not in value:
            return repr(value), "str"
        if value == () and type(value) is tuple:
            return "NIL", "array"
        return f"K{index}", type_lattice.of_value(value, self.image)


def _conditional(quick: str, condition: str, slow: str, kind: Kind, quick_kind: Kind) -> Operand:
    """A conditional expression: `quick` under the guard, otherwise `slow`."""
    text = f"({quick} if {condition} else {slow})" if condition else f"({quick})"
    made = Operand(text, kind, False)
    made.choice = quick, condition, slow, quick_kind
    return made


def effect_statements(text: str) -> list[Statement]:
    """The statement for an expression whose value is not used."""
    return [text] if MARK in text else []


def tuple_display(texts: list[str]) -> str:
    """A tuple display."""
    return f"({''.join(f'{text}, ' for text in texts)})"
