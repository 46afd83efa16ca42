"""Code emission from states: layout, constants, spans and checks of the output."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from llc.ir.nodes import (
    Branch,
    Call,
    Closure,
    Const,
    Exit,
    Function,
    Goto,
    Handler,
    Instruction,
    Prim,
    Program,
    Return,
    Set,
    Slot,
    State,
    Switch,
)
from llc.ir.spans import Span
from llc.vm.code.emit import EmitError, emit
from llc.vm.code.image import FunctionCode, Image
from llc.vm.code.opcodes import decode


def listing(image: Image, function: FunctionCode) -> list[str]:
    """One line an instruction; a state's name stands before its first."""
    starts = dict(zip(function.offsets, function.states, strict=True))
    return [
        " ".join([*([f"{starts[offset]}:"] if offset in starts else []), row.name, *map(str, operands)])
        for offset, row, operands in decode(function.code)
    ]


def one(*body: Instruction, exit: Exit, handler: Handler | None = None, **options: object) -> Program:
    state = State("s", body, exit, handler)
    return Program("p", "main", (Function("main", (), (state,), locals=("x", "y")),))


def test_operands_come_before_what_they_are_operands_of(image_of: Callable[[str], Image]) -> None:
    """Post-order, left to right; states follow each other in their order."""
    image = image_of("""
        function main(a) locals(b)
          state first
            b = sub(add(a, 1), 2)
            branch lt(b, a) second first
          state second
            return list(a, b)
    """)
    (main,) = image.functions
    assert listing(image, main) == [
        "first: LOAD 0",
        "CONST 0",
        "PRIM 1 2",
        "CONST 2",
        "PRIM 3 2",
        "STORE 1",
        "LOAD 1",
        "LOAD 0",
        "PRIM 4 2",
        "BRANCH 1 0",
        "second: LOAD 0",
        "LOAD 1",
        "PRIM 5 2",
        "RETURN",
    ]
    assert image.constants == (1, "add", 2, "sub", "lt", "list")
    assert main.max_stack == 2


def test_a_frame_holds_parameters_captures_locals(image_of: Callable[[str], Image]) -> None:
    """In this order, and the counts say which is which."""
    image = image_of("function main(a) captures(b) locals(c)\n state s\n return c")
    (main,) = image.functions
    assert (main.slots, main.parameters, main.captures) == (("a", "b", "c"), 1, 1)


def test_equal_constants_of_one_type_are_one() -> None:
    """1, 1.0 and true stay apart, also inside lists; 0.0 and -0.0 too."""
    values = [1, 1.0, True, (1,), (1.0,), (True,), 0.0, -0.0, {"a": (1,)}, {"a": (1.0,)}, {"b": (1,)}]
    again = [1, 1.0, True, (1,), (1.0,), (True,), 0.0, -0.0, {"a": (1,)}, {"a": (1.0,)}, {"b": (1,)}]
    body = [Set("x", Const(value)) for value in values + again]
    assert repr(emit(one(*body, exit=Return(Slot("x")))).constants) == repr(tuple(values))


def test_deep_expressions_and_constants_are_no_obstacle() -> None:
    """50,000 levels of either are emitted without recursion."""
    constant: object = ()
    expression: Prim | Const = Const(1)
    for _ in range(50_000):
        constant = (constant,)
        expression = Prim("not", (expression,))
    image = emit(one(Set("x", Const(constant)), exit=Return(expression)))
    assert len(Image.from_bytes(image.to_bytes()).functions[0].code) > 100_000


def test_a_switch_is_a_table(image_of: Callable[[str], Image]) -> None:
    """Equal tables are one; the first of two equal cases counts."""
    cases = (("a", "s"), ("b", "t"), ("a", "t"))
    states = [
        State(name, (), Switch(Slot("x"), cases, default)) for name, default in [("s", None), ("t", "s")]
    ]
    image = emit(Program("p", "main", (Function("main", ("x",), tuple(states)),)))
    (main,) = image.functions
    assert main.tables == ({"a": 0, "b": 1},)
    assert listing(image, main)[1::2] == ["SWITCH 0 4294967295", "SWITCH 0 0"]


def test_an_instruction_has_the_innermost_span_known() -> None:
    """The operand's own, else the expression around it, else instruction, state, function."""
    spans = [Span("f", line, 1, line, 2) for line in range(1, 6)]
    inner = Prim("not", (Slot("x", span=spans[4]),), span=spans[3])
    body = (Set("x", inner, span=spans[2]), Set("y", Slot("x")))
    state = State("s", body, Return(Slot("y")), span=spans[1])
    bare = State("t", (), Goto("s"))
    image = emit(Program("p", "main", (Function("main", (), (state, bare), (), ("x", "y"), span=spans[0]),)))
    (main,) = image.functions
    places = [image.place_at(main, offset) for offset, _, _ in decode(main.code)]
    assert [place and place[1] for place in places] == [5, 4, 3, 2, 2, 2, 2, 1]
    assert image.place(main.span) == ("f", 1, 1, 1, 2)
    assert [image.place(span) for span in main.state_spans] == [("f", 2, 1, 2, 2), None]


@pytest.mark.parametrize(
    "program",
    [
        one(exit=Goto("nowhere")),
        one(exit=Branch(Const(1), "s", "nowhere")),
        one(exit=Return(Slot("z"))),
        one(Set("z", Const(1)), exit=Goto("s")),
        one(exit=Call(Closure("nothing"), (), "x", "s")),
        one(exit=Goto("s"), handler=Handler("nowhere", "x")),
        one(exit=Return(Const([1]))),
        one(exit=Return(Const({1: 1}))),
        one(Set("x", Const(1), span=Span("p", 2**32, 1, 2**32, 2)), exit=Goto("s")),
        Program("p", "nothing", ()),
        Program("p", "main", (Function("main", (), (State("s", (), Goto("s")),) * 2),)),
    ],
)
def test_what_cannot_be_emitted_is_refused(program: Program) -> None:
    """Unknown states, slots and functions, constants that are no values, names given twice, lines
    that no word holds."""
    with pytest.raises(EmitError):
        emit(program)
