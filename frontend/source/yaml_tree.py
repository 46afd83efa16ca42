"""YAML texts to trees whose nodes know where they stand.

Owns files, encodings, YAML's syntax and its scalars (YAML 1.2 core schema: `yes`, `no`, `on`, `off`
are text). Built without recursion from libyaml's events, because composing deep nesting overflows
the C stack. Must not be in here: what the keys mean.
"""

from __future__ import annotations

import os
import re
import stat
from bisect import bisect_right
from collections.abc import Iterator
from collections.abc import Mapping as Map
from typing import Any

from ...ir.diagnostics import CompileError, Diagnostic
from ...ir.spans import Source, Span

MAX_BYTES = 16 * 1024 * 1024
MAX_DEPTH = 100
MAX_DIRECTIVES = 100
# After so many findings nobody reads on, and a hostile file could make millions.
MAX_FINDINGS = 1000
# Nodes counted with aliases written out; a loop of 10,000 states has about 150,000.
MAX_NODES = 1_000_000


class Scalar:
    """A scalar: `value` as YAML 1.2 reads it, `text` as it was before that."""

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
    """A mapping: its entries in order, keys being text and distinct."""

    __slots__ = ("end", "entries", "height", "start", "weight")

    def __init__(self, start: int) -> None:
        self.entries: dict[str, tuple[Scalar, Node]] = {}
        self.start = start
        self.end = start
        self.height = 0
        self.weight = 1


Node = Scalar | Sequence | Mapping


class Refused(Exception):
    """Reading ended early; the document's diagnostics say why."""


class Document:
    """A YAML document: its tree, and positions in its text as spans.

    root: the tree; None where there was nothing to build one from.
    diagnostics: what was wrong with it as YAML.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.text = source.text or ""
        self.root: Node | None = None
        self.diagnostics: list[Diagnostic] = []
        self._starts = [0, *(match.end() for match in re.finditer("\n", self.text))]

    @property
    def sources(self) -> tuple[Source, ...]:
        """The texts that it is made of."""
        return (self.source,)

    def span_at(self, start: int, end: int) -> Span:
        """The span of the characters from `start` to `end`."""
        starts = self._starts
        line = bisect_right(starts, start)
        end_line = line if line == len(starts) or end < starts[line] else bisect_right(starts, end)
        return Span(
            self.source.path,
            line,
            start - starts[line - 1] + 1,
            end_line,
            end - starts[end_line - 1] + 1,
        )

    def span(self, node: Node) -> Span:
        return self.span_at(node.start, node.end)

    def offset(self, line: int, column: int) -> int:
        """The offset in the text of a place in a span."""
        if not 0 < line <= len(self._starts):
            return len(self.text)
        return min(self._starts[line - 1] + column - 1, len(self.text))

    def within(self, span: Span | None, text: str, start: int, end: int) -> Span | None:
        """The span of `text[start:end]`, `text` being what the scalar at `span` reads as.

        The same characters are looked for in the source; where escapes or line folding hide them,
        the whole scalar is the answer.
        """
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
        """The node as plain data: None, booleans, numbers, texts, lists, dicts."""
        if isinstance(node, Scalar):
            return node.value
        if isinstance(node, Sequence):
            return [self.plain(item) for item in node.items]
        return {key: self.plain(value) for key, (_, value) in node.entries.items()}

    def report(self, finding: Diagnostic) -> None:
        """Keep a finding; `Refused` when there are too many."""
        if len(self.diagnostics) >= MAX_FINDINGS:
            message = f"there are more than {MAX_FINDINGS:,} findings; the others are left out"
            self.diagnostics.append(Diagnostic("too-many-findings", message, finding.span))
            raise Refused
        self.diagnostics.append(finding)

    def fail(
        self, id: str, message: str, span: Span | None, label: str = "", help: str | None = None
    ) -> None:
        self.report(Diagnostic(id, message, span, label, help))


class Places(Map[str, Span]):
    """Spans by name, each made when it is asked for: most never are."""

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


# --- files ------------------------------------------------------------------------------------


def text_source(text: str, path: str = "<text>") -> Source:
    """A source made from a text that is already here."""
    from ...ir.digests import sha256

    digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return Source(path, digest, text)


def read_source(path: str) -> Source:
    """The text of a file; CompileError where it cannot be read, is too large or is not UTF-8."""
    try:
        # Without O_NONBLOCK, opening a pipe that nobody writes to would wait for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            mode = os.fstat(descriptor).st_mode
            if stat.S_ISDIR(mode) or stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
                raise OSError(0, "it is a folder" if stat.S_ISDIR(mode) else "it is a device")
            os.set_blocking(descriptor, True)
            with open(descriptor, "rb", closefd=False) as file:
                data = file.read(MAX_BYTES + 1)
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    if len(data) > MAX_BYTES:
        message = f"`{path}` is larger than {MAX_BYTES // (1024 * 1024)} MiB"
        raise CompileError([Diagnostic("file-too-large", message, Span(path, 1, 1, 1, 1))])
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        good = data[: error.start].decode("utf-8-sig", "replace")
        line = good.count("\n") + 1
        column = len(good) - (good.rfind("\n") + 1) + 1
        raise CompileError(
            [
                Diagnostic(
                    "not-utf-8",
                    f"byte 0x{data[error.start]:02x} is not UTF-8",
                    Span(path, line, column, line, column + 1),
                    help="save the file as UTF-8",
                )
            ],
            [Source(path, "", data.decode("utf-8-sig", "replace"))],
        ) from None
    return text_source(text, path)


def _unreadable(path: str, error: Exception) -> CompileError:
    if isinstance(error, FileNotFoundError):
        return CompileError([Diagnostic("file-not-found", f"no file `{path}`")])
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return CompileError([Diagnostic("unreadable-file", f"cannot read `{path}`: {reason.lower()}")])


# --- scalars ----------------------------------------------------------------------------------

_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
_NUMBER = re.compile(
    r"(?P<int>[-+]?[0-9]+)|0o(?P<octal>[0-7]+)|0x(?P<hex>[0-9a-fA-F]+)"
    r"|(?P<float>[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?)"
)
_MAX_DIGITS = 4000


def read_scalar(text: str) -> Any:
    """What a plain scalar means in YAML 1.2's core schema; ValueError for an overlong number."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    match = _NUMBER.fullmatch(text)
    if match is None:
        return text
    if len(text) > _MAX_DIGITS:
        raise ValueError("a number is too long")
    if match["int"] is not None:
        return int(text)
    if match["octal"] is not None:
        return int(match["octal"], 8)
    if match["hex"] is not None:
        return int(match["hex"], 16)
    return float(text)


