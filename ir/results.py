"""What tasks, tools and loops give each other: TaskResult and its kin.

Each class says once what a field is; the values of programs are checked and made by it
(`structure`, `unstructure`), and its JSON Schema is made from it (`json_schema`). Where the seeds
write a field in another way than Python would, the field's `name` has it. `cattrs` is imported where
a value is made or checked.
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

    type: str = field("TASK_FAILURE, or what kind of failure it is.")
    reason: str = field("A word for it: `output_format_failure`, `input_validation_failure`, …")
    message: str = field("What to tell people.")
    details: dict[str, Any] = field("More facts.", factory=dict)


@frozen
class TaskResult:
    """How a task ended. A FAILED one carries `notes.error`, a TaskError."""

    status: Literal["COMPLETE", "CONTINUATION", "FAILED"] = field("How it ended.")
    content: Any = field("What it gave, as a rule a text.", default="")
    parsed_content: Any = field("The content as data.", name="parsedContent", default=None)
    criteria: str | None = field("By what the result is to be judged.", default=None)
    notes: dict[str, Any] = field("More about it; `error` where it failed.", factory=dict)


@frozen
class ValidationResult:
    """What a command that checks something gave."""

    stdout: str = field("What it wrote to standard output.")
    stderr: str = field("What it wrote to standard error.")
    exit_code: int = field("The exit code.")
    error: str | None = field("Why it could not be run, or not to its end.", default=None)


@frozen
class StructuredAnalysisResult:
    """What a model made of an iteration."""

    success: bool = field("Whether the goal of the iteration was met.")
    analysis: str = field("The outcome of the iteration.")
    next_input: str | None = field("The next input for the executor; needed without success.", default=None)
    new_files: list[str] | None = field("Files to look at in the next iteration.", default=None)

    def __attrs_post_init__(self) -> None:
        if not self.success and self.next_input is None:
            raise ValueError("`next_input` is required where `success` is false")


@frozen
class DevelopmentPlan:
    """What is to be done, as a director plans it."""

    instructions: str = field("The instructions for the executor.")
    files: list[str] = field("The files that it is about.", factory=list)
    test_command: str | None = field("The command that checks it.", default=None)


@frozen
class FeedbackResult:
    """What an evaluator made of what was done."""

    status: Literal["GOOD", "REVISE", "ABORT"] = field("Whether it is good, to be done again, or hopeless.")
    explanation: str = field("Why.")
    next_prompt: str | None = field("The next instructions; required for REVISE.", default=None)

    def __attrs_post_init__(self) -> None:
        if self.status == "REVISE" and self.next_prompt is None:
            raise ValueError("`next_prompt` is required where `status` is REVISE")


@frozen
class ControllerDecision:
    """What a loop does next: as a value of a program `(continue value)` or `(stop value)`."""

    decision: Literal["continue", "stop"] = field("Whether the loop continues.")
    value: Any = field("The next input, or what the loop gives.", default=None)


@frozen
class SubtaskRequest:
    """A task to be done: its name and what it is given."""

    name: str = field("The task's name.")
    inputs: dict[str, Any] = field("Its parameters.", factory=dict)
    description: str | None = field("What it is about.", default=None)
    files: list[str] | None = field("Paths of files that it sees.", default=None)
    context: dict[str, Any] | None = field("Settings of its context.", default=None)
    history_config: dict[str, Any] | None = field("What of the conversation it sees.", default=None)


@frozen
class ContextGenerationInput:
    """What files are looked for."""

    query: str | None = field("What they are to be about.", default=None)
    history: str | None = field("The conversation so far.", default=None)
    inputs: dict[str, Any] | None = field("The inputs of the task that needs them.", default=None)
    matching_strategy: Literal["content", "metadata"] | None = field("By what files match.", default=None)
    template_description: str | None = field("What the task is about.", default=None)
    template_type: str | None = field("The task's type.", default=None)
    template_subtype: str | None = field("The task's type, more closely.", default=None)
    template_name: str | None = field("The task's name.", default=None)
    context_relevance: dict[str, Any] | None = field("Which inputs matter.", default=None)
    inherited_context: str | None = field("Context of the caller.", default=None)
    previous_outputs: str | None = field("What was given before.", default=None)
    fresh_context: Literal["enabled", "disabled"] | None = field(
        "`disabled`: nothing is looked for.", default=None
    )


@frozen
class Match:
    """A file that was found."""

    path: str = field("Its path.")
    relevance: float | None = field("How well it matches, from 0 to 1.", default=None)
    excerpt: str | None = field("Where it matches.", default=None)


@frozen
class AssociativeMatchResult:
    """Files that were found, best first."""

    context_summary: str = field("What they have to do with the question.")
    matches: list[Match] = field("The files.", factory=list)
    error: str | None = field("Why there are none.", default=None)


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
    # A value is what it is: a number is no text.
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
        raise ValueError(f"{_WORDS[type]} is expected, not {value!r:.80}")
    return value


_WORDS: dict[type, str] = {str: "a text", int: "a whole number", bool: "true or false", float: "a number"}


def structure(cls: type[T], value: Any) -> T:
    """The object that plain data is; ValueError, in one sentence, for what is none."""
    import cattrs

    try:
        return _converter().structure(value, cls)
    except cattrs.errors.ForbiddenExtraKeysError as error:
        extra = ", ".join(f"`{name}`" for name in sorted(map(str, error.extra_fields))[:5])
        raise ValueError(f"a {cls.__name__} has no {extra}") from None
    except KeyError as error:
        raise ValueError(f"a {cls.__name__} needs `{error.args[0]}`") from None
    except (ValueError, TypeError, AttributeError, cattrs.errors.CattrsError) as error:
        raise ValueError(f"this is no {cls.__name__}: {str(error)[:200]}") from None


def unstructure(value: Any) -> dict[str, Any]:
    """An object as plain data; what is absent is left out."""
    data: dict[str, Any] = _converter().unstructure(value)
    return {name: item for name, item in data.items() if item is not None}


# --- JSON Schema ------------------------------------------------------------------------------


@cache
def json_schema(cls: type) -> dict[str, Any]:
    """The JSON Schema of a class, complete in itself."""
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
    if cls in _NEEDED:
        name, value, needed = _NEEDED[cls]
        made["if"] = {"properties": {name: {"const": value}}}
        made["then"] = {"required": [needed]}
    return made


# Of a class: where a field has this value, another is needed.
_NEEDED: dict[type, tuple[str, Any, str]] = {
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
