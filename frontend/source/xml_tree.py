"""XML parser: trees whose elements, attributes and texts have positions.

Document types are refused, so there are no entities and no external content. Depth and number of
elements are limited. Must not contain: the meaning of elements (`tasks/task_file.py`).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from xml.parsers.expat import ErrorString, ExpatError, ParserCreate

import attrs

from ...ir.diagnostics import Diagnostic, DiagnosticId
from ...ir.records import define
from ...ir.spans import Lines, Source, Span

MAX_DEPTH = 50
MAX_ELEMENTS = 10_000


@define(eq=False)
class Element:
    """An element. Its opening tag is at the offsets `start` to `end` of the source.

    chunks: positions of the pieces of the text, as (offset in the text, offset in the source).
    """

    tag: str
    start: int
    end: int
    attributes: dict[str, str]
    children: list[Element] = attrs.Factory(list)
    parts: list[str] = attrs.Factory(list)
    chunks: list[tuple[int, int]] = attrs.Factory(list)
    size: int = 0

    @property
    def text(self) -> str:
        """The text directly in the element, without that of its children."""
        return "".join(self.parts)


class Markup:
    """A parsed document: its root (None after a syntax error) and its diagnostics."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.text = source.text or ""
        self.lines = Lines(source)
        self.root: Element | None = None
        self.diagnostics: list[Diagnostic] = []

    def fail(
        self, id: DiagnosticId, message: str, span: Span | None, label: str = "", help: str | None = None
    ) -> None:
        self.diagnostics.append(Diagnostic(id, message, span, label, help))

    def span(self, element: Element) -> Span:
        """The span of the element's opening tag."""
        return self.lines.span(element.start, element.end)

    def attribute_span(self, element: Element, name: str) -> Span:
        """The span of an attribute with its value."""
        tag = self.text[element.start : element.end]
        found = re.search(rf"(?<=\s){re.escape(name)}\s*=\s*(\"[^\"]*\"|'[^']*')", tag)
        if found is None:
            return self.span(element)
        return self.lines.span(element.start + found.start(), element.start + found.end())

    def text_span(self, element: Element, start: int, end: int) -> Span:
        """The span of `element.text[start:end]`."""
        at = bisect_right(element.chunks, (start, len(self.text))) - 1
        if at < 0:
            return self.span(element)
        offset, place = element.chunks[at]
        place += start - offset
        return self.lines.span(place, min(place + end - start, len(self.text)))


def read_markup(source: Source) -> Markup:
    """Parse a source. Never raises for invalid XML; errors are in `diagnostics`."""
    markup = Markup(source)
    builder = _Builder(markup)
    try:
        builder.parser.Parse(markup.text, True)
        markup.root = builder.root
    except _Refused as refused:
        markup.diagnostics.append(refused.finding)
    except ExpatError as error:
        place = builder.offset(error.lineno, error.offset)
        span = markup.lines.span(place, min(place + 1, len(markup.text)))
        markup.fail("xml-syntax", f"invalid XML: {ErrorString(error.code)}", span, "here")
    except ValueError as error:
        markup.fail("xml-syntax", f"invalid XML: {error}", builder.here())
    return markup


class _Refused(Exception):
    def __init__(self, finding: Diagnostic) -> None:
        self.finding = finding
        super().__init__(finding.message)


class _Builder:
    def __init__(self, markup: Markup) -> None:
        self.markup = markup
        self.root: Element | None = None
        self.stack: list[Element] = []
        self.count = 0
        # `buffer_text` stays off: each piece of text is reported with its own position.
        self.parser = ParserCreate()
        self.parser.StartDoctypeDeclHandler = self.doctype
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = self.end
        self.parser.CharacterDataHandler = self.characters

    def offset(self, line: int, column: int) -> int:
        """The offset of a position of the parser: lines from 1, columns from 0."""
        starts = self.markup.lines.starts
        return min(starts[min(line, len(starts)) - 1] + column, len(self.markup.text))

    def place(self) -> int:
        return self.offset(self.parser.CurrentLineNumber, self.parser.CurrentColumnNumber)

    def here(self) -> Span:
        place = self.place()
        return self.markup.lines.span(place, min(place + 1, len(self.markup.text)))

    def doctype(self, *declared: object) -> None:
        """Refuse a document type: its entities can expand without bound or read files."""
        message = "a document type or an entity is not allowed in a task"
        help = "remove the `<!DOCTYPE …>`; write `&lt;` for `<` and `&amp;` for `&`"
        raise _Refused(Diagnostic("dangerous-xml", message, self.here(), "here", help))

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self.count += 1
        if len(self.stack) >= MAX_DEPTH:
            message = f"elements are nested more than {MAX_DEPTH} deep"
            raise _Refused(Diagnostic("too-deep", message, self.here()))
        if self.count > MAX_ELEMENTS:
            message = f"there are more than {MAX_ELEMENTS} elements"
            raise _Refused(Diagnostic("too-many-elements", message, self.here()))
        start = self.place()
        found = _TAG.match(self.markup.text, start)
        element = Element(name, start, found.end() if found else start + 1, attributes)
        if self.stack:
            self.stack[-1].children.append(element)
        else:
            self.root = element
        self.stack.append(element)

    def end(self, name: str) -> None:
        self.stack.pop()

    def characters(self, content: str) -> None:
        element = self.stack[-1]
        element.chunks.append((element.size, self.place()))
        element.parts.append(content)
        element.size += len(content)


_TAG = re.compile(r"<(?:[^<>\"']|\"[^\"]*\"|'[^']*')*>")
