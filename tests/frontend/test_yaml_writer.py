"""Written YAML reads back exactly."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from llc.frontend.source.files import text_source
from llc.frontend.source.yaml_tree import read_document
from llc.frontend.source.yaml_writer import Inline, as_word, entry

TEXTS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=40)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


def read_back(key: str, value: Any) -> Any:
    document = read_document(text_source("\n".join(entry(key, value, 0)) + "\n"))
    assert not document.diagnostics
    assert document.root is not None
    return document.plain(document.root)


@given(TEXTS, VALUES)
def test_what_is_written_reads_back(key: str, value: Any) -> None:
    """Any value, under any key; a number stays a whole number or a float."""
    assert repr(read_back(key, value)) == repr({key: value})


@given(st.dictionaries(TEXTS, VALUES, max_size=4))
def test_a_mapping_on_one_line_reads_back(value: dict[str, Any]) -> None:
    """Where it does not fit it takes several lines, and is the same."""
    assert repr(read_back("key", Inline(value))) == repr({"key": value})


@given(TEXTS | st.from_regex(r"[a-z_.0-9~+-]{1,6}(/[a-z.]+)?", fullmatch=True))
def test_a_plain_word_reads_back_without_quotes(text: str) -> None:
    """Whatever looks like a number, a truth value or null keeps its quotes."""
    assert read_back("key", as_word(text)) == {"key": text}
    assert read_back("key", Inline(of=as_word(text))) == {"key": {"of": text}}


def test_a_short_mapping_stands_on_one_line() -> None:
    """With what is in it."""
    assert entry("note", Inline(state="a", details={"found": True, "of": [1, None]}), 2) == [
        '  note: {state: "a", details: {found: true, of: [1, null]}}'
    ]
