"""Reader of `.loops/tasks/*.xml`: atomic tasks to signatures.

    <task type="atomic" name="user:summarise" subtype="standard">
      <description>Summarise a file.</description>
      <inputs><input name="text"/><input name="style" from="style" required="false"/></inputs>
      <instructions>Summarise this in a {{style}} way: {{text}}</instructions>
      <output_format type="json" schema="object"/>
    </task>

Every error is reported with its position.
"""

from __future__ import annotations

import json
from typing import Any

from ...ir.diagnostics import Diagnostic, DiagnosticId, suggest
from ...ir.effects import ON_UNKNOWN, RUNNERS
from ...ir.spans import Source
from ..shell.contexts import quoting_contexts
from ..shell.expansions import HOLE
from ..source.xml_tree import Element, Markup, read_markup
from .atomic_task import (
    CONTEXT_SETTINGS,
    FILE_SOURCES,
    HISTORY_SETTINGS,
    OUTPUTS,
    SUBTYPE,
    AtomicTask,
    FilePaths,
    OutputFormat,
    check_setting,
    explain_placeholder,
    placeholders,
    read_schema,
    unknown_placeholders,
)
from .names import is_parameter_name, name_problem
from .signature import MAX_PARAMETERS, TYPES, Parameter, Signature, fits, parse_type

TEXTS = ("description", "model", "runner", "instructions", "system", "criteria")
BLOCKS = (
    "inputs",
    "output_format",
    "file_paths",
    "context_management",
    "context_relevance",
    "history_config",
)
TASK_ATTRIBUTES = ("type", "name", "subtype", "on_unknown")
INPUT_ATTRIBUTES = ("name", "from", "type", "required", "default", "description")
# The element that lists the files, by source of files.
FILE_TEXTS = {
    "literal": "path",
    "command": "command",
    "description": "description",
    "context_description": "context_query",
}


def read_task(source: Source) -> tuple[Signature | None, list[Diagnostic]]:
    """Read the task of a file. The signature is None if there are errors."""
    markup = read_markup(source)
    if markup.root is None:
        if not markup.diagnostics:
            markup.fail("empty-document", "the document is empty", markup.lines.span(0, 0))
        return None, markup.diagnostics
    task = _Reader(markup).task(markup.root)
    if task is None or any(found.is_error for found in markup.diagnostics):
        return None, markup.diagnostics
    return task.signature(source, markup.span(markup.root)), markup.diagnostics


