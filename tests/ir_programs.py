"""Generated programs for property tests: well-formed, with hostile names, constants and spans.

Hypothesis draws the material of a program: names, constants, spans. One drawn seed determines the structure,
since drawing each choice would be slow.
"""

from __future__ import annotations

import random
from typing import Any

from hypothesis import strategies as st

from llc.ir.constants import Symbol
from llc.ir.effects import EFFECTS, NOTES
from llc.ir.nodes import (
    Branch,
    Call,
    Closure,
    Const,
    Exit,
    Expr,
    Fail,
    Function,
    Goto,
    Handler,
    Instruction,
    Limits,
    Meta,
    Note,
    Parallel,
    Perform,
    Prim,
    Program,
    Return,
    Set,
    SetBox,
    Slot,
    State,
    Switch,
    TailCall,
)
from llc.ir.primitives import PRIMITIVES
from llc.ir.spans import Source, Span
from llc.ir.text import KEYWORDS

Strategy = st.SearchStrategy

TEXTS = st.text(st.characters(), max_size=12)
# Keywords that may be unquoted names.
WORDS = [
    "program",
    "entry",
    "meta",
    "source",
    "function",
    "captures",
    "locals",
    "state",
    "fault",
    "then",
    "else",
]
NAMES = st.one_of(
    st.from_regex(r"[a-z_/][a-z./-]{0,6}", fullmatch=True),
    st.sampled_from([*sorted(KEYWORDS), *WORDS]),
    TEXTS,
)
ATOMS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([4299, 9999, 20_000]).map(lambda bits: -(1 << bits) + 1),
    st.floats(),
    TEXTS,
    NAMES.map(Symbol),
)
CONSTANTS: Strategy[Any] = st.recursive(
    ATOMS,
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
PATHS = ("a.yaml", 'q"uote.yaml', "dir/ü\n.sexp")
SPANS = st.one_of(
    st.none(),
    st.builds(
        Span,
        st.sampled_from(PATHS),
        st.integers(0, 1 << 31),
        st.integers(1, 99),
        st.integers(1, 99),
        st.integers(1, 99),
    ),
)
SOURCES = st.lists(
    st.builds(Source, st.sampled_from(PATHS), st.text("0123456789abcdef", min_size=1, max_size=64)),
    max_size=2,
).map(tuple)
METAS = st.builds(
    Meta,
    kind=st.just("flow"),
    paradigm=st.none() | st.sampled_from(["fsm", "goal"]),
    scope=st.lists(TEXTS, max_size=2).map(tuple),
    maintain=st.booleans(),
    limits=st.builds(
        Limits,
        max_iterations=st.none() | st.integers(1, 99),
        max_steps=st.none() | st.integers(1, 99),
        timeout_ms=st.none() | st.integers(1, 99999),
        budget_usd=st.none() | st.floats(0, 100) | st.integers(0, 9),
        budget_tokens=st.none() | st.integers(0, 9),
    ),
)


# Random source, constants, spans and switch cases to choose from.
Material = tuple[random.Random, list[Any], list[Span | None], list[str]]


class _Writer:
    """Writes one function of a program in which the frames of all functions are known."""

    def __init__(
        self, material: Material, functions: list[Function], own: Function, states: list[str]
    ) -> None:
        self.chance, self.constants, self.places, self.cases = material
        self.functions = functions
        self.own = own
        self.states = states
        self.slots = own.slots

    def span(self) -> Span | None:
        return self.chance.choice(self.places)

    def pick(self, options: Any) -> Any:
        return self.chance.choice(options)

    def expr(self, depth: int = 3) -> Expr:
        kinds = ["const"] + ["slot"] * bool(self.slots) + ["prim", "prim", "closure"] * (depth > 0)
        kind = self.pick(kinds)
        if kind == "const":
            return Const(self.pick(self.constants), span=self.span())
        if kind == "slot":
            return Slot(self.pick(self.slots), span=self.span())
        if kind == "closure":
            function = self.pick(self.functions)
            captures = tuple(self.expr(depth - 1) for _ in function.captures)
            return Closure(function.name, captures, span=self.span())
        row = PRIMITIVES[self.pick(sorted(PRIMITIVES))]
        most = row.least + 2 if row.most is None else row.most
        count = self.chance.randint(row.least, most)
        if row.name == "map":
            count -= count % 2
        return Prim(row.name, tuple(self.expr(depth - 1) for _ in range(count)), span=self.span())

    def args(self) -> tuple[Expr, ...]:
        return tuple(self.expr(1) for _ in range(self.chance.randint(0, 2)))

    def instruction(self) -> Instruction:
        kind = self.pick(["set", "set", "setbox", "note"] if self.slots else ["setbox", "note"])
        if kind == "set":
            return Set(self.pick(self.slots), self.expr(), span=self.span())
        if kind == "note":
            return Note(self.pick(sorted(NOTES)), self.expr(), span=self.span())
        return SetBox(self.expr(1), self.expr(1), span=self.span())

    def exit(self) -> Exit:
        kinds = ["goto", "branch", "switch", "tailcall", "return", "fail"]
        kind = self.pick(kinds + ["call", "perform", "parallel"] * bool(self.slots))
        span = self.span()
        match kind:
            case "goto":
                return Goto(self.pick(self.states), span=span)
            case "branch":
                return Branch(self.expr(), self.pick(self.states), self.pick(self.states), span=span)
            case "switch":
                cases = tuple(
                    (case, self.pick(self.states)) for case in self.cases[: self.chance.randint(0, 3)]
                )
                return Switch(self.expr(), cases, self.pick([None, *self.states]), span=span)
            case "call":
                return Call(
                    self.expr(), self.args(), self.pick(self.slots), self.pick(self.states), span=span
                )
            case "tailcall":
                return TailCall(self.expr(), self.args(), span=span)
            case "perform":
                kind = self.pick(sorted(EFFECTS))
                return Perform(kind, self.expr(), self.pick(self.slots), self.pick(self.states), span=span)
            case "parallel":
                return Parallel(
                    self.expr(), self.expr(), self.pick(self.slots), self.pick(self.states), span=span
                )
            case "return":
                return Return(self.expr(), span=span)
            case _:
                return Fail(self.expr(), span=span)

    def function(self) -> Function:
        states = []
        for name in self.states:
            body = tuple(self.instruction() for _ in range(self.chance.randint(0, 2)))
            handler = None
            if self.slots and self.chance.random() < 0.5:
                handler = Handler(self.pick(self.states), self.pick(self.slots))
            states.append(State(name, body, self.exit(), handler, span=self.span()))
        own = self.own
        return Function(
            own.name, own.parameters, tuple(states), own.captures, own.locals, own.rest, span=self.span()
        )


@st.composite
def programs(draw: st.DrawFn, max_states: int = 4) -> Program:
    """Well-formed programs of kind `flow`, in which `verify` finds no error."""
    chance = random.Random(draw(st.integers(0, 1 << 32)))
    names = draw(st.lists(NAMES, min_size=6, max_size=6, unique=True))
    material = (
        chance,
        draw(st.lists(CONSTANTS, min_size=3, max_size=6)),
        draw(st.lists(SPANS, min_size=1, max_size=4)),
        draw(st.lists(TEXTS, max_size=3, unique=True)),
    )
    frames = []
    for position, name in enumerate(chance.sample(names, chance.randint(1, 3))):
        slots = tuple(chance.sample(names, chance.randint(0, 5)))
        first, second = sorted(chance.choices(range(len(slots) + 1), k=2))
        if position == 0:
            second = first
        rest = position > 0 and first > 0 and chance.random() < 0.3
        frames.append(Function(name, slots[:first], (), slots[first:second], slots[second:], rest))
    functions = []
    for frame in frames:
        states = chance.sample(names, chance.randint(1, max_states))
        functions.append(_Writer(material, frames, frame, states).function())
    return Program(names[0], frames[0].name, tuple(functions), draw(METAS), sources=draw(SOURCES))


def spans_of(program: Program) -> list[Span | None]:
    """Every span of a program, in the order of its nodes."""
    found: list[Span | None] = []
    todo: list[Any] = list(reversed(program.functions))
    while todo:
        node = todo.pop()
        if isinstance(node, tuple):
            todo.extend(reversed(node))
            continue
        if not hasattr(node, "span"):
            continue
        found.append(node.span)
        parts = [getattr(node, name) for name in node.__match_args__ if name not in ("value",)]
        if not isinstance(node, Const) and hasattr(node, "value"):
            parts.append(node.value)
        todo.extend(reversed([part for part in parts if not isinstance(part, str)]))
    return found
