"""Ledgers of what agents use: limits per day, project and account, in a database of the user."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Llc = Callable[..., subprocess.CompletedProcess[str]]
LOOP = """
name: fix
initial: fix
max_iterations: 9
states:
  fix: {action: "do it", action_type: prompt, next: again}
  again: {action: "true", on_success: fix, on_failure: done}
  done: {terminal: true}
"""
AGENT = """#!/bin/sh
echo "$@" >> "$CALLS"
echo '{"type":"result","subtype":"success","is_error":false,"num_turns":1,"result":"ok",
"total_cost_usd":COST,"session_id":"s","usage":{"input_tokens":900,"output_tokens":100}}' | tr -d '\\n'
"""


class Project:
    """A project with a loop that asks the agent `claude` nine times, a program that reports its cost."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls = folder / "calls"
        self.data = folder / "data"
        self.env = {
            **os.environ,
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "XDG_DATA_HOME": str(self.data),
            "CALLS": str(self.calls),
            "HOME": str(folder),
        }
        (folder / "bin").mkdir()
        (folder / ".loops").mkdir()
        (folder / ".loops" / "fix.yaml").write_text(LOOP)
        self.agent("0.02")

    def agent(self, cost: str, script: str = AGENT) -> None:
        path = self.folder / "bin" / "claude"
        path.write_text(script.replace("COST", cost))
        path.chmod(0o755)

    def llc(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "llc", *words],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.folder,
            env={**self.env, **env},
        )

    def json(self, *words: str, **env: str) -> Any:
        done = self.llc(*words, "--json", **env)
        assert done.stdout, done.stderr
        return json.loads(done.stdout)

    @property
    def starts(self) -> list[str]:
        return self.calls.read_text().splitlines() if self.calls.exists() else []


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_a_day_has_a_limit(project: Project) -> None:
    """A call that finds the ledger used up does not start: the run stops and names it and its renewal."""
    assert project.llc("budget", "set", "day", "0.05usd").stdout == "the day: 0.0500 USD at most\n"
    done = project.llc("run", "fix", "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["status"], found["terminated_by"]) == (3, "interrupted", "budget")
    assert found["error"]["message"].startswith(
        "the budget of the day is used up: 0.0600 USD of 0.0500 USD; it renews 20"
    )
    assert len(project.starts) == 3
    (ledger,) = project.json("budget")["ledgers"]
    assert (ledger["limit"], ledger["spent"]) == (0.05, 0.06)
    assert (ledger["reserved"], ledger["left"]) == (0, 0)
    # A later run of the day does not start its first call; with more, the stopped one is resumed.
    assert project.llc("run", "fix", "-q").returncode == 3
    assert len(project.starts) == 3
    project.llc("budget", "set", "day", "1usd")
    assert project.json("resume", found["run"])["status"] == "limit"
    assert project.json("budget")["today"]["calls"] == len(project.starts) == 9


def test_the_agent_gets_what_is_reserved_as_its_cap(project: Project) -> None:
    """A quarter of the limit or what is left, less a fifth for the turn in which it is exceeded."""
    project.llc("budget", "set", "day", "0.05usd")
    project.llc("run", "fix", "-q")
    caps = [words.split("--max-budget-usd ")[1].split()[0] for words in project.starts]
    assert caps == ["0.010000", "0.010000", "0.008000"]
