"""Random programs with all behaviours of a verified program: they run, fault, fork or loop endlessly."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

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
from llc.ir.spans import Span

# Usually p and x hold plain values, b a box, f a function and z anything, so that most programs make
# progress; a random expression sometimes breaks the rule and faults.

SLOTS = ("p", "b", "x", "f", "z")
FUNCTIONS = ("main", "f", "g")
CONSTANTS = st.sampled_from(
    [None, True, 0, 1, 2, -1, 1.5, "", "a", "b", "long " * 20, (), (1, ("a",)), {}, {"k": (1,)}, 10**20]
)
SPANS = st.none() | st.integers(1, 9).map(lambda line: Span("p", line, 1, line, 5))


def prim(name: str, *operands: st.SearchStrategy[Any]) -> st.SearchStrategy[Prim]:
    return st.builds(Prim, st.just(name), st.tuples(*operands), span=SPANS)


def slots(*names: str) -> st.SearchStrategy[Slot]:
    return st.builds(Slot, st.sampled_from(names))


def closures(capture: st.SearchStrategy[Any]) -> st.SearchStrategy[Closure]:
    return st.builds(Closure, st.sampled_from(FUNCTIONS[1:]), st.tuples(capture))


LITERALS = st.builds(Const, CONSTANTS)
KEYS = st.builds(Const, st.sampled_from("abk"))
PLAIN: st.SearchStrategy[Expr] = st.recursive(
    LITERALS | slots("p", "x"),
    lambda inner: prim("list", inner, inner) | prim("map", KEYS, inner) | prim("eq", inner, inner),
    max_leaves=4,
)
ANYTHING: st.SearchStrategy[Expr] = st.recursive(
    PLAIN | slots(*SLOTS),
    lambda inner: st.one_of(
        prim("list", inner, inner),
        prim("map", KEYS, inner),
        prim("box", inner),
        prim("unbox", slots("b")),
        closures(inner),
    ),
    max_leaves=4,
)
RANDOM: st.SearchStrategy[Expr] = prim("add", PLAIN, PLAIN) | prim("get", PLAIN, KEYS) | ANYTHING
INSTRUCTIONS: st.SearchStrategy[Instruction] = st.one_of(
    st.builds(Set, st.just("x"), PLAIN, span=SPANS),
    st.builds(Set, st.just("b"), prim("box", ANYTHING)),
    st.builds(Set, st.just("f"), closures(slots("b", "z"))),
    st.builds(Set, st.just("z"), ANYTHING),
    st.builds(SetBox, slots("b"), ANYTHING),
    st.builds(Note, st.just("cycle"), prim("map", KEYS, PLAIN)),
    st.builds(Set, st.sampled_from(SLOTS), RANDOM, span=SPANS),
)
# The first instructions of each function.
INITIALISATION = (Set("b", Prim("box", (Const(0),))), Set("f", Closure("f", (Slot("b"),))))


@st.composite
def functions(draw: st.DrawFn, name: str) -> Function:
    names = [f"s{index}" for index in range(draw(st.integers(1, 5)))]
    target = st.sampled_from(names)
    callee = slots("f") | closures(slots("b", "z"))
    arguments = st.tuples(PLAIN)
    args = prim("map", KEYS, PLAIN)
    perform = st.builds(
        Perform, st.sampled_from(["shell", "clock"]), args, st.sampled_from("xz"), target, span=SPANS
    )
    lists = prim("list", PLAIN, PLAIN) | PLAIN
    cases = st.lists(st.tuples(st.sampled_from("ab"), target)).map(tuple)
    exits: list[st.SearchStrategy[Exit]] = [
        perform,
        perform,
        st.builds(Goto, target),
        st.builds(Branch, PLAIN, target, target),
        st.builds(Switch, PLAIN, cases, target),
        st.builds(Call, callee, arguments, st.sampled_from("xz"), target, span=SPANS),
        st.builds(Call, callee, arguments, st.just("z"), target, span=SPANS),
        st.builds(TailCall, callee, arguments),
        st.builds(Parallel, callee, lists, st.sampled_from("xz"), target, span=SPANS),
        st.builds(Return, PLAIN if name == "main" else ANYTHING),
        st.builds(Fail, PLAIN) | st.builds(Switch, RANDOM, cases, st.none()),
    ]
    states = []
    for state in names:
        body = (*(INITIALISATION if state == "s0" else ()), *draw(st.lists(INSTRUCTIONS, max_size=3)))
        handler = draw(st.none() | st.builds(Handler, target, st.sampled_from("xz")))
        states.append(State(state, body, draw(st.one_of(*exits)), handler, span=draw(SPANS)))
    captures = () if name == "main" else ("b",)
    return Function(name, ("p",), tuple(states), captures, SLOTS[1 + len(captures) :])


PROGRAMS = st.tuples(*[functions(name) for name in FUNCTIONS]).map(lambda f: Program("random", "main", f))
