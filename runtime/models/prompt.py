"""What is sent for a task: its templates filled in, and the parts of its messages.

`{{name}}` and `{{name.field}}` are replaced in one pass, so that what an input holds is never read as
a template. What stays the same from call to call comes first: the system prompt, then the files.
"""

from __future__ import annotations

import json
from typing import Any

from ...frontend.tasks.atomic_task import placeholders

# Characters of one input's text; a prompt that is longer fits no model.
MAX_INPUT = 1 << 20
JSON_ONLY = "Answer with JSON only: no other text, no code fence."


class BadInput(Exception):
    """An input that does not fit its task; the text says why."""


def fill(template: str, inputs: dict[str, Any]) -> str:
    """The template with the inputs in it. Raises `BadInput` for a field that an input has not."""
    parts = []
    at = 0
    for place in placeholders(template):
        # What was left out in the call is nothing; what is no input was an error when compiling.
        value = _field(inputs.get(place.name), place.name, place.fields)
        parts += [template[at : place.start], text_of(value, place.name)]
        at = place.end
    parts.append(template[at:])
    return "".join(parts)


def field_of(inputs: dict[str, Any], path: str) -> Any:
    """An input, or a field in it: `name` or `name.field`. Raises `BadInput`."""
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
            held = ", ".join(map(str, value))[:200] if isinstance(value, dict) and value else "no fields"
            raise BadInput(f"`{{{{{'.'.join((name, *fields))}}}}}`: `{path}` has no `{field}`, it has {held}")
        path += f".{field}"
    return value


def text_of(value: Any, name: str) -> str:
    """A value as a prompt has it: texts as they are, nothing for null, all else as JSON."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)
    if len(text) > MAX_INPUT:
        raise BadInput(f"`{name}` has {len(text):,} characters; an input may have {MAX_INPUT:,}")
    return text


def json_output(schema: dict[str, Any] | None, limit: str) -> dict[str, Any]:
    """What a request says of JSON that it asks for. limit: that of its tokens, in words."""
    return {"schema": schema, "limit": limit, "tool": "answer", "description": "Give the result of the task."}


def message(role: str, *parts: tuple[str, bool]) -> dict[str, Any]:
    """A message of these texts, each with whether it stays the same; those that are empty are left out."""
    kept = [{"text": text, "stable": is_stable} for text, is_stable in parts if text]
    return {"role": role, "parts": kept}
