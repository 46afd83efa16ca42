"""Single values of a document: texts, numbers, plain data, and what is said where one is another.

What is in blocks, lists and maps is `structure`'s to read.
"""

from __future__ import annotations

import math
from typing import Any

from ...ir.diagnostics import Diagnostic
from ...ir.spans import Span
from ..loop.schema import Type
from .yaml_tree import Document, Mapping, Node, Scalar, Sequence, read_scalar


class Bad:
    """Stands for a value that was reported and cannot be used."""


BAD = Bad()

_KINDS = {
    "text": "a text",
    "template": "a text",
    "target": "the name of a state",
    "action": "a text",
    "named": "a name or a mapping",
    "integer": "a whole number",
    "number": "a number",
    "measure": "a number or a template",
    "boolean": "true or false",
    "choice": "a word",
    "list": "a list",
    "map": "a mapping",
    "arguments": "a list or a mapping",
    "spec": "a mapping",
}


def describe(node: Node) -> str:
    """What a person wrote, in a word or two."""
    if isinstance(node, Sequence):
        return "this is a list"
    if isinstance(node, Mapping):
        return "this is a mapping"
    if node.value is None:
        return "this is null" if node.text else "nothing is here"
    if isinstance(node.value, bool):
        return "this is a boolean"
    return "this is a text" if isinstance(node.value, str) else "this is a number"


def _read_number(text: str) -> int | float | None:
    """The number a quoted text holds, or None."""
    try:
        value = read_scalar(text.strip())
    except ValueError:
        return None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


class ValueReader:
    """Reads values of one document, to which findings are reported."""

    def __init__(self, document: Document) -> None:
        self.document = document

    def error(
        self, id: str, message: str, span: Span | None, label: str = "", help: str | None = None
    ) -> Bad:
        self.document.report(Diagnostic(id, message, span, label, help))
        return BAD

    def warn(
        self, id: str, message: str, span: Span | None, label: str = "", help: str | None = None
    ) -> None:
        self.document.report(Diagnostic(id, message, span, label, help, "warning"))

    def wrong(self, type: Type, node: Node, path: str, help: str | None = None) -> Bad:
        message = f"`{path}` should be {_KINDS[type.kind]}"
        return self.error("wrong-type", message, self.document.span(node), describe(node), help)

    def text(self, type: Type, node: Node, path: str) -> Any:
        if not isinstance(node, Scalar):
            return self.wrong(type, node, path)
        if not isinstance(node.value, str):
            return self.wrong(type, node, path, f'write it in quotes: "{node.text}"' if node.text else None)
        if type.least and not node.value.strip():
            return self.error(
                "empty-text", f"`{path}` is empty", self.document.span(node), "nothing is in it"
            )
        return node.value

    def number(self, type: Type, node: Node, path: str) -> Any:
        if not isinstance(node, Scalar):
            return self.wrong(type, node, path)
        value = node.value
        if isinstance(value, str):
            if type.kind == "measure" and "${" in value:
                return value
            number = _read_number(value)
            if number is None or type.kind != "measure":
                return self.wrong(type, node, path, "write it without quotes" if number is not None else None)
            value = number
        if value is None or isinstance(value, bool):
            return self.wrong(type, node, path)
        place = self.document.span(node)
        if isinstance(value, float) and not math.isfinite(value):
            return self.error("out-of-range", f"`{path}` should be finite", place)
        if type.kind == "integer":
            if value != int(value):
                return self.wrong(type, node, path)
            value = int(value)
        bounds = (
            (type.least is not None and value < type.least, "at least", type.least),
            (type.above is not None and value <= type.above, "more than", type.above),
            (type.most is not None and value > type.most, "at most", type.most),
        )
        for outside, words, bound in bounds:
            if outside:
                return self.error("out-of-range", f"`{path}` should be {words} {bound:,.15g}", place)
        return value

    def json(self, node: Node, path: str) -> Any:
        """Plain data; a number that JSON cannot write is refused."""
        if isinstance(node, Scalar):
            if isinstance(node.value, float) and not math.isfinite(node.value):
                return self.error("out-of-range", f"`{path}` should be finite", self.document.span(node))
            return node.value
        items = (
            [(str(i), item) for i, item in enumerate(node.items)]
            if isinstance(node, Sequence)
            else [(key, item) for key, (_, item) in node.entries.items()]
        )
        values = {key: self.json(item, f"{path}.{key}") for key, item in items}
        if any(value is BAD for value in values.values()):
            return BAD
        return list(values.values()) if isinstance(node, Sequence) else values
