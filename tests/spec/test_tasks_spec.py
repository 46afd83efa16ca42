"""`spec/tasks.md`: its programs run with the real client against a local server with the shown replies."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from spec.blocks import Block, take, text_of

from llc.frontend.source.schema import fields_of
from llc.frontend.tasks.registry import LIBRARY_TASKS, library_task
from llc.ir.effects import UNITS
from llc.runtime.project import configuration_schema, run_ledgers, settings
from llc.runtime.project.providers import PROVIDERS

BLOCKS = take(
    "tasks.md",
    "sexp run",
    "replies",
    "text sent",
    "json value",
    "text notes.txt",
    "yaml .loops/config.yaml",
)
FILES = [block for block in BLOCKS if block.info.endswith((".txt", ".yaml"))]
CONSOLE = take("tasks.md", "console")


class Program(NamedTuple):
    """A program with the blocks after it: replies, sent text, value."""

    text: str
    replies: list[dict[str, Any]]
    sent: str | None
    value: Any


def programs() -> list[Any]:
    starts = [number for number, block in enumerate(BLOCKS) if block.kind == "sexp run"]
    found = []
    for start, end in itertools.pairwise([*starts, len(BLOCKS)]):
        after = {block.kind: block for block in BLOCKS[start + 1 : end] if block not in FILES}
        replies: Block | None = after.get("replies")
        program = Program(
            BLOCKS[start].text,
            yaml.safe_load(replies.text) if replies is not None else [],
            after["text sent"].text if "text sent" in after else None,
            json.loads(after["json value"].text),
        )
        found.append(pytest.param(program, id=f"line {BLOCKS[start].line}"))
    return found


def messages() -> Any:
    name = "llc_tests_messages_server"
    if name not in sys.modules:
        path = Path(__file__).parents[1] / "runtime" / "messages_server.py"
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with the files of the chapter."""
    for block in FILES:
        path = tmp_path / block.info
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text, "utf-8")
    return tmp_path


def llc(project: Path, url: str, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "test-key", "NO_PROXY": "127.0.0.1"}
    env["XDG_CACHE_HOME"] = str(project / "cache")
    command = [sys.executable, "-m", "llc", *words]
    return subprocess.run(command, cwd=project, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("program", programs())
def test_a_program_sends_the_shown_text_and_has_the_shown_value(project: Path, program: Program) -> None:
    """The last sent message and the value match, and every reply is used."""
    module = messages()
    with module.MessagesServer() as server:
        for reply in program.replies or [{"text": "unexpected"}]:
            ((kind, given),) = reply.items()
            server.then(getattr(module, kind)(given))
        (project / "program.sexp").write_text(program.text)
        result = llc(project, server.url, "run", "./program.sexp", "--json")
        assert json.loads(result.stdout)["value"] == program.value, result.stderr
        assert len(server.requests) == len(program.replies)
        if program.sent is not None:
            last = server.requests[-1]["messages"][-1]["content"]
            assert "\n\n".join(part["text"] for part in last) == program.sent.rstrip("\n")


def test_a_run_over_budget_stops(project: Path) -> None:
    """The console block has its output."""
    (block,) = CONSOLE
    command = block.text.splitlines()[0].removeprefix("$ llc ").partition(";")[0].split()
    (project / ".loops" / "many.sexp").write_text(
        '(defatom user:a (params) (instructions "x"))\n(list (user:a) (user:a) (user:a))\n'
    )
    with messages().MessagesServer() as server:
        server.then(messages().text("ok"))
        result = llc(project, server.url, *command)
        assert block.text.splitlines()[-1] == f"exit {result.returncode}"
        assert len(server.requests) == 2


def test_settings_have_the_fields_of_their_schema() -> None:
    """Every key of the configuration is a field of the settings of runs."""
    assert set(fields_of(configuration_schema.ModelSpec)) == {"name", *settings.ModelEntry.field_names}
    assert set(fields_of(configuration_schema.TaskSpec)) == set(settings.TaskSettings.field_names)
    assert fields_of(configuration_schema.Amounts).keys() == set(UNITS)
    assert fields_of(configuration_schema.RunBudget).keys() == {*UNITS, *run_ledgers.PERIODS}


def test_the_tables_are_complete() -> None:
    """The tables have all standard tasks with inputs, keys of the configuration, and providers."""
    text = text_of("tasks.md")
    for name in LIBRARY_TASKS:
        (line,) = [line for line in text.splitlines() if line.startswith(f"| `{name}`")]
        task = library_task(name)
        assert task is not None
        assert all(f"`{parameter.name}`" in line for parameter in task.order), name
    for slots in (
        fields_of(configuration_schema.ModelSpec),
        fields_of(configuration_schema.TaskSpec),
        UNITS,
    ):
        assert all(f"`{key}`" in text for key in slots)
    for provider in PROVIDERS.values():
        assert all(f"`{prefix}…`" in text for prefix in provider.prefixes)
        assert f"`{provider.key}`" in text
