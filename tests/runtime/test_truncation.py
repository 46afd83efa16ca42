"""A journal truncated at a line end: finished actions are not repeated without a question."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from in_process import run_llc
from keepers import kill_with_keeper

from llc.runtime.journal import active_time

LOOP = """
name: job
initial: a
states:
  a: {action: "echo a >> log", next: b, on_error: b}
  b: {action: "echo b >> log", next: c, on_error: c}
  c: {action: "echo c >> log; exec sleep 600", next: d, on_error: d}
  d: {action: "echo d >> log", next: z, on_error: z}
  z: {terminal: true}
"""


@pytest.fixture
def killed(project_dir: Path) -> Path:
    """The journal of a run that was killed in its third action, which is not recorded as finished."""
    (project_dir / ".loops" / "job.yaml").write_text(LOOP)
    process = subprocess.Popen([sys.executable, "-m", "llc", "run", "job", "-q"])
    end = time.monotonic() + 60
    log = project_dir / "log"
    while not log.exists() or "c" not in log.read_text():
        assert time.monotonic() < end
        time.sleep(0.02)
    kill_with_keeper(process)
    process.wait()
    (path,) = project_dir.glob(".loops/.running/*/job.events.jsonl")
    return path


def resume(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "llc", "resume", "job", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def cut(journal: Path, kind: str) -> int:
    """Truncate a journal before the first line of this kind; returns the number of remaining lines."""
    lines = journal.read_bytes().splitlines(keepends=True)
    count = next(i for i, line in enumerate(lines) if json.loads(line)["event"] == kind)
    journal.write_bytes(b"".join(lines[:count]))
    return count


def test_the_active_file_has_the_length_of_the_journal(killed: Path) -> None:
    """It covers the journal up to the start of the running action."""
    saved = active_time.read(str(killed.parent))
    data = killed.read_bytes()
    assert data[: saved.size].count(b"\n") == saved.lines
    last = json.loads(data[: saved.size].splitlines()[-1])
    assert last["event"] in ("action_start", "process")
    assert last["seq"] == 3


@pytest.mark.parametrize("kind", ["action_start", "action_complete", "state_enter"])
def test_a_truncated_journal_is_refused(killed: Path, project_dir: Path, kind: str) -> None:
    """Nothing is performed; the error has the missing lines and the option."""
    remaining = cut(killed, kind)
    before = killed.read_bytes()
    done = resume()
    assert done.returncode == 1
    assert "error[truncated-journal]" in done.stderr
    assert f"lines {remaining + 1} to " in done.stderr
    assert "--accept-loss" in done.stderr
    assert "Traceback" not in done.stderr
    assert (project_dir / "log").read_text() == "a\nb\nc\n"
    assert killed.read_bytes() == before
    assert resume().returncode == 1, "the refusal is repeated"


def test_accept_loss_resumes_the_run(killed: Path, project_dir: Path) -> None:
    """Actions of the missing lines are in doubt."""
    cut(killed, "action_complete")
    done = resume("--accept-loss", "--on-unknown", "fail", "-q")
    assert "missing" in done.stderr
    assert done.returncode == 0, done.stderr
    # The first action is in doubt and fails, as do as many later actions as the missing lines may contain.
    assert (project_dir / "log").read_text() == "a\nb\nc\n"


def test_after_an_accepted_loss_the_new_length_applies(killed: Path, project_dir: Path) -> None:
    """A later kill is handled as usual."""
    cut(killed, "action_complete")
    command = [sys.executable, "-m", "llc", "resume", "job", "-q", "--accept-loss"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while (project_dir / "log").read_text().count("a") < 2:
        assert time.monotonic() < end
        time.sleep(0.002)
    kill_with_keeper(process)
    process.wait()
    resumed = resume("--on-unknown", "fail", "-q")
    assert "truncated" not in resumed.stderr
    assert resumed.returncode == 0


def test_a_kill_right_after_an_accepted_loss(killed: Path, project_dir: Path) -> None:
    """The old length is ignored although the new length is not written yet."""
    cut(killed, "action_complete")
    ends = (
        "import os; from llc.runtime.launch.command import Command; from llc.runtime.cli import entry; "
        "Command.detach = lambda *_: os._exit(9); entry.main()"
    )
    command = [sys.executable, "-c", ends, "resume", "job", "-q", "--accept-loss"]
    assert subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 9
    resumed = resume("--on-unknown", "fail", "-q")
    assert resumed.returncode == 0, resumed.stderr
    assert (project_dir / "log").read_text() == "a\nb\nc\n"


def test_a_missing_active_file_changes_nothing(killed: Path, project_dir: Path) -> None:
    (killed.parent / "active").unlink()
    done = resume("--on-unknown", "fail", "-q")
    assert done.returncode == 0, done.stderr
    assert (project_dir / "log").read_text() == "a\nb\nc\nd\n"


@pytest.fixture
def stopped(project_dir: Path) -> Path:
    """The journal of a run that was stopped by a signal in its third action."""
    (project_dir / ".loops" / "job.yaml").write_text(LOOP)
    process = subprocess.Popen([sys.executable, "-m", "llc", "run", "job", "-q"])
    log = project_dir / "log"
    end = time.monotonic() + 60
    while not log.exists() or "c" not in log.read_text():
        assert time.monotonic() < end
        time.sleep(0.02)
    process.terminate()
    process.wait()
    (path,) = project_dir.glob(".loops/.running/*/job.events.jsonl")
    return path


@pytest.fixture
def finished(project_dir: Path) -> Path:
    """The journal of a finished run."""
    (project_dir / ".loops" / "job.yaml").write_text(LOOP.replace("; exec sleep 600", ""))
    assert run_llc("run", "job", "-q").returncode == 0
    (path,) = project_dir.glob(".loops/.history/*/job.events.jsonl")
    return path


def without_checkpoints(journal: Path) -> None:
    for path in journal.parent.glob("checkpoint-*"):
        path.unlink()


@pytest.mark.parametrize("has_checkpoint", [True, False])
@pytest.mark.parametrize("count", [1, 3])
def test_a_stopped_run_is_checked(stopped: Path, project_dir: Path, count: int, has_checkpoint: bool) -> None:
    """Its journal lost the last lines, including the event of the stop."""
    if not has_checkpoint:
        without_checkpoints(stopped)
    stopped.write_bytes(b"".join(stopped.read_bytes().splitlines(keepends=True)[:-count]))
    done = resume()
    assert (done.returncode, "error[truncated-journal]" in done.stderr) == (1, True)
    assert (project_dir / "log").read_text() == "a\nb\nc\n"


@pytest.mark.parametrize("state", ["killed", "stopped", "finished"])
@pytest.mark.parametrize("is_short", [True, False])
def test_each_command_reports_a_truncated_journal(
    state: str, is_short: bool, project_dir: Path, request: pytest.FixtureRequest
) -> None:
    """In each state of a run; a complete journal is not reported."""
    journal: Path = request.getfixturevalue(state)
    if is_short:
        cut(journal, "route")
    run = journal.parent.name
    for words in (
        ["status", run],
        ["logs", run, "-n", "1"],
        ["replay", run],
        ["trace", run],
        ["profile", run],
        ["record", run, "--output", "case.yaml"],
        *([["fork", run, "--at", "1"]] if state == "finished" else []),
    ):
        done = run_llc(*words)
        assert ("is truncated: " in done.stderr or "are missing" in done.stderr) == is_short, (words, done)
    page = run_llc("report", run, "--format", "json", "-o", "-").stdout
    assert ("are missing" in page) == is_short
