"""Schema of evaluators, which turn a state's result into a verdict; one class per type (`source.schema`)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar, get_args

from ...ir.effects import CANNOT_JUDGE
from ..source.schema import (
    BOOLEAN,
    COUNT,
    EXIT_CODES,
    JSON,
    MEASURE,
    TEMPLATE,
    TEXT,
    Spec,
    Type,
    choice,
    optional,
    required,
)


class Evaluator(Spec):
    """Turns an action's result into a verdict; the key `type` selects the class."""

    noun: ClassVar[str] = "evaluator"
    type: ClassVar[str] = ""
    # Possible verdicts except `error`; None: any text, or the verdicts of a JSON Schema.
    verdicts: ClassVar[tuple[str, ...] | None] = ("success", "failure")
    details: ClassVar[tuple[str, ...]] = ()

    source: str | None = optional(Type("template"), "The text to judge; default: the output of this state.")


class OutputEvaluator(Evaluator):
    """An evaluator that reads output and must distinguish a crashed command from an answer."""

    ignore_exit: bool = optional(
        BOOLEAN, "Whether to judge the output of a crashed command (126, 127, a signal) too.", False
    )


class ExitCode(Evaluator):
    """The exit code determines the verdict; the default for shell commands."""

    type: ClassVar[str] = "exit_code"
    details: ClassVar[tuple[str, ...]] = ("exit_code",)

    success: tuple[int, ...] | None = optional(EXIT_CODES, "Exit codes that mean `success`; default: `[0]`.")
    failure: tuple[int, ...] | None = optional(EXIT_CODES, "Exit codes that mean `failure`; default: `[1]`.")
    abstain_on_exit_3: bool = optional(BOOLEAN, "Whether exit code 3 means `cannot_judge`.", False)


class OutputNumeric(OutputEvaluator):
    """The output is a number, compared with a target."""

    type: ClassVar[str] = "output_numeric"
    details: ClassVar[tuple[str, ...]] = ("value", "target", "operator")

    operator: str = required(choice("eq", "ne", "lt", "le", "gt", "ge"), "The comparison operator.")
    target: int | float | str = required(MEASURE, "The value to compare with.")
    key: str | None = optional(TEXT, "The number is the last one after `<key>=` in the output.")


class OutputJson(OutputEvaluator):
    """The output is JSON; a jq expression selects a value, which is compared with a target."""

    type: ClassVar[str] = "output_json"
    details: ClassVar[tuple[str, ...]] = ("value", "path", "target", "operator")

    path: str = required(TEMPLATE, "A jq expression; its first value is compared.")
    operator: str = optional(
        choice("eq", "ne", "lt", "le", "gt", "ge"), "The comparison operator; an order needs numbers.", "eq"
    )
    target: Any = required(JSON, "The value to compare with: any JSON value or a template.")


class OutputContains(OutputEvaluator):
    """The output contains a text or matches an expression."""

    type: ClassVar[str] = "output_contains"
    details: ClassVar[tuple[str, ...]] = ("matched", "pattern")

    pattern: str = required(TEMPLATE, "A substring or an RE2 regular expression.")
    negate: bool = optional(BOOLEAN, "Whether the verdict is `success` if the pattern is not found.", False)
    match: str = optional(
        choice("auto", "substring", "regex"), "Type of the pattern; `auto` searches for both.", "auto"
    )
    error_patterns: tuple[str, ...] | None = optional(
        Type("list", TEXT), "Texts that mean `error` if the pattern is not found."
    )


class Convergence(OutputEvaluator):
    """The output is a measurement, compared with a target and with the previous measurement."""

    type: ClassVar[str] = "convergence"
    verdicts: ClassVar[tuple[str, ...] | None] = ("target", "progress", "stall")
    details: ClassVar[tuple[str, ...]] = ("current", "previous", "target", "delta")

    target: int | float | str = required(MEASURE, "The target value.")
    tolerance: int | float | str = optional(
        Type("measure", least=0), "Distance from the target that counts as reached.", 0
    )
    previous: int | float | str | None = optional(
        MEASURE, "The previous measurement; default: the last one of this state; empty: none."
    )
    direction: str = optional(choice("minimize", "maximize"), "Direction of progress.", "minimize")
    reference: int | float | str | None = optional(
        MEASURE, "A reference value; a worse measurement is `stall`, even at the target."
    )


class Classify(OutputEvaluator):
    """A line of the output is the verdict."""

    type: ClassVar[str] = "classify"
    verdicts: ClassVar[tuple[str, ...] | None] = None
    details: ClassVar[tuple[str, ...]] = ("token", "line")

    line: int | str = optional(
        Type(
            "either",
            options=(Type("integer", least=-1e6, most=1e6), choice("last", "first")),
            expected="`last`, `first` or a number",
        ),
        "Number of the line, without blank lines: from 0, or negative from the end.",
        "last",
    )


class DiffStall(Evaluator):
    """`failure` if the work tree, a git repository, has not changed since the last evaluation of the
    state.
    """

    type: ClassVar[str] = "diff_stall"
    details: ClassVar[tuple[str, ...]] = ("stall_count", "max_stall")

    scope: tuple[str, ...] | None = optional(Type("list", TEXT), "The paths to compare; default: all.")
    max_stall: int = optional(COUNT, "Number of consecutive evaluations without a change.", 1)


