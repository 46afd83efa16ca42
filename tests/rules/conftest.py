"""Fixtures of the rule tests: run a loop in a scripted world or in the real world."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from in_process import run_llc

from llc.runtime.cli import parse, subcommands
from llc.runtime.launch import run as launch_run
from llc.runtime.project import options


class Ran:
    """A run that is over: its exit code, the JSON object of `--json`, its events, what stderr got."""

    def __init__(self, folder: Path, code: int, stdout: str, stderr: str) -> None:
        self.code = code
        self.outcome: dict[str, Any] = json.loads(stdout)
        self.stderr = stderr
        journals = sorted(folder.glob(".loops/.history/*/*.events.jsonl"), key=os.path.getmtime)
        lines = journals[-1].read_text("utf-8").splitlines() if journals else []
        self.events: list[dict[str, Any]] = [json.loads(line) for line in lines]

    def all(self, event: str, field: str) -> list[Any]:
        """A field of each event of a kind."""
        return [line.get(field) for line in self.events if line["event"] == event]

    @property
    def path(self) -> str:
        """The states entered, each with its iteration, as in `check1 fix1 check2`."""
        entered = [line for line in self.events if line["event"] == "state_enter"]
        return " ".join(f"{line['state']}{line['iteration']}" for line in entered)

    @property
    def commands(self) -> list[str]:
        return self.all("action_start", "action")

    @property
    def verdicts(self) -> list[str]:
        return self.all("evaluate", "verdict")

    @property
    def ended(self) -> tuple[str, str, str]:
        outcome = self.outcome
        return outcome["status"], outcome["terminated_by"], outcome["final_state"]

    @property
    def error(self) -> str:
        """What went wrong, as the outcome says it; '' where nothing did."""
        error = self.outcome["error"]
        return f"{error['kind']}: {error['message']}" if error else ""


Run = Callable[..., Ran]


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own for each test, and an environment that says nothing to llc."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("LLC_LLM_MODEL", "LLC_AGENT", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def scripted(project: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`scripted(loop, world, "--max-iterations", "3")`: both are YAML texts."""

    def scripted(loop: str, world: str = "[]", *words: str) -> Ran:
        (project / "loop.yaml").write_text(loop)
        (project / "world.yaml").write_text(world)
        line = ["loop.yaml", "--script", "world.yaml", "--json", *words]
        given = parse.read("llc run", subcommands.find("run"), line)
        assert given is not None
        values = options.values(given.pop("loop"), given)
        out, err = project / "stdout", project / "stderr"
        with monkeypatch.context() as patch, out.open("w") as stdout, err.open("w") as stderr:
            patch.setattr("sys.stdout", stdout)
            patch.setattr("sys.stderr", stderr)
            code = launch_run.run(values)
        return Ran(project, code, out.read_text(), err.read_text())

    return scripted


@pytest.fixture
def llc(project: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`llc("validate", "loop.yaml")` in this process."""
    return run_llc


@pytest.fixture
def real(project: Path, llc: Callable[..., subprocess.CompletedProcess[str]]) -> Run:
    """`real(loop, "--no-llm", PATH=…)`: `llc run` in the real world."""

    def real(loop: str, *words: str, **env: str) -> Ran:
        (project / "loop.yaml").write_text(loop)
        done = llc("run", "loop.yaml", "--json", *words, **env)
        return Ran(project, done.returncode, done.stdout, done.stderr)

    return real


@pytest.fixture
def programs(project: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """`programs("claude", "echo done")` puts a shell script on the PATH."""
    folder = project / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def programs(name: str, text: str) -> Path:
        file = folder / name
        file.write_text(f"#!{shutil.which('sh')}\n{text}\n")
        file.chmod(0o755)
        return file

    return programs
