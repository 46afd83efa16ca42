"""Prompt of a task: expansion of its templates, and construction of its messages.

`{{name}}` and `{{name.field}}` are replaced in one pass, so the content of an input is never expanded as a
template. The parts that are equal in all calls come first: the system prompt, then the files.
"""

from __future__ import annotations

import json
from typing import Any

from ...frontend.tasks.atomic_task import placeholders

# Maximum number of characters of one input; no model accepts a longer prompt.
MAX_INPUT = 1 << 20
JSON_ONLY = "Answer with JSON only: no other text, no code fence."


class BadInput(Exception):
    """An input that does not fit its task; the message states the reason."""


def fill(template: str, inputs: dict[str, Any]) -> str:
    """Expand a template with the inputs. Raises `BadInput` for a field that an input does not have."""
    parts = []
    position = 0
    for placeholder in placeholders(template):
        # An omitted input expands to nothing; an unknown input was a compile-time error.
        value = _field(inputs.get(placeholder.name), placeholder.name, placeholder.fields)
        parts += [template[position : placeholder.start], text_of(value, placeholder.name)]
        position = placeholder.end
    parts.append(template[position:])
    return "".join(parts)


def field_of(inputs: dict[str, Any], path: str) -> Any:
    """An input or one of its fields. path: `name` or `name.field`. Raises `BadInput`."""
    name, *fields = path.split(".")
    return _field(inputs.get(name), name, tuple(fields))


def _field(value: Any, name: str, fields: tuple[str, ...]) -> Any:
    path = name
    for field in fields:
        if isinstance(value, dict) and field in value:
            value = value[field]
        elif isinstance(value, list) and field.isdigit() and int(field) < len(value):
            value = value[int(field)]
        else:
            known = ", ".join(map(str, value))[:200] if isinstance(value, dict) and value else "no fields"
            raise BadInput(
                f"`{{{{{'.'.join((name, *fields))}}}}}`: `{path}` has no `{field}`, it has {known}"
            )
        path += f".{field}"
    return value


def text_of(value: Any, name: str) -> str:
    """A value as text for a prompt: text unchanged, "" for null, other values as JSON. Raises `BadInput`."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)
    if len(text) > MAX_INPUT:
        raise BadInput(f"`{name}` has {len(text):,} characters; an input may have {MAX_INPUT:,}")
    return text


def json_output(schema: dict[str, Any] | None, limit: str) -> dict[str, Any]:
    """The `output` of a request for JSON. schema: None for any JSON. limit: the token limit in words."""
    return {"schema": schema, "limit": limit, "tool": "answer", "description": "Give the result of the task."}


def message(role: str, *parts: tuple[str, bool]) -> dict[str, Any]:
    """A message. parts: (text, whether the text is stable between requests); empty texts are omitted."""
    return {"role": role, "parts": [{"text": text, "stable": stable} for text, stable in parts if text]}
