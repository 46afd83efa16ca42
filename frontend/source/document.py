"""Document tree of a YAML text: nodes with positions, and the diagnostics about them.

Must not contain: YAML's syntax (`yaml_tree`), or the meaning of keys.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from collections.abc import Mapping as Map
from typing import Any

from ...ir.diagnostics import Diagnostic, DiagnosticId
from ...ir.spans import Lines, Source, Span

# Limit of diagnostics for one document; a hostile file could produce millions.
MAX_DIAGNOSTICS = 1000


class Scalar:
    """A scalar: `value` as YAML 1.2 reads it, `text` as written, `plain` if it has no quotes.

    The `height` of a node is its number of nested levels; its `weight` is its number of nodes, aliases
    expanded.
    """

    __slots__ = ("end", "plain", "start", "text", "value")
    height = 0
    weight = 1

    def __init__(self, value: Any, text: str, plain: bool, start: int, end: int) -> None:
        self.value = value
        self.text = text
        self.plain = plain
        self.start = start
        self.end = end


class Sequence:
    __slots__ = ("end", "height", "items", "start", "weight")

    def __init__(self, start: int) -> None:
        self.items: list[Node] = []
        self.start = start
        self.end = start
        self.height = 0
        self.weight = 1


class Mapping:
    """A mapping with its entries in document order; keys are distinct texts."""

    __slots__ = ("end", "entries", "height", "start", "weight")

    def __init__(self, start: int) -> None:
        self.entries: dict[str, tuple[Scalar, Node]] = {}
        self.start = start
        self.end = start
        self.height = 0
        self.weight = 1


Node = Scalar | Sequence | Mapping


class Refused(Exception):
    """Raised to stop reading; the document's diagnostics contain the reason."""


class Document:
    """A YAML document: its tree, and positions in its text as spans.

    root: the tree; None if the text is empty or has a syntax error.
    diagnostics: the errors and warnings about the text.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.text = source.text or ""
        self.root: Node | None = None
        self.diagnostics: list[Diagnostic] = []
        # Included documents (None: this one), and the offset at which the text of each begins.
        self._included_starts = [0]
        self._included: list[Document | None] = [None]
        self._lines = Lines(source)

    @property
    def sources(self) -> tuple[Source, ...]:
        """The source of this document and those of all included documents."""
        return (self.source, *(text.source for text in self._included if text is not None))

    def include(self, other: Document) -> None:
        """Add another document. Its nodes may then be used in this tree and keep their positions."""
        last = self._included[-1] or self
        start = self._included_starts[-1] + len(last.text) + 1
        self._included_starts.append(start)
        self._included.append(other)
        if other.root is not None:
            other.root = _shift(other.root, start, {})

    def span_at(self, start: int, end: int) -> Span:
        """The span of the characters from offset `start` to `end`."""
        if len(self._included_starts) > 1:
            at = bisect_right(self._included_starts, start) - 1
            text = self._included[at]
            if text is not None:
                first = self._included_starts[at]
                return text.span_at(start - first, min(max(end, start) - first, len(text.text)))
        return self._lines.span(start, end)

    def span(self, node: Node) -> Span:
        return self.span_at(node.start, node.end)

    def offset(self, line: int, column: int) -> int:
        """The offset of a line and a column, both counted from 1; the length of the text if there is no such
        position.
        """
        if not 0 < line <= len(self._lines.starts):
            return len(self.text)
        return min(self._lines.offset(line, column), len(self.text))

    def within(self, span: Span | None, text: str, start: int, end: int) -> Span | None:
        """The span of `text[start:end]` in the source, where `text` is the value of the scalar at `span`.

        The substring is searched in the source. If escapes or line folding hide it, the result is the span of
        the whole scalar.
        """
        if span is not None and span.path != self.source.path:
            for other in self._included:
                if other is not None and other.source.path == span.path:
                    return other.within(span, text, start, end)
        if span is None or span.path != self.source.path or not start < end:
            return span
        needle = text[start:end]
        before = text.count(needle, 0, start)
        last = self.offset(span.end_line, span.end_column)
        at = self.offset(span.line, span.column) - 1
        for _ in range(before + 1):
            at = self.text.find(needle, at + 1, last)
            if at < 0:
                return span
        return self.span_at(at, at + len(needle))

    def plain(self, node: Node) -> Any:
        """Convert a node to plain data: None, booleans, numbers, strings, lists, dicts."""
        if isinstance(node, Scalar):
            return node.value
        if isinstance(node, Sequence):
            return [self.plain(item) for item in node.items]
        return {key: self.plain(value) for key, (_, value) in node.entries.items()}

    def report(self, finding: Diagnostic) -> None:
        """Add a diagnostic. Raises `Refused` if the limit is reached."""
        if len(self.diagnostics) >= MAX_DIAGNOSTICS:
            message = f"there are more than {MAX_DIAGNOSTICS:,} diagnostics; the others are omitted"
            self.diagnostics.append(Diagnostic("too-many-findings", message, finding.span))
            raise Refused
        self.diagnostics.append(finding)

    def fail(
        self, id: DiagnosticId, message: str, span: Span | None, label: str = "", help: str | None = None
    ) -> None:
        self.report(Diagnostic(id, message, span, label, help))


def _shift(node: Node, offset: int, copies: dict[int, Node]) -> Node:
    """Copy a tree with all positions shifted by `offset`. The original is not changed, because a cache may
    hold it.

    copies: finished copies by the id of the original node; an alias is the same node object as its anchor.
    """
    copy = copies.get(id(node))
    if copy is not None:
        return copy
    if isinstance(node, Scalar):
        copy = Scalar(node.value, node.text, node.plain, node.start + offset, node.end + offset)
    else:
        copy = type(node)(node.start + offset)
        copy.end, copy.height, copy.weight = node.end + offset, node.height, node.weight
        if isinstance(node, Sequence):
            copy.items = [_shift(item, offset, copies) for item in node.items]  # type: ignore[union-attr]
        else:
            copy.entries = {  # type: ignore[union-attr]
                name: (_shift(key, offset, copies), _shift(value, offset, copies))
                for name, (key, value) in node.entries.items()
            }
    copies[id(node)] = copy
    return copy


class NodeSpans(Map[str, Span]):
    """Spans by key, computed on demand, because most are never used."""

    __slots__ = ("document", "nodes")

    def __init__(self, document: Document, nodes: dict[str, Node]) -> None:
        self.document = document
        self.nodes = nodes

    def __getitem__(self, name: str) -> Span:
        return self.document.span(self.nodes[name])

    def __contains__(self, name: object) -> bool:
        return name in self.nodes

    def __iter__(self) -> Iterator[str]:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)
