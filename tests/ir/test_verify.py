"""Well-formedness rules of the verifier: each violation is reported, and every valid program is accepted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from ir_programs import programs

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


def ids_and_positions(text: str) -> list[tuple[str, str]]:
    """Id and position of each diagnostic of `main`, whose text starts on line 2."""
    program = parse_program("program p entry main\n" + text, "x.ir", places="added")
    return [(diagnostic.id, str(diagnostic.span)) for diagnostic in verify(program)]


def returning(expr: Expr, *functions: Function) -> list[Diagnostic]:
    main = Function("main", (), (State("s", (), Return(expr)),))
    return list(verify(Program("p", "main", (main, *functions))))


@given(programs())
def test_valid_program_has_no_error(program: Program) -> None:
    assert [diagnostic for diagnostic in verify(program) if diagnostic.is_error] == []


@pytest.mark.parametrize(
    ("text", "id", "position"),
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
def test_violation_is_reported_at_its_position(text: str, id: str, position: str) -> None:
    """Each rule has its id."""
    assert ids_and_positions(text) == [(id, position)]


def test_duplicate_function_is_an_error() -> None:
    function = Function("main", (), (State("s", (), Return(Const(1))),))
    assert [d.id for d in verify(Program("p", "main", (function, function)))] == ["duplicate-function"]


def test_duplicate_has_a_label_at_the_first_definition() -> None:
    """The second definition has the primary label."""
    text = "function main() state s goto s state s return 1\nfunction main() state s return 1"
    program = parse_program("program p entry main\n" + text, "x.ir", places="added")
    labels = {d.id: (d.label, [(str(span), label) for span, label in d.related]) for d in verify(program)}
    assert labels == {
        "duplicate-function": ("defined again here", [("x.ir:2:1", "first defined here")]),
        "duplicate-state": ("defined again here", [("x.ir:2:17", "first defined here")]),
    }


def test_all_violations_are_reported_together() -> None:
    assert len(ids_and_positions("function main() state s a = b note n c return no(d)")) == 6


def test_an_unreachable_state_is_a_warning() -> None:
    program = parse_program("program p entry f function f() state s return 1 state t return 2", "x.ir")
    assert [diagnostic.severity for diagnostic in verify(program)] == ["warning"]


def test_an_unknown_name_has_a_suggestion() -> None:
    program = parse_program("program p entry f function f() state start goto strat", "x.ir")
    assert [diagnostic.help for diagnostic in verify(program)] == ["did you mean `start`?"]


@pytest.mark.parametrize(
    "value", [[1], {1: 2}, b"x", {"a": ({"b": set()},)}, object(), type("I", (int,), {})()]
)
def test_constant_of_a_foreign_type_is_an_error(value: Any) -> None:
    """Host lists, non-string keys and foreign types, at any depth."""
    assert [diagnostic.id for diagnostic in returning(Const(value))] == ["bad-constant"]


def test_expanded_size_of_a_constant_is_limited() -> None:
    """Shared parts count at each use: 2^60 lists that share one node are too large."""
    value: Any = ()
    for _ in range(60):
        value = (value, value)
    assert [diagnostic.message for diagnostic in returning(Const(value))] == [
        "a constant is too large in state `s`"
    ]


def test_cyclic_constant_is_an_error() -> None:
    """The verifier does not traverse it endlessly."""
    value: dict[str, Any] = {}
    value["self"] = (value,)
    assert [diagnostic.id for diagnostic in returning(Const(value))] == ["bad-constant"]


def test_deep_nesting_is_an_error() -> None:
    """100,000 levels of an expression or constant give a diagnostic, not a RecursionError."""
    expr: Expr = Const(1)
    value: Any = 1
    for _ in range(100_000):
        expr = Prim("not", (expr,))
        value = (value,)
    assert [diagnostic.id for diagnostic in returning(expr)] == ["nested-too-deep"]
    assert [diagnostic.id for diagnostic in returning(Const(value))] == ["bad-constant"]


def test_captures_and_operands_are_verified() -> None:
    """A violation inside the captures of a closure inside operands is reported."""
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
def test_invalid_limit_is_an_error(limits: Limits) -> None:
    """A limit is a positive finite number; NaN would not limit anything."""
    function = Function("main", (), (State("s", (), Return(Const(1))),))
    assert [d.id for d in verify(Program("p", "main", (function,), Meta(limits=limits)))] == ["bad-meta"]


def test_many_unknown_names_are_found_quickly() -> None:
    """Only the first few have suggestions, each of which takes time proportional to the number of names."""
    states = tuple(State(f"state number {n}", (), Goto(f"stat number {n}")) for n in range(3_000))
    program = Program("p", "f", (Function("f", (), states),))
    diagnostics = list(verify(program))
    assert len(diagnostics) == 3_000
    assert sum(diagnostic.help is not None for diagnostic in diagnostics) == 20


def test_many_states_in_one_chain() -> None:
    """A chain of 40,000 states is verified without recursion."""
    states = [State(f"s{n}", (), Goto(f"s{n + 1}")) for n in range(40_000)]
    states.append(State("s40000", (), Goto("s0")))
    program = Program("p", "f", (Function("f", (), tuple(states)),), Meta("loop"))
    assert [diagnostic.id for diagnostic in verify(program)] == ["unbounded-cycle"]
