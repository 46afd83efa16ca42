"""The reader of plain YAML gives the trees of PyYAML, or none."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from llc.frontend.source import yaml_tree
from llc.frontend.source.document import Document, Node, Scalar, Sequence
from llc.frontend.source.plain_yaml import read_plain_tree
from llc.ir.spans import Source

LOOP = """\
# a loop
name: fix-types
scope: [src, "a, b", --all]
states:
  check: {action: "mypy ${x}", evaluate: {type: exit_code}}  # flow
  fix:
    action: |
      if a; then

        b: c  # no comment
      fi

    context:
    - it's
    - key: 'it''s'
      other: -1.5
    -   x
    capture: >-
      several
      words
    retries: 0x10
  done: {terminal: true}
"""
FRAGMENTS = (
    *" \n:-#'\"{}[],|>&*!%?@`\\\t~01.aé\u2028",
    *("\n  ", "\n- ", ": ", " #", "- ", "---", "|-\n", ">\n", ">-\n  a\n  b\n", "|\n   x\n", "null", "\n\n"),
    *("key: ", "{a: b}", "[a, -b]", "''", '"\\n"', "-x", "1.0", "? "),
)


@st.composite
def changed_loops(draw: st.DrawFn) -> str:
    """Some lines of `LOOP` with changes."""
    lines = LOOP.splitlines()
    first = draw(st.integers(0, len(lines) - 1))
    text = "\n".join(lines[first : draw(st.integers(first + 1, len(lines)))]) + "\n"
    for _ in range(draw(st.integers(0, 3))):
        at, removed = draw(st.integers(0, len(text))), draw(st.integers(0, 3))
        text = text[:at] + draw(st.sampled_from(FRAGMENTS)) + text[at + removed :]
    return text


def parsed(text: str) -> Document:
    """The document that PyYAML's events give."""
    document = Document(Source("x.yaml", "", text))
    yaml_tree._Builder(document).build(yaml.parse(text, Loader=yaml.CSafeLoader))
    return document


def shape(node: Node) -> object:
    """All attributes of a tree."""
    if isinstance(node, Scalar):
        return repr(node.value), node.text, node.plain, node.start, node.end
    items = [shape(item) for item in node.items] if isinstance(node, Sequence) else []
    entries = (
        [] if isinstance(node, Sequence) else [(n, shape(k), shape(v)) for n, (k, v) in node.entries.items()]
    )
    return type(node), node.start, node.end, node.height, node.weight, items, entries


@given(changed_loops() | st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join))
@example(LOOP)
def test_tree_of_plain_yaml_is_that_of_pyyaml(text: str) -> None:
    """Kinds, values, positions, heights and weights are equal, and PyYAML finds no error."""
    tree = None if yaml_tree._FORBIDDEN.search(text) else read_plain_tree(text)
    if tree is not None:
        document = parsed(text)
        assert document.root is not None
        assert not document.diagnostics
        assert shape(tree) == shape(document.root)


def test_loop_is_plain() -> None:
    """A loop as most loops are written needs no PyYAML."""
    assert read_plain_tree(LOOP) is not None


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "a: b",
            "a:\n",
            "a: &b c\n",
            "a: *b\n",
            "a: !t b\n",
            "? a\n",
            "a: b\nb: c: d\n",
            "a: |+\n  b\n",
        ),
        *(
            "a: b\n  c\n",
            "a: [b,\n  c]\n",
            'a: "b\n  c"\n',
            'a: "\\u00e9"\n',
            "a: >\n  b\n\n  c\n",
            "a: [b, ]\n",
        ),
        *(
            "a: 1\na: 2\n",
            "1: a\n",
            "a b: c\n",
            "---\na: b\n",
            "a: b\n...\n",
            "a:\tb\n",
            "a: b\r\n",
            "- [a: b]\n",
        ),
        *(
            "a: " + "[" * 30 + "]" * 30 + "\n",
            "a: " + "9" * 5000 + "\n",
            "a: " + "b" * 30_000 + "\n",
            "- a\nb: c\n",
        ),
    ],
)
def test_other_text_is_not_plain(text: str) -> None:
    """The reader leaves it to PyYAML, with its errors."""
    assert read_plain_tree(text) is None
