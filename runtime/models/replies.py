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


def tool_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of the tool by which a model gives a value: itself, or an object that holds it."""
    if is_object(schema):
        return schema
    wrapped: dict[str, Any] = {"type": "object", "properties": {"value": schema}, "required": ["value"]}
    # What `$ref`s point to is looked for at the root.
    return wrapped | {name: schema[name] for name in ("$defs", "definitions") if name in schema}


def is_object(schema: dict[str, Any]) -> bool:
    return schema.get("type") == "object" and not any(word in schema for word in _COMPOSED)


def read(reply: dict[str, Any], schema: dict[str, Any] | None) -> tuple[Any, str]:
    """The data in a reply and '', or None and why there are none that fit."""
    cut = " (the reply was cut off at its limit of tokens)" if reply["stop"] == "length" else ""
    if "data" in reply:
        data = reply["data"]
        if schema is not None and not is_object(schema):
            if not isinstance(data, dict) or "value" not in data:
                return None, f"the reply has no `value`{cut}"
            data = data["value"]
    else:
        text = reply["text"]
        fenced = _FENCED.fullmatch(text)
        try:
            data = json.loads(fenced[1] if fenced else text, parse_constant=_refuse)
        except RecursionError:
            return None, "the reply is nested too deep"
        except ValueError as error:
            what = "the reply is empty" if not text.strip() else f"the reply is not JSON: {error}"
            return None, what + cut
    problem = _problem(data, schema) if schema is not None else ""
    return (None, problem + cut) if problem else (data, "")


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
