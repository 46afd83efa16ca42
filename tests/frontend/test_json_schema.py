"""The JSON Schema for editors agrees with the frontend."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from llc.frontend.loop.evaluator_schema import EVALUATORS
from llc.frontend.loop.json_schema import json_schema
from llc.frontend.loop.paradigms import PARADIGMS
from llc.frontend.loop.reader import read_loop
from llc.frontend.loop.schema import StateSpec
from llc.frontend.source.files import text_source
from llc.frontend.source.schema import fields_of
from llc.frontend.source.yaml_tree import read_document

SCHEMA = json_schema()

VALID = [
    "paradigm: goal\ngoal: x\ntools: [a, b]\nmax_iterations: 3",
    "paradigm: convergence\nname: x\ncheck: c\ntoward: '${context.t}'\nusing: u\ncontext: {t: [{a: null}]}",
    "paradigm: invariants\nname: x\nconstraints: [{name: a, check: b, fix: c}]\nmaintain: true\nscope: [src]",
    "paradigm: imperative\nname: x\nsteps: [a]\nuntil: {check: c, passes: false}\nbackoff: 0",
    "name: x\ninitial: a\nstates: {a: {terminal: true, status: failure}}\nbudget: {usd: 1, tokens: 5}",
    "paradigm: goal\nname: x\ninitial: a\nstates: {a: {terminal: true}}",
    "paradigm: fsm\nname: x\ninitial: a\nstates: {a: {action: x, on_yes: a, on_blocked: a, route: {_: a}}}",
    "name: x\ninitial: a\nstates: {a: {evaluate: {type: output_json, path: .a, target: null}, next: a}}",
    "name: x\ninitial: a\nstates: {a: {evaluate: {type: llm_structured, schema: {type: object}}, next: a}}",
    "name: x\ninitial: a\nstates: {}\nllm: {enabled: false, timeout: 1.5}\nagent: {program: p, args: []}",
]
INVALID = [
    "paradigm: goal\ngoal: x",
    "paradigm: goal\ngoal: x\ntools: []",
    "paradigm: goal\ngoal: x\ntools: [a]\nsteps: [b]",
    "paradigm: nope",
    "name: x\ninitial: a",
    "name: x\ninitial: a\nstates: {a: {acton: x}}",
    "name: x\ninitial: a\nstates: {a: {action: true}}",
    "name: x\ninitial: a\nstates: {a: {evaluate: {type: nope}}}",
    "name: x\ninitial: a\nstates: {a: {evaluate: {operator: eq}}}",
    "name: x\ninitial: a\nstates: {a: {evaluate: {type: exit_code, pattern: x}}}",
    "name: x\ninitial: a\nstates: {a: {timeout: 0}}",
    "name: x\ninitial: a\nstates: {}\nmax_iterations: 0",
    "name: x\ninitial: a\nstates: {}\nllm: {max_token: 5}",
    "[]",
]


def accepts(schema: dict[str, Any], value: Any) -> bool:
    """Whether a schema accepts a value; implements the subset of draft 7 that the schema uses."""
    match schema.get("$ref"):
        case str(reference):
            return accepts(SCHEMA["definitions"][reference.rpartition("/")[2]], value)
    if not all(accepts(part, value) for part in schema.get("allOf", ())):
        return False
    if "anyOf" in schema and not any(accepts(part, value) for part in schema["anyOf"]):
        return False
    if "not" in schema and accepts(schema["not"], value):
        return False
    if "if" in schema and accepts(schema["if"], value) and not accepts(schema["then"], value):
        return False
    if ("enum" in schema and value not in schema["enum"]) or ("const" in schema and value != schema["const"]):
        return False
    if "type" in schema and not _is_type(value, schema["type"]):
        return False
    if isinstance(value, dict):
        return _accepts_object(schema, value)
    if isinstance(value, list):
        items = schema.get("items", {})
        return len(value) >= schema.get("minItems", 0) and all(accepts(items, item) for item in value)
    if isinstance(value, str):
        fits = re.search(schema.get("pattern", ""), value) is not None
        return fits and len(value) >= schema.get("minLength", 0)
    if isinstance(value, int | float) and not isinstance(value, bool):
        within = schema.get("minimum", value) <= value <= schema.get("maximum", value)
        return bool(within and value > schema.get("exclusiveMinimum", value - 1))
    return True


def _is_type(value: Any, name: str) -> bool:
    types = {
        "object": dict,
        "array": list,
        "string": str,
        "boolean": bool,
        "number": (int, float),
        "integer": int,
    }
    return isinstance(value, types[name]) and (name == "boolean" or not isinstance(value, bool))


def _accepts_object(schema: dict[str, Any], value: dict[str, Any]) -> bool:
    if not all(accepts(schema.get("propertyNames", {}), key) for key in value):
        return False
    if not all(key in value for key in schema.get("required", ())):
        return False
    for key, item in value.items():
        known = [schema["properties"][key]] if key in schema.get("properties", {}) else []
        known += [
            part for pattern, part in schema.get("patternProperties", {}).items() if re.search(pattern, key)
        ]
        more = schema.get("additionalProperties", True)
        if (not known and more is False) or (
            not known and isinstance(more, dict) and not accepts(more, item)
        ):
            return False
        if not all(accepts(part, item) for part in known):
            return False
    return True


def data(text: str) -> Any:
    document = read_document(text_source(text))
    assert document.root is not None
    return document.plain(document.root)


@pytest.mark.parametrize("text", VALID)
def test_schema_accepts_valid_loops(text: str) -> None:
    assert [finding.id for finding in read_loop(text_source(text))[2]] == []
    assert accepts(SCHEMA, data(text))


@pytest.mark.parametrize("text", INVALID)
def test_schema_rejects_invalid_loops(text: str) -> None:
    assert any(finding.is_error for finding in read_loop(text_source(text))[2])
    assert not accepts(SCHEMA, data(text))


@pytest.mark.parametrize("key", ["on_sucess", "on_Success", "on_faliure", "on_errror", "on_errors"])
def test_schema_rejects_misspelt_routes(key: str) -> None:
    """The schema does not know the verdicts of a state, but common misspellings."""
    text = f"name: x\ninitial: a\nstates: {{a: {{action: x, {key}: a, on_failure: a}}}}"
    assert not accepts(SCHEMA, data(text))
    assert accepts(SCHEMA, data(text.replace(key, "on_progress")))


def test_every_key_is_documented() -> None:
    """Each property of each block has a description."""
    names = [f"paradigm-{name}" for name in PARADIGMS] + [f"evaluator-{name}" for name in EVALUATORS]
    blocks = [SCHEMA["definitions"][name] for name in (*names, "StateSpec", "Until", "Budget")]
    for block in blocks:
        for key, undocumented in block["properties"].items():
            assert undocumented.get("description") or key in ("paradigm", "type")


def test_a_state_has_the_keys_of_its_class() -> None:
    """The schema has exactly the keys of the classes."""
    assert list(SCHEMA["definitions"]["StateSpec"]["properties"]) == list(fields_of(StateSpec))


def test_the_schema_is_json() -> None:
    """The schema can be serialised."""
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA
