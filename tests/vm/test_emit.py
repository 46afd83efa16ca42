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
    """One line per instruction; the name of a state precedes its first instruction."""
    starts = dict(zip(function.offsets, function.states, strict=True))
    return [
        " ".join([*([f"{starts[offset]}:"] if offset in starts else []), row.name, *map(str, operands)])
        for offset, row, operands in decode(function.code)
    ]


def one_state(*body: Instruction, exit: Exit, handler: Handler | None = None, **options: object) -> Program:
    state = State("s", body, exit, handler)
    return Program("p", "main", (Function("main", (), (state,), locals=("x", "y")),))


def test_operands_precede_their_operation(image_of: Callable[[str], Image]) -> None:
    """Post-order, left to right; states keep their order."""
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
    """In this order; the counts separate them."""
    image = image_of("function main(a) captures(b) locals(c)\n state s\n return c")
    (main,) = image.functions
    assert (main.slots, main.parameters, main.captures) == (("a", "b", "c"), 1, 1)


def test_equal_constants_are_shared() -> None:
    """1, 1.0 and true are distinct, also inside lists; 0.0 and -0.0 too."""
    values = [1, 1.0, True, (1,), (1.0,), (True,), 0.0, -0.0, {"a": (1,)}, {"a": (1.0,)}, {"b": (1,)}]
    repeated = [1, 1.0, True, (1,), (1.0,), (True,), 0.0, -0.0, {"a": (1,)}, {"a": (1.0,)}, {"b": (1,)}]
    body = [Set("x", Const(value)) for value in values + repeated]
    assert repr(emit(one_state(*body, exit=Return(Slot("x")))).constants) == repr(tuple(values))


def test_deep_expressions_and_constants_are_emitted() -> None:
    """50,000 levels of either are emitted without recursion."""
    constant: object = ()
    expression: Prim | Const = Const(1)
    for _ in range(50_000):
        constant = (constant,)
        expression = Prim("not", (expression,))
    image = emit(one_state(Set("x", Const(constant)), exit=Return(expression)))
    assert len(Image.from_bytes(image.to_bytes()).functions[0].code) > 100_000


def test_a_switch_is_a_table(image_of: Callable[[str], Image]) -> None:
    """Equal tables are shared; the first of two equal cases applies."""
    cases = (("a", "s"), ("b", "t"), ("a", "t"))
    states = [
        State(name, (), Switch(Slot("x"), cases, default)) for name, default in [("s", None), ("t", "s")]
    ]
    image = emit(Program("p", "main", (Function("main", ("x",), tuple(states)),)))
    (main,) = image.functions
    assert main.tables == ({"a": 0, "b": 1},)
    assert listing(image, main)[1::2] == ["SWITCH 0 4294967295", "SWITCH 0 0"]


def test_an_instruction_has_the_innermost_span_known() -> None:
    """The span of the operand, else of the enclosing expression, instruction, state or function."""
    spans = [Span("f", line, 1, line, 2) for line in range(1, 6)]
    inner = Prim("not", (Slot("x", span=spans[4]),), span=spans[3])
    body = (Set("x", inner, span=spans[2]), Set("y", Slot("x")))
    state = State("s", body, Return(Slot("y")), span=spans[1])
    bare = State("t", (), Goto("s"))
    image = emit(Program("p", "main", (Function("main", (), (state, bare), (), ("x", "y"), span=spans[0]),)))
    (main,) = image.functions
    spans = [image.place_at(main, offset) for offset, _, _ in decode(main.code)]
    assert [place and place[1] for place in spans] == [5, 4, 3, 2, 2, 2, 2, 1]
    assert image.place(main.span) == ("f", 1, 1, 1, 2)
    assert [image.place(span) for span in main.state_spans] == [("f", 2, 1, 2, 2), None]


@pytest.mark.parametrize(
    "program",
    [
        one_state(exit=Goto("nowhere")),
        one_state(exit=Branch(Const(1), "s", "nowhere")),
        one_state(exit=Return(Slot("z"))),
        one_state(Set("z", Const(1)), exit=Goto("s")),
        one_state(exit=Call(Closure("nothing"), (), "x", "s")),
        one_state(exit=Goto("s"), handler=Handler("nowhere", "x")),
        one_state(exit=Return(Const([1]))),
        one_state(exit=Return(Const({1: 1}))),
        one_state(Set("x", Const(1), span=Span("p", 2**32, 1, 2**32, 2)), exit=Goto("s")),
        Program("p", "nothing", ()),
        Program("p", "main", (Function("main", (), (State("s", (), Goto("s")),) * 2),)),
    ],
)
def test_invalid_program_is_not_emitted(program: Program) -> None:
    """Unknown states, slots and functions, invalid constants, duplicate names, and line numbers that exceed a
    word.
    """
    with pytest.raises(EmitError):
        emit(program)
