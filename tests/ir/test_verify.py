"""Well-formedness rules of the verifier: each violation is found, and no sound program is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from programs import programs

from llc.ir.diagnostics import Diagnostic
from llc.ir.nodes import (
    Closure,
    Const,
    Expr,
    Function,
    Goto,
    Limits,
    Meta,
    Prim,
    Program,
    Return,
    Slot,
    State,
)
from llc.ir.text import parse_program
from llc.ir.verify import verify


def found(text: str) -> list[tuple[str, str]]:
    """(id, place) of each diagnostic of `main`, whose text begins on line 2."""
    program = parse_program("program p entry main\n" + text, "x.ir", places="added")
    return [(diagnostic.id, str(diagnostic.span)) for diagnostic in verify(program)]


def returning(expr: Expr, *functions: Function) -> list[Diagnostic]:
    main = Function("main", (), (State("s", (), Return(expr)),))
    return list(verify(Program("p", "main", (main, *functions))))


@given(programs())
def test_a_sound_program_has_no_error(program: Program) -> None:
    """Whatever resolves and has the right shape passes."""
    assert [diagnostic for diagnostic in verify(program) if diagnostic.is_error] == []


@pytest.mark.parametrize(
    ("text", "id", "place"),
    [
        ("function f() state s return 1", "unknown-function", "None"),
        ("function main() captures(c) state s return c", "bad-entry", "x.ir:2:1"),
        ("function main()", "empty-function", "x.ir:2:1"),
        ("function main() state s goto t", "unknown-state", "x.ir:2:25"),
        ("function main() state s branch 1 s t", "unknown-state", "x.ir:2:25"),
        ('function main() state s switch "" {"a" -> t}', "unknown-state", "x.ir:2:25"),
        ("function main() locals(x) state s on fault -> t(x) return 1", "unknown-state", "x.ir:2:52"),
        ("function main() state s on fault -> s(x) return 1", "unknown-slot", "x.ir:2:17"),
        ("function main() state s return x", "unknown-slot", "x.ir:2:32"),
        ("function main() state s x = 1 return 1", "unknown-slot", "x.ir:2:25"),
        ("function main() state s perform clock {} -> x then s", "unknown-slot", "x.ir:2:25"),
        ("function main() locals(x) state s perform klock {} -> x then s", "unknown-effect", "x.ir:2:35"),
        ("function main(x) state s parallel x over x -> y then s", "unknown-slot", "x.ir:2:26"),
        ("function main(x) state s parallel x over y -> x then s", "unknown-slot", "x.ir:2:42"),
        ("function main(x) state s parallel y over x -> x then s", "unknown-slot", "x.ir:2:35"),
        ("function main(x) state s parallel x over x -> x then t", "unknown-state", "x.ir:2:26"),
        ("function main() state s note cicle {} return 1", "unknown-note", "x.ir:2:25"),
        ("function main() state s return nott(1)", "unknown-primitive", "x.ir:2:32"),
        ("function main() state s return not()", "operand-count", "x.ir:2:32"),
        ("function main() state s return not(1, 2)", "operand-count", "x.ir:2:32"),
        ('function main() state s return map("k")', "operand-count", "x.ir:2:32"),
        ("function main() state s return closure g()", "unknown-function", "x.ir:2:40"),
        ("function main() state s return closure main(1)", "operand-count", "x.ir:2:40"),
        ("function main() state s goto s state s return 1", "duplicate-state", "x.ir:2:32"),
        ("function main(x) locals(x) state s return 1", "duplicate-slot", "x.ir:2:1"),
        ('function main() state s switch "" {"a" -> s, "a" -> s}', "duplicate-case", "x.ir:2:25"),
        ("function main() state s return 1 state t goto s", "unreachable-state", "x.ir:2:34"),
        ('meta {"kind": "lop"} function main() state s return 1', "bad-meta", "None"),
    ],
)
def test_a_breach_is_found_where_it_stands(text: str, id: str, place: str) -> None:
    """Each rule has its id and points at what breaks it."""
    assert found(text) == [(id, place)]


def test_functions_have_different_names() -> None:
    """A second function of one name is refused."""
    function = Function("main", (), (State("s", (), Return(Const(1))),))
    assert [d.id for d in verify(Program("p", "main", (function, function)))] == ["duplicate-function"]


def test_a_duplicate_has_a_label_where_the_first_one_is() -> None:
    """The second definition is marked, and the first one as a related place."""
    text = "function main() state s goto s state s return 1\nfunction main() state s return 1"
    program = parse_program("program p entry main\n" + text, "x.ir", places="added")
    labels = {d.id: (d.label, [(str(span), label) for span, label in d.related]) for d in verify(program)}
    assert labels == {
        "duplicate-function": ("defined again here", [("x.ir:2:1", "first defined here")]),
        "duplicate-state": ("defined again here", [("x.ir:2:17", "first defined here")]),
    }


def test_the_verifier_goes_on() -> None:
    """Everything wrong comes in one go."""
    assert len(found("function main() state s a = b note n c return no(d)")) == 6


def test_an_unreachable_state_is_a_warning() -> None:
    """It refuses nothing."""
    program = parse_program("program p entry f function f() state s return 1 state t return 2", "x.ir")
    assert [diagnostic.severity for diagnostic in verify(program)] == ["warning"]


def test_an_unknown_name_has_a_suggestion() -> None:
    """The nearest known name is proposed."""
    program = parse_program("program p entry f function f() state start goto strat", "x.ir")
    assert [diagnostic.help for diagnostic in verify(program)] == ["did you mean `start`?"]


@pytest.mark.parametrize(
    "value", [[1], {1: 2}, b"x", {"a": ({"b": set()},)}, object(), type("I", (int,), {})()]
)
def test_a_constant_is_a_value_of_the_language(value: Any) -> None:
    """Host lists, other keys than strings and foreign types are refused, however deep."""
    assert [diagnostic.id for diagnostic in returning(Const(value))] == ["bad-constant"]


def test_a_constant_is_bounded_when_written_out() -> None:
    """Shared parts count each time they stand: 2^60 lists of one node are too large."""
    value: Any = ()
    for _ in range(60):
        value = (value, value)
    assert [diagnostic.message for diagnostic in returning(Const(value))] == [
        "a constant is too large in state `s`"
    ]


def test_a_constant_does_not_contain_itself() -> None:
    """A map made to hold itself is refused and not walked for ever."""
    value: dict[str, Any] = {}
    value["self"] = (value,)
    assert [diagnostic.id for diagnostic in returning(Const(value))] == ["bad-constant"]


def test_deep_nesting_is_refused() -> None:
    """An expression or a constant of 100,000 levels is a diagnostic, not a RecursionError."""
    expr: Expr = Const(1)
    value: Any = 1
    for _ in range(100_000):
        expr = Prim("not", (expr,))
        value = (value,)
    assert [diagnostic.id for diagnostic in returning(expr)] == ["nested-too-deep"]
    assert [diagnostic.id for diagnostic in returning(Const(value))] == ["bad-constant"]


def test_captures_and_operands_are_looked_into() -> None:
    """A breach inside the captures of a closure inside operands is found."""
    inner = Function("g", (), (State("s", (), Return(Const(1))),), captures=("c",))
    expr = Prim("list", (Closure("g", (Prim("list", (Slot("nope"),)),)),))
    assert [diagnostic.id for diagnostic in returning(expr, inner)] == ["unknown-slot"]


@pytest.mark.parametrize(
    "limits",
    [
        Limits(max_iterations=0),
        Limits(max_steps=True),
        Limits(timeout_ms=1.5),  # type: ignore[arg-type]
        Limits(budget_usd=float("nan")),
        Limits(budget_usd=float("inf")),
        Limits(budget_tokens=-1),
    ],
)
def test_a_limit_is_a_number_that_limits(limits: Limits) -> None:
    """Nothing is ever at least NaN, so NaN is no budget."""
    function = Function("main", (), (State("s", (), Return(Const(1))),))
    assert [d.id for d in verify(Program("p", "main", (function,), Meta(limits=limits)))] == ["bad-meta"]


def test_many_unknown_names_are_found_quickly() -> None:
    """Suggestions are made for the first few only: each costs as much as there are names."""
    states = tuple(State(f"state number {n}", (), Goto(f"stat number {n}")) for n in range(3_000))
    program = Program("p", "f", (Function("f", (), states),))
    diagnostics = list(verify(program))
    assert len(diagnostics) == 3_000
    assert sum(diagnostic.help is not None for diagnostic in diagnostics) == 20


def test_many_states_in_one_chain() -> None:
    """A chain of 40,000 states is walked without recursion."""
    states = [State(f"s{n}", (), Goto(f"s{n + 1}")) for n in range(40_000)]
    states.append(State("s40000", (), Goto("s0")))
    program = Program("p", "f", (Function("f", (), tuple(states)),), Meta("loop"))
    assert [diagnostic.id for diagnostic in verify(program)] == ["unbounded-cycle"]
