"""What editors and readers get of the schema: a JSON Schema, and the tables of `spec/loops.md`.

Both are printed from the classes in `schema`. `python -m llc.frontend.loop.json_schema FILE` writes the
tables into a Markdown file anew, between their markers.
"""

from __future__ import annotations

import re
from typing import Any

import attrs

from . import paradigm_schema, schema
from .paradigm_schema import PARADIGMS
from .reader import fields_of
from .schema import EVALUATORS, Evaluator, Loop, LoopSettings, Spec, StateSpec, Type

DRAFT = "http://json-schema.org/draft-07/schema#"


# --- for editors ------------------------------------------------------------------------------


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 7) of a loop in any paradigm."""
    choices: list[dict[str, Any]] = []
    for name in PARADIGMS:
        is_it: dict[str, Any] = {"properties": {"paradigm": {"const": name}}, "required": ["paradigm"]}
        if name == "fsm":
            # The form of a printed FSM, which may say in `paradigm` what it was written in.
            is_it = {"anyOf": [is_it, {"not": {"required": ["paradigm"]}}, {"required": ["states"]}]}
        else:
            is_it["not"] = {"required": ["states"]}
        choices.append({"if": is_it, "then": {"$ref": f"#/definitions/paradigm-{name}"}})
    definitions = {f"paradigm-{name}": _paradigm(name, cls) for name, cls in PARADIGMS.items()}
    blocks: tuple[type[Spec], ...] = (
        StateSpec,
        schema.LlmSettings,
        schema.AgentSettings,
        schema.Budget,
        paradigm_schema.Constraint,
        paradigm_schema.Until,
        paradigm_schema.CallSpec,
    )
    definitions |= {cls.__name__: _block(cls) for cls in blocks}
    definitions |= {
        f"evaluator-{name}": _block(cls, {"type": {"const": name}}) for name, cls in EVALUATORS.items()
    }
    definitions["Evaluator"] = {
        "type": "object",
        "properties": {"type": {"enum": list(EVALUATORS)}},
        "required": ["type"],
        "allOf": [
            {
                "if": {"properties": {"type": {"const": name}}, "required": ["type"]},
                "then": {"$ref": f"#/definitions/evaluator-{name}"},
            }
            for name in EVALUATORS
        ],
    }
    return {
        "$schema": DRAFT,
        "title": "llc loop",
        "description": "An automation loop for llc, in any of its paradigms.",
        "type": "object",
        "properties": {"paradigm": {"enum": list(PARADIGMS), "description": "What the loop is written in."}},
        "allOf": choices,
        "definitions": definitions,
    }


def _paradigm(name: str, cls: type[LoopSettings]) -> dict[str, Any]:
    allowed = list(PARADIGMS) if cls is Loop else [name]
    return _block(cls, {"paradigm": {"enum": allowed}})


def _block(cls: type[Spec], more: dict[str, Any] | None = None) -> dict[str, Any]:
    fields = fields_of(cls)
    properties = dict(more or {})
    for key, field in fields.items():
        described = _value(field.type)
        doc = _doc(cls, key)
        properties[key] = (
            {"allOf": [described], "description": doc}
            if "$ref" in described
            else described | {"description": doc}
        )
    found: dict[str, Any] = {
        "type": "object",
        "description": _summary(cls),
        "properties": properties,
        "additionalProperties": False,
    }
    required = [key for key, field in fields.items() if field.required]
    if issubclass(cls, Evaluator):
        required.insert(0, "type")
    if required:
        found["required"] = required
    if cls is StateSpec:
        found["patternProperties"] = {"^on_[A-Za-z][A-Za-z0-9_-]*$": _value(schema.TARGET)}
    return found


def _value(type: Type) -> dict[str, Any]:
    match type.kind:
        case "text" | "template" | "target":
            most = {"maxLength": int(type.most)} if type.most else {}
            return {"type": "string"} | ({"minLength": 1} if type.least else {}) | most
        case "boolean":
            return {"type": "boolean"}
        case "integer" | "number":
            return {"type": type.kind} | _bounds(type)
        case "measure":
            return {"anyOf": [{"type": "number"} | _bounds(type), {"type": "string", "minLength": 1}]}
        case "choice":
            return {"enum": list(type.choices)}
        case "named":
            return {"anyOf": [_value(schema.TEXT), {"$ref": f"#/definitions/{type.specs[0].__name__}"}]}
        case "action":
            return {"anyOf": [_value(schema.TEMPLATE), {"$ref": "#/definitions/CallSpec"}]}
        case "arguments":
            return {"type": ["array", "object"]}
        case "list":
            assert type.item is not None
            least = {"minItems": int(type.least)} if type.least else {}
            return {"type": "array", "items": _value(type.item)} | least
        case "map":
            assert type.item is not None
            few = {"minProperties": int(type.least)} if type.least else {}
            return {"type": "object", "additionalProperties": _value(type.item)} | few
        case "spec":
            name = "Evaluator" if issubclass(type.specs[0], Evaluator) else type.specs[0].__name__
            return {"$ref": f"#/definitions/{name}"}
    return {}


def _bounds(type: Type) -> dict[str, Any]:
    names = {"minimum": type.least, "exclusiveMinimum": type.above, "maximum": type.most}
    return {name: bound for name, bound in names.items() if bound is not None}


def _doc(cls: type[Spec], key: str) -> str:
    doc: str = getattr(attrs.fields(cls), key).metadata["doc"]
    return doc


def _summary(cls: type[Spec]) -> str:
    return (cls.__doc__ or "").partition("\n")[0]


# --- for readers ------------------------------------------------------------------------------

_MARKED = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def table(cls: type[Spec], without: type[Spec] | None = None) -> str:
    """The keys of a block as a Markdown table, those of `without` left out."""
    rows = ["| key | value | absent | meaning |", "|---|---|---|---|"]
    left_out = fields_of(without) if without is not None else {}
    for key, field in fields_of(cls).items():
        if key not in left_out:
            absent = "*required*" if field.required else _default(cls, key)
            rows.append(f"| `{key}` | {_words(field.type)} | {absent} | {_doc(cls, key)} |")
    return "\n".join(rows) + "\n"


def fill_tables(text: str) -> str:
    """A Markdown text with the table between each `<!-- table: Class -->` and `<!-- end -->` anew."""

    def fill(found: re.Match[str]) -> str:
        cls = getattr(schema, found[2], None) or getattr(paradigm_schema, found[2])
        shared = (LoopSettings, schema.OutputEvaluator, Evaluator)
        without = next((base for base in shared if issubclass(cls, base) and cls is not base), None)
        return found[1] + table(cls, without) + found[3]

    return _MARKED.sub(fill, text)


def _default(cls: type[Spec], key: str) -> str:
    default = getattr(attrs.fields(cls), key).default
    if default is None or default is attrs.NOTHING or hasattr(default, "factory"):
        return ""
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if isinstance(default, tuple):
        return f"`[{', '.join(default)}]`"
    return f"`{default}`"


def _words(type: Type) -> str:
    match type.kind:
        case "integer" | "number":
            return ("whole number" if type.kind == "integer" else "number") + _bound_words(type)
        case "measure":
            return "number or template"
        case "target":
            return "state"
        case "boolean":
            return "true or false"
        case "choice":
            return ", ".join(f"`{choice}`" for choice in type.choices)
        case "json":
            return "any value"
        case "arguments":
            return "list or mapping"
        case "named":
            return "text or mapping"
        case "action":
            return "template or call"
        case "list":
            assert type.item is not None
            return f"list of {_plural(type.item)}"
        case "map":
            assert type.item is not None
            return f"mapping to {_plural(type.item)}"
        case "spec":
            return "mapping"
    return type.kind


def _plural(type: Type) -> str:
    return {"spec": "mappings", "json": "any values", "integer": "whole numbers"}.get(
        type.kind, _words(type) + "s"
    )


def _bound_words(type: Type) -> str:
    if type.above is not None:
        return f" > {type.above:g}"
    if type.least is not None and type.most is not None and type.most <= 1000:
        return f", {type.least:g} to {type.most:g}"
    return f" ≥ {type.least:g}" if type.least is not None else ""


def main(arguments: list[str]) -> None:
    for path in arguments:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        with open(path, "w", encoding="utf-8") as file:
            file.write(fill_tables(text))


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