class ScoreStall(Evaluator):
    """`failure` if the last scores in a file, one per line, do not exceed the best score before them."""

    type: ClassVar[str] = "score_stall"
    details: ClassVar[tuple[str, ...]] = ("stall_count", "max_stall", "rounds", "best")
    is_falling: ClassVar[bool] = False

    history_file: str = optional(TEMPLATE, "The file with the scores.", "${loop.run_dir}.score_history")
    max_stall: int = optional(COUNT, "Number of consecutive scores without progress.", 1)
    epsilon: float = optional(
        Type("number", least=0, most=1e12), "Differences up to this value are not progress.", 0.5
    )


class OpenQuestionStall(ScoreStall):
    """The same for numbers of open questions, of which fewer are better."""

    type: ClassVar[str] = "open_question_stall"
    is_falling: ClassVar[bool] = True

    history_file: str = optional(
        TEMPLATE, "The file with the scores.", "${loop.run_dir}.open_questions_history"
    )


class HarborScorer(Evaluator):
    """The command computes a score: `success` if it printed a number, `failure` if its exit code is not 0."""

    type: ClassVar[str] = "harbor_scorer"
    details: ClassVar[tuple[str, ...]] = ("value", "exit_code")


class McpResult(Evaluator):
    """The exit code of an MCP tool call determines the verdict; the default for states with `mcp_tool`."""

    type: ClassVar[str] = "mcp_result"
    verdicts: ClassVar[tuple[str, ...] | None] = ("success", "tool_error", "not_found", "timeout")
    details: ClassVar[tuple[str, ...]] = ("exit_code",)


class LlmStructured(Evaluator):
    """A model reads the output and gives a verdict; the default for slash commands."""

    type: ClassVar[str] = "llm_structured"
    verdicts: ClassVar[tuple[str, ...] | None] = None
    details: ClassVar[tuple[str, ...]] = ("confidence", "confident", "reason", "raw", "error", "message")

    prompt: str | None = optional(TEMPLATE, "The question; default: whether the action succeeded.")
    schema: dict[str, Any] | None = optional(
        Type("map", JSON), "JSON Schema of the answer, an object with a `verdict`."
    )
    min_confidence: float = optional(
        Type("number", least=0, most=1), "Minimum confidence of a confident verdict.", 0.5
    )
    uncertain_suffix: bool = optional(
        BOOLEAN, "Whether `_uncertain` is appended to a verdict with a lower confidence.", False
    )


DEFAULT_VERDICTS = ("success", "failure", "blocked", "partial")
DEFAULT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "verdict": {
            "type": "string",
            "enum": list(DEFAULT_VERDICTS),
            "description": (
                "- success: The action completed its goal\n"
                "- failure: The action failed, should retry\n"
                "- blocked: Cannot proceed without external help\n"
                "- partial: Made progress but not complete\n"
            ),
        },
        "confidence": {
            "type": "number",
            "minimum": 0,
            "maximum": 1,
            "description": "Confidence in this verdict (0-1)",
        },
        "reason": {"type": "string", "description": "Brief explanation"},
    },
    "required": ["verdict", "confidence", "reason"],
}


def schema_for(evaluator: LlmStructured, verdicts: Collection[str]) -> dict[str, Any]:
    """The JSON Schema of the model's answer.

    verdicts: the verdicts that the state routes; if `cannot_judge` is one of them, the default schema
    includes it.
    """
    if evaluator.schema is not None or CANNOT_JUDGE not in verdicts:
        return evaluator.schema or DEFAULT_SCHEMA
    verdict = DEFAULT_SCHEMA["properties"]["verdict"]
    description = f"{verdict['description']}- {CANNOT_JUDGE}: The output does not show whether it succeeded\n"
    extended = {**verdict, "enum": [*DEFAULT_VERDICTS, CANNOT_JUDGE], "description": description}
    return {**DEFAULT_SCHEMA, "properties": {**DEFAULT_SCHEMA["properties"], "verdict": extended}}


DEFAULT_PROMPT = "Evaluate whether this action succeeded based on its output."
# Default prompt if the model sees an agent's changes instead of its output.
EVIDENCE_PROMPT = "Evaluate whether this action succeeded, by the evidence below."


class Answer(Evaluator):
    """The answer to a question is the verdict if it is one of `choices`, otherwise the verdict is `success`.

    The default for states that ask a question; it cannot be selected by name.
    """

    type: ClassVar[str] = "answer"
    verdicts: ClassVar[tuple[str, ...] | None] = ("success",)
    details: ClassVar[tuple[str, ...]] = ("answer", "by")


NamedEvaluator = (
    ExitCode
    | OutputNumeric
    | OutputJson
    | OutputContains
    | Convergence
    | LlmStructured
    | Classify
    | DiffStall
    | ScoreStall
    | OpenQuestionStall
    | HarborScorer
    | McpResult
)
AnyEvaluator = NamedEvaluator | Answer

EVALUATORS: dict[str, type[Evaluator]] = {cls.type: cls for cls in get_args(NamedEvaluator)}
