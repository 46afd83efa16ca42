"""An XML Schema (XSD 1.0) of task files, for editors; `task_file` reads them and has the last word.

Made from the declarations that the reader checks by. What one element says of another, such as that
`<command>` needs source="command", no such schema can tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring  # made here, nothing is read

from .atomic_task import CONTEXT_SETTINGS, FILE_SOURCES, HISTORY_SETTINGS, OUTPUTS, RUNNERS
from .signature import POLICIES, TYPE_NAMES
from .task_file import BLOCKS, FILE_TEXTS, INPUT_ATTRIBUTES, TASK_ATTRIBUTES, TEXTS

_XS = "http://www.w3.org/2001/XMLSchema"
_BOOLEANS = ("true", "false")
_DOCS = {
    "description": "What the task does.",
    "model": "The model that does it; absent: the project's.",
    "runner": "Who does it: a model, or an agent program.",
    "instructions": "What is asked, with {{name}} or {{name.field}} for inputs.",
    "system": "The system prompt, a template as the instructions are.",
    "criteria": "By what the result is judged, a template as well.",
    "inputs": "What a call gives.",
    "output_format": "Text, or JSON that fits a schema.",
    "file_paths": "Files that the task sees.",
    "context_management": "What it sees of tasks before it, and of memory.",
    "context_relevance": "Which inputs memory looks for.",
    "history_config": "What of the conversation it sees.",
}


def task_schema() -> str:
    """The schema as text."""
    schema = Element("xs:schema", {"xmlns:xs": _XS})
    task = _element(schema, "task", doc="A task for a model or an agent: .loops/tasks/NAME.xml.")
    kind = _add(task, "complexType")
    # Each at most once, in any order.
    parts = _add(kind, "all")
    for name in (*TEXTS, *BLOCKS):
        part = _element(parts, name, doc=_DOCS[name], least=int(name == "instructions"))
        if name in _BLOCKS:
            _BLOCKS[name](part)
        elif name == "runner":
            _choice(part, RUNNERS)
        else:
            part.set("type", "xs:string")
    choices = {"type": ("atomic",), "on_unknown": POLICIES}
    for name in TASK_ATTRIBUTES:
        _attribute(kind, name, choices.get(name), is_required=name in ("type", "name"))
    indent(schema)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(schema, encoding="unicode") + "\n"


# --- the parts of a task ------------------------------------------------------------------------


def _inputs(part: Element) -> None:
    row = _row(_add(_add(part, "complexType"), "sequence"), "input")
    kind = _add(row, "complexType", mixed="true")
    choices: dict[str, Sequence[str]] = {"type": TYPE_NAMES, "required": _BOOLEANS}
    for name in INPUT_ATTRIBUTES:
        _attribute(kind, name, choices.get(name), is_required=name == "name")


def _output(part: Element) -> None:
    kind = _add(part, "complexType", mixed="true")
    _attribute(kind, "type", OUTPUTS)
    _attribute(kind, "schema")
    _attribute(kind, "repair", _BOOLEANS)


def _files(part: Element) -> None:
    kind = _add(part, "complexType")
    choice = _add(kind, "choice")
    for source in FILE_SOURCES:
        row = _element(choice, FILE_TEXTS[source])
        row.set("type", "xs:string")
        if source == "literal":
            row.set("maxOccurs", "unbounded")
    _attribute(kind, "source", FILE_SOURCES)


def _relevance(part: Element) -> None:
    kind = _add(_row(_add(_add(part, "complexType"), "sequence"), "input"), "complexType")
    _attribute(kind, "name", is_required=True)
    _attribute(kind, "include", _BOOLEANS)


def _settings(known: dict[str, tuple[Any, ...]], part: Element) -> None:
    """As attributes, or as elements of their own."""
    kind = _add(part, "complexType")
    within = _add(kind, "all")
    for name, values in known.items():
        words = [str(value).lower() if isinstance(value, bool) else value for value in values]
        row = _element(within, name, least=0)
        if words:
            _choice(row, words)
        else:
            row.set("type", "xs:nonNegativeInteger")
        attribute = _attribute(kind, name, words)
        if not words:
            attribute.set("type", "xs:nonNegativeInteger")


_BLOCKS: dict[str, Callable[[Element], None]] = {
    "inputs": _inputs,
    "output_format": _output,
    "file_paths": _files,
    "context_management": lambda part: _settings(CONTEXT_SETTINGS, part),
    "context_relevance": _relevance,
    "history_config": lambda part: _settings(HISTORY_SETTINGS, part),
}


# --- pieces of a schema -------------------------------------------------------------------------


def _add(parent: Element, kind: str, /, **attributes: str) -> Element:
    return SubElement(parent, f"xs:{kind}", attributes)


def _element(parent: Element, name: str, *, doc: str = "", least: int = 1) -> Element:
    element = _add(parent, "element", name=name, **({} if least else {"minOccurs": "0"}))
    if doc:
        _add(_add(element, "annotation"), "documentation").text = doc
    return element


def _row(parent: Element, name: str) -> Element:
    """An element of which there may be any number."""
    row = _element(parent, name, least=0)
    row.set("maxOccurs", "unbounded")
    return row


def _attribute(
    kind: Element, name: str, choices: Sequence[str] | None = None, *, is_required: bool = False
) -> Element:
    attribute = _add(kind, "attribute", name=name, **({"use": "required"} if is_required else {}))
    if choices:
        _choice(attribute, choices)
    return attribute


def _choice(parent: Element, values: Iterable[str]) -> None:
    restriction = _add(_add(parent, "simpleType"), "restriction", base="xs:token")
    for value in values:
        _add(restriction, "enumeration", value=value)
