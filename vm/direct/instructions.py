"""The instructions of a state as Python: the operand stack holds expressions until somebody stores them.

An expression is written where its value is wanted, in the order in which the machine would have computed
it: what must be written ahead of others takes those that come before it along (`take`).
"""

from __future__ import annotations

from .inline import RESULTS, RULES, fits
from .text import mark

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .function import Function
    from .known import Known
    from .text import Statement

# Primitives for which it is worth knowing that a parameter is an integer.
_NUMERIC = frozenset(
    {"add", "sub", "mul", "num_eq", "lt", "le", "gt", "ge", "quotient", "remainder", "modulo"}
    | {"is_even", "is_odd", "is_zero", "is_positive", "is_negative"}
)


class Operand:
    """An expression on the stack: its text, what is known of its type, whether it can be written twice.

    closure: the function and the captures, where it is one that is made right here.
    """

    __slots__ = ("closure", "is_atom", "kind", "text")

    def __init__(
        self, text: str, kind: str, is_atom: bool, closure: tuple[int, list[str]] | None = None
    ) -> None:
        self.text = text
        self.kind = kind
        self.is_atom = is_atom
        self.closure = closure


class Instructions:
    """Writes the instructions of one state after another.

    types: what is known of each slot now. stack: the operands. out: the statements so far.
    """

    def __init__(self, function: Function, known: Known) -> None:
        self.function = function
        self.code = function.code
        self.image = function.image
        self.known = known
        self.types: list[str] = []
        self.stack: list[Operand] = []
        self.out: list[Statement] = []
        self.temporaries = 0

    def enter(self, state: int) -> None:
        self.temporaries = 0
        self.types = list(self.known.before[state])
        self.stack = []
        self.out = []

    def work(self, offset: int, name: str, operands: tuple[int, ...]) -> None:
        match name:
            case "CONST":
                text, kind = self.constant(operands[0])
                self.stack.append(Operand(text, kind, True))
            case "LOAD":
                self.stack.append(Operand(f"s{operands[0]}", self.types[operands[0]], True))
            case "PRIM":
                self.primitive(offset, self.image.constants[operands[0]], operands[1])
            case "CLOSURE":
                captures = [one.text for one in self.take(operands[1])]
                text = f"FunctionValue({operands[0]}, ({''.join(f'{one}, ' for one in captures)}))"
                self.stack.append(Operand(text, "any", False, (operands[0], captures)))
            case "STORE":
                value = self.stack.pop()
                self.out.append(f"s{operands[0]} = {value.text}")
                self.types[operands[0]] = value.kind
            case "SETBOX":
                box, value = self.take(2)
                if not box.text.isidentifier():
                    self.out.append(f"({mark(offset)}NO_BOX({box.text}))")
                elif box.kind == "box":
                    self.out.append(f"{box.text}.value = {value.text}")
                else:
                    self.out.append((f"if type({box.text}) is Box", [f"{box.text}.value = {value.text}"]))
                    self.out.append(("else", [f"({mark(offset)}NO_BOX({box.text}))"]))
            case "NOTE":
                kind = self.constant(operands[0])[0]
                self.out.append(f"({mark(offset)}NOTE({kind}, {self.stack.pop().text}))")
            case _:
                raise AssertionError(f"{name} is not known here")

    def take(self, count: int, are_atoms: bool = True) -> list[Operand]:
        """The topmost operands, in the order they were pushed."""
        first = len(self.stack) - count
        if are_atoms:
            last = max((i for i, one in enumerate(self.stack) if i >= first and not one.is_atom), default=-1)
            # What is written ahead of the others must not be done before those that come first.
            for index in range(last + 1):
                if index >= first or self.stack[index].closure is None:
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
        return Operand(name, operand.kind, True)

    def primitive(self, offset: int, name: str, count: int) -> None:
        rule = RULES.get(name) if fits(name) else None
        if rule is not None:
            taken = self.take(count)
            if name in _NUMERIC:
                for one in taken:
                    if one.kind == "any" and one.text.startswith("s"):
                        self.known.wanted.add(int(one.text[1:]))
            typed = rule([(one.text, one.kind) for one in taken])
            if typed is not None:
                text, kind = typed
                # The call of the primitive in it, if there is one, is on a line of its own.
                text = text.replace(f"P_{name}(", f"{mark(offset)}P_{name}(")
                self.stack.append(Operand(text, kind, False))
                return
        else:
            taken = self.take(count, False)
        text = f"({mark(offset)}P_{name}({', '.join(one.text for one in taken)}))"
        self.stack.append(Operand(text, RESULTS.get(name, "any"), False))

    def call(self, offset: int, count: int) -> str:
        callee = self.stack[-1 - count]
        if callee.closure is not None:
            function, captures = callee.closure
            arguments = self.take(count, False)
            self.stack.pop()
            code = self.image.functions[function]
            texts = [one.text for one in arguments]
            own = f"({''.join(f'{one}, ' for one in captures)})"
            if code.rest and count >= code.parameters - 1:
                left = texts[code.parameters - 1 :]
                texts = [*texts[: code.parameters - 1], f"({''.join(f'{one}, ' for one in left)})"]
            elif count != code.parameters:
                return f"({mark(offset)}CALL({callee.text}, ({''.join(f'{one}, ' for one in texts)})))"
            return f"({mark(offset)}F{function}({', '.join([own, *texts])}))"
        operands = self.take(count + 1, not callee.is_atom)
        value, *texts = [one.text for one in operands]
        given = "".join(f", {text}" for text in texts)
        if not value.isidentifier():
            return f"({mark(offset)}NO_FUNCTION({value}{given}))"
        call = f"{mark(offset)}C{count}[{value}.function]({value}.captures{given})"
        # An argument may stand on a line of its own, so the other call does too.
        wrong = f"{mark(offset)}NO_FUNCTION({value}{given})"
        return f"({call} if type({value}) is FunctionValue else {wrong})"

    def constant(self, index: int) -> tuple[str, str]:
        value = self.image.constants[index]
        if value is None or type(value) is bool:
            return repr(value), "null" if value is None else "bool"
        if type(value) is int and value.bit_length() < 256:
            return repr(value), "int"
        # What might be taken for a call in the text is not written out (`primitive`).
        if type(value) is str and len(value) < 80 and value.isprintable() and "(" not in value:
            return repr(value), "str"
        if value == () and type(value) is tuple:
            return "()", "any"
        return f"K{index}", {int: "int", str: "str"}.get(type(value), "any")
