"""Result classes: the maps that tasks, tools and loops exchange, such as TaskResult.

Each class declares its fields once. `structure` and `unstructure` convert between objects and values of
programs, `json_schema` makes the JSON Schema. If the seeds spell a field differently from Python, the
field's `name` has their spelling. `cattrs` is imported only when a value is converted, for a fast start.
"""

from __future__ import annotations

import types
import typing
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import attrs

from .records import frozen

if TYPE_CHECKING:
    import cattrs

T = TypeVar("T")


def field(doc: str, *, name: str | None = None, default: Any = attrs.NOTHING, factory: Any = None) -> Any:
    metadata = {"doc": doc, "name": name}
    if factory is not None:
        return attrs.field(factory=factory, metadata=metadata)
    return attrs.field(default=default, metadata=metadata)


@frozen
class TaskError:
    """Why a task failed."""

    type: str = field("TASK_FAILURE, or another type of failure.")
    reason: str = field("The reason: `output_format_failure`, `input_validation_failure`, …")
    message: str = field("Message for people.")
    details: dict[str, Any] = field("Further facts.", factory=dict)


@frozen
class TaskResult:
    """The outcome of a task. With the status FAILED it has `notes.error`, a TaskError."""

    status: Literal["COMPLETE", "CONTINUATION", "FAILED"] = field("The status of the task.")
    content: Any = field("The output, usually a text.", default="")
    parsed_content: Any = field("The content as data.", name="parsedContent", default=None)
    criteria: str | None = field("Criteria for judging the result.", default=None)
    notes: dict[str, Any] = field("Further facts; `error` after a failure.", factory=dict)


@frozen
class ValidationResult:
    """The result of a command that checks something."""

    stdout: str = field("Standard output of the command.")
    stderr: str = field("Standard error of the command.")
    exit_code: int = field("The exit code.")
    error: str | None = field("Why the command could not be started or completed.", default=None)


@frozen
class StructuredAnalysisResult:
    """A model's analysis of an iteration."""

    success: bool = field("Whether the goal of the iteration was met.")
    analysis: str = field("The outcome of the iteration.")
    next_input: str | None = field("The next input for the executor; required without success.", default=None)
    new_files: list[str] | None = field("Files to look at in the next iteration.", default=None)

    def __attrs_post_init__(self) -> None:
        if not self.success and self.next_input is None:
            raise ValueError("`next_input` is required if `success` is false")


@frozen
class DevelopmentPlan:
    """The plan of a director for the next step."""

    instructions: str = field("The instructions for the executor.")
    files: list[str] = field("The files that the plan concerns.", factory=list)
    test_command: str | None = field("The command that checks the result.", default=None)


@frozen
class FeedbackResult:
    """An evaluator's judgement of a step."""

    status: Literal["GOOD", "REVISE", "ABORT"] = field(
        "Whether the result is good, must be revised, or the work should be aborted."
    )
    explanation: str = field("The reason for the status.")
    next_prompt: str | None = field("The next instructions; required for REVISE.", default=None)

    def __attrs_post_init__(self) -> None:
        if self.status == "REVISE" and self.next_prompt is None:
            raise ValueError("`next_prompt` is required if `status` is REVISE")


@frozen
class ControllerDecision:
    """The decision of a controller; as a value of a program `(continue value)` or `(stop value)`."""

    decision: Literal["continue", "stop"] = field("Whether the loop continues.")
    value: Any = field("The next input, or the value of the loop.", default=None)


@frozen
class SubtaskRequest:
    """A request to perform a task: its name and its inputs."""

    name: str = field("The task's name.")
    inputs: dict[str, Any] = field("The inputs by name.", factory=dict)
    description: str | None = field("A description of the task.", default=None)
    files: list[str] | None = field("Paths of files for the prompt.", default=None)
    context: dict[str, Any] | None = field("Context settings.", default=None)
    history_config: dict[str, Any] | None = field("Settings of the conversation history.", default=None)


@frozen
class ContextGenerationInput:
    """A query for relevant files."""

    query: str | None = field("The subject of the query.", default=None)
    history: str | None = field("The conversation so far.", default=None)
    inputs: dict[str, Any] | None = field("The inputs of the task that needs the files.", default=None)
    matching_strategy: Literal["content", "metadata"] | None = field(
        "Whether contents or names and descriptions of files are searched.", default=None
    )
    template_description: str | None = field("The description of the task.", default=None)
    template_type: str | None = field("The task's type.", default=None)
    template_subtype: str | None = field("The task's subtype.", default=None)
    template_name: str | None = field("The task's name.", default=None)
    context_relevance: dict[str, Any] | None = field(
        "Which inputs are part of the query: name to true or false.", default=None
    )
    inherited_context: str | None = field("The context of the caller.", default=None)
    previous_outputs: str | None = field("Outputs of earlier tasks.", default=None)
    fresh_context: Literal["enabled", "disabled"] | None = field(
        "`disabled`: there is no search.", default=None
    )


