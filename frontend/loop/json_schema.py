"""JSON Schema of a loop."""

from __future__ import annotations

from typing import Any

from ..source.json_schema import DRAFT, block_schema
from .paradigms import PARADIGMS
from .schema import Loop


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 7) of a loop in any paradigm."""
    choices: list[dict[str, Any]] = []
    definitions: dict[str, Any] = {}
    for name, cls in PARADIGMS.items():
        is_it: dict[str, Any] = {"properties": {"paradigm": {"const": name}}, "required": ["paradigm"]}
        if name == "fsm":
            # A printed FSM may name its original paradigm in `paradigm`.
            is_it = {"anyOf": [is_it, {"not": {"required": ["paradigm"]}}, {"required": ["states"]}]}
        else:
            is_it["not"] = {"required": ["states"]}
        choices.append({"if": is_it, "then": {"$ref": f"#/definitions/paradigm-{name}"}})
        allowed = list(PARADIGMS) if cls is Loop else [name]
        definitions[f"paradigm-{name}"] = block_schema(cls, definitions, {"paradigm": {"enum": allowed}})
    return {
        "$schema": DRAFT,
        "title": "llc loop",
        "description": "An automation loop for llc, in any of its paradigms.",
        "type": "object",
        "properties": {"paradigm": {"enum": list(PARADIGMS), "description": "What the loop is written in."}},
        "allOf": choices,
        "definitions": definitions,
    }
