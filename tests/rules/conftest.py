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


class FinishedRun:
    """A finished run: exit code, JSON object of `--json`, events and stderr."""

    def __init__(self, folder: Path, code: int, stdout: str, stderr: str) -> None:
        self.code = code
        self.outcome: dict[str, Any] = json.loads(stdout)
        self.stderr = stderr
        journals = sorted(folder.glob(".loops/.history/*/*.events.jsonl"), key=os.path.getmtime)
        lines = journals[-1].read_text("utf-8").splitlines() if journals else []
        self.events: list[dict[str, Any]] = [json.loads(line) for line in lines]

    def event_fields(self, event: str, field: str) -> list[Any]:
        """Values of a field of all events of a kind."""
        return [line.get(field) for line in self.events if line["event"] == event]

    @property
    def path(self) -> str:
        """Entered states with their iterations, as in `check1 fix1 check2`."""
        entered = [line for line in self.events if line["event"] == "state_enter"]
        return " ".join(f"{line['state']}{line['iteration']}" for line in entered)

    @property
    def commands(self) -> list[str]:
        return self.event_fields("action_start", "action")

    @property
    def verdicts(self) -> list[str]:
        return self.event_fields("evaluate", "verdict")

    @property
    def ended(self) -> tuple[str, str, str]:
        outcome = self.outcome
        return outcome["status"], outcome["terminated_by"], outcome["final_state"]

    @property
    def error(self) -> str:
        """Message of the error in the outcome; '' without an error."""
        error = self.outcome["error"]
        return f"{error['kind']}: {error['message']}" if error else ""


Run = Callable[..., FinishedRun]


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project folder for each test, and an environment without variables of llc."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("LLC_LLM_MODEL", "LLC_AGENT", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def scripted(project: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Function `scripted(loop, world, "--max-iterations", "3")`; loop and world are YAML texts."""

    def scripted(loop: str, world: str = "[]", *words: str) -> FinishedRun:
        (project / "loop.yaml").write_text(loop)
        (project / "world.yaml").write_text(world)
        line = ["loop.yaml", "--script", "world.yaml", "--json", *words]
        arguments = parse.read("llc run", subcommands.find("run"), line)
        assert arguments is not None
        values = options.values(arguments.pop("loop"), arguments)
        out, err = project / "stdout", project / "stderr"
        with monkeypatch.context() as patch, out.open("w") as stdout, err.open("w") as stderr:
            patch.setattr("sys.stdout", stdout)
            patch.setattr("sys.stderr", stderr)
            code = launch_run.run(values)
        return FinishedRun(project, code, out.read_text(), err.read_text())

    return scripted


@pytest.fixture
def llc(project: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Function `llc("validate", "loop.yaml")` that runs in this process."""
    return run_llc


@pytest.fixture
def real(project: Path, llc: Callable[..., subprocess.CompletedProcess[str]]) -> Run:
    """Function `real(loop, "--no-llm", PATH=…)` that runs `llc run` in the real world."""

    def real(loop: str, *words: str, **env: str) -> FinishedRun:
        (project / "loop.yaml").write_text(loop)
        process = llc("run", "loop.yaml", "--json", *words, **env)
        return FinishedRun(project, process.returncode, process.stdout, process.stderr)

    return real


@pytest.fixture
def programs(project: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """Function `programs("claude", "echo done")` that puts a shell script on the PATH."""
    folder = project / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def programs(name: str, text: str) -> Path:
        file = folder / name
        file.write_text(f"#!{shutil.which('sh')}\n{text}\n")
        file.chmod(0o755)
        return file

    return programs
