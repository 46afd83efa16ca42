"""Checks of evaluators: expressions that do not compile, schemas without a verdict.

Loaded only for loops with such evaluators. `checks` owns the rules across keys and states.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any

from ...ir.diagnostics import Diagnostic
from ...ir.regex import compiled
from .evaluator_schema import LlmStructured, schema_for


def jq_problem(text: str) -> str | None:
    import jq  # type: ignore[import-not-found, unused-ignore]

    try:
        jq.compile(text)
    except ValueError as error:
        first = str(error).strip().partition("\n")[0]
        return re.sub(r"^jq: error:\s*|\s+at <top-level>.*|\s*\(Unix shell quoting issues\?\)", "", first)
    return None


def regex_problem(text: str) -> str | None:
    try:
        compiled(text)
    except ValueError as error:
        return str(error)
    return None


def schema_verdicts(evaluator: LlmStructured, routed: Collection[str]) -> tuple[str, ...] | None:
    """The verdicts that a model may give; None if its schema does not list them.

    routed: the verdicts that the state routes.
    """
    if evaluator.schema is None:
        return tuple(schema_for(evaluator, routed)["properties"]["verdict"]["enum"])
    properties = evaluator.schema.get("properties")
    verdict = properties.get("verdict") if isinstance(properties, dict) else None
    if not isinstance(verdict, dict):
        return None
    values = verdict.get("enum", [verdict["const"]] if "const" in verdict else None)
    if not isinstance(values, list):
        return None
    return tuple(value for value in values if isinstance(value, str))


def schema_problems(evaluator: LlmStructured, schema: dict[str, Any]) -> Iterator[Diagnostic]:
    span = evaluator.span_of("key:schema")
    if schema.get("type") != "object":
        message = "the schema should describe an object"
        yield Diagnostic("bad-schema", message, span, "", "add `type: object`")
        return
    properties = schema.get("properties")
    verdict = properties.get("verdict") if isinstance(properties, dict) else None
    if not isinstance(verdict, dict):
        message = "the schema has no property `verdict`"
        yield Diagnostic("bad-schema", message, span, "", "add `verdict: {type: string}` to its `properties`")
        return
    values = verdict.get("enum", [verdict["const"]] if "const" in verdict else None)
    is_text = verdict.get("type", "string") == "string" and (
        values is None or (isinstance(values, list) and values and all(isinstance(v, str) for v in values))
    )
    if not is_text:
        yield Diagnostic(
            "bad-schema", "a verdict must be a text", evaluator.span_of("schema.verdict", "key:schema")
        )
    required = schema.get("required")
    if not (isinstance(required, list) and "verdict" in required):
        message = "the schema does not require `verdict`"
        help = "without one the evaluation is an error"
        yield Diagnostic("optional-verdict", message, span, "", help, "warning")
