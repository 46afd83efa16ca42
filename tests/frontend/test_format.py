"""The formatter changes only the layout."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sexp_texts import any_texts, data, valid_texts

from llc.frontend.sexp.datum import Datum
from llc.frontend.sexp.formatter import WIDTH, format_source
from llc.frontend.sexp.printer import show
from llc.frontend.sexp.reader import read, scan
from llc.frontend.source.files import text_source
from llc.ir.diagnostics import CompileError


def comments(text: str) -> list[str]:
    """The comments of a text, without line ends."""
    found = [token.text for token in scan(text) if token.kind in ("comment", "block-comment")]
    return ["\n".join(line.rstrip() for line in text.splitlines()) for text in found]


def datum_comments(text: str) -> int:
    return sum(token.kind == "datum-comment" for token in scan(text))


@given(valid_texts)
def test_formatting_keeps_data_and_comments(text: str) -> None:
    """Data, comments and their order do not change."""
    before = read(text_source(text))[0]
    result = format_source(text)
    # The formatted text must not even cause reader warnings.
    assert read(text_source(result)) == (before, [])
    assert comments(result) == comments(text)
    assert datum_comments(result) == datum_comments(text)


@given(valid_texts)
def test_formatting_is_idempotent(text: str) -> None:
    formatted = format_source(text)
    assert format_source(formatted) == formatted


@given(st.lists(data, max_size=4))
def test_formatting_of_one_line_is_idempotent(data_list: list[Datum]) -> None:
    """Idempotence also holds for texts in which the formatter makes every line break."""
    formatted = format_source(" ".join(map(show, data_list)))
    assert format_source(formatted) == formatted
    assert read(text_source(formatted))[0] == data_list


@given(valid_texts)
def test_no_trailing_blanks(text: str) -> None:
    """Outside strings and comments no line ends in a blank, and the text ends in one newline."""
    result = format_source(text)
    for token in scan(result):
        if token.kind == "blank":
            assert token.text.lstrip(" ").count("\n") <= 2
            assert "\n" not in token.text or token.text.startswith("\n")
    assert result == "" or (result.endswith("\n") and not result.endswith("\n\n"))


@given(any_texts)
def test_any_text_is_formatted_or_rejected(text: str) -> None:
    """A text that cannot be read raises CompileError and no other exception."""
    _, findings = read(text_source(text))
    if any(finding.is_error for finding in findings):
        with pytest.raises(CompileError):
            format_source(text)
    else:
        format_source(text)


LAYOUTS = {
    "a body is indented by two": (
        "(define (f x)\n        ;; why\n      (g x)\n\n\n\n  (h x))",
        "(define (f x)\n  ;; why\n  (g x)\n\n  (h x))\n",
    ),
    "operands stand under the first": ("(if a\nb\n  c\n)", "(if a\n    b\n    c)\n"),
    "operands below the head are indented by two": ("(foo\na\n b)", "(foo\n  a\n  b)\n"),
    "or by two below the head, if they did": (
        "   (error 'x\n     (foo)\n  )",
        "(error 'x\n  (foo))\n",
    ),
    "what is no call is indented by one": ("'(a b\nc)\n((a b)\n(c d))", "'(a b\n  c)\n((a b)\n (c d))\n"),
    "what comes before a body is indented by four": (
        "(lambda\n(x)\nx)",
        "(lambda\n    (x)\n  x)\n",
    ),
    "a named let has its bindings before its body": (
        "(let go ((i 0)\n(j 1))\n(go j i))",
        "(let go ((i 0)\n         (j 1))\n  (go j i))\n",
    ),
    "closing brackets follow the last datum": ("(a (b\nc\n)\n)", "(a (b\n     c))\n"),
    "closing brackets stay out of a comment": ("(a\n b ; last\n)", "(a\n  b ; last\n  )\n"),
    "top-level forms have lines of their own": ("(a)(b) ; c\n\n\n\n; d\n(e)", "(a)\n(b) ; c\n\n; d\n(e)\n"),
    "strings are left alone": ('(a\n"x\n   y"   b)', '(a\n  "x\n   y" b)\n'),
    "brackets and spellings are left alone": ("[a 1_000 nil  007]", "[a 1_000 nil 007]\n"),
    "line ends become line feeds": ('(a\r\n"x\r\ny") ;c\r\n', '(a\n  "x\ny") ;c\n'),
    "a line that tells what runs the file stays first": ("#!/usr/bin/llc\n\n(a)", "#!/usr/bin/llc\n\n(a)\n"),
    "a mark stays apart from what would join it": (", @x", ", @x\n"),
    "nothing is nothing": (" \n\n", ""),
}


@pytest.mark.parametrize(("text", "expected"), LAYOUTS.values(), ids=LAYOUTS)
def test_layout(text: str, expected: str) -> None:
    """The layout of `spec/syntax.md`, rule by rule."""
    assert format_source(text) == expected


def test_a_form_that_is_too_wide_is_broken() -> None:
    """Operands of a call go on their own lines, a body below its head; a form that fits stays on one line."""
    call = f"(list {' '.join(f'(part {number} of-a-long-list)' for number in range(6))})"
    lines = format_source(f"(define (f) {call})").splitlines()
    assert lines[0] == "(define (f)"
    assert lines[1] == "  (list (part 0 of-a-long-list)"
    assert lines[6] == "        (part 5 of-a-long-list)))"
    assert max(map(len, lines)) <= WIDTH


def test_many_atoms_fill_their_lines() -> None:
    """A list of atoms is filled, not broken into one atom per line."""
    lines = format_source(f"'({' '.join(map(str, range(100)))})").splitlines()
    assert len(lines) < 6
    assert all(70 < len(line) <= WIDTH for line in lines[:-1])


def test_deep_text_is_formatted() -> None:
    """The nesting limit of the reader is also fine for the formatter."""
    text = "(a\n" * 1000 + ")" * 1000
    assert format_source(text).count("\n") == 1000
    wide = format_source("(a\n" * 999 + "(b\nc)" * 1000 + ")" * 999)
    assert len(wide) < 500_000
    assert format_source(wide) == wide
    assert format_source("'" * 900 + "a") == "'" * 900 + "a\n"
