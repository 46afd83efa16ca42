"""Output of the printer reads back equal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sexp_texts import data

from llc.frontend.sexp.datum import Atom, Datum, Form
from llc.frontend.sexp.printer import show
from llc.frontend.sexp.reader import read
from llc.frontend.source.files import text_source
from llc.ir.constants import Symbol


def read_one(text: str) -> Datum:
    data_list, findings = read(text_source(text))
    assert findings == []
    assert len(data_list) == 1
    return data_list[0]


@given(data)
def test_printed_datum_reads_back_equal(datum: Datum) -> None:
    """Types of numbers are kept."""
    assert read_one(show(datum)) == datum


@given(data)
def test_printed_datum_is_one_visible_line(datum: Datum) -> None:
    """The text has no line break and no invisible character."""
    assert show(datum).isprintable()


@given(data, st.integers(0, 100))
def test_limited_rendering_is_a_prefix(datum: Datum, limit: int) -> None:
    """A limited rendering is the complete one, or a prefix of it within the limit."""
    whole = show(datum)
    shown = show(datum, limit=limit)
    assert shown == whole or (len(shown) <= max(limit, 1) and whole.startswith(shown[:-1]))


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("(quote x)", "'x"),
        ("`(a ,b ,@c)", "`(a ,b ,@c)"),
        ("(quote x y)", "(quote x y)"),
        ("(quote)", "(quote)"),
        ("(quote . x)", "(quote . x)"),
        ("(unquote @x)", "(unquote @x)"),
        ("(unquote |@ x|)", ",|@ x|"),
        ("[quote x]", "[quote x]"),
        ("(a . (b . (c)))", "(a b c)"),
        ("(a . nil)", "(a)"),
        ("nil", "()"),
        ("007", "7"),
        ("1_000", "1000"),
        ("1e400e", None),
        ("+inf.0", "+inf.0"),
        ('"\\u0041\\n\\u001b"', '"A\\n\\u001b"'),
        ('"\\ud83d\\ude00"', '"😀"'),
        ("||", "||"),
        ("|a\\|b\\\\|", "|a\\|b\\\\|"),
    ],
)
def test_datum_has_a_canonical_form(text: str, printed: str | None) -> None:
    """All spellings of a datum are printed the same way."""
    if printed is None:
        assert read(text_source(text))[1]
    else:
        assert show(read_one(text)) == printed


def test_a_deep_datum_is_printed_and_compared_without_recursion() -> None:
    """Printing, equality and hashing use no Python stack per level."""
    left: Datum = Atom(1)
    right: Datum = Atom(1)
    for _ in range(50_000):
        left, right = Form((left,)), Form((right,))
    assert left == right
    assert hash(left) == hash(right)
    assert left != Form((right,))
    assert show(left).count("(") == 50_000
    assert len(repr(left)) < 250


def test_data_that_differ_in_type_differ() -> None:
    """1, 1.0, true, "a" and a are five different data."""
    values = [1, 1.0, True, "a", Symbol("a"), None, Form(())]
    atoms = [value if isinstance(value, Form) else Atom(value) for value in values]
    for i, left in enumerate(atoms):
        for j, right in enumerate(atoms):
            assert (left == right) is (i == j)


def test_a_tail_needs_an_item() -> None:
    """A list of only a tail is an error."""
    with pytest.raises(ValueError, match="tail"):
        Form((), None, "(", Atom(1))
