"""Checks of evaluators: exit codes, expressions that do not compile, schemas without a verdict."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import Any

from ...ir.diagnostics import Diagnostic
from ...ir.regex import compiled
from .evaluator_schema import ExitCode, LlmStructured, OutputContains, OutputJson, schema_for
from .schema import Loop, StateSpec
from .variable_checks import Text, fixed_text


def check_evaluator(loop: Loop, state: StateSpec) -> Iterator[Diagnostic]:
    """Report an evaluator that is ambiguous, or that always gives an error."""
    evaluator = state.evaluate
    if isinstance(evaluator, ExitCode):
        # Only lists that are both given can conflict: a default list leaves out the codes of the other list.
        twice = sorted(set(evaluator.success or ()) & set(evaluator.failure or ()))
        if twice:
            codes = ", ".join(map(str, twice))
            message = f"exit code {codes} cannot mean both `success` and `failure`"
            place = evaluator.span_of("failure", "key:failure")
            yield Diagnostic("ambiguous-exit-code", message, place, "", "leave it in one of the lists")
    if not isinstance(evaluator, LlmStructured):
        return
    if not loop.llm.enabled and "_error" not in state.routes and loop.on_error is None:
        yield Diagnostic(
            "llm-disabled",
            f"state `{state.name}` calls a model, but models are disabled",
            evaluator.span_of("type"),
            "always an error",
            "add `_error` to its route, or choose another evaluator",
        )
    if evaluator.schema is not None:
        yield from _schema_problems(evaluator, evaluator.schema)


def check_expressions(loop: Loop, texts: list[Text]) -> Iterator[Diagnostic]:
    """Report jq and regular expressions that do not compile, if they are known at compile time."""
    parsed = {(text.state.name, text.field): text for text in texts if text.state is not None}
    for state in loop.states.values():
        evaluator = state.evaluate
        if isinstance(evaluator, OutputJson):
            key, written = "path", evaluator.path
        elif isinstance(evaluator, OutputContains) and evaluator.match != "substring":
            key, written = "pattern", evaluator.pattern
        else:
            continue
        text = parsed.get((state.name, f"evaluate.{key}"))
        fixed = written if text is None else fixed_text(text.template)
        if fixed is None or (text is not None and text.template.problems):
            continue
        problem = _jq_problem(fixed) if key == "path" else _regex_problem(fixed)
        place = evaluator.span_of(key)
        if problem is not None and key == "path":
            yield Diagnostic("invalid-jq", f"not a jq expression: {problem}", place)
        elif problem is not None:
            help = "`match: substring` takes it as plain text"
            yield Diagnostic("invalid-regex", f"not a regular expression: {problem}", place, "", help)


@lru_cache(1024)
def _jq_problem(text: str) -> str | None:
    import jq  # type: ignore[import-not-found, unused-ignore]

    try:
        jq.compile(text)
    except ValueError as error:
        first = str(error).strip().partition("\n")[0]
        return re.sub(r"^jq: error:\s*|\s+at <top-level>.*|\s*\(Unix shell quoting issues\?\)", "", first)
    return None


@lru_cache(1024)
def _regex_problem(text: str) -> str | None:
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


def _schema_problems(evaluator: LlmStructured, schema: dict[str, Any]) -> Iterator[Diagnostic]:
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
