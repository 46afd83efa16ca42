"""TaskResult and related classes: checked values and a JSON Schema generated from each class."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from llc.frontend.tasks.builtin_signatures import SYSTEM_TOOLS
from llc.ir.results import (
    CLASSES,
    AssociativeMatchResult,
    ContextGenerationInput,
    ControllerDecision,
    DevelopmentPlan,
    FeedbackResult,
    Match,
    StructuredAnalysisResult,
    SubtaskRequest,
    TaskError,
    TaskResult,
    ValidationResult,
    json_schema,
    structure,
    unstructure,
)

VALUES = [
    TaskResult("COMPLETE", "text", {"a": [1]}, "short", {"x": None}),
    TaskResult("FAILED", notes={"error": unstructure(TaskError("TASK_FAILURE", "why", "message"))}),
    TaskError("T", "r", "m", {"a": 1}),
    ValidationResult("out", "err", 1, "timed out"),
    ValidationResult("", "", 0),
    StructuredAnalysisResult(True, "good"),
    StructuredAnalysisResult(False, "bad", "again", ["a.py"]),
    ControllerDecision("stop", [1, {"a": None}]),
    DevelopmentPlan("do it", ["a.py"], "make"),
    FeedbackResult("REVISE", "too short", "longer"),
    FeedbackResult("GOOD", "fine"),
    SubtaskRequest("t", {"x": 1}, None, ["a"]),
    ContextGenerationInput("q", matching_strategy="content"),
    Match("a.py"),
    AssociativeMatchResult("about", [Match("a.py", 0.5), Match("b.py", 1)]),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_value_round_trips_through_data(value: Any) -> None:
    """The data match the schema of the class."""
    data = unstructure(value)
    assert structure(type(value), data) == value
    jsonschema.Draft202012Validator(json_schema(type(value))).validate(data)


def test_every_class_has_a_value_above() -> None:
    assert {type(value) for value in VALUES} == set(CLASSES.values())


@pytest.mark.parametrize("cls", CLASSES.values(), ids=lambda cls: cls.__name__)
def test_schema_is_a_json_schema(cls: type) -> None:
    """Each field of each class has a description."""
    schema = json_schema(cls)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert all(field["description"] for field in schema["properties"].values())


def test_get_context_accepts_every_input_field() -> None:
    """`get_context` takes every field of ContextGenerationInput, and the strategy."""
    taken = {parameter.name for parameter in SYSTEM_TOOLS["get_context"].order}
    fields = set(json_schema(ContextGenerationInput)["properties"])
    assert taken - fields == {"limit", "rerank", "model", "timeout"}
    assert fields <= taken


def test_field_names_are_those_of_the_seed() -> None:
    """`parsedContent` is in camel case."""
    assert unstructure(TaskResult("COMPLETE", parsed_content=5))["parsedContent"] == 5
    assert "parsedContent" in json_schema(TaskResult)["properties"]


@pytest.mark.parametrize(
    ("cls", "data", "message"),
    [
        (TaskResult, {}, "needs `status`"),
        (TaskResult, {"status": "DONE"}, "TaskResult"),
        (TaskResult, {"status": "COMPLETE", "x": 1}, "has no `x`"),
        (TaskResult, 5, "TaskResult"),
        (ValidationResult, {"stdout": 1, "stderr": "", "exit_code": 0}, "expected a text"),
        (ValidationResult, {"stdout": "", "stderr": "", "exit_code": True}, "expected a whole number"),
        (StructuredAnalysisResult, {"success": False, "analysis": "x"}, "`next_input` is required"),
        (StructuredAnalysisResult, {"success": 1, "analysis": "x"}, "expected true or false"),
    ],
)
def test_invalid_data_is_an_error(cls: type, data: Any, message: str) -> None:
    """The message is one sentence."""
    with pytest.raises(ValueError, match=message) as caught:
        structure(cls, data)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "data",
    [{"success": False, "analysis": "x"}, {"success": True}, {"success": True, "analysis": "x", "y": 1}],
)
def test_schema_agrees_with_the_class(data: Any) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(json_schema(StructuredAnalysisResult)).validate(data)
