"""Structured output: the tool definition for a schema; parsing and validation of a reply as JSON."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema  # type: ignore[import-untyped, unused-ignore]
import referencing

# Servers reject a tool schema with these keywords at the top level.
_REJECTED_KEYWORDS = ("anyOf", "oneOf", "allOf", "$ref", "not", "enum", "const")
_FENCED = re.compile(r"\s*```[\w+-]*[ \t]*\n(.*)\n[ \t]*```\s*", re.DOTALL)
_MAX_MESSAGE = 300


def tool(output: dict[str, Any] | None) -> dict[str, Any] | None:
    """The tool whose input is the output value, wrapped in an object if it is no object itself.

    output: `output` of a request (see `provider`). Returns None for output without a schema.
    """
    if output is None or output["schema"] is None:
        return None
    schema = output["schema"]
    if not is_object(schema):
        wrapped: dict[str, Any] = {"type": "object", "properties": {"value": schema}, "required": ["value"]}
        # A `$ref` is resolved from the root of the schema.
        schema = wrapped | {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    return {"name": output["tool"], "description": output["description"], "schema": schema}


def is_object(schema: dict[str, Any]) -> bool:
    return schema.get("type") == "object" and not any(word in schema for word in _REJECTED_KEYWORDS)


def read(reply: dict[str, Any], schema: dict[str, Any] | None, limit: str) -> dict[str, Any]:
    """{"value"}: the value in a reply, or {"problem"}: why the reply has no value that conforms to `schema`.

    limit: the token limit in words, for the message about a truncated reply.
    """
    data, problem = _data(reply, schema)
    if not problem and schema is not None:
        problem = _problem(data, schema)
    if not problem:
        return {"value": data}
    return {
        "problem": problem + (f"; the reply was truncated at {limit}" if reply["stop"] == "length" else "")
    }


def _data(reply: dict[str, Any], schema: dict[str, Any] | None) -> tuple[Any, str]:
    if "data" in reply:
        data = reply["data"]
        if schema is None or is_object(schema):
            return data, ""
        if not isinstance(data, dict) or "value" not in data:
            return None, "the reply has no `value`"
        return data["value"], ""
    text = reply["text"]
    fenced = _FENCED.fullmatch(text)
    problem = ""
    for candidate in (fenced[1] if fenced else text, _last_block(text)):
        try:
            return json.loads(candidate, parse_constant=_reject_constant), ""
        except RecursionError:
            problem = problem or "the reply is nested too deep"
        except ValueError as error:
            problem = problem or f"the reply is not JSON: {error}"
    return None, problem if text.strip() else "the reply is empty"


def _last_block(text: str) -> str:
    """The content of the last fenced code block in a text; '' if there is none."""
    end = text.rfind("\n```")
    start = text.rfind("```", 0, max(end, 0))
    line = text.find("\n", max(start, 0), end + 1)
    return text[line + 1 : end] if start >= 0 and line >= 0 else ""


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")


def _problem(data: Any, schema: dict[str, Any]) -> str:
    """Why the data violate the schema; '' if they conform."""
    validator = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        # An empty registry, so that a `$ref` to the web is not fetched.
        errors = validator(schema, registry=referencing.Registry()).iter_errors(data)
        error = jsonschema.exceptions.best_match(errors)
    except Exception as error:  # an invalid schema can make the validator raise any exception
        return f"the schema cannot be used: {str(error)[:_MAX_MESSAGE]}"
    if error is None:
        return ""
    place = ".".join(str(part) for part in error.absolute_path)
    return f"the reply breaks the schema{f' at `{place}`' if place else ''}: {error.message}"[:_MAX_MESSAGE]
