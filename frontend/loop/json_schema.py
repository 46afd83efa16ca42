"""JSON Schema of a loop, and the tables of `spec/loops.md`.

`python -m llc.frontend.loop.json_schema FILE` rewrites the tables in a Markdown file, between their
markers.
"""

from __future__ import annotations

import re
from typing import Any

from ..source.json_schema import DRAFT, block_schema, table
from . import paradigms, schema
from .paradigms import PARADIGMS
from .schema import Evaluator, Loop, LoopSettings


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 7) of a loop in any paradigm."""
    choices: list[dict[str, Any]] = []
    definitions: dict[str, Any] = {}
    for name, cls in PARADIGMS.items():
        is_it: dict[str, Any] = {"properties": {"paradigm": {"const": name}}, "required": ["paradigm"]}
        if name == "fsm":
            # The form of a printed FSM, which may say in `paradigm` what it was written in.
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


_MARKED = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def fill_tables(text: str) -> str:
    """A Markdown text with the table between each `<!-- table: Class -->` and `<!-- end -->` anew."""

    def fill(found: re.Match[str]) -> str:
        cls = getattr(schema, found[2], None) or getattr(paradigms, found[2])
        shared = (LoopSettings, schema.OutputEvaluator, Evaluator)
        without = next((base for base in shared if issubclass(cls, base) and cls is not base), None)
        return found[1] + table(cls, without) + found[3]

    return _MARKED.sub(fill, text)


def main(arguments: list[str]) -> None:
    for path in arguments:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        with open(path, "w", encoding="utf-8") as file:
            file.write(fill_tables(text))


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
