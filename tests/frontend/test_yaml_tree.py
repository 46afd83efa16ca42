"""YAML documents: scalars, positions and invalid input."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llc.frontend.source import yaml_tree
from llc.frontend.source.document import MAX_DIAGNOSTICS, Document, Mapping, Node, Scalar, Sequence
from llc.frontend.source.files import MAX_BYTES, read_source, text_source
from llc.frontend.source.yaml_tree import read_document
from llc.ir.diagnostics import CompileError
from llc.ir.spans import Span


def document(text: str) -> Document:
    return read_document(text_source(text, "t.yaml"))


def value(text: str) -> Any:
    """Content of a valid document as plain data."""
    result = document(text)
    assert result.diagnostics == []
    assert result.root is not None
    return result.plain(result.root)


def ids(text: str) -> list[str]:
    return [diagnostic.id for diagnostic in document(text).diagnostics]


def marked(source: str, span: Span | None) -> str:
    """The text of a span."""
    assert span is not None
    lines = source.split("\n")[span.line - 1 : span.end_line]
    lines[-1] = lines[-1][: span.end_column - 1]
    lines[0] = lines[0][span.column - 1 :]
    return "\n".join(lines)


def node_at(tree: Document, *path: str | int) -> Node:
    node = tree.root
    for step in path:
        if isinstance(step, int):
            assert isinstance(node, Sequence)
            node = node.items[step]
        else:
            assert isinstance(node, Mapping)
            node = node.entries[step][1]
    assert node is not None
    return node


# --- scalars ----------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["yes", "no", "on", "off", "y", "n", "Yes", "NO"])
def test_old_booleans_are_text(word: str) -> None:
    """The booleans of YAML 1.1 are text, as values and as keys."""
    assert value(f"{word}: {word}") == {word: word}


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("12", 12),
        ("-3", -3),
        ("0o17", 15),
        ("0x1F", 31),
        ("012", 12),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("-.inf", float("-inf")),
        ("1_000", "1_000"),
        ("12:30", "12:30"),
        ("2024-01-15", "2024-01-15"),
        ("0b1", "0b1"),
        ('"12"', "12"),
        ("'true'", "true"),
        ("!!str 12", "12"),
        ("!!float 12", 12.0),
        ("!!int '12'", 12),
    ],
)
def test_scalars_follow_the_core_schema(text: str, meaning: object) -> None:
    """Plain scalars have the value and type of the core schema of YAML 1.2."""
    actual = value(f"a: {text}")["a"]
    assert actual == meaning
    assert type(actual) is type(meaning)


def test_alias_is_the_value_of_its_anchor() -> None:
    assert value("a: &x [1, {b: 2}]\nc: *x") == {"a": [1, {"b": 2}], "c": [1, {"b": 2}]}


# --- spans ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "path", "shown"),
    [
        ("a: plain text # comment", ("a",), "plain text"),
        ('a: "quoted \\n"', ("a",), '"quoted \\n"'),
        ("é😀: 'x'\nb: [1, {c: deep}]", ("b", 1, "c"), "deep"),
        ("a: |\n  one\n  two\n\n# comment\nb: 1", ("a",), "|\n  one\n  two"),
        ("a:\n  b: 1\n  c: 2\n\n\nd: 3", ("a",), "b: 1\n  c: 2"),
        ("a: [1,\n  2]\nb: 1", ("a",), "[1,\n  2]"),
        ("a: x\r\nb: y\r\n", ("b",), "y"),
        ("a: 'x\x85y'\nb: z", ("b",), "z"),
        ("- - - one\n  - two", (0, 1), "two"),
    ],
)
def test_span_of_a_node(text: str, path: tuple[str | int, ...], shown: str) -> None:
    """The span covers exactly the characters of the node."""
    tree = document(text)
    assert marked(text, tree.span(node_at(tree, *path))) == shown


def test_within_finds_a_part_in_the_source() -> None:
    """`within` finds the right one of several equal parts, in quoted and block scalars."""
    text = 'a: "x ${v} y ${v}"\nb: |\n  one\n  two ${v}\n'
    tree = document(text)
    first, second = node_at(tree, "a"), node_at(tree, "b")
    assert isinstance(first, Scalar)
    assert isinstance(second, Scalar)
    start = first.text.rindex("${v}")
    span = tree.within(tree.span(first), first.text, start, start + 4)
    assert span == Span("t.yaml", 1, 14, 1, 18)
    start = second.text.index("${v}")
    span = tree.within(tree.span(second), second.text, start, start + 4)
    assert span == Span("t.yaml", 4, 7, 4, 11)


def test_within_returns_the_scalar_for_an_escaped_part() -> None:
    """The source spells the part differently."""
    tree = document('a: "\\x24{v}"')
    node = node_at(tree, "a")
    assert isinstance(node, Scalar)
    assert tree.within(tree.span(node), node.text, 0, 4) == tree.span(node)


@given(st.text(alphabet="ab\n é", max_size=40), st.integers(0, 40), st.integers(0, 40))
def test_offsets_and_spans_agree(text: str, one: int, other: int) -> None:
    start, end = sorted((min(one, len(text)), min(other, len(text))))
    tree = Document(text_source(text))
    span = tree.span_at(start, end)
    assert (tree.offset(span.line, span.column), tree.offset(span.end_line, span.end_column)) == (
        start,
        end,
    )


# --- errors -----------------------------------------------------------------------------------


def test_duplicate_key_is_reported_at_the_second_one() -> None:
    """The message names the line of the first one."""
    text = "a: 1\nb: 2\na: 3"
    (finding,) = document(text).diagnostics
    assert finding.id == "duplicate-key"
    assert finding.span == Span("t.yaml", 3, 1, 3, 2)
    assert [(span.line, label) for span, label in finding.related] == [(1, "first given here")]


@pytest.mark.parametrize(
    ("text", "id"),
    [
        ("", "empty-document"),
        ("# only a comment\n", "empty-document"),
        ("a: 1\n---\nb: 2", "many-documents"),
        ("a:\n\tb: 1", "yaml-tab"),
        ("a: b: c", "yaml-syntax"),
        ("a: [1, 2", "yaml-syntax"),
        ("a: 'open", "yaml-syntax"),
        ("a: @x", "yaml-syntax"),
        ("a: 1\n  b: 2", "yaml-syntax"),
        ("a: \x01", "control-character"),
        ('a: "x\\0y"', "nul-character"),
        ("a: \ud800", "control-character"),
        ("a: !python/object x", "unknown-tag"),
        ("a: !!int x", "wrong-type"),
        ("a: !thing {}", "unknown-tag"),
        ("1: a", "key-not-text"),
        ("true: a", "key-not-text"),
        ("? [a]\n: b", "key-not-text"),
        ("a: *x", "unknown-alias"),
        ("a: &x [*x]", "recursive-alias"),
        ("a: " + "1" * 5000, "bad-number"),
    ],
)
def test_invalid_yaml_is_one_error(text: str, id: str) -> None:
    """Each kind of error has its own diagnostic id."""
    assert ids(text) == [id]


@pytest.mark.parametrize("text", ["[" * 100_000, "a:\n" + "- " * 100_000, "{a: " * 100_000, "? " * 5_000])
def test_deep_nesting_is_an_error(text: str) -> None:
    assert ids(text) == ["too-deep"]


def test_nesting_through_aliases_counts() -> None:
    """Aliases cannot build a deeper tree than the text may contain."""
    text = "".join(f"a{i}: &a{i} [*a{i - 1}]\n" if i else "a0: &a0 []\n" for i in range(200))
    assert ids(text) == ["too-deep"]


def test_alias_bomb_is_an_error() -> None:
    """Aliases that stand for millions of values are counted, not expanded."""
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    assert ids("\n".join(rows)) == ["too-many-nodes"]


def test_tag_directives_are_limited() -> None:
    """Their number is checked before the YAML parser compares them with each other."""
    assert ids("".join(f"%TAG !a{i}! b\n" for i in range(200)) + "---\na: 1") == ["too-many-directives"]


def test_number_of_diagnostics_is_limited() -> None:
    diagnostic_ids = ids("a: 1\n" * 5000)
    assert len(diagnostic_ids) == MAX_DIAGNOSTICS + 1
    assert diagnostic_ids[-1] == "too-many-findings"


# --- files ------------------------------------------------------------------------------------


def refusal(path: str | Path) -> tuple[str, Span | None]:
    with pytest.raises(CompileError) as caught:
        read_source(str(path))
    (finding,) = caught.value.diagnostics
    return finding.id, finding.span


def test_a_file_is_read_without_its_byte_order_mark(tmp_path: Path) -> None:
    """Columns count from the first character after the byte order mark."""
    file = tmp_path / "a.yaml"
    file.write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert read_source(str(file)).text == "a: 1\n"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none.yaml")[0] == "file-not-found"


@pytest.mark.parametrize("path", [".", "/dev/null", "/dev/zero", "a\0b"])
def test_path_that_is_not_a_file_is_an_error(path: str) -> None:
    """Folders, devices and impossible names."""
    assert refusal(path)[0] == "unreadable-file"


def test_a_pipe_without_a_writer_does_not_block(tmp_path: Path) -> None:
    """Opening a named pipe returns at once."""
    os.mkfifo(tmp_path / "pipe")
    assert read_source(str(tmp_path / "pipe")).text == ""


def test_invalid_utf8_is_reported_at_its_position(tmp_path: Path) -> None:
    """The span is at the first byte that is not UTF-8."""
    file = tmp_path / "latin.yaml"
    file.write_bytes("name: x\n# grün: ".encode() + b"\xfc\n")
    id, span = refusal(file)
    assert (id, span) == ("not-utf-8", Span(str(file), 2, 9, 2, 10))


def test_huge_file_is_rejected_without_reading_it(tmp_path: Path) -> None:
    """Only the first part of a file of 100 MB is read."""
    file = tmp_path / "huge.yaml"
    with file.open("wb") as out:
        out.truncate(100_000_000)
    assert MAX_BYTES < 100_000_000
    assert refusal(file)[0] == "file-too-large"


def test_tree_cache_is_limited() -> None:
    """A text is parsed once; large texts and texts with diagnostics are not cached."""
    kept = text_source("a: [1, 2]\n# kept\n")
    assert read_document(kept).root is read_document(kept).root
    large = text_source("a: [" + "1, " * 30_000 + "]\n")
    assert read_document(large).root is not read_document(large).root
    wrong = text_source("a: 1\na: 2\n")
    assert [len(read_document(wrong).diagnostics) for _ in range(2)] == [1, 1]
    for number in range(12):
        read_document(text_source(f"n: {number}\na: [" + "1, " * 19_000 + "]\n"))
    assert sum(root.weight for root in yaml_tree._TREE_CACHE.values()) <= 220_000
