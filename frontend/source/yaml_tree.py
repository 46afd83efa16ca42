"""YAML parser: texts to documents whose nodes have positions.

Owns YAML's syntax and its scalars (YAML 1.2 core schema: `yes`, `no`, `on`, `off` are texts). Trees are built
from libyaml's events without recursion, because libyaml's composer overflows the C stack on deep nesting.
Must not contain: the meaning of keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ...ir.diagnostics import Diagnostic, DiagnosticId, labelled
from ...ir.scalars import read_scalar
from ...ir.spans import Source
from .document import Document, Mapping, Node, Refused, Scalar, Sequence
from .yaml_errors import report_syntax

MAX_DEPTH = 100
MAX_DIRECTIVES = 100
# Limit of nodes, aliases expanded; a loop of 10,000 states has about 150,000.
MAX_NODES = 1_000_000


# --- scalars ----------------------------------------------------------------------------------

_CORE = "tag:yaml.org,2002:"
_TAG_TYPES: dict[str, tuple[type, ...]] = {
    "null": (type(None),),
    "bool": (bool,),
    "int": (int,),
    "float": (float, int),
}


# --- trees ------------------------------------------------------------------------------------

# Characters that a YAML stream must not contain (YAML 1.2, 5.1). They are listed because a pattern of the
# allowed characters takes 3 ms to compile.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufeff\ufffe\uffff]")


# Cache of trees by text, with limits of nodes for one tree and for all of them.
_TREE_CACHE: dict[str | None, Node] = {}
_MAX_NODES_PER_CACHED_TREE, _MAX_CACHED_NODES = 20_000, 200_000


def read_document(source: Source) -> Document:
    """Parse a source. Never raises for invalid YAML; errors are in `diagnostics`.

    Trees are cached, because several loops may use the same file. They are never changed.
    """
    cached = _TREE_CACHE.get(source.text)
    document = Document(source)
    if cached is not None:
        document.root = cached
        return document
    _parse(document)
    if (
        document.root is not None
        and not document.diagnostics
        and document.root.weight <= _MAX_NODES_PER_CACHED_TREE
    ):
        if sum(tree.weight for tree in [*_TREE_CACHE.values()]) > _MAX_CACHED_NODES:
            _TREE_CACHE.clear()
        _TREE_CACHE[source.text] = document.root
    return document


def _parse(document: Document) -> None:
    bad = _FORBIDDEN.search(document.text)
    if bad is not None:
        code = f"U+{ord(bad[0]):04X}"
        document.fail(
            "control-character", f"character {code} is not allowed in YAML", document.span_at(*bad.span())
        )
        return
    # libyaml compares each `%TAG` directive with all others; a loop needs none.
    if document.text.count("\n%TAG") > MAX_DIRECTIVES:
        place = document.span_at(0, 0)
        document.fail("too-many-directives", f"there are more than {MAX_DIRECTIVES} tag directives", place)
        return
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _Builder(document).build(yaml.parse(document.text, Loader=loader))
    except Refused:
        document.root = None
    except yaml.MarkedYAMLError as error:
        document.root = None
        report_syntax(document, error)
    except yaml.YAMLError as error:
        document.root = None
        document.fail("yaml-syntax", str(error).partition("\n")[0], None)


class _Builder:
    """Builds nodes from events with an explicit stack."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.stack: list[tuple[Sequence | Mapping, bool, str | None]] = []
        self.keys: list[Scalar | None] = []  # the pending key of each open mapping
        self.anchors: dict[str, Node | None] = {}  # None while the node is open
        self.count = 0

    def build(self, events: Iterator[Any]) -> None:
        documents = 0
        for event in events:
            match type(event).__name__:
                case "ScalarEvent":
                    self.close(self.scalar(event), event.anchor)
                case "MappingStartEvent":
                    self.open(Mapping(event.start_mark.index), event)
                case "SequenceStartEvent":
                    self.open(Sequence(event.start_mark.index), event)
                case "MappingEndEvent" | "SequenceEndEvent":
                    self.end(event)
                case "AliasEvent":
                    self.alias(event)
                case "DocumentStartEvent":
                    documents += 1
                    if documents > 1:
                        mark = event.start_mark.index
                        self.refuse(
                            "many-documents",
                            "a file must contain a single document",
                            (mark, event.end_mark.index),
                            "second document begins",
                        )
        if self.document.root is None:
            self.document.fail("empty-document", "the document is empty", self.document.span_at(0, 0))

    def refuse(
        self, id: DiagnosticId, message: str, place: tuple[int, int], label: str = "", help: str | None = None
    ) -> None:
        self.document.root = None
        self.document.fail(id, message, self.document.span_at(*place), label, help)
        raise Refused

    def fail(
        self, id: DiagnosticId, message: str, place: tuple[int, int], label: str = "", help: str | None = None
    ) -> None:
        self.document.fail(id, message, self.document.span_at(*place), label, help)

    def count_nodes(self, nodes: int, place: tuple[int, int]) -> None:
        self.count += nodes
        if self.count > MAX_NODES:
            self.refuse(
                "too-many-nodes",
                f"the document has more than {MAX_NODES:,} values",
                place,
                "counted with the values of its aliases",
            )

    def scalar(self, event: Any) -> Scalar:
        start, end = event.start_mark.index, event.end_mark.index
        text = event.value
        plain = event.style in ("", None)
        if event.style in ("|", ">"):
            end = start + len(self.document.text[start:end].rstrip())
        self.count_nodes(1, (start, end))
        if "\0" in text:
            self.fail("nul-character", "a text cannot contain a NUL character", (start, end))
            text = text.replace("\0", "")
        value: Any = text
        tag = event.tag
        try:
            if plain and tag is None:
                value = read_scalar(text)
            elif tag is not None:
                value = self.tagged(tag, text, (start, end))
        except ValueError as error:
            self.fail("bad-number", str(error), (start, end))
        return Scalar(value, text, plain, start, end)

    def tagged(self, tag: str, text: str, place: tuple[int, int]) -> Any:
        """The value of a scalar with a tag. Raises ValueError like `read_scalar`."""
        name = tag.removeprefix(_CORE)
        if name == "str" or tag == "!":
            return text
        if name == tag or name not in _TAG_TYPES:
            self.unknown_tag(tag, place)
            return text
        value: Any = read_scalar(text)
        wanted = _TAG_TYPES[name]
        if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
            self.fail("wrong-type", f"`{text[:40]}` is not a YAML {name}", place)
            return text
        return float(read_scalar(text)) if name == "float" else value

    def unknown_tag(self, tag: str, place: tuple[int, int]) -> None:
        self.fail("unknown-tag", f"tag `{tag[:60]}` is not supported", place, help="remove the tag")

    def open(self, node: Sequence | Mapping, event: Any) -> None:
        place = (event.start_mark.index, event.end_mark.index)
        self.count_nodes(1, place)
        if len(self.stack) >= MAX_DEPTH:
            self.refuse("too-deep", f"nested more than {MAX_DEPTH} deep", place)
        if event.tag is not None and event.tag not in (_CORE + "map", _CORE + "seq", "!"):
            self.unknown_tag(event.tag, place)
        if event.anchor is not None:
            self.anchors[event.anchor] = None
        self.stack.append((node, bool(event.flow_style), event.anchor))
        if isinstance(node, Mapping):
            self.keys.append(None)

    def end(self, event: Any) -> None:
        node, flow, anchor = self.stack.pop()
        if isinstance(node, Mapping):
            self.keys.pop()
        if flow or node.end == node.start:
            node.end = event.end_mark.index
        self.close(node, anchor)

    def alias(self, event: Any) -> None:
        place = (event.start_mark.index, event.end_mark.index)
        name = event.anchor
        if name not in self.anchors:
            self.refuse("unknown-alias", f"no anchor `&{name}` before this alias", place)
        node = self.anchors[name]
        if node is None:
            self.refuse("recursive-alias", f"`*{name}` would contain itself", place)
            return
        self.count_nodes(node.weight, place)
        if len(self.stack) + node.height > MAX_DEPTH:
            self.refuse("too-deep", f"nested more than {MAX_DEPTH} deep", place)
        self.close(node, None, place[1])

    def close(self, node: Node, anchor: str | None, end: int | None = None) -> None:
        """Add a finished node to the innermost open node."""
        if anchor is not None:
            self.anchors[anchor] = node
        if not self.stack:
            self.document.root = node
            return
        parent, flow, _ = self.stack[-1]
        parent.height = max(parent.height, node.height + 1)
        parent.weight += node.weight
        if not flow:
            parent.end = node.end if end is None else end
        if isinstance(parent, Sequence):
            parent.items.append(node)
        elif self.keys[-1] is None:
            self.keys[-1] = self.key(node)
        else:
            self.entry(parent, self.keys[-1], node)
            self.keys[-1] = None

    def key(self, node: Node) -> Scalar:
        place = (node.start, node.end)
        if not isinstance(node, Scalar):
            self.fail("key-not-text", "a key must be a text", place, "this is a list or a mapping")
            return Scalar("", "", False, *place)
        if not isinstance(node.value, str):
            kind = (
                "null" if node.value is None else "a boolean" if isinstance(node.value, bool) else "a number"
            )
            self.fail(
                "key-not-text",
                "a key must be a text",
                place,
                f"this is {kind}",
                f'write it in quotes: "{node.text}"' if node.text else None,
            )
        elif node.plain and not node.value[:1].isprintable():
            message = f"the invisible character U+{ord(node.value[0]):04X} is not a YAML space"
            self.fail("yaml-syntax", message, (node.start, node.start + 1), "here", "replace it with a space")
        return node

    def entry(self, parent: Mapping, key: Scalar, node: Node) -> None:
        if key.text not in parent.entries:
            parent.entries[key.text] = (key, node)
            return
        first = self.document.span(parent.entries[key.text][0])
        self.document.report(
            Diagnostic(
                "duplicate-key",
                f"`{key.text}` is given twice",
                self.document.span_at(key.start, key.end),
                "given again",
                related=labelled(first, "first given here"),
            )
        )
