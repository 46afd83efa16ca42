"""Hypothesis strategies for S-expressions: data, valid texts in any layout, and arbitrary texts."""

from __future__ import annotations

from hypothesis import strategies as st

from llc.frontend.sexp.datum import Atom, Datum, Form
from llc.frontend.sexp.printer import spell
from llc.ir.constants import Symbol

WORDS = [
    "a",
    "b",
    "let",
    "if",
    "cond",
    "lambda",
    "define",
    "list",
    "quote",
    "unquote",
    "@x",
    "...",
    "+",
    "->",
]
UNUSUAL_WORDS = [
    "true",
    "nil",
    "null",
    ".",
    "1+",
    "+1",
    "",
    "a b",
    "a|b",
    "#t",
    "+inf.0",
    "“x”",
    "a\u00a0b",
    "\x00",
]
# Two halves of a surrogate pair, as separate characters, are read back as one character.
_texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
_values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    _texts,
    st.just("\ud83d"),
    st.sampled_from(WORDS + UNUSUAL_WORDS).map(Symbol),
    _texts.map(Symbol),
)


@st.composite
def _forms(draw: st.DrawFn, parts: st.SearchStrategy[Datum]) -> Form:
    items = tuple(draw(st.lists(parts, max_size=5)))
    tail = draw(st.none() | parts) if items else None
    return Form(items, None, draw(st.sampled_from("([")), tail)


data: st.SearchStrategy[Datum] = st.recursive(_values.map(Atom), lambda parts: _forms(parts), max_leaves=25)


# --- texts ------------------------------------------------------------------------------------

_blanks = st.sampled_from([" ", " ", "\n", "\n  ", "\n\n\n", "\t", "\r\n", " \n \n"])
_comments = st.sampled_from(["; note\n", ";; \"(' \n", "#| a |#", "#| x\n   #| y |# |#", "#;", "#; ;c\n"])
_atoms = st.one_of(
    st.sampled_from([*WORDS, "1_000", "007", "1.5e3", "nil", "true", '"two\nlines"', '"a\\n\\"b"', "|a b|"]),
    st.sampled_from(["long-word-" * 5, '"' + "long text " * 12 + '"']),
    _values.map(spell),
)


@st.composite
def _written(draw: st.DrawFn, parts: st.SearchStrategy[str]) -> str:
    kind = draw(st.sampled_from(["(", "(", "(", "[", "'", "`", ",", ",@"]))
    if kind not in "([":
        return kind + draw(st.sampled_from(["", " ", "\n", " ;c\n "])) + draw(parts)
    out = [kind, draw(st.sampled_from(["", "\n ", " ; first\n"]))]
    for _ in range(draw(st.integers(0, 6))):
        out.append(draw(parts))
        out.append(draw(_blanks))
        if draw(st.integers(0, 5)) == 0:
            comment = draw(_comments)
            out.append(comment + (draw(parts) + " " if comment.startswith("#;") else ""))
            out.append(draw(_blanks))
    return "".join([*out, ")" if kind == "(" else "]"])


_forms_written = st.recursive(_atoms, lambda parts: _written(parts), max_leaves=30)
# Texts that are read without diagnostics, in any layout.
valid_texts = st.lists(_forms_written, max_size=4).map("\n".join)

_fragments = st.sampled_from(
    [
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        "'",
        ",@",
        "`",
        '"',
        "\\",
        "|",
        ";",
        "\n",
        "#|",
        "|#",
        "#;",
        " ",
        ".",
        "1e999",
        "a",
        "“",
        "\x00",
    ]
)
# Arbitrary texts in which tokens of the reader are frequent.
any_texts = st.one_of(st.text(), st.lists(_fragments, max_size=60).map("".join))


def broken(text: str, at: int, fragment: str) -> str:
    """`text` with an inserted fragment."""
    at %= len(text) + 1
    return text[:at] + fragment + text[at:]


fragments = _fragments
