"""A loop edited during an interruption: resume reports the edit and applies it only on request."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from in_process import run_llc
from keepers import kill_with_keeper
from waiting import wait_for

from llc.runtime.journal import reader
from llc.runtime.journal.events import Event

LOOP = """
name: job
initial: first
context: {word: one}
states:
  first:
    action: "echo first >> log; echo 1"
    capture: number
    next: second
  second:
    action: "echo second >> log; touch here; until [ -e go ]; do sleep 0.02; done; echo 2"
    capture: other
    next: third
  third:
    action: "echo third ${captured.number.output} ${captured.other.output} >> log"
    next: done
  done: {terminal: true}
"""


@pytest.fixture
def project(project_dir: Path) -> Path:
    """A project with a run that was killed in state `second`."""
    (project_dir / ".loops" / "job.yaml").write_text(LOOP)
    process = subprocess.Popen([sys.executable, "-m", "llc", "run", "job", "-q"])
    wait_for((project_dir / "here").exists)
    kill_with_keeper(process)
    process.wait()
    (project_dir / "here").unlink()
    (project_dir / "go").touch()
    return project_dir


def edit(*replacements: tuple[str, str]) -> None:
    path = Path(".loops/job.yaml")
    text = path.read_text()
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)


def resume(*words: str) -> dict[str, Any]:
    completed = run_llc("resume", "job", "--json", "-q", *words)
    outcome = json.loads(completed.stdout)
    assert isinstance(outcome, dict)
    return {**outcome, "exit": completed.returncode, "shown": completed.stderr}


def log() -> list[str]:
    return Path("log").read_text().splitlines()


def events() -> list[dict[str, Any]]:
    (path,) = Path(".loops").glob(".*/job-*/job.events.jsonl")
    return [event.wire for event in reader.read(str(path)) if isinstance(event, Event)]


EDITS = (
    ("echo second >>", "echo changed >>"),
    ("    next: third\n", "    next: fourth\n"),
    ("  done: {ter", "  fourth: {action: 'echo fourth >> log', next: third}\n  done: {ter"),
)
WAIT_IN_FOURTH = (
    "echo fourth >> log",
    "echo fourth >> log; touch there; until [ -e on ]; do sleep 0.02; done",
)


def accept_changes_and_interrupt(project: Path) -> None:
    """Resume the run with the edits and interrupt it in the new state `fourth`."""
    edit(*EDITS, WAIT_IN_FOURTH)
    process = subprocess.Popen([sys.executable, "-m", "llc", "resume", "job", "-q", "--accept-changes"])
    wait_for((project / "there").exists)
    process.send_signal(signal.SIGINT)
    process.wait()
    (project / "on").touch()


def test_resume_reports_the_edit_and_keeps_the_recorded_program(project: Path) -> None:
    """Added, removed and changed states are listed by name; the current state still exists."""
    edit(*EDITS, ("context: {word: one}", "context: {word: two}"))
    outcome = resume()
    assert outcome["status"] == "success"
    shown = outcome["shown"]
    assert ".loops/job.yaml has changed" in shown
    assert "\n  + fourth\n" in shown
    assert "\n  ~ second: action, next\n" in shown
    assert "\n  ~ the loop's context\n" in shown
    assert "first" not in shown
    assert "`second`, which still exists" in shown
    assert "--accept-changes" in shown
    assert log() == ["first", "second", "second", "third 1 2"]


def test_accepted_changes_take_effect(project: Path) -> None:
    """The interrupted action is the new one; finished actions are not repeated and keep their captures."""
    edit(*EDITS)
    outcome = resume("--accept-changes")
    assert (outcome["status"], outcome["steps"]) == ("success", 5)
    assert "the run continues with the new program" in outcome["shown"]
    assert log() == ["first", "second", "changed", "fourth", "third 1 2"]
    (change_event,) = [event for event in events() if event["event"] == "program_changed"]
    assert (change_event["image"], change_event["state"]) == ("program-2.llb", "second")


def test_each_part_is_replayed_with_its_own_program(project: Path) -> None:
    """The run is resumed twice more, once with another change, after every event of the journal."""
    accept_changes_and_interrupt(project)
    edit(("echo fourth >>", "echo again >>"), ("name: job", "name: job\nmax_steps: 9"))
    (folder,) = project.glob(".loops/.running/job-*")
    for checkpoint in folder.glob("checkpoint-*"):
        checkpoint.unlink()
    outcome = resume("--accept-changes")
    assert outcome["status"] == "success"
    assert log() == ["first", "second", "changed", "fourth", "again", "third 1 2"]
    (folder,) = project.glob(".loops/.history/job-*")
    path = folder / "job.events.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    changes = [n for n, line in enumerate(lines) if b'"event":"program_changed"' in line]
    assert len(changes) == 2
    target = project / ".loops" / ".running" / folder.name
    for count in range(changes[1] + 1, len(lines)):
        (folder / "active").unlink()  # it has the active time of the complete journal
        os.rename(folder, target)
        (target / "job.events.jsonl").write_bytes(b"".join(lines[:count]))
        resumed = resume()
        assert (resumed["status"], resumed["steps"]) == ("success", outcome["steps"]), (
            count,
            resumed["shown"],
        )
        assert "has changed" not in resumed["shown"]
    assert {line.split()[0] for line in log()} == {"first", "second", "changed", "fourth", "again", "third"}


def test_checkpoint_of_a_changed_program_is_used(project: Path) -> None:
    """An interrupted run that accepted changes resumes from its checkpoint with the changed program."""
    accept_changes_and_interrupt(project)
    assert list(project.glob(".loops/.running/job-*/checkpoint-*"))
    outcome = resume()
    assert (outcome["status"], "not used" in outcome["shown"]) == ("success", False)
    assert log() == ["first", "second", "changed", "fourth", "fourth", "third 1 2"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("  second:\n", "  zweitens:\n"), "the state `second`, in which it is, is not there any more"),
        (
            (
                '    action: "echo second >> log',
                '    evaluate: {type: output_numeric, source: "1", operator: eq, target: 1}\n    #',
            ),
            "the state `second`, in which it is, performs no `shell` any more",
        ),
        (("echo second >> log", "echo ${captured.late.output} >> log"), "what `second` does cannot be said"),
    ],
)
def test_an_incompatible_program_is_refused(project: Path, change: tuple[str, str], reason: str) -> None:
    """The error names the obstacle; the run is unchanged and can continue with its own program."""
    edits = [change]
    if "zweitens" in change[1]:
        edits.append(("next: second", "next: zweitens"))
    if "late" in change[1]:
        edits.append(("  done: {ter", "  late: {action: 'true', capture: late, next: second}\n  done: {ter"))
        edits.append(("    next: done\n", "    on_success: done\n    on_failure: late\n"))
    if "output_numeric" in change[1]:
        edits.append(
            (
                "    capture: other\n    next: third\n",
                "    on_success: third\n    on_failure: third\n    on_error: third\n",
            )
        )
        edits.append((" ${captured.other.output}", ""))
    edit(*edits)
    before = events()
    outcome = resume("--accept-changes")
    assert (outcome["exit"], outcome["error"]["kind"]) == (1, "incompatible-program"), outcome["shown"]
    assert reason in outcome["error"]["message"]
    assert "the run continues with the new program" in outcome["shown"]
    assert outcome["error"]["help"] == "without --accept-changes, the run continues with its own program"
    assert events() == before
    assert log() == ["first", "second"]
    assert resume()["status"] == "success"


def test_an_invalid_source_is_reported(project: Path) -> None:
    """An invalid or missing source does not prevent resuming; it cannot be accepted."""
    Path(".loops/job.yaml").write_text("name: job\nstates: [\n")
    outcome = resume("--accept-changes")
    assert (outcome["exit"], outcome["error"]["kind"]) == (1, "no-program")
    assert outcome["error"]["help"] == "without --accept-changes, the run continues with its own program"
    assert "note: " not in outcome["shown"]
    outcome = resume()
    assert outcome["status"] == "success"
    assert "is not valid now" in outcome["shown"]


def test_a_comment_is_not_a_change(project: Path) -> None:
    """A source that compiles to the same program is not reported."""
    edit(("initial: first", "initial: first # where it begins"))
    outcome = resume()
    assert (outcome["status"], "changed" in outcome["shown"]) == ("success", False)


@pytest.mark.parametrize(("limit", "terminated_by"), [(4, "terminal"), (3, "max_steps")])
def test_a_new_limit_counts_from_the_start_of_the_run(project: Path, limit: int, terminated_by: str) -> None:
    """The most common edit: counters stay exact and the new limit applies."""
    edit(("name: job", f"name: job\nmax_steps: {limit}"))
    outcome = resume("--accept-changes")
    assert "the loop's max_steps" in outcome["shown"]
    assert outcome["terminated_by"] == terminated_by


def test_a_changed_flow_lists_its_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a program that is not a loop, added, removed and changed functions are listed."""
    from llc.ir.text import parse_program
    from llc.runtime.project import program_diff
    from llc.vm.code.emit import emit

    monkeypatch.chdir(tmp_path)
    text = "program p entry main\nfunction main()\n  state s\n    return BODY\n"
    old = emit(parse_program(text.replace("BODY", "1"), "p.ir"))
    new = emit(
        parse_program(text.replace("BODY", "2") + "function more()\n  state s\n    return 3\n", "p.ir")
    )
    Path("p.llb").write_bytes(new.to_bytes())
    change = program_diff.find({"path": "p.llb"}, old, "outputs")
    assert change is not None
    assert (change.added, change.removed, list(change.changed)) == (["more"], [], ["main"])
