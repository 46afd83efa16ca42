"""Abandoning unfinished runs: `llc clean --unfinished`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from keepers import kill_with_keeper

from llc.runtime.host.processes import is_alive, start_time

LOOP = """
name: NAME
initial: a
scope: [NAME]
states:
  a: {action: 'echo $$ > NAME.pid; exec sleep 600', next: z}
  z: {terminal: true}
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".loops").mkdir()
    for name in ("one", "two"):
        (tmp_path / ".loops" / f"{name}.yaml").write_text(LOOP.replace("NAME", name))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def wait_for(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def llc(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "llc", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def begin(name: str) -> subprocess.Popen[bytes]:
    """A run whose action goes on for long."""
    pid = Path(f"{name}.pid")
    pid.unlink(missing_ok=True)
    process = subprocess.Popen([sys.executable, "-m", "llc", "run", name, "-q"])
    wait_for(lambda: pid.exists() and pid.read_text().strip())
    return process


def cut(name: str) -> tuple[str, int, str]:
    """The id of a run that was killed, and its action, which still runs."""
    process = begin(name)
    kill_with_keeper(process)
    process.wait()
    action = int(Path(f"{name}.pid").read_text())
    return max(os.listdir(".loops/.running")), action, str(start_time(action))


def running() -> list[str]:
    return [row["run"] for row in json.loads(llc("list", "--running", "--json").stdout)]


def test_an_interrupted_run_is_abandoned_with_its_processes() -> None:
    """Its action is ended and its folder removed; finished and active runs stay."""
    run, action, begun = cut("one")
    living = begin("two")
    assert llc("run", "-e", "1", "-q").returncode == 0
    assert is_alive(action, begun)
    dry = json.loads(llc("clean", "--unfinished", "--dry-run", "--json").stdout)
    assert (dry["removed"], is_alive(action, begun), run in running()) == ([run], True, True)
    told = json.loads(llc("clean", "--unfinished", "--json").stdout)
    assert (told["removed"], told["problems"]) == ([run], [])
    assert told["bytes"] > 0
    wait_for(lambda: not is_alive(action, begun))
    assert run not in os.listdir(".loops/.running")
    assert len(running()) == 1
    assert len(json.loads(llc("history", "--json").stdout)["runs"]) == 1
    living.terminate()
    assert living.wait(timeout=60) == 130
    assert llc("clean", "two", "--unfinished").stdout.startswith("removed 1 run (")
    assert llc("clean", "--unfinished").stdout == "nothing to remove\n"


def test_active_and_finished_runs_are_not_abandoned() -> None:
    """Naming such a run by its id is an error that says what to do instead."""
    living = begin("one")
    (run,) = running()
    done = llc("clean", run, "--unfinished")
    assert done.returncode == 1
    assert f"error[run-is-live]: {run} is still running" in done.stderr
    assert llc("clean", "one", "--unfinished").stdout == "nothing to remove\n"
    living.terminate()
    living.wait(timeout=60)
    assert llc("run", "-e", "1", "-q").returncode == 0
    (ended,) = (name for name in os.listdir(".loops/.history") if not name.startswith("."))
    done = llc("clean", ended, "--unfinished")
    assert done.returncode == 2
    assert f"{ended} has ended" in done.stderr
    assert llc("clean", "three", "--unfinished").returncode == 2


def test_retention_bounds_apply_to_abandoned_runs() -> None:
    """The latest runs and the young runs are kept."""
    runs = [cut("one")[0] for _ in range(3)]
    assert llc("clean", "--unfinished", "--older-than", "1h").stdout == "nothing to remove\n"
    assert json.loads(llc("clean", "--unfinished", "--keep", "1", "--json").stdout)["removed"] == runs[:2]
    assert running() == runs[2:]
    llc("clean", "--unfinished")


def test_a_run_without_its_record_can_be_abandoned() -> None:
    """It cannot continue; the error says how to remove it."""
    run, _, _ = cut("one")
    Path(f".loops/.running/{run}/one.events.jsonl").write_bytes(b"")
    assert f"to abandon it: llc clean {run} --unfinished" in llc("resume", run).stderr
    shown = llc("status", run).stdout
    assert "the beginning of the journal is lost" in shown
    assert f"Remove it with: llc clean {run} --unfinished" in shown
    assert "Resume with" not in shown
    assert llc("clean", run, "--unfinished").returncode == 0
    assert running() == []
