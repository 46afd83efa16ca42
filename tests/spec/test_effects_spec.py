"""`spec/effects.md`: its tables match `ir/effects.py`, its blocks run with the shown results."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from spec.blocks import take, text_of
from spec.tables import compare

from llc.frontend.source.files import text_source
from llc.ir.effects import EFFECT_ROWS, NOTE_ROWS
from llc.runtime.effects.script_reader import read_world
from llc.runtime.effects.scripted_world import NoRule
from llc.runtime.effects.world import World
from llc.runtime.host.effect_context import Context, Interrupt

TEXT = text_of("effects.md")
BLOCKS = take("effects.md", "sh action", "json result", "python", "yaml world", "answers")
CLAIM = re.compile(r"(\w+)(?: (\w+))?(?: (.*?))? -> (.*)")


def pairs(first: str, second: str) -> list[Any]:
    """Each block of one kind with the block after it, as test parameters."""
    parameters = []
    for block, after in itertools.pairwise(BLOCKS):
        if block.kind == first:
            assert after.kind == second, f"line {block.line}: `{second}` follows on `{first}`"
            parameters.append(pytest.param(block.text, after.text, id=f"line {block.line}"))
    return parameters


def fields(words: str) -> str:
    return " ".join(f"`{word}`" for word in words.split())


def effect_table() -> Iterator[str]:
    yield "| kind | arguments | result | waits | acts | |"
    yield "|---|---|---|---|---|---|"
    for row in EFFECT_ROWS:
        waits, acts = ("yes" if flag else "" for flag in (row.waits, row.acts))
        yield f"| `{row.name}` | {fields(row.args)} | {fields(row.result)} | {waits} | {acts} | {row.doc} |"


def note_table() -> Iterator[str]:
    yield "| kind | fields | |"
    yield "|---|---|---|"
    for row in NOTE_ROWS:
        yield f"| `{row.name}` | {fields(row.fields)} | {row.doc} |"


def test_tables_match_the_code(update: bool) -> None:
    """Effects and notes are declared once, in `ir/effects.py`."""
    tables = {"effects": effect_table, "notes": note_table}
    compare("effects.md", lambda name: tables[name](), update)


class Effect:
    def __init__(self, kind: str, args: dict[str, Any]) -> None:
        self.kind = kind
        self.args = args


@pytest.fixture
def interrupt() -> Iterator[Interrupt]:
    interrupt = Interrupt()
    yield interrupt
    interrupt.close()


def context(state: str | None, world: Any, interrupt: Interrupt) -> Context:
    return Context(
        run_id="lint-1",
        effect_id="lint-1/1",
        loop="lint",
        state=state,
        iteration=1,
        elapsed_ms=lambda: round(world.monotonic() * 1000),
        interrupt=interrupt,
    )


@pytest.mark.parametrize(("command", "claimed"), pairs("sh action", "json result"))
def test_action_has_the_shown_result(command: str, claimed: str, interrupt: Interrupt) -> None:
    """The action runs in a real shell; the named fields are compared."""
    world = World()
    result = world.perform(Effect("shell", {"command": command}), context("check", world, interrupt))
    world.close()
    expected = json.loads(claimed)
    assert {name: result[name] for name in expected} == expected


def effect_arguments(kind: str, words: str | None) -> dict[str, Any]:
    """Arguments of an effect: a command or a query; or the name and the arguments of a tool or task."""
    if kind not in ("tool", "task"):
        return {"command": words, "query": words, "names": ["HOME"]}
    name, _, given = (words or "").partition(" ")
    return {"name": name, "inputs" if kind == "task" else "args": json.loads(given)}


@pytest.mark.parametrize(("script", "claims"), pairs("yaml world", "answers"))
def test_script_gives_the_shown_results(script: str, claims: str, interrupt: Interrupt) -> None:
    """One effect after another; the named fields are compared."""
    world = read_world(text_source(script))
    for line in claims.splitlines():
        match = CLAIM.fullmatch(line)
        assert match is not None, line
        kind, state, command, claimed = match.groups()
        effect = Effect(kind, effect_arguments(kind, command))
        if claimed == "no rule":
            with pytest.raises(NoRule):
                world.perform(effect, context(state, world, interrupt))
        else:
            result = world.perform(effect, context(state, world, interrupt))
            expected = json.loads(claimed)
            assert {name: result[name] for name in expected} == expected, line


@pytest.mark.parametrize("code", [block.text for block in BLOCKS if block.kind == "python"])
def test_the_python_of_the_chapter_runs(code: str) -> None:
    """Its assertions hold."""
    exec(compile(code, "effects.md", "exec"), {})
