"""JSON Schemas for editors, generated from the classes of `schema`."""

from __future__ import annotations

from typing import Any

from .schema import Spec, Type, fields_of

DRAFT = "http://json-schema.org/draft-07/schema#"


def document_schema(title: str, root: type[Spec], **more: Any) -> dict[str, Any]:
    """JSON Schema (draft 7) of a file that consists of one block. `more`: further top-level keywords."""
    definitions: dict[str, Any] = {}
    schema = block_schema(root, definitions)
    return {"$schema": DRAFT, "title": title, **schema, "definitions": definitions, **more}


def block_schema(
    cls: type[Spec], definitions: dict[str, Any], extra: dict[str, Any] | None = None
) -> dict[str, Any]:
    """JSON Schema of a block. Adds nested blocks to `definitions`; `extra`: further properties."""
    fields = fields_of(cls)
    properties = dict(extra or {})
    for key, field in fields.items():
        field_schema = type_schema(field.type, definitions)
        properties[key] = (
            {"allOf": [field_schema], "description": field.doc}
            if "$ref" in field_schema
            else field_schema | {"description": field.doc}
        )
    schema: dict[str, Any] = {
        "type": "object",
        "description": (cls.__doc__ or "").partition("\n")[0],
        "properties": properties,
        "additionalProperties": False,
    }
    required = [key for key, field in fields.items() if field.required]
    if required:
        schema["required"] = required
    if cls.any_of:
        schema["anyOf"] = [{"required": [key]} for key in cls.any_of]
    return schema | getattr(cls, "json_schema", {})


def type_schema(type: Type, definitions: dict[str, Any]) -> dict[str, Any]:
    """JSON Schema of a value."""
    schema = _type_schema(type, definitions)
    return {"anyOf": [schema, {"type": "null"}]} if type.nullable else schema


def _type_schema(type: Type, definitions: dict[str, Any]) -> dict[str, Any]:
    match type.kind:
        case "text" | "template" | "target":
            limits: dict[str, Any] = {"minLength": 1} if type.least else {}
            if type.most:
                limits["maxLength"] = int(type.most)
            if type.pattern:
                limits["pattern"] = f"^(?:{type.pattern})$"
            return {"type": "string"} | limits
        case "scalar":
            return {"type": ["string", "number", "boolean"]}
        case "boolean":
            return {"type": "boolean"}
        case "integer" | "number":
            return {"type": type.kind} | _bounds(type)
        case "measure":
            return {"anyOf": [{"type": "number"} | _bounds(type), {"type": "string", "minLength": 1}]}
        case "choice":
            return {"enum": list(type.choices)}
        case "either":
            return {"anyOf": [type_schema(option, definitions) for option in type.options]}
        case "list":
            assert type.item is not None
            sizes = {"minItems": type.least, "maxItems": type.most}
            return {"type": "array", "items": type_schema(type.item, definitions)} | {
                name: int(size) for name, size in sizes.items() if size
            }
        case "map":
            assert type.item is not None
            constraints: dict[str, Any] = {"minProperties": int(type.least)} if type.least else {}
            if type.pattern:
                constraints["propertyNames"] = {"pattern": f"^(?:{type.pattern})$"}
            return {
                "type": "object",
                "additionalProperties": type_schema(type.item, definitions),
            } | constraints
        case "spec":
            return _reference(type.specs[0], definitions)
        case "tagged":
            return _tagged(type, definitions)
    return {}


def _reference(cls: type[Spec], definitions: dict[str, Any]) -> dict[str, Any]:
    name = cls.__name__
    if name not in definitions:
        definitions[name] = {}  # terminates the recursion of a block that contains itself
        definitions[name] = block_schema(cls, definitions)
    return {"$ref": f"#/definitions/{name}"}


def _tagged(type: Type, definitions: dict[str, Any]) -> dict[str, Any]:
    """JSON Schema of a tagged block: one definition for the union, one for each class."""
    base = type.specs[0].noun
    family = base.capitalize()
    if family not in definitions:
        definitions[family] = {
            "type": "object",
            "properties": {type.tag: {"enum": [cls.type for cls in type.specs]}},
            "required": [type.tag],
            "allOf": [
                {
                    "if": {"properties": {type.tag: {"const": cls.type}}, "required": [type.tag]},
                    "then": {"$ref": f"#/definitions/{base}-{cls.type}"},
                }
                for cls in type.specs
            ],
        }
        for cls in type.specs:
            schema = block_schema(cls, definitions, {type.tag: {"const": cls.type}})
            schema["required"] = [type.tag, *schema.get("required", [])]
            definitions[f"{base}-{cls.type}"] = schema
    return {"$ref": f"#/definitions/{family}"}


def _bounds(type: Type) -> dict[str, Any]:
    names = {"minimum": type.least, "exclusiveMinimum": type.above, "maximum": type.most}
    return {name: bound for name, bound in names.items() if bound is not None}
