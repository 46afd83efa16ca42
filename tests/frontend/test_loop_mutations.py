"""Mutations of realistic loops: the compiler reports an error or compiles, and never crashes.

`LLC_FUZZ` is the number of mutations (`make fuzz`: a million); the suite runs a few hundred fixed ones.
"""

from __future__ import annotations

import json
import os
import random
import string
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from llc.frontend.compile import compile_text
from llc.frontend.loop.evaluator_schema import EVALUATORS
from llc.frontend.loop.paradigms import PARADIGMS
from llc.frontend.loop.schema import LoopSettings, StateSpec
from llc.frontend.source.schema import fields_of
from llc.ir.compile_options import CompileOptions
from llc.ir.diagnostics import CompileError, render_all
from llc.vm.code.emit import emit

COUNT = int(os.environ.get("LLC_FUZZ", "800"))
PARTS = 8
GOLDEN = Path(__file__).parents[1] / "golden"

KEYS = sorted(
    {
        key
        for cls in (*PARADIGMS.values(), *EVALUATORS.values(), StateSpec, LoopSettings)
        for key in fields_of(cls)
    }
    | {"paradigm", "type", "on_yes", "on_no", "on_blocked", "on_", "on_succes", "_", "_error", "success"}
)
WORDS = [
    *PARADIGMS,
    *EVALUATORS,
    *("shell", "slash", "ask", "prompt", "error", "yes", "true", "done", "fix", "check", "$current"),
    *("${context.x}", "${captured.a.output}", "${prev.output:default=1}", "${raw:result.details.x}", "${"),
    *(
        "${",
        "}",
        "$${x",
        "${${context.x}}",
        "cat << 'EOF'\n${prev.output}\nEOF",
        "x | y && z",
        "\"'`$(",
        ".a[",
    ),
    *(
        "/ll:check x",
        "flows.sexp#f",
        "a.sexp#",
        "(?",
        "é😀\u2028",
        "1e400",
        "0x1f",
        "-0",
        "1_000",
        "~",
        "a" * 300,
    ),
]
ODDITIES: list[Any] = [
    *(None, True, False, 0, -1, 1, 3.5, 10**30, float("inf"), float("nan"), "", " ", [], {}, [None], [[]]),
    *({"": None}, {"a": {"b": []}}, [1, "a", None], {"type": None}, {"type": []}, {"call": None}, {"x": 1}),
]


@cache
def seeds() -> tuple[str, ...]:
    """The loops of the golden tests, including invalid ones, without intentionally large ones."""
    paths = sorted(GOLDEN.glob("*/*/loop.yaml"))
    texts = (path.read_bytes().decode("utf-8", "replace") for path in paths)
    return tuple(text for text in texts if max(len(text), len(tree(text) or "")) < 5_000)


@cache
def tree(text: str) -> str | None:
    """A seed as JSON; None if PyYAML does not read it as a mapping."""
    try:
        data = yaml.load(text, Loader=yaml.CSafeLoader)
        return json.dumps(data) if isinstance(data, dict) else None
    except (yaml.YAMLError, TypeError, ValueError, RecursionError):
        return None


# --- mutations of the tree ----------------------------------------------------------------------


def locations(data: Any) -> list[tuple[Any, Any]]:
    """Container and key of every nested value."""
    result = []
    stack = [data]
    while stack:
        node = stack.pop()
        for key in list(node) if isinstance(node, dict) else range(len(node)):
            result.append((node, key))
            if isinstance(node[key], dict | list):
                stack.append(node[key])
    return result


def misspell(word: str, rng: random.Random) -> str:
    at = rng.randrange(len(word) + 1)
    return rng.choice(
        [word[:at] + word[at + 1 :], word[:at] + rng.choice(string.ascii_lowercase) + word[at:], word.upper()]
    )


def odd_value(rng: random.Random) -> Any:
    return deepcopy(rng.choice(ODDITIES if rng.random() < 0.5 else WORDS))


def mutate_tree(data: Any, rng: random.Random) -> None:
    every = locations(data)
    if not every:
        data[rng.choice(KEYS)] = odd_value(rng)
        return
    node, key = rng.choice(every)
    kind = rng.randrange(6)
    if kind == 0:
        node[key] = odd_value(rng)
    elif kind == 1:
        del node[key]
    elif kind == 2:
        node[key] = deepcopy(rng.choice(every)[0])
    elif isinstance(node, list):
        node.insert(key, odd_value(rng))
    elif kind == 3:
        node[misspell(key, rng)] = node.pop(key)
    elif kind == 4:
        node[rng.choice(KEYS)] = odd_value(rng) if rng.random() < 0.5 else deepcopy(node[key])
    else:
        node[rng.choice((f"on_{rng.choice(WORDS)[:9]}", rng.choice(KEYS)))] = odd_value(rng)