_CORE = "tag:yaml.org,2002:"
_TAG_TYPES: dict[str, tuple[type, ...]] = {
    "null": (type(None),),
    "bool": (bool,),
    "int": (int,),
    "float": (float, int),
}


# --- trees ------------------------------------------------------------------------------------

# What a YAML stream may not contain at all (YAML 1.2, 5.1).
# Said by what is in it: naming what is allowed takes 3 ms to compile, a quarter of Python's own start.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufeff\ufffe\uffff]")


def read_document(source: Source) -> Document:
    """The document in a source. Never raises for bad YAML: `diagnostics` says what is wrong."""
    document = Document(source)
    bad = _FORBIDDEN.search(document.text)
    if bad is not None:
        code = f"U+{ord(bad[0]):04X}"
        document.fail(
            "control-character", f"character {code} cannot stand in YAML", document.span_at(*bad.span())
        )
        return document
    # libyaml compares each with all others; a loop needs none.
    if document.text.count("\n%TAG") > MAX_DIRECTIVES:
        place = document.span_at(0, 0)
        document.fail("too-many-directives", f"there are more than {MAX_DIRECTIVES} tag directives", place)
        return document
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _Builder(document).build(yaml.parse(document.text, Loader=loader))
    except Refused:
        document.root = None
    except yaml.MarkedYAMLError as error:
        document.root = None
        from .yaml_errors import report_syntax

        report_syntax(document, error)
    except yaml.YAMLError as error:
        document.root = None
        document.fail("yaml-syntax", str(error).partition("\n")[0], None)
    return document


class _Builder:
    """Events to nodes, with a stack of its own instead of Python's."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.stack: list[tuple[Sequence | Mapping, bool, str | None]] = []
        self.keys: list[Scalar | None] = []  # the key each open mapping waits to give a value
        self.anchors: dict[str, Node | None] = {}  # None while its node is still open
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
                            "a file holds one document",
                            (mark, event.end_mark.index),
                            "another one begins",
                        )
        if self.document.root is None:
            self.document.fail("empty-document", "there is nothing in it", self.document.span_at(0, 0))

    def refuse(
        self, id: str, message: str, place: tuple[int, int], label: str = "", help: str | None = None
    ) -> None:
        self.document.root = None
        self.document.fail(id, message, self.document.span_at(*place), label, help)
        raise Refused

    def fail(
        self, id: str, message: str, place: tuple[int, int], label: str = "", help: str | None = None
    ) -> None:
        self.document.fail(id, message, self.document.span_at(*place), label, help)

    def counted(self, nodes: int, place: tuple[int, int]) -> None:
        self.count += nodes
        if self.count > MAX_NODES:
            self.refuse(
                "too-many-nodes",
                f"the document has more than {MAX_NODES:,} values",
                place,
                "counted with what its aliases stand for",
            )

    def scalar(self, event: Any) -> Scalar:
        start, end = event.start_mark.index, event.end_mark.index
        text = event.value
        plain = event.style in ("", None)
        if event.style in ("|", ">"):
            end = start + len(self.document.text[start:end].rstrip())
        self.counted(1, (start, end))
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
        """The value of a scalar with a tag; ValueError as `read_scalar`."""
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
        self.fail("unknown-tag", f"tag `{tag[:60]}` means nothing here", place, help="leave the tag out")

    def open(self, node: Sequence | Mapping, event: Any) -> None:
        place = (event.start_mark.index, event.end_mark.index)
        self.counted(1, place)
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
        self.counted(node.weight, place)
        if len(self.stack) + node.height > MAX_DEPTH:
            self.refuse("too-deep", f"nested more than {MAX_DEPTH} deep", place)
        self.close(node, None, place[1])

    def close(self, node: Node, anchor: str | None, end: int | None = None) -> None:
        """Put a finished node where it belongs: into the innermost open one."""
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
            self.fail("key-not-text", "a key is a text", place, "this is a list or a mapping")
            return Scalar("", "", False, *place)
        if not isinstance(node.value, str):
            kind = (
                "null" if node.value is None else "a boolean" if node.value in (True, False) else "a number"
            )
            self.fail(
                "key-not-text",
                "a key is a text",
                place,
                f"this is {kind}",
                f'write it in quotes: "{node.text}"' if node.text else None,
            )
        return node

    def entry(self, parent: Mapping, key: Scalar, node: Node) -> None:
        if key.text not in parent.entries:
            parent.entries[key.text] = (key, node)
            return
        first = self.document.span(parent.entries[key.text][0])
        self.fail(
            "duplicate-key",
            f"`{key.text}` is given twice",
            (key.start, key.end),
            "given again",
            f"it was given before in line {first.line}",
        )
