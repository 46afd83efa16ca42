"""The text form of a program: an exact round trip, and clear errors with positions."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from programs import CONSTANTS, NAMES, TEXTS, WORDS, programs, spans_of

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
    """Printing and parsing gives an equal program, with equal spans and sources."""
    again = parse_program(print_program(program), "x.ir")
    assert again == program
    assert spans_of(again) == spans_of(program)
    assert again.sources == program.sources


@given(programs())
def test_a_program_reads_back_without_its_spans(program: Program) -> None:
    """Without spans only they are lost."""
    again = parse_program(print_program(program, spans=False), "x.ir")
    assert again == program
    assert set(spans_of(again)) <= {None}


@given(programs())
def test_the_text_survives_a_file(program: Program) -> None:
    """The text is UTF-8 and has no line ends but its own, whatever the names and constants hold."""
    text = print_program(program)
    assert text.encode("utf-8").decode("utf-8") == text
    assert "\r" not in text
    assert text.splitlines() == text.split("\n")[:-1]


@given(CONSTANTS)
def test_a_constant_keeps_its_type(value: Any) -> None:
    """1, 1.0 and true stay apart, and so do nan, infinities, -0.0 and lone surrogates."""
    program = Program("p", "f", (Function("f", (), (State("s", (), Return(Const(value))),)),))
    exit_ = parse_program(print_program(program), "x.ir").functions[0].states[0].exit
    assert isinstance(exit_, Return)
    assert isinstance(exit_.value, Const)
    assert typed_key(exit_.value.value) == typed_key(value)


@given(NAMES | TEXTS, st.sampled_from(sorted(KEYWORDS)) | st.sampled_from(WORDS))
def test_any_name_reads_back_in_every_place(one: str, other: str) -> None:
    """No name is mistaken for a word of the grammar, wherever it stands."""
    state = State(one, (Set(other, Prim(one, (Slot(other), Slot(one)))),), Goto(one))
    program = Program(
        other, one, (Function(one, (other,), (state, State(other, (), Return(Slot(one)))), (one,)),)
    )
    assert parse_program(print_program(program), "x.ir") == program


@given(programs())
def test_a_program_that_does_not_verify_reads_back_too(program: Program) -> None:
    """The text form does not judge: unknown names and an entry that is none are kept."""
    broken = Program("p", "no such function", program.functions * 2, Meta("?", limits=Limits(max_steps=-1)))
    assert parse_program(print_program(broken), "x.ir") == broken


def test_simple_names_are_bare() -> None:
    """Names as frontends make them print without backticks."""
    for name in ("check/run", "/start", "seen.check", "fix-types", "_x1", "state", "fault"):
        assert quote_name(name) == name


def test_other_names_stand_in_backticks() -> None:
    """A keyword, an empty name, white space and a trailing dash are quoted."""
    assert [quote_name(name) for name in ("goto", "", "a b", "a-", "1", "`")] == [
        "`goto`", "``", "`a b`", "`a-`", "`1`", "`\\``",
    ]  # fmt: skip


def test_long_frames_are_wrapped() -> None:
    """A function with many slots has a header of many short lines."""
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


def test_locate_gives_places_in_the_text() -> None:
    """What has no span of its own is found where it stands in the text."""
    text = one_state("x = add(x, 1)\n    return x")
    program = parse_program(text, "x.ir", places="added")
    state = program.functions[0].states[0]
    assert str(state.span) == "x.ir:3:3"
    assert str(state.body[0].span) == "x.ir:4:5"
    assert str(state.exit.span) == "x.ir:5:5"


# --- spellings --------------------------------------------------------------------------------


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
def test_a_literal_means(text: str, value: Any) -> None:
    """Literals are JSON's, with hexadecimal integers, infinities and code points added."""
    assert typed_key(returned(text)) == typed_key(value)


def test_comments_and_layout_do_not_matter() -> None:
    """White space only separates, and `#` begins a comment, but not in a string."""
    text = 'program p entry main # one\nfunction main(\n)state s return # two\n"#"'
    assert parse_program(text, "x.ir").functions[0].states[0].exit == Return(Const("#"))


# --- errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "place", "message"),
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
def test_an_error_has_its_place(text: str, place: str, message: str) -> None:
    """Text that is no program is refused with one clear sentence and where it went wrong."""
    found = problems(text)
    assert [str(diagnostic.span) for diagnostic in found] == [place]
    assert message in found[0].message
    assert found[0].id == "ir-syntax"


def test_several_mistakes_come_at_once() -> None:
    """A mistake that does not hide the rest is collected with the others."""
    assert len(problems(one_state(r'x = "\q" x = "\p" return {"a": 1, "a": 1}'))) == 3


def test_an_unexpected_word_says_what_could_stand_there() -> None:
    """The help line lists what the grammar allows, in its own spelling."""
    assert problems("program p entry f function f(")[0].help == "expected `)` or a name"


@given(programs(max_states=2).map(print_program), st.data())
def test_damaged_text_gives_diagnostics(text: str, data: st.DataObject) -> None:
    """A text cut or changed anywhere is a program or a CompileError with a place, never a crash."""
    at = data.draw(st.integers(0, len(text)))
    cut = data.draw(st.integers(0, 10))
    damaged = (
        text[:at] + data.draw(st.text(max_size=3) | st.sampled_from(list('"`{}()@^:-#'))) + text[at + cut :]
    )
    found: tuple[Diagnostic, ...] = ()
    try:
        parse_program(damaged, "x.ir")
    except CompileError as error:
        str(error)
        found = error.diagnostics or (Diagnostic("no-problem", "refused for nothing"),)
    assert all(diagnostic.span is not None for diagnostic in found)


@given(st.text() | st.text('program entry meta{}function()s\n"`@^:-> 01x'))
def test_arbitrary_text_gives_diagnostics(text: str) -> None:
    """No text whatever gives a traceback."""
    assert problems(text)


# --- size -------------------------------------------------------------------------------------


def test_deep_expressions_are_printed_and_parsed() -> None:
    """Nesting far beyond Python's recursion limit goes through both ways."""
    depth = 50_000
    text = one_state("return " + "not(" * depth + "x" + ")" * depth)
    program = parse_program(text, "x.ir")
    assert "not(" * depth in print_program(program)


def test_deep_constants_are_printed_and_parsed() -> None:
    """So do lists and maps in literals."""
    depth = 50_000
    text = one_state("return " + '[{"k": ' * depth + "1" + "}]" * depth)
    assert '[{"k": ' * depth in print_program(parse_program(text, "x.ir"))


def test_many_states_are_printed_and_parsed() -> None:
    """A function of many states is no matter of recursion either."""
    states = tuple(State(f"s{number}", (), Goto(f"s{number + 1}")) for number in range(5_000))
    program = Program("p", "f", (Function("f", (), states),))
    assert parse_program(print_program(program), "x.ir") == program


def test_what_is_no_constant_is_not_printed() -> None:
    """A constant that is no value of the language is a TypeError, not a wrong text."""
    program = Program("p", "f", (Function("f", (), (State("s", (), Return(Const([1]))),)),))
    with pytest.raises(TypeError):
        print_program(program)


def test_printing_needs_no_parser() -> None:
    """The parser generator is loaded only when a text is read."""
    code = "import sys, llc.ir.text, llc.ir.verify; assert 'lark' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
