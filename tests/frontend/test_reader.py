"""Reading S-expressions: the meaning of valid text and the diagnostics of invalid text."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sexp_texts import any_texts, broken, fragments, valid_texts

from llc.frontend.sexp.datum import Atom, Datum, Form
from llc.frontend.sexp.printer import show
from llc.frontend.sexp.reader import MAX_FINDINGS, read, scan
from llc.frontend.source.files import text_source
from llc.ir.constants import Symbol
from llc.ir.diagnostics import Diagnostic, render_all
from llc.ir.spans import Span


def data(text: str) -> list[Datum]:
    """Data of a valid text."""
    result, findings = read(text_source(text, "t.sexp"))
    assert not any(finding.is_error for finding in findings)
    return result


def value(text: str) -> Any:
    """Value of the only atom of a text."""
    (atom,) = data(text)
    assert isinstance(atom, Atom)
    return atom.value


def errors(text: str) -> list[Diagnostic]:
    """Diagnostics of a text; each is an error with a span."""
    findings = read(text_source(text, "t.sexp"))[1]
    assert all(finding.is_error and finding.span for finding in findings)
    return findings


def marks(text: str) -> list[str]:
    """Diagnostics of a text, each as `id line:column-line:column`."""
    return [
        f"{finding.id} {span.line}:{span.column}-{span.end_line}:{span.end_column}"
        for finding in errors(text)
        if (span := finding.span)
    ]


# --- meaning of text --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("null", None),
        ("true", True),
        ("false", False),
        ("0", 0),
        ("-12", -12),
        ("+12", 12),
        ("007", 7),
        ("1_000_000", 1000000),
        ("9" * 4000, int("9" * 4000)),
        ("1.5", 1.5),
        ("1.", 1.0),
        (".5", 0.5),
        ("-.5", -0.5),
        ("1e3", 1000.0),
        ("1.5E-3", 0.0015),
        ("1_0.2_5", 10.25),
        ("+inf.0", float("inf")),
        ("-inf.0", float("-inf")),
        ('""', ""),
        ('"a b"', "a b"),
        (r'"\"\\\n\t\r\|"', '"\\\n\t\r|'),
        (r'"\u00e9\u4e2d"', "é中"),
        (r'"\ud83d\ude00"', "😀"),
        (r'"\ud83dx\ude00"', "\ud83dx\ude00"),
        ('"two\nlines"', "two\nlines"),
        ('"two\r\nlines\rthree"', "two\nlines\nthree"),
        ('"; #| ( no comment"', "; #| ( no comment"),
        ("a", Symbol("a")),
        ("A", Symbol("A")),
        ("user:a-b_c?!./*+<=>", Symbol("user:a-b_c?!./*+<=>")),
        ("&optional", Symbol("&optional")),
        ("*loop-config*", Symbol("*loop-config*")),
        ("...", Symbol("...")),
        ("-", Symbol("-")),
        ("->x", Symbol("->x")),
        ("-a1", Symbol("-a1")),
        ("größe", Symbol("größe")),
        ("|a b|", Symbol("a b")),
        (r"|a\|\\\u0041|", Symbol("a|\\A")),
        ("||", Symbol("")),
        ("|true|", Symbol("true")),
        ("|12|", Symbol("12")),
    ],
)
def test_value_of_an_atom(text: str, expected: Any) -> None:
    """Each spelling of `spec/syntax.md`, with its type."""
    actual = value(text)
    assert (type(actual), actual) == (type(expected), expected)


def test_nan_is_read() -> None:
    """`+nan.0` is a float that is unequal to itself; as a datum it is equal to itself."""
    assert value("+nan.0") != value("+nan.0")
    assert data("+nan.0") == data("-nan.0")


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("nil", "()"),
        ("[a b]", "(a b)"),
        ("'x", "(quote x)"),
        ("`(a ,b ,@c)", "(quasiquote (a (unquote b) (unquote-splicing c)))"),
        ("''x", "(quote (quote x))"),
        ("' ; why\n x", "(quote x)"),
        ("(a . (b c))", "(a b c)"),
        ("(a . (b . c))", "(a b . c)"),
        ("(a . nil)", "(a)"),
        ("(a .b)", "(a |.b|)"),
        ("a #| x #| y |# z |# b", "a b"),
        ("#;a b", "b"),
        ("#; #; a b c", "c"),
        ("(a #;(b c))", "(a)"),
        ("'#;a b", "'b"),
        ("#;'a b", "b"),
        ("(a);c\n(b)", "(a)(b)"),
        (";c\r(a)", "(a)"),
        ("#!/usr/bin/env llc\na", "a"),
        ("a\fb", "a b"),
        ('("a")("b")', '(  "a"  )  ( "b" )'),
    ],
)
def test_equivalent_texts(text: str, same: str) -> None:
    """Abbreviations, comments and blanks."""
    assert data(text) == data(same)


def test_empty_text_is_read() -> None:
    """The compiler decides whether a program may be empty."""
    assert data("") == data(" ; nothing\n#| here |#") == []


def test_spans_of_data() -> None:
    """Spans are correct also for data after a quotation mark."""
    ((form),) = data("\n (let ((x 'é)) ; c\n   `,x)")
    assert isinstance(form, Form)
    assert form.span == Span("t.sexp", 2, 2, 3, 8)
    let, bindings, body = form.items
    assert isinstance(bindings, Form)
    assert isinstance(body, Form)
    assert let.span == Span("t.sexp", 2, 3, 2, 6)
    quoted = bindings.items[0].items[1]  # type: ignore[union-attr]
    assert quoted.span == Span("t.sexp", 2, 11, 2, 13)
    assert quoted.items[0].span == Span("t.sexp", 2, 11, 2, 12)  # type: ignore[union-attr]
    assert body.span == Span("t.sexp", 3, 4, 3, 7)
    assert body.items[1].span == Span("t.sexp", 3, 5, 3, 7)


def test_garbage_collector_state_is_restored() -> None:
    """Reading pauses the garbage collector and restores its state."""
    assert gc.isenabled()
    read(text_source("(a"))
    assert gc.isenabled()
    gc.disable()
    try:
        read(text_source("(a"))
        assert not gc.isenabled()
    finally:
        gc.enable()


# --- laws -------------------------------------------------------------------------------------


@given(any_texts)
def test_any_text_gives_data_or_diagnostics(text: str) -> None:
    """No text makes the reader raise, and every diagnostic can be rendered."""
    source = text_source(text, "t.sexp")
    result, findings = read(source)
    render_all(findings, [source])
    for datum in result:
        assert datum.span is not None
        show(datum)
    assert len(findings) <= MAX_FINDINGS + 1


@given(any_texts)
def test_joined_tokens_are_the_text(text: str) -> None:
    """The scanner loses no character, and the position of each token is correct."""
    tokens = scan(text)
    assert "".join(token.text for token in tokens) == text
    assert all(text.startswith(token.text, token.start) for token in tokens)


@given(valid_texts, st.integers(0, 10_000), fragments)
def test_inserted_text_does_not_crash(text: str, at: int, fragment: str) -> None:
    """A fragment inserted into a valid text gives data or diagnostics."""
    read(text_source(broken(text, at, fragment)))


@given(valid_texts, st.data())
def test_a_missing_bracket_is_always_found(text: str, choice: st.DataObject) -> None:
    """A text that lacks one bracket is rejected."""
    brackets = [token for token in scan(text) if token.kind in ("open", "close")]
    if brackets:
        lost = choice.draw(st.sampled_from(brackets))
        assert errors(text[: lost.start] + " " + text[lost.start + 1 :])


# --- missing brackets -------------------------------------------------------------------------

MISSING = {
    "within the bindings of a let": (
        "(define (f x)\n  (let ((a 1)\n    (+ a x)))\n\n(define (g) 1)\n",
        ["unclosed-form 2:8-2:9"],
        "`)` is missing at the end of line 2",
    ),
    "at the end of a definition": (
        "(define (f x)\n  (if x 1 2)\n\n(define (g) 1)\n",
        ["unclosed-form 1:1-1:2"],
        "`)` is missing at the end of line 2",
    ),
    "in two definitions": (
        "(define (f)\n  (g 1)\n\n(define (h)\n  (g (i 2)\n  (j))\n\n(k)",
        ["unclosed-form 1:1-1:2", "unclosed-form 5:3-5:4"],
        "`)` is missing at the end of line 2",
    ),
    "of a clause": (
        "(cond [(a) 1]\n      [(b) (c 2]\n      [else 3])\n",
        ["unclosed-form 2:12-2:13"],
        "`)` is missing before the `]` in line 2",
    ),
    "of a clause that does not end": (
        "(cond [(a) 1]\n      [(b) 2\n      [else 3])\n",
        ["unclosed-form 2:7-2:8"],
        "`]` is missing before the `)` in line 3",
    ),
    "several at once": (
        "(define (f)\n  (let ((a 1))\n    (g (h a\n\n(k)",
        ["unclosed-form 3:8-3:9"],
        "`))))` are missing at the end of line 3",
    ),
    "indented from the line": (
        "(run (lambda (x)\n  (f x))\n  (g (h x)\n\n(k)",
        ["unclosed-form 3:3-3:4"],
        "`))` are missing at the end of line 3",
    ),
    "behind closing brackets in lines of their own": (
        "(define (f)\n  (if a\n    (g\n      b\n    )\n  (h)\n)\n",
        ["unclosed-form 2:3-2:4"],
        "`)` is missing at the end of line 5",
    ),
    "in front of a comment": (
        "(a\n  (b ; c)\n\n; (d)\n(e)",
        ["unclosed-form 2:3-2:4"],
        "`))` are missing at the end of line 2",
    ),
    "in one line": ("(a (b c)", ["unclosed-form 1:1-1:2"], "`)` is missing at the end of line 1"),
    "and one is too many elsewhere": (
        "(define (f)\n  (g (h))\n\n(define (i)\n  (j))))\n",
        ["unclosed-form 1:1-1:2", "stray-bracket 5:7-5:8"],
        "`)` is missing at the end of line 2",
    ),
    "where forms in the first column are parts": (
        "(begin\n(a)\n(b))\n(define (f)\n  (g)\n",
        ["unclosed-form 4:1-4:2"],
        "`)` is missing at the end of line 5",
    ),
}


@pytest.mark.parametrize(("text", "expected", "help"), MISSING.values(), ids=MISSING)
def test_missing_bracket_is_located(text: str, expected: list[str], help: str) -> None:
    """The unclosed form is marked; the help says where the bracket belongs."""
    assert marks(text) == expected
    assert help in (errors(text)[0].help or "")


def test_forms_after_a_missing_bracket_are_read() -> None:
    """A missing bracket affects only its own form."""
    result, findings = read(text_source("(a)\n(define (f)\n  (g (h)\n\n(k 1)\n(l 2)"))
    assert len(findings) == 1
    assert [show(datum) for datum in result] == ["(a)", "(define (f) (g (h)))", "(k 1)", "(l 2)"]


def test_inconsistent_indentation_gives_no_guess() -> None:
    """With irregular indentation the message names the form and the end of the text only."""
    text = "(a (b\nc)\n    (d (e\n f) g)\n"
    (finding,) = errors("(x\n" + text + "(y")[:1]
    assert finding.id == "unclosed-form"


def test_suspicious_indentation_is_a_warning() -> None:
    """A nested form in the first column: one form lacks a bracket, another has an extra one."""
    text = '(define (f)\n  (g)\n\n(define (h)\n  (k)))\n(define s "\n(x")\n(begin\n  #|\n(x |# (a))\n'
    result, findings = read(text_source(text))
    assert len(result) == 3
    (warning,) = findings
    assert not warning.is_error
    assert (warning.id, warning.span and warning.span.line) == ("misleading-indentation", 4)


# --- other typos ------------------------------------------------------------------------------

TYPOS = {
    ")": ["stray-bracket 1:1-1:2"],
    "(a)))) )\n(b": ["stray-bracket 1:4-1:5", "unclosed-form 2:1-2:2"],
    "(a ]": ["mismatched-bracket 1:4-1:5"],
    "[a )": ["mismatched-bracket 1:4-1:5"],
    "(a [b) c": ["unclosed-form 1:4-1:5"],
    "{a b}": ["reserved-brace 1:1-1:2"],
    "(a }": ["unclosed-form 1:1-1:2", "reserved-brace 1:4-1:5"],
    "'": ["stray-quote 1:1-1:2"],
    "(a ')": ["stray-quote 1:4-1:5"],
    "(a ,@)": ["stray-quote 1:4-1:6"],
    "#;": ["stray-quote 1:1-1:3"],
    "(f “x”)": ["stray-quote 1:4-1:5"],
    '(f "say "hi" now")': ["missing-space 1:10-1:12"],
    "don't": ["missing-space 1:4-1:5"],
    '"a"b': ["missing-space 1:4-1:5"],
    '"abc': ["unterminated-string 1:1-1:2"],
    '(f "abc)\n(g "x")\n(h "y")': ["unterminated-string 1:4-1:5"],
    '(f "abc)\n(g "x)\n(h y)': ["missing-space 2:5-2:6"],
    '"': ["unterminated-string 1:1-1:2"],
    '"a\\"': ["unterminated-string 1:1-1:2"],
    "a #| b #| c |#": ["unterminated-comment 1:3-1:5"],
    "|a\nb": ["unterminated-symbol 1:1-1:2"],
    "|a\\|": ["unterminated-symbol 1:1-1:2"],
    "|a\\x|": ["bad-escape 1:3-1:5"],
    '"a\\qb\\u12"': ["bad-escape 1:3-1:5", "bad-escape 1:6-1:8"],
    '"\\': ["unterminated-string 1:1-1:2"],
    "1.2.3 12ab 1/2 0x1f 1e999 1__0 1_ -1a": [
        "bad-number 1:1-1:6",
        "bad-number 1:7-1:11",
        "bad-number 1:12-1:15",
        "bad-number 1:16-1:20",
        "bad-number 1:21-1:26",
        "bad-number 1:27-1:31",
        "bad-number 1:32-1:34",
        "bad-number 1:35-1:38",
    ],
    "9" * 4001: ["bad-number 1:1-1:4002"],
    "#t #foo #": ["bad-symbol 1:1-1:3", "bad-symbol 1:4-1:8", "bad-symbol 1:9-1:10"],
    "a\x00b": ["bad-character 1:2-1:3"],
    "(a\u00a0b)": ["bad-character 1:3-1:4"],
    "a\u200bb": ["bad-character 1:2-1:3"],
    '"a\x1bb\x00"': ["bad-character 1:3-1:4", "bad-character 1:5-1:6"],
    "a \\ b": ["bad-character 1:3-1:4"],
    ".": ["stray-dot 1:1-1:2"],
    "(. a)": ["stray-dot 1:2-1:3"],
    "(a . b . c)": ["stray-dot 1:8-1:9", "stray-dot 1:10-1:11"],
    "(a . b c)": ["stray-dot 1:8-1:9"],
    "(a .)": ["stray-dot 1:5-1:6"],
    "'. a": ["stray-dot 1:2-1:3"],
}


@pytest.mark.parametrize(("text", "expected"), TYPOS.items(), ids=[ascii(text)[:30] for text in TYPOS])
def test_typo_is_one_error_at_its_position(text: str, expected: list[str]) -> None:
    assert marks(text) == expected


def test_extra_bracket_is_located_by_indentation() -> None:
    """The help names the line in which the form ended too early."""
    (finding,) = errors("(define (f x)\n  (foo))\n  (bar x))\n")
    assert (finding.id, finding.span and finding.span.line) == ("stray-bracket", 3)
    assert finding.help is not None
    assert "line 1 ends in line 2" in finding.help


def test_foreign_syntax_has_a_fix() -> None:
    for text, help in {
        "1/2": "(/ 1 2)",
        "0x1f": "31",
        "2024-01-15": '"2024-01-15"',
        "#t": "write true",
        "-1e999": "-inf.0",
        '"\\x41"': "\\u00e9",
        '"C:\\q"': "write \\\\ for",
        '"a\x1b"': "\\u001b",
        "a\u00a0": "with a space",
        "“": 'write "',
        "{}": "(dict",
    }.items():
        assert help in (errors(text)[0].help or ""), text


def test_many_typos_are_reported_together() -> None:
    """One diagnostic per typo, in the order of the text."""
    text = '(define (f x)\n  (g "\\q" 1/2)\n\n(define (h)\n  (k 12ab})\n\n(l #t))\n'
    assert [finding.id for finding in errors(text)] == [
        "unclosed-form",
        "bad-escape",
        "bad-number",
        "unclosed-form",
        "bad-number",
        "reserved-brace",
        "bad-symbol",
        "stray-bracket",
    ]


# --- hostile input ----------------------------------------------------------------------------


@pytest.mark.parametrize("opening", ["(", "[", "'", "#;", "(a ", "{", "#;("])
def test_nesting_is_limited(opening: str) -> None:
    """100,000 levels give one diagnostic, or one per kind of typo within the limit."""
    findings = errors(opening * 100_000)
    ids = {finding.id for finding in findings}
    assert ids == {"nested-too-deep"} or (opening == "{" and "too-many-findings" in ids)


def test_nesting_limit_can_be_set() -> None:
    """A higher limit works without recursion."""
    text = "(" * 100_000 + ")" * 100_000
    assert [finding.id for finding in errors(text)] == ["nested-too-deep"]
    result, findings = read(text_source(text), max_depth=100_000)
    assert findings == []
    assert show(result[0]) == text
    assert read(text_source("((a))"), max_depth=1)[1][0].id == "nested-too-deep"


def test_a_string_of_ten_megabytes_is_read() -> None:
    """Also with escapes."""
    assert value('"' + "x" * 10_000_000 + '"') == "x" * 10_000_000
    assert value('"' + "\\n" * 1_000_000 + '"') == "\n" * 1_000_000


@pytest.mark.parametrize(
    "text",
    [
        ")a" * 200_000,
        "\x00" * 200_000,
        "[)" * 200_000,
        '"\\q' * 200_000,
        '"a"' * 200_001,
        "|" * 200_001,
        "a . " * 100_000,
        "#|" * 200_000,
        "\\" * 200_000,
        "1x " * 100_000,
        "(\n" * 900 + "a\n" * 100_000,
        "'" * 900 + "\n(a\n" * 900,
        "é" * 500_000 + '"',
    ],
    ids=lambda text: ascii(text[:5]),
)
def test_number_and_size_of_diagnostics_are_limited(text: str) -> None:
    """The errors are few and small, and found quickly."""
    source = text_source(text, "t.sexp")
    findings = read(source)[1]
    assert 0 < len(findings) <= MAX_FINDINGS + 1
    assert all(len(finding.message) < 300 and len(finding.help or "") < 300 for finding in findings)
    assert len(render_all(findings, [source])) < 1000 * len(findings)


def test_message_is_short_for_long_tokens() -> None:
    """A token of a megabyte is not quoted completely."""
    for text in ("1" + "x" * 1_000_000, "#" + "x" * 1_000_000, "1/" + "2" * 1_000_000, "x" * 1_000_000 + "“"):
        source = text_source(text)
        assert len(render_all(errors(text), [source])) < 1500
