"""Generated programs whose values change type: integers become floats, strings or huge integers."""

from __future__ import annotations

import random

_VALUES = (
    *("0", "1", "2", "3", "7", "-1", "1000000007"),
    *("1.0", "2.5", "0.0", "true", "false", '"ab"', "nil", "(quote sym)"),
    *("18446744073709551615", "-18446744073709551617", "340282366920938463463374607431768211456"),
    *("(list 1 2)", "(list 3 2.5 true)", "(dict (a 1))", "(lambda (x) (+ x 1))"),
)
_BINARY = (
    "+",
    "-",
    "*",
    "<",
    "<=",
    "=",
    ">",
    ">=",
    "equal?",
    "quotient",
    "remainder",
    "modulo",
    "max",
    "cons",
)
_UNARY = ("not", "null?", "first", "rest", "even?", "zero?", "list", "string?", "abs", "length", "reverse")


class MixedTypeGenerator:
    """Generator of a program with loops and a few functions that call each other and themselves."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.functions = [f"f{number}" for number in range(self.random.randint(1, 4))]

    def program(self) -> str:
        parts = [self.function(name) for name in self.functions]
        return "\n".join([*parts, f"(list {self.main()} {self.main()})"])

    def pick(self, *choices: str) -> str:
        return self.random.choice(choices)

    def value(self) -> str:
        # Mostly small integers, so that the specialised versions run for a while.
        return self.pick(*_VALUES) if self.random.random() < 0.25 else str(self.random.randint(0, 9))

    def main(self) -> str:
        call = f"({self.pick(*self.functions)} {self.random.randint(0, 7)} {self.value()} {self.value()})"
        kind = self.random.randint(0, 5)
        if kind == 0:
            return f'(try {call} (catch e (get e "message")))'
        if kind == 1:
            called = f"({self.pick(*self.functions)} 3 x {self.value()})"
            return f"(map (lambda (x) {called}) (list {self.value()} 1 2))"
        return call

    def function(self, name: str) -> str:
        """The first parameter counts down, so that the function ends."""
        variables = ["n", "a", "b"]
        end = self.expression(variables, 1, None)
        kind = self.random.randint(0, 4)
        body = self.expression(variables, 3, self.pick(*self.functions))
        if kind == 0:  # a tail call of the function itself
            arguments = self.expression(variables, 2, None), self.expression(variables, 1, None)
            body = f"({name} (- n 1) {arguments[0]} {arguments[1]})"
        elif kind == 1:  # a loop inside
            step = self.expression([*variables, "i", "s"], 2, self.pick(*self.functions))
            body = f"(loop ((i 0) (s a)) (if (< i n) (recur (+ i 1) {step}) s))"
        elif kind == 2:  # a variable that is assigned and captured
            inner = self.expression([*variables, "c"], 2, self.pick(*self.functions))
            setter = f"(lambda (x) (set! c {self.expression(['c', 'x'], 1, None)}) c)"
            body = f"(let* ((c a) (g {setter})) (g n) (g b) {inner})"
        return f"(define ({name} n a b) (if (<= n 0) {end} {body}))"

    def expression(self, variables: list[str], depth: int, callee: str | None) -> str:
        kind = self.random.randint(0, 9) if depth else self.random.randint(0, 2)
        if kind <= 1:
            return self.pick(*variables)
        if kind == 2:
            return self.value()
        inner = [self.expression(variables, depth - 1, callee) for _ in range(3)]
        if kind <= 4 and callee is not None:
            return f"({callee} (- n {self.random.randint(1, 3)}) {inner[0]} {inner[1]})"
        if kind == 5:
            return f"(if {inner[0]} {inner[1]} {inner[2]})"
        if kind == 6:
            return f"({self.pick(*_UNARY)} {inner[0]})"
        if kind == 7:
            return f"(let ((n {inner[0]})) {inner[1]})" if callee is None else f"(and {inner[0]} {inner[1]})"
        return f"({self.pick(*_BINARY)} {inner[0]} {inner[1]})"
