"""A journal truncated at a line end: finished actions do not run again without a question."""

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
    """The journal of a run that was killed in its third action, without that action."""
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
    """Cut a journal before the first line of that kind; how many lines are left."""
    lines = journal.read_bytes().splitlines(keepends=True)
    left = next(i for i, line in enumerate(lines) if json.loads(line)["event"] == kind)
    journal.write_bytes(b"".join(lines[:left]))
    return left


def test_the_file_knows_what_is_on_disk(killed: Path) -> None:
    """It has the length of the journal up to the start of the action that was running."""
    saved = active_time.read(str(killed.parent))
    data = killed.read_bytes()
    assert data[: saved.size].count(b"\n") == saved.lines
    last = json.loads(data[: saved.size].splitlines()[-1])
    assert last["event"] in ("action_start", "process")
    assert last["seq"] == 3


@pytest.mark.parametrize("kind", ["action_start", "action_complete", "state_enter"])
def test_a_shorter_journal_is_not_taken_for_the_whole(killed: Path, project_dir: Path, kind: str) -> None:
    """Nothing is performed, and the user is told where it ends and what can be done."""
    left = cut(killed, kind)
    before = killed.read_bytes()
    done = resume()
    assert done.returncode == 1
    assert "error[truncated-journal]" in done.stderr
    assert f"lines {left + 1} to " in done.stderr
    assert "--accept-loss" in done.stderr
    assert "Traceback" not in done.stderr
    assert (project_dir / "log").read_text() == "a\nb\nc\n"
    assert killed.read_bytes() == before
    assert resume().returncode == 1, "it asks each time"


def test_the_loss_can_be_accepted(killed: Path, project_dir: Path) -> None:
    """Then actions after the end are in doubt, and it is asked once."""
    cut(killed, "action_complete")
    done = resume("--accept-loss", "--on-unknown", "fail", "-q")
    assert "missing" in done.stderr
    assert done.returncode == 0, done.stderr
    # The first action is in doubt and fails, as do those that may have followed: as many as the lines allow.
    assert (project_dir / "log").read_text() == "a\nb\nc\n"


def test_after_the_loss_was_accepted_the_new_length_counts(killed: Path, project_dir: Path) -> None:
    """A kill soon after that is a kill as any other."""
    cut(killed, "action_complete")
    command = [sys.executable, "-m", "llc", "resume", "job", "-q", "--accept-loss"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while (project_dir / "log").read_text().count("a") < 2:
        assert time.monotonic() < end
        time.sleep(0.002)
    kill_with_keeper(process)
    process.wait()
    again = resume("--on-unknown", "fail", "-q")
    assert "truncated" not in again.stderr
    assert again.returncode == 0


def test_a_kill_at_once_after_the_loss_was_accepted(killed: Path, project_dir: Path) -> None:
    """Before the new length is written, the old one is not believed: it is asked once."""
    cut(killed, "action_complete")
    ends = (
        "import os; from llc.runtime.launch.command import Command; from llc.runtime.cli import entry; "
        "Command.detach = lambda *_: os._exit(9); entry.main()"
    )
    command = [sys.executable, "-c", ends, "resume", "job", "-q", "--accept-loss"]
    assert subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 9
    again = resume("--on-unknown", "fail", "-q")
    assert again.returncode == 0, again.stderr
    assert (project_dir / "log").read_text() == "a\nb\nc\n"


def test_a_lost_file_changes_nothing(killed: Path, project_dir: Path) -> None:
    """Without it the journal alone serves, as it always did."""
    (killed.parent / "active").unlink()
    done = resume("--on-unknown", "fail", "-q")
    assert done.returncode == 0, done.stderr
    assert (project_dir / "log").read_text() == "a\nb\nc\nd\n"


@pytest.fixture
def stopped(project_dir: Path) -> Path:
    """The journal of a run that was stopped in order in its third action."""
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
    """The journal of a run that ended."""
    (project_dir / ".loops" / "job.yaml").write_text(LOOP.replace("; exec sleep 600", ""))
    assert run_llc("run", "job", "-q").returncode == 0
    (path,) = project_dir.glob(".loops/.history/*/job.events.jsonl")
    return path


def without_checkpoints(journal: Path) -> None:
    for path in journal.parent.glob("checkpoint-*"):
        path.unlink()


@pytest.mark.parametrize("has_checkpoint", [True, False])
@pytest.mark.parametrize("count", [1, 3])
def test_a_stopped_run_is_checked_too(
    stopped: Path, project_dir: Path, count: int, has_checkpoint: bool
) -> None:
    """One whose journal lost its last lines in a copy, the event of its stop among them."""
    if not has_checkpoint:
        without_checkpoints(stopped)
    stopped.write_bytes(b"".join(stopped.read_bytes().splitlines(keepends=True)[:-count]))
    done = resume()
    assert (done.returncode, "error[truncated-journal]" in done.stderr) == (1, True)
    assert (project_dir / "log").read_text() == "a\nb\nc\n"


@pytest.mark.parametrize("state", ["killed", "stopped", "finished"])
@pytest.mark.parametrize("is_short", [True, False])
def test_each_command_says_that_the_journal_is_truncated(
    state: str, is_short: bool, project_dir: Path, request: pytest.FixtureRequest
) -> None:
    """In each state of a run; and says nothing about one that is whole."""
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
