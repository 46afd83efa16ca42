"""Abandoning unfinished runs: `llc clean --unfinished`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from keepers import kill_with_keeper
from waiting import wait_for

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


def llc(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "llc", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def start_run(name: str) -> subprocess.Popen[bytes]:
    """Start a run whose action does not end by itself."""
    pid = Path(f"{name}.pid")
    pid.unlink(missing_ok=True)
    process = subprocess.Popen([sys.executable, "-m", "llc", "run", name, "-q"])
    wait_for(lambda: pid.exists() and pid.read_text().strip())
    return process


def kill_run(name: str) -> tuple[str, int, str]:
    """Kill a run; return its id and the process id and start time of its action, which still runs."""
    process = start_run(name)
    kill_with_keeper(process)
    process.wait()
    action = int(Path(f"{name}.pid").read_text())
    return max(os.listdir(".loops/.running")), action, str(start_time(action))


def running_runs() -> list[str]:
    return [row["run"] for row in json.loads(llc("list", "--running", "--json").stdout)]


def test_clean_unfinished_removes_the_run_and_ends_its_processes() -> None:
    run, action, started_at = kill_run("one")
    active = start_run("two")
    assert llc("run", "-e", "1", "-q").returncode == 0
    assert is_alive(action, started_at)
    preview = json.loads(llc("clean", "--unfinished", "--dry-run", "--json").stdout)
    assert (preview["removed"], is_alive(action, started_at), run in running_runs()) == ([run], True, True)
    removed = json.loads(llc("clean", "--unfinished", "--json").stdout)
    assert (removed["removed"], removed["problems"]) == ([run], [])
    assert removed["bytes"] > 0
    wait_for(lambda: not is_alive(action, started_at))
    assert run not in os.listdir(".loops/.running")
    assert len(running_runs()) == 1
    assert len(json.loads(llc("history", "--json").stdout)["runs"]) == 1
    active.terminate()
    assert active.wait(timeout=60) == 130
    assert llc("clean", "two", "--unfinished").stdout.startswith("removed 1 run (")
    assert llc("clean", "--unfinished").stdout == "nothing to remove\n"


def test_clean_unfinished_keeps_active_and_finished_runs() -> None:
    """Naming such a run by its id is an error that states the alternative."""
    active = start_run("one")
    (run,) = running_runs()
    completed = llc("clean", run, "--unfinished")
    assert completed.returncode == 1
    assert f"error[run-is-live]: {run} is still running" in completed.stderr
    assert llc("clean", "one", "--unfinished").stdout == "nothing to remove\n"
    active.terminate()
    active.wait(timeout=60)
    assert llc("run", "-e", "1", "-q").returncode == 0
    (finished,) = (name for name in os.listdir(".loops/.history") if not name.startswith("."))
    completed = llc("clean", finished, "--unfinished")
    assert completed.returncode == 2
    assert f"{finished} has ended" in completed.stderr
    assert llc("clean", "three", "--unfinished").returncode == 2


def test_retention_limits_apply_to_unfinished_runs() -> None:
    """`--keep` and `--older-than` keep the latest and the recent runs."""
    runs = [kill_run("one")[0] for _ in range(3)]
    assert llc("clean", "--unfinished", "--older-than", "1h").stdout == "nothing to remove\n"
    assert json.loads(llc("clean", "--unfinished", "--keep", "1", "--json").stdout)["removed"] == runs[:2]
    assert running_runs() == runs[2:]
    llc("clean", "--unfinished")


def test_run_with_a_lost_journal_can_be_removed() -> None:
    """Such a run cannot be resumed; the error states how to remove it."""
    run, _, _ = kill_run("one")
    Path(f".loops/.running/{run}/one.events.jsonl").write_bytes(b"")
    assert f"to abandon it: llc clean {run} --unfinished" in llc("resume", run).stderr
    shown = llc("status", run).stdout
    assert "the beginning of the journal is lost" in shown
    assert f"Remove it with: llc clean {run} --unfinished" in shown
    assert "Resume with" not in shown
    assert llc("clean", run, "--unfinished").returncode == 0
    assert running_runs() == []
