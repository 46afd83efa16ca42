"""JSON Schemas of files: editors and llc accept the same files."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from llc.frontend.source.files import text_source
from llc.frontend.source.yaml_tree import read_document
from llc.frontend.tasks.tools_file import read_tools
from llc.ir.diagnostics import CompileError
from llc.runtime.authoring.file_schemas import FILE_SCHEMAS
from llc.runtime.effects.script_reader import read_world
from llc.runtime.host.errors import UserError
from llc.runtime.launch import jobs
from llc.runtime.project import agents
from llc.runtime.project.configuration_schema import read_configuration
from llc.runtime.recordings import case_reader

# For each kind of file: valid texts and invalid texts.
FILES: dict[str, tuple[list[str], list[str]]] = {
    "config": (
        [
            "secrets: [A, B_2]\nhistory: {keep: 3, older_than: 30d}\n",
            "models: [{name: m, provider: openai, base_url: 'http://h/v1', key: K, price: [1, 2.5]}]\n",
            "tasks: {agent: [a, b], timeout: 2.5}\nbudget: {usd: 5, calls: 3}\n",
            "mcp: {files: {command: f, args: [.], env: {A: $B}, timeout: 3}}\n",
            "agents: {a: {argv: [a, '{prompt}'], output: json, fields: {result: x}}}\n",
            "agents: {a: {extends: codex, env: {A: b}, stop: {signals: [INT], grace: 1}}}\n",
        ],
        ["secret: [A]\n", "secrets: [a-b]\n", "history: {keep: -1}\n", "models: [{provider: openai}]\n",
         "mcp: {a/b: {command: x}}\n", "agents: {a: {output: text}}\n", "budget: {calls: 1.5}\n"],
    ),
    "agent": (
        [
            "argv: [a, [--model, '{model}'], '{prompt}']\nerrors: [{kind: auth, status: [401]}]\n",
            "extends: codex\nevents: [{match: {type: a}, each: b, where: {c: [1, d]}, text: [e, f]}]\n",
        ],
        ["output: text\n", "argv: []\n", "argv: [a]\nerrors: [{kind: odd}]\n",
         "argv: [a]\nevents: [{matches: {}}]\n", "argv: [a]\npermissions: {root: {}}\n",
         "argv: [a]\nstop: {signals: [KILL]}\n", "argv: [a]\nevents: [{usage: {scope: run}}]\n", "- a\n"],
    ),
    "tools": (
        [
            "tools: [{name: a, command: [b]}]\n",
            "- {name: 'x:y', command: 'ls ${p}', parameters: {p: string, q: null}, timeout: 3}\n",
            "- {name: a, python: 'm:f', parameters: [p, {name: q, type: integer, default: 3}]}\n",
        ],
        ["tool: []\n", "- {name: a}\n", "- {name: a, command: [b], timeout: 0}\n", "- {command: [b]}\n",
         "- {name: a, command: [b], output: xml}\n", "- {name: a, command: [b], parameters: {p: strng}}\n"],
    ),
    "world": (
        [
            "rules:\n  - {state: a, results: [{exit_code: 1}, {exit_code: 0}]}\nenv: {A: b}\n",
            "- {tool: t, args: {x: 1}, value: [1, 2]}\n- {kind: ask, answer: yes}\n",
        ],
        ["rule: []\n", "- {exit_code: 256}\n", "- {times: 0}\n", "- {results: []}\n", "- {status: DONE}\n"],
    ),
    "case": (
        ["llc_case: 1\nsource: a.yaml\noptions: {max_iterations: 3}\ntrace: []\noutcome: null\n"],
        ["llc_case: 2\nsource: a.yaml\ntrace: []\n", "llc_case: 1\nsource: a.yaml\n",
         "llc_case: 1\nsource: a.yaml\ntrace: []\nticks: -1\n"],
    ),
    "job": (
        ['{"loop": "a", "context": {"x": 1}, "scope": [], "max_iterations": 3}\n'],
        ['{"lop": "a"}\n', '{"loop": "a", "scope": "x"}\n', '{"loop": "a", "max_iterations": 0}\n'],
    ),
}  # fmt: skip
FILE_CASES = [
    (kind, text, is_valid)
    for kind, (valid, invalid) in FILES.items()
    for is_valid, texts in ((True, valid), (False, invalid))
    for text in texts
]


def accepts(kind: str, text: str, folder: Path) -> bool:
    """Return whether llc reads the file without an error."""
    path = folder / f"{kind}.yaml"
    path.write_text(text)
    try:
        if kind == "config":
            read_configuration(str(path))
        elif kind == "tools":
            return not read_tools(text_source(text))[1]
        elif kind == "agent":
            document = read_document(text_source(text))
            agent = agents.read_agent(document, "a")
            return agent is not None and not any(diagnostic.is_error for diagnostic in document.diagnostics)
        elif kind == "world":
            read_world(text_source(text))
        elif kind == "case":
            case_reader.read(str(path))
        else:
            jobs.from_data([json.loads(text)])
    except (CompileError, UserError):
        return False
    return True


@pytest.mark.parametrize("kind", FILE_SCHEMAS)
def test_schema_is_valid(kind: str) -> None:
    """It is valid by its own draft, and every reference is resolved."""
    schema = FILE_SCHEMAS[kind]()
    jsonschema.Draft7Validator.check_schema(schema)
    for reference in _references(schema):
        assert reference.removeprefix("#/definitions/") in schema["definitions"]


def _references(value: Any) -> list[str]:
    if isinstance(value, dict):
        references = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return references + [reference for item in value.values() for reference in _references(item)]
    return [reference for item in value for reference in _references(item)] if isinstance(value, list) else []


@pytest.mark.parametrize(("kind", "text", "is_valid"), FILE_CASES)
def test_llc_and_the_schema_agree(kind: str, text: str, is_valid: bool, tmp_path: Path) -> None:
    """Both accept a file or both refuse it."""
    validator = jsonschema.Draft7Validator(FILE_SCHEMAS[kind]())
    assert validator.is_valid(yaml.safe_load(text)) == is_valid
    assert accepts(kind, text, tmp_path) == is_valid


@pytest.mark.parametrize("kind", ["pipe", "socket", "folder"])
def test_configuration_that_is_not_a_file_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Nothing runs, because the configuration may name secrets."""
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    folder = tmp_path / ".loops"
    folder.mkdir()
    (folder / "t.yaml").write_text(
        "name: t\ninitial: a\nstates:\n  a: {action: 'touch ran', next: z}\n  z: {terminal: true}\n"
    )
    path = folder / "config.yaml"
    with socket.socket(socket.AF_UNIX) as listener:
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "socket":
            listener.bind(".loops/config.yaml")
        else:
            path.mkdir()
        done = subprocess.run(
            [sys.executable, "-m", "llc", "run", "t"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.returncode == 2, done.stderr
    assert "cannot read `.loops/config.yaml`" in done.stderr
    assert not (tmp_path / "ran").exists()