def mutated_tree(text: str, rng: random.Random) -> str:
    data = json.loads(text)
    for _ in range(rng.choice((1, 1, 2, 3, 5))):
        mutate_tree(data, rng)
    return json.dumps(data, ensure_ascii=False)


# --- mutations of the text ----------------------------------------------------------------------


def _without_line(lines: list[str], at: int, rng: random.Random) -> None:
    del lines[at]


def _with_line_twice(lines: list[str], at: int, rng: random.Random) -> None:
    lines.insert(rng.randrange(len(lines)), lines[at])


def _with_key_emptied(lines: list[str], at: int, rng: random.Random) -> None:
    lines[at] = lines[at].partition(":")[0] + ":" + rng.choice(["", " ", " []", " {}", " |", " *a", " &a"])


def _with_word(lines: list[str], at: int, rng: random.Random) -> None:
    begin = rng.randrange(len(lines[at]) + 1)
    lines[at] = lines[at][:begin] + rng.choice(WORDS) + lines[at][begin + rng.randrange(4) :]


def _indented(lines: list[str], at: int, rng: random.Random) -> None:
    lines[at] = rng.choice(["  ", "\t", "- ", "? ", "# "]) + lines[at]


def _with_character(lines: list[str], at: int, rng: random.Random) -> None:
    begin = rng.randrange(len(lines[at]) + 1)
    lines[at] = lines[at][:begin] + rng.choice(":{}[],&*!|>'\"%@`~\\$\t\0") + lines[at][begin:]


TEXT_MUTATIONS: tuple[Callable[[list[str], int, random.Random], None], ...] = (
    _without_line,
    _with_line_twice,
    _with_key_emptied,
    _with_word,
    _indented,
    _with_character,
)


def mutated_text(text: str, rng: random.Random) -> str:
    lines = text.split("\n")
    for _ in range(rng.choice((1, 1, 2, 3))):
        if lines:
            rng.choice(TEXT_MUTATIONS)(lines, rng.randrange(len(lines)), rng)
    return "\n".join(lines)


# --- the test -----------------------------------------------------------------------------------


def mutation(number: int) -> str:
    """The mutated loop with this number."""
    rng = random.Random(number)
    text = rng.choice(seeds())
    plain = tree(text) if rng.random() < 0.6 else None
    return mutated_text(text, rng) if plain is None else mutated_tree(plain, rng)


def compile_or_report(text: str) -> None:
    """Compile a loop to its image, or render its diagnostics; any other exception is an internal error."""
    try:
        compiled = compile_text(text, "loop.yaml", CompileOptions(folder=str(GOLDEN)))
    except CompileError as error:
        diagnostics = error
    else:
        render_all(compiled.diagnostics, compiled.sources)
        emit(compiled.program).to_bytes()
        return
    assert any(finding.is_error for finding in diagnostics.diagnostics)
    render_all(diagnostics.diagnostics, diagnostics.sources)


@pytest.mark.parametrize("part", range(PARTS))
def test_mutated_loop_is_no_internal_error(part: int) -> None:
    """Mutations are numbered, so that a failure can be reproduced."""
    for number in range(part, COUNT, PARTS):
        try:
            compile_or_report(mutation(number))
        except Exception as error:
            raise AssertionError(f"mutation {number}:\n{mutation(number)}") from error


STATE = "{action: 'true', next: done, %s}"


@pytest.mark.parametrize("key", ["on_blocked", "on_succes", "on_yes", "on_x", "on_error", "route"])
@pytest.mark.parametrize("value", ["", "[a]", "3", "{}", "''", "{a: }", "{'': done}", "null", '"${"'])
def test_invalid_route_value_is_reported(key: str, value: str) -> None:
    """Every empty or non-text target, for keys of the schema and `on_<verdict>`."""
    state = STATE % f"{key}: {value}"
    compile_or_report(f"name: x\ninitial: a\nstates:\n  a: {state}\n  done: {{terminal: true}}\n")


@pytest.mark.parametrize(
    "properties", ["3", "[a]", "text", "null", "true", "{verdict: 3}", "{verdict: {enum: 3}}"]
)
def test_a_schema_without_properties_is_reported(properties: str) -> None:
    """The verdicts of a schema are read with the state, before the schema is checked."""
    schema = f"{{type: object, properties: {properties}}}"
    state = STATE % f"evaluate: {{type: llm_structured, schema: {schema}}}, route: {{success: done}}"
    compile_or_report(f"name: x\ninitial: a\nstates:\n  a: {state}\n  done: {{terminal: true}}\n")
