"""The text form of a program: an exact round trip, and clear errors with positions."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ir_programs import CONSTANTS, NAMES, TEXTS, WORDS, programs, spans_of

from llc.ir.constants import Symbol
from llc.ir.diagnostics import CompileError, Diagnostic
from llc.ir.nodes import (
    Const,
    Function,
    Goto,
    Limits,
    Meta,
    Prim,
    Program,
    Return,
    Set,
    Slot,
    State,
    typed_key,
)
from llc.ir.spans import Source
from llc.ir.text import KEYWORDS, parse_program, print_program, quote_name


def one_state(body: str) -> str:
    return f"program p entry main\nfunction main() locals(x)\n  state s\n    {body}\n"


def problems(text: str) -> tuple[Diagnostic, ...]:
    with pytest.raises(CompileError) as caught:
        parse_program(text, "x.ir")
    str(caught.value)
    return caught.value.diagnostics


def returned(text: str) -> Any:
    state = parse_program(one_state(f"return {text}"), "x.ir").functions[0].states[0]
    assert isinstance(state.exit, Return)
    assert isinstance(state.exit.value, Const)
    return state.exit.value.value


# --- round trip -------------------------------------------------------------------------------


@given(programs())
def test_a_program_reads_back_with_its_spans(program: Program) -> None:
    """A printed program is parsed to an equal program with equal spans and sources."""
    parsed = parse_program(print_program(program), "x.ir")
    assert parsed == program
    assert spans_of(parsed) == spans_of(program)
    assert parsed.sources == program.sources


@given(programs())
def test_a_program_reads_back_without_its_spans(program: Program) -> None:
    """Printed without spans, the program is equal except for the spans."""
    parsed = parse_program(print_program(program, spans=False), "x.ir")
    assert parsed == program
    assert set(spans_of(parsed)) <= {None}


@given(programs())
def test_text_round_trips_through_a_file(program: Program) -> None:
    """The text is UTF-8, and names and constants add no line ends."""
    text = print_program(program)
    assert text.encode("utf-8").decode("utf-8") == text
    assert "\r" not in text
    assert text.splitlines() == text.split("\n")[:-1]


@given(CONSTANTS)
def test_a_constant_keeps_its_type(value: Any) -> None:
    """1, 1.0 and true are distinct, as are NaN, infinities, -0.0 and lone surrogates."""
    program = Program("p", "f", (Function("f", (), (State("s", (), Return(Const(value))),)),))
    exit_ = parse_program(print_program(program), "x.ir").functions[0].states[0].exit
    assert isinstance(exit_, Return)
    assert isinstance(exit_.value, Const)
    assert typed_key(exit_.value.value) == typed_key(value)


@given(NAMES | TEXTS, st.sampled_from(sorted(KEYWORDS)) | st.sampled_from(WORDS))
def test_any_name_reads_back_in_every_position(first: str, second: str) -> None:
    """No name is mistaken for a keyword."""
    state = State(first, (Set(second, Prim(first, (Slot(second), Slot(first)))),), Goto(first))
    program = Program(
        second,
        first,
        (Function(first, (second,), (state, State(second, (), Return(Slot(first)))), (first,)),),
    )
    assert parse_program(print_program(program), "x.ir") == program


@given(programs())
def test_invalid_program_reads_back(program: Program) -> None:
    """Unknown names and an invalid entry are kept."""
    broken = Program("p", "no such function", program.functions * 2, Meta("?", limits=Limits(max_steps=-1)))
    assert parse_program(print_program(broken), "x.ir") == broken


def test_simple_names_are_not_quoted() -> None:
    """Names of the usual form print without backticks."""
    for name in ("check/run", "/start", "seen.check", "fix-types", "_x1", "state", "fault"):
        assert quote_name(name) == name


def test_other_names_are_quoted() -> None:
    """A keyword, an empty name, white space and a trailing dash need backticks."""
    assert [quote_name(name) for name in ("goto", "", "a b", "a-", "1", "`")] == [
        "`goto`", "``", "`a b`", "`a-`", "`1`", "`\\``",
    ]  # fmt: skip


def test_long_headers_are_wrapped() -> None:
    """The header of a function with many slots has many short lines."""
    slots = tuple(f"seen.state{number}" for number in range(500))
    program = Program("p", "f", (Function("f", (), (State("s", (), Return(Const(None))),), locals=slots),))
    text = print_program(program)
    assert max(map(len, text.splitlines())) <= 110
    assert parse_program(text, "x.ir") == program


def test_a_source_keeps_its_digest_and_path() -> None:
    """Sources are listed in order, without their text."""
    sources = (Source("a b.yaml", "00ff", "text"), Source("c", "1"))
    program = Program("p", "f", (), sources=sources)
    assert parse_program(print_program(program), "x.ir").sources == (Source("a b.yaml", "00ff"), sources[1])


def test_missing_spans_are_positions_in_the_text() -> None:
    """`places="added"` gives an element without a span its position in the text."""
    text = one_state("x = add(x, 1)\n    return x")
    program = parse_program(text, "x.ir", places="added")
    state = program.functions[0].states[0]
    assert str(state.span) == "x.ir:3:3"
    assert str(state.body[0].span) == "x.ir:4:5"
    assert str(state.exit.span) == "x.ir:5:5"


# --- syntax -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e400", float("inf")),
        ("-inf", float("-inf")),
        ("-5", -5),
        ("0xff", 255),
        ("-0x10", -16),
        ("1.5e-3", 0.0015),
        ("1e2", 100.0),
        (r'"\u0041\n\/\ud83d\ude00\u{1f600}"', "A\n/😀😀"),
        (r'"\u{d83d}\u{de00}"', "\ud83d\ude00"),
        ("[]", ()),
        ('{"a": [1, null]}', {"a": (1, None)}),
        ("['stop, '`set!`, '`a \\`b\\u0041`]", (Symbol("stop"), Symbol("set!"), Symbol("a `bA"))),
    ],
)
def test_value_of_a_literal(text: str, value: Any) -> None:
    """Literals are those of JSON, plus hexadecimal integers, infinities and code points."""
    assert typed_key(returned(text)) == typed_key(value)


def test_comments_and_layout_do_not_matter() -> None:
    """White space only separates tokens; `#` starts a comment, except in a string."""
    text = 'program p entry main # one\nfunction main(\n)state s return # two\n"#"'
    assert parse_program(text, "x.ir").functions[0].states[0].exit == Return(Const("#"))


# --- errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "position", "message"),
    [
        ("", "x.ir:1:1", "ends too early"),
        ("program p entry", "x.ir:1:16", "ends too early"),
        (one_state("retrun 1"), "x.ir:4:12", "unexpected `1`"),
        (one_state("return \x00"), "x.ir:4:12", "unexpected"),
        (one_state('return "abc'), "x.ir:4:12", "not closed"),
        (one_state("goto `abc"), "x.ir:4:10", "not closed"),
        (one_state(r'return "\q"'), "x.ir:4:12", "escape"),
        (one_state(r'return "\u{110000}"'), "x.ir:4:12", "escape"),
        (one_state(r'return "\u12"'), "x.ir:4:12", "escape"),
        (one_state("return " + "1" * 5000), "x.ir:4:12", "too long"),
        (one_state('return {"a": 1, "a": 2}'), "x.ir:4:21", "stands twice"),
        (one_state("switch x {else -> s, else -> s}"), "x.ir:4:5", "stands twice"),
        (one_state("return x @7:1:1-1:2"), "x.ir:4:14", "no source"),
        (one_state("return x @0:99999999999:1-1:2"), "x.ir:4:14", "too long"),
        (one_state("return [x]"), "x.ir:4:13", "unexpected `x`"),
        ('program p entry f\nmeta {"maintian": true}', "x.ir:2:1", "unknown setting"),
        ('program p entry f\nmeta {"limits": {"x": 1}}', "x.ir:2:1", "unknown setting"),
        ('program p entry f\nmeta {"limits": 1}', "x.ir:2:1", "`limits` is a map"),
        ('program p entry f\nsource 1 "a"', "x.ir:2:8", "numbered in order"),
    ],
)
def test_syntax_error_has_its_position(text: str, position: str, message: str) -> None:
    """The message is one sentence."""
    diagnostics = problems(text)
    assert [str(diagnostic.span) for diagnostic in diagnostics] == [position]
    assert message in diagnostics[0].message
    assert diagnostics[0].id == "ir-syntax"


def test_several_errors_are_reported_together() -> None:
    assert len(problems(one_state(r'x = "\q" x = "\p" return {"a": 1, "a": 1}'))) == 3


def test_unexpected_token_lists_the_allowed_ones() -> None:
    """The help lists them as they are written."""
    assert problems("program p entry f function f(")[0].help == "expected `)` or a name"


@given(programs(max_states=2).map(print_program), st.data())
def test_damaged_text_gives_diagnostics(text: str, data: st.DataObject) -> None:
    """A damaged text is a program or a CompileError with a position, never a crash."""
    at = data.draw(st.integers(0, len(text)))
    removed = data.draw(st.integers(0, 10))
    damaged = (
        text[:at]
        + data.draw(st.text(max_size=3) | st.sampled_from(list('"`{}()@^:-#')))
        + text[at + removed :]
    )
    diagnostics: tuple[Diagnostic, ...] = ()
    try:
        parse_program(damaged, "x.ir")
    except CompileError as error:
        str(error)
        diagnostics = error.diagnostics or (Diagnostic("no-problem", "refused for nothing"),)
    assert all(diagnostic.span is not None for diagnostic in diagnostics)


@given(st.text() | st.text('program entry meta{}function()s\n"`@^:-> 01x'))
def test_arbitrary_text_gives_diagnostics(text: str) -> None:
    assert problems(text)


# --- large programs ---------------------------------------------------------------------------


def test_deep_expressions_are_printed_and_parsed() -> None:
    """Nesting beyond Python's recursion limit is printed and parsed."""
    depth = 50_000
    text = one_state("return " + "not(" * depth + "x" + ")" * depth)
    program = parse_program(text, "x.ir")
    assert "not(" * depth in print_program(program)


def test_deep_constants_are_printed_and_parsed() -> None:
    """Lists and maps in literals may be nested as deep."""
    depth = 50_000
    text = one_state("return " + '[{"k": ' * depth + "1" + "}]" * depth)
    assert '[{"k": ' * depth in print_program(parse_program(text, "x.ir"))


def test_many_states_are_printed_and_parsed() -> None:
    """The number of states does not use the Python stack."""
    states = tuple(State(f"s{number}", (), Goto(f"s{number + 1}")) for number in range(5_000))
    program = Program("p", "f", (Function("f", (), states),))
    assert parse_program(print_program(program), "x.ir") == program


def test_printing_an_invalid_constant_is_a_type_error() -> None:
    program = Program("p", "f", (Function("f", (), (State("s", (), Return(Const([1]))),)),))
    with pytest.raises(TypeError):
        print_program(program)


def test_printing_needs_no_parser() -> None:
    """The parser generator is imported only when a text is parsed."""
    code = "import sys, llc.ir.text, llc.ir.verify; assert 'lark' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