@frozen
class Match:
    """A matching file."""

    path: str = field("The path of the file.")
    relevance: float | None = field("The relevance, from 0 to 1.", default=None)
    excerpt: str | None = field("The matching text.", default=None)


@frozen
class AssociativeMatchResult:
    """Matching files, best first."""

    context_summary: str = field("Why the files are relevant.")
    matches: list[Match] = field("The matching files.", factory=list)
    error: str | None = field("Why there is no result.", default=None)


CLASSES: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        TaskResult, TaskError, ValidationResult, StructuredAnalysisResult, DevelopmentPlan,
        FeedbackResult, ControllerDecision,
        SubtaskRequest, ContextGenerationInput, Match, AssociativeMatchResult,
    )
}  # fmt: skip


# --- from and to the values of programs -------------------------------------------------------


def _name(attribute: Any) -> str:
    name: str = attribute.metadata.get("name") or attribute.name
    return name


@cache
def _converter() -> cattrs.Converter:
    import cattrs
    from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

    converter = cattrs.Converter(forbid_extra_keys=True, detailed_validation=False)
    # No conversions: a number is not a text.
    for scalar in (str, int, bool, float):
        converter.register_structure_hook(scalar, _checked)
    for cls in CLASSES.values():
        renamed: dict[str, Any] = {
            attribute.name: override(rename=_name(attribute)) for attribute in attrs.fields(cls)
        }
        structure: Any = make_dict_structure_fn(
            cls, converter, _cattrs_forbid_extra_keys=True, _cattrs_detailed_validation=False, **renamed
        )
        converter.register_structure_hook(cls, structure)
        converter.register_unstructure_hook(cls, make_dict_unstructure_fn(cls, converter, **renamed))
    return converter


def _checked(value: Any, type: type) -> Any:
    is_number = type is float and isinstance(value, int) and not isinstance(value, bool)
    if not (isinstance(value, type) or is_number) or (isinstance(value, bool) and type is not bool):
        raise ValueError(f"expected {_TYPE_NOUNS[type]}, not {value!r:.80}")
    return value


_TYPE_NOUNS: dict[type, str] = {
    str: "a text",
    int: "a whole number",
    bool: "true or false",
    float: "a number",
}


def structure(cls: type[T], value: Any) -> T:
    """Convert plain data to an object of `cls`. Raises ValueError with one sentence."""
    import cattrs

    try:
        return _converter().structure(value, cls)
    except cattrs.errors.ForbiddenExtraKeysError as error:
        extra = ", ".join(f"`{name}`" for name in sorted(map(str, error.extra_fields))[:5])
        raise ValueError(f"a {cls.__name__} has no {extra}") from None
    except KeyError as error:
        raise ValueError(f"a {cls.__name__} needs `{error.args[0]}`") from None
    except (ValueError, TypeError, AttributeError, cattrs.errors.CattrsError) as error:
        raise ValueError(f"not a {cls.__name__}: {str(error)[:200]}") from None


def unstructure(value: Any) -> dict[str, Any]:
    """Convert an object to plain data, without fields that are None."""
    data: dict[str, Any] = _converter().unstructure(value)
    return {name: item for name, item in data.items() if item is not None}


# --- JSON Schema ------------------------------------------------------------------------------


@cache
def json_schema(cls: type) -> dict[str, Any]:
    """The JSON Schema of a class, without references to other schemas."""
    hints = typing.get_type_hints(cls)
    properties: dict[str, Any] = {}
    required: list[str] = []
    for attribute in attrs.fields(cls):
        schema = _schema(hints[attribute.name])
        properties[_name(attribute)] = {**schema, "description": attribute.metadata["doc"]}
        if attribute.default is attrs.NOTHING:
            required.append(_name(attribute))
    made: dict[str, Any] = {
        "type": "object",
        "description": (cls.__doc__ or "").partition("\n")[0],
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
    if cls in _CONDITIONALLY_REQUIRED:
        name, value, required_name = _CONDITIONALLY_REQUIRED[cls]
        made["if"] = {"properties": {name: {"const": value}}}
        made["then"] = {"required": [required_name]}
    return made


# By class: if the field has this value, another field is required.
_CONDITIONALLY_REQUIRED: dict[type, tuple[str, Any, str]] = {
    StructuredAnalysisResult: ("success", False, "next_input"),
    FeedbackResult: ("status", "REVISE", "next_prompt"),
}
_JSON_TYPES: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}


def _schema(hint: Any) -> dict[str, Any]:
    if hint is Any:
        return {}
    if hint in _JSON_TYPES:
        return {"type": _JSON_TYPES[hint]}
    if attrs.has(hint):
        return json_schema(hint)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return {"enum": list(args)}
    if origin is list:
        return {"type": "array", "items": _schema(args[0])}
    if origin is dict:
        return {"type": "object"}
    assert origin in (types.UnionType, typing.Union), hint
    known = [_schema(arg) for arg in args if arg is not type(None)]
    if len(known) == 1 and isinstance(known[0].get("type"), str):
        return {**known[0], "type": [known[0]["type"], "null"]}
    return {"anyOf": [*known, {"type": "null"}]}
