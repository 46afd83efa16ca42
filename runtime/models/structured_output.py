"""What a task gives: a reply read as text or as JSON, and held against the task's schema."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema  # type: ignore[import-untyped, unused-ignore]
import referencing

# An object's schema that says more than its properties at the top is refused by servers.
_COMPOSED = ("anyOf", "oneOf", "allOf", "$ref", "not", "enum", "const")
_FENCED = re.compile(r"\s*```[\w+-]*[ \t]*\n(.*)\n[ \t]*```\s*", re.DOTALL)
_MOST = 300


def tool(output: dict[str, Any] | None) -> dict[str, Any] | None:
    """The tool by which a model gives a value, or an object that holds it where that is none."""
    if output is None or output["schema"] is None:
        return None
    schema = output["schema"]
    if not is_object(schema):
        wrapped: dict[str, Any] = {"type": "object", "properties": {"value": schema}, "required": ["value"]}
        # What `$ref`s point to is looked for at the root.
        schema = wrapped | {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    return {"name": output["tool"], "description": output["description"], "schema": schema}


def is_object(schema: dict[str, Any]) -> bool:
    return schema.get("type") == "object" and not any(word in schema for word in _COMPOSED)


def read(reply: dict[str, Any], schema: dict[str, Any] | None, limit: str) -> dict[str, Any]:
    """{"value"}: the data in a reply, or {"problem"}: why there are none that fit."""
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
    for words in (fenced[1] if fenced else text, _last_block(text)):
        try:
            return json.loads(words, parse_constant=_refuse), ""
        except RecursionError:
            problem = problem or "the reply is nested too deep"
        except ValueError as error:
            problem = problem or f"the reply is not JSON: {error}"
    return None, problem if text.strip() else "the reply is empty"


def _last_block(text: str) -> str:
    """The content of the last code fence in a text, '' if there is none."""
    end = text.rfind("\n```")
    start = text.rfind("```", 0, max(end, 0))
    line = text.find("\n", max(start, 0), end + 1)
    return text[line + 1 : end] if start >= 0 and line >= 0 else ""


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _problem(data: Any, schema: dict[str, Any]) -> str:
    """Why data break the schema, '' where they do not."""
    validator = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        # A registry of our own: a `$ref` to the web must not be fetched.
        errors = validator(schema, registry=referencing.Registry()).iter_errors(data)
        error = jsonschema.exceptions.best_match(errors)
    except Exception as error:  # an invalid schema: whatever it makes the validator raise
        return f"the schema cannot be used: {str(error)[:_MOST]}"
    if error is None:
        return ""
    place = ".".join(str(part) for part in error.absolute_path)
    return f"the reply breaks the schema{f' at `{place}`' if place else ''}: {error.message}"[:_MOST]