class _Reader:
    def __init__(self, markup: Markup) -> None:
        self.markup = markup

    # --- findings and their places ------------------------------------------------------------

    def fail(
        self, id: DiagnosticId, message: str, element: Element, attribute: str = "", help: str | None = None
    ) -> None:
        markup = self.markup
        span = markup.attribute_span(element, attribute) if attribute else markup.span(element)
        markup.fail(id, message, span, help=help)

    def children(self, element: Element, known: tuple[str, ...], *, repeats: bool = False) -> list[Element]:
        found: list[Element] = []
        for child in element.children:
            if child.tag not in known:
                help = suggest(child.tag, known, f"`{element.tag}` may have") or f"`{element.tag}` has none"
                self.fail(
                    "unknown-element", f"`{element.tag}` has no element `{child.tag[:80]}`", child, help=help
                )
            elif not repeats and any(other.tag == child.tag for other in found):
                self.fail("repeated-element", f"`{child.tag}` is given twice", child)
            else:
                found.append(child)
        return found

    def attributes(self, element: Element, known: tuple[str, ...]) -> dict[str, str]:
        for name in element.attributes:
            if name not in known:
                help = suggest(name, known, f"`{element.tag}` may have") or "it has none"
                self.fail(
                    "unknown-attribute",
                    f"`{element.tag}` has no attribute `{name[:80]}`",
                    element,
                    name,
                    help=help,
                )
        return {name: value for name, value in element.attributes.items() if name in known}

    def no_text(self, element: Element) -> None:
        text = element.text.strip()
        if text:
            start = element.text.index(text[0])
            span = self.markup.text_span(element, start, start + 1)
            self.markup.fail("stray-text", f"text is not allowed directly in `{element.tag}`", span, "here")

    def text(self, element: Element) -> str:
        self.children(element, ())
        self.attributes(element, ())
        return _stripped(element.text)

    def choice(self, element: Element, name: str, value: str, choices: tuple[str, ...]) -> bool:
        if value in choices:
            return True
        help = suggest(value, choices, "it is one of")
        self.fail("unknown-choice", f"`{name}` cannot be `{value[:80]}`", element, name, help)
        return False

    # --- the task -----------------------------------------------------------------------------

    def task(self, root: Element) -> AtomicTask | None:
        if root.tag != "task":
            self.fail(
                "not-a-task",
                f"the root element should be `task`, not `{root.tag[:80]}`",
                root,
                help="<task …>",
            )
            return None
        given = self.attributes(root, TASK_ATTRIBUTES)
        self.no_text(root)
        kind = given.get("type")
        if kind != "atomic":
            what = "a task needs `type`" if kind is None else f"unknown task type `{kind[:80]}`"
            help = 'write type="atomic"; write a combination of tasks as a flow'
            self.fail("unknown-choice", what, root, "type" if kind is not None else "", help)
        name = given.get("name", "")
        if "name" not in given:
            self.fail("missing-attribute", "a task needs a `name`", root)
        elif (why := name_problem(name)) is not None:
            self.fail("bad-name", f"a task cannot be called `{name[:100]}`: {why}", root, "name")
        policy = given.get("on_unknown", "")
        if "on_unknown" in given:
            self.choice(root, "on_unknown", policy, ON_UNKNOWN)
        parts = {child.tag: child for child in self.children(root, (*TEXTS, *BLOCKS))}
        texts = {tag: self.text(parts[tag]) for tag in TEXTS if tag in parts}
        if not texts.get("instructions"):
            where = parts.get("instructions", root)
            self.fail("missing-element", "a task needs `instructions`", where)
        inputs = self.inputs(parts["inputs"]) if "inputs" in parts else ()
        for tag in ("instructions", "system", "criteria"):
            if tag in parts:
                self.check_names(parts[tag], inputs)
        return AtomicTask(
            name,
            texts.get("instructions", ""),
            inputs,
            given.get("subtype", SUBTYPE),
            texts.get("description", ""),
            texts.get("model", ""),
            texts.get("system", ""),
            self.output(parts["output_format"]) if "output_format" in parts else OutputFormat(),
            self.files(parts["file_paths"], inputs) if "file_paths" in parts else None,
            self.settings(parts.get("context_management"), CONTEXT_SETTINGS),
            self.relevance(parts.get("context_relevance"), inputs),
            self.settings(parts.get("history_config"), HISTORY_SETTINGS),
            texts.get("criteria", ""),
            self.runner(parts["runner"], texts["runner"]) if "runner" in parts else "",
            policy,
        )

    def runner(self, element: Element, text: str) -> str:
        if text in RUNNERS:
            return text
        help = suggest(text, RUNNERS, "it is one of")
        self.fail("unknown-choice", f"`runner` cannot be `{text[:80]}`", element, help=help)
        return ""

    def check_names(self, element: Element, inputs: tuple[Parameter, ...]) -> None:
        for place in unknown_placeholders(element.text, inputs):
            span = self.markup.text_span(element, place.start, place.end)
            message = f"`{{{{{place.name[:80]}}}}}` is not an input of the task"
            help = explain_placeholder(place.name, inputs)
            self.markup.fail("unknown-placeholder", message, span, "here", help)

    # --- its parts ----------------------------------------------------------------------------

    def inputs(self, element: Element) -> tuple[Parameter, ...]:
        self.attributes(element, ())
        self.no_text(element)
        found: dict[str, Parameter] = {}
        rows = self.children(element, ("input",), repeats=True)
        if len(rows) > MAX_PARAMETERS:
            self.fail("too-many-parameters", f"there are more than {MAX_PARAMETERS} inputs", element)
            return ()
        for row in rows:
            given = self.attributes(row, INPUT_ATTRIBUTES)
            self.children(row, ())
            name = given.get("name", "")
            if "name" not in given:
                self.fail("missing-attribute", "an input needs a `name`", row)
            elif not is_parameter_name(name):
                self.fail("bad-name", f"an input cannot be called `{name[:100]}`", row, "name")
            elif name in found:
                self.fail("repeated-parameter", f"the input `{name}` occurs twice", row, "name")
            else:
                found[name] = self.input(row, name, given)
        return tuple(found.values())

    def input(self, row: Element, name: str, given: dict[str, str]) -> Parameter:
        type = parse_type(given.get("type", "any"))
        if type is None:
            help = suggest(given["type"], TYPES, "types are")
            self.fail("unknown-type", f"there is no type `{given['type'][:80]}`", row, "type", help)
            type = "any"
        required = self.flag(row, "required", given.get("required"))
        default = self.default(row, type, given["default"]) if "default" in given else None
        if required and "default" in given:
            self.fail(
                "contradictory-keys", f"`{name}` is required, so its default is never used", row, "default"
            )
        doc = given.get("description", "") or _stripped(row.text)
        is_required = "default" not in given if required is None else required
        return Parameter(name, type, is_required, default, doc, given.get("from", ""))

    def default(self, row: Element, type: str, text: str) -> Any:
        """Read a default value: a text, or JSON if the type is not a text."""
        value: Any = text
        if type not in ("string", "any"):
            try:
                value = json.loads(text)
            except (ValueError, RecursionError):
                value = None
            if not fits(value, type):
                self.fail("wrong-type", f"the default must be {TYPES[type]}", row, "default")
                return None
        return value

    def flag(self, element: Element, name: str, text: str | None) -> bool | None:
        if text in ("true", "false", None):
            return None if text is None else text == "true"
        self.fail("wrong-type", f"`{name}` must be true or false", element, name)
        return None

    def output(self, element: Element) -> OutputFormat:
        given = self.attributes(element, ("type", "schema", "repair"))
        self.children(element, ())
        type = given.get("type", "text")
        repair = self.flag(element, "repair", given.get("repair")) is True
        if repair and type != "json":
            self.fail("contradictory-keys", "`repair` needs an output of type json", element, "repair")
        self.choice(element, "type", type, OUTPUTS)
        inner = _stripped(element.text)
        text = given.get("schema", inner)
        if not text:
            return OutputFormat(type, None, repair)
        if inner and "schema" in given:
            self.fail("contradictory-keys", "the schema is given twice", element, "schema")
        if type != "json":
            help = 'write type="json"'
            self.fail("contradictory-keys", "a schema needs an output of type json", element, "", help)
        try:
            return OutputFormat(type, read_schema(text), repair)
        except ValueError as error:
            self.fail("bad-schema", f"the schema is invalid: {error}", element, "schema" if not inner else "")
            return OutputFormat(type)

    def files(self, element: Element, inputs: tuple[Parameter, ...]) -> FilePaths:
        given = self.attributes(element, ("source",))
        self.no_text(element)
        source = given.get("source", "literal")
        self.choice(element, "source", source, FILE_SOURCES)
        wanted = FILE_TEXTS.get(source, "path")
        rows = self.children(element, (wanted,), repeats=wanted == "path")
        values = [self.text(row) for row in rows]
        for row in rows:
            self.check_names(row, inputs)
        if not values or not all(values):
            what = f'`file_paths` with source="{source}" needs `<{wanted}>`'
            self.fail("missing-element", what, element)
            return FilePaths(source)
        if wanted == "path":
            return FilePaths(source, tuple(values))
        pieces = self.pieces(rows[0], values[0]) if source == "command" else ()
        return FilePaths(source, (), values[0], pieces)

    def pieces(self, element: Element, command: str) -> tuple[Any, ...]:
        """Split a command at its inputs; each input gets the quoting of its context."""
        pieces: list[Any] = []
        at = 0
        for place in placeholders(command):
            pieces += [command[at : place.start], {"of": ".".join((place.name, *place.fields))}]
            at = place.end
        pieces.append(command[at:])
        values = [piece for piece in pieces if isinstance(piece, dict)]
        text = "".join(piece if isinstance(piece, str) else HOLE for piece in pieces)
        for piece, found in zip(values, quoting_contexts(text, (True,) * len(values)), strict=True):
            piece["quoting"] = found.quoting or "word"
            if found.around:
                piece["around"] = list(found.around)
            if found.hazard is not None and found.quoting != "comment":
                name = f"{{{{{piece['of']}}}}}"
                help = found.hazard.help.replace("@", name)
                self.fail(found.hazard.id, f"`{name}` {found.hazard.message}", element, help=help)
        return tuple(piece for piece in pieces if piece) if values else ()

    def settings(self, element: Element | None, known: dict[str, tuple[Any, ...]]) -> dict[str, Any]:
        """Read settings, given as attributes or as child elements."""
        if element is None:
            return {}
        self.no_text(element)
        given: dict[str, Any] = {}
        texts = [(name, text, element, name) for name, text in element.attributes.items()]
        texts += [(child.tag, self.text(child), child, "") for child in element.children]
        for name, text, place, attribute in texts:
            value: Any = {"true": True, "false": False}.get(text, text)
            if not known.get(name, (True,)) and text.isascii() and text.isdigit() and len(text) < 10:
                value = int(text)
            problem = check_setting(known, name, value)
            if problem is not None:
                self.fail("unknown-setting", problem, place, attribute)
            elif name in given:
                self.fail("repeated-element", f"`{name}` is given twice", place, attribute)
            else:
                given[name] = value
        return given

    def relevance(self, element: Element | None, inputs: tuple[Parameter, ...]) -> dict[str, bool]:
        if element is None:
            return {}
        self.attributes(element, ())
        self.no_text(element)
        found: dict[str, bool] = {}
        names = [parameter.name for parameter in inputs]
        for row in self.children(element, ("input",), repeats=True):
            given = self.attributes(row, ("name", "include"))
            name = given.get("name", "")
            if name not in names:
                help = suggest(name, names, "its inputs are") or "the task has no inputs"
                self.fail(
                    "unknown-placeholder", f"`{name[:80]}` is not an input of the task", row, "name", help
                )
            else:
                found[name] = self.flag(row, "include", given.get("include")) is not False
        return found


def _stripped(text: str) -> str:
    """A text without surrounding line breaks and without the indentation that all its lines share."""
    from textwrap import dedent

    return dedent(text.strip("\n")).strip() if "\n" in text.strip("\n") else text.strip()
