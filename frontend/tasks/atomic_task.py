"""Data model of atomic tasks, written as XML (`task_file`) or as `defatom` (`expand/defatom.py`).

`definition` is the plain data that a program contains and a model runner reads. Owns templates
(`{{name}}`) and schemas of outputs, because both are checked at compile time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import attrs

from ...ir.diagnostics import suggest
from ...ir.python_internals import late_pattern
from ...ir.records import frozen
from ...ir.spans import Source, Span
from .signature import Parameter, Signature

SUBTYPE = "standard"
OUTPUTS = ("text", "json")
FILE_SOURCES = ("literal", "command", "description", "context_description")
# Settings of a task's context and of its history, with the allowed values; an empty tuple: a count.
CONTEXT_SETTINGS: dict[str, tuple[Any, ...]] = {
    "inherit_context": ("full", "none", "subset"),
    "accumulate_data": (True, False),
    "accumulation_format": ("full_output", "notes_only"),
    "fresh_context": ("enabled", "disabled"),
}
HISTORY_SETTINGS: dict[str, tuple[Any, ...]] = {
    "use_session_history": (True, False),
    "history_turns_to_include": (),
    "record_in_session_history": (True, False),
}
MAX_SCHEMA_DEPTH = 50
MAX_UNKNOWN = 20
_PLACEHOLDER = late_pattern(r"\{\{\s*([^\W\d][\w-]*)((?:\.[\w-]+)*)\s*\}\}")
_TYPES = ("object", "array", "string", "number", "integer", "boolean")


@frozen
class OutputFormat:
    """Output of a task: text, or JSON that conforms to a schema (None: any JSON).

    repair: repeat the request once after a reply that does not conform.
    """

    type: str = "text"
    schema: dict[str, Any] | None = None
    repair: bool = False


@frozen
class FilePaths:
    """Files that a task sees.

    source: `literal` (fixed `paths`), `command` (the paths that a command prints), or a description for which
        memory finds files.
    text: the command or the description.
    pieces: the command split into texts and quoted inputs.
    """

    source: str = "literal"
    paths: tuple[str, ...] = ()
    text: str = ""
    pieces: tuple[Any, ...] = ()


@frozen
class AtomicTask:
    """A task that a model performs in one step. `instructions` and `system` are templates.

    runner: `model` or `agent`; '' for the project's default. on_unknown: policy of a resumed run for a task
    in doubt; '' for the default.
    """

    name: str
    instructions: str
    inputs: tuple[Parameter, ...] = ()
    subtype: str = SUBTYPE
    description: str = ""
    model: str = ""
    system: str = ""
    output: OutputFormat = OutputFormat()
    files: FilePaths | None = None
    context: dict[str, Any] = attrs.Factory(dict)
    context_relevance: dict[str, bool] = attrs.Factory(dict)
    history: dict[str, Any] = attrs.Factory(dict)
    criteria: str = ""
    runner: str = ""
    on_unknown: str = ""

    def definition(self) -> dict[str, Any]:
        """The task as plain data, without default values."""
        data: dict[str, Any] = {
            "type": "atomic",
            "subtype": self.subtype,
            "description": self.description,
            "model": self.model,
            "system": self.system,
            "instructions": self.instructions,
            "inputs": [parameter.as_data() for parameter in self.inputs],
            "output_format": {
                "type": self.output.type,
                **({} if self.output.schema is None else {"schema": self.output.schema}),
                **({"repair": True} if self.output.repair else {}),
            },
            "context_management": self.context,
            "context_relevance": self.context_relevance,
            "history_config": self.history,
            "criteria": self.criteria,
            "runner": self.runner,
        }
        if self.files is not None:
            data["file_paths"] = {
                "source": self.files.source,
                **({"paths": list(self.files.paths)} if self.files.paths else {}),
                **({"text": self.files.text} if self.files.text else {}),
                **({"shell": list(self.files.pieces)} if self.files.pieces else {}),
            }
        return {name: value for name, value in data.items() if value not in ("", {}, [], None)}

    def signature(self, source: Source | None, span: Span | None) -> Signature:
        return Signature(
            self.name,
            "task",
            self.inputs,
            "task",
            self.definition(),
            self.description,
            on_unknown=self.on_unknown or None,
            source=source,
            span=span,
        )


# --- templates --------------------------------------------------------------------------------


@frozen
class Placeholder:
    """A `{{name}}` or `{{name.field}}` between two offsets of a text."""

    name: str
    fields: tuple[str, ...]
    start: int
    end: int


def placeholders(text: str) -> Iterator[Placeholder]:
    """The placeholders of a template, in order. `{{…}}` around anything but a name is text."""
    for found in _PLACEHOLDER.finditer(text):
        yield Placeholder(found[1], tuple(found[2].split(".")[1:]), *found.span())


def unknown_placeholders(text: str, inputs: tuple[Parameter, ...]) -> list[Placeholder]:
    """The placeholders that are not inputs, each at its first occurrence; at most `MAX_UNKNOWN`."""
    known = {parameter.name for parameter in inputs}
    unknown: dict[str, Placeholder] = {}
    for place in placeholders(text):
        if place.name not in known and place.name not in unknown:
            unknown[place.name] = place
            if len(unknown) == MAX_UNKNOWN:
                break
    return list(unknown.values())


def explain_placeholder(name: str, inputs: tuple[Parameter, ...]) -> str:
    """Help for a placeholder that is not an input."""
    names = [parameter.name for parameter in inputs]
    return suggest(name, names, "its inputs are") or "the task has no inputs"


# --- schemas ----------------------------------------------------------------------------------


def read_schema(text: str) -> dict[str, Any]:
    """Read a JSON Schema. Raises ValueError with the reason for an invalid text.

    The text is JSON, the name of a result class such as `StructuredAnalysisResult`, or a type: `object`,
    `string[]`.
    """
    text = text.strip()
    if text.startswith("{"):
        return _check_schema(text)
    word = text.removesuffix("[]")
    if word in _TYPES or (word in ("any", "") and text != word):
        item = {"type": word} if word in _TYPES else {}
        return {"type": "array", "items": item} if text != word else item
    from ...ir.results import CLASSES, json_schema

    name = text.rpartition(".")[2]  # `module.Name`, the Python notation of a class
    if name in CLASSES:
        return json_schema(CLASSES[name])
    help = suggest(text[:100], [*CLASSES, *_TYPES], "write JSON, or one of")
    raise ValueError(f"`{text[:80]}` is not a schema; {help}")


def _check_schema(text: str) -> dict[str, Any]:
    try:
        schema = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"it is not JSON: {error}") from None
    if _depth_exceeds(schema, MAX_SCHEMA_DEPTH):
        raise ValueError(f"it is nested more than {MAX_SCHEMA_DEPTH} deep")
    import jsonschema  # type: ignore[import-untyped, unused-ignore]

    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError as error:
        place = "/".join(map(str, error.absolute_path))
        raise ValueError(
            f"it is not a JSON Schema: {error.message[:200]}" + (f" (at {place})" if place else "")
        ) from None
    if not isinstance(schema, dict):
        raise ValueError("it is not a JSON Schema: an object is expected")
    return schema


def _depth_exceeds(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        level = [
            child
            for item in level
            if isinstance(item, dict | list)
            for child in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return False
    return True


# --- settings ---------------------------------------------------------------------------------


def check_setting(settings: dict[str, tuple[Any, ...]], name: str, value: Any) -> str | None:
    """The error of a setting; None if it is valid."""
    if name not in settings:
        return f"there is no setting `{name[:80]}`; {suggest(name, settings, 'there are')}"
    choices = settings[name]
    if not choices:
        is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 0
        return None if is_count else f"`{name}` must be a whole number, 0 or more"
    if any(value is choice or (isinstance(choice, str) and value == choice) for choice in choices):
        return None
    shown = " or ".join(str(choice).lower() if isinstance(choice, bool) else choice for choice in choices)
    return f"`{name}` must be {shown}"
