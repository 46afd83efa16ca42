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
def test_written_value_reads_back(key: str, value: Any) -> None:
    """Any value under any key; integers and floats keep their type."""
    assert repr(read_back(key, value)) == repr({key: value})


@given(st.dictionaries(TEXTS, VALUES, max_size=4))
def test_inline_mapping_reads_back(value: dict[str, Any]) -> None:
    """A mapping that does not fit on one line is written on several."""
    assert repr(read_back("key", Inline(value))) == repr({"key": value})


@given(TEXTS | st.from_regex(r"[a-z_.0-9~+-]{1,6}(/[a-z.]+)?", fullmatch=True))
def test_plain_text_reads_back(text: str) -> None:
    """A text that resembles a number, a boolean or null is quoted."""
    assert read_back("key", as_word(text)) == {"key": text}
    assert read_back("key", Inline(of=as_word(text))) == {"key": {"of": text}}


def test_short_mapping_is_written_on_one_line() -> None:
    """Including nested values."""
    assert entry("note", Inline(state="a", details={"found": True, "of": [1, None]}), 2) == [
        '  note: {state: "a", details: {found: true, of: [1, null]}}'
    ]
