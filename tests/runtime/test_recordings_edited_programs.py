"""Recordings of a run that accepted an edited program: each part uses its own program."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Llc = Callable[..., subprocess.CompletedProcess[str]]

LOOP = """name: work
initial: count
states:
  count:
    action: "echo count >> log; wc -l < log"
    capture: lines
    evaluate: {type: output_numeric, operator: ge, target: 5}
    on_success: report
    on_failure: act
  act:
    action: "echo act >> log"
    next: count
  report:
    action: "echo report ${captured.lines.output} >> log"
    next: done
  done: {terminal: true}
max_iterations: 9
"""
EDITED = LOOP.replace("echo act >> log", "echo edited >> log").replace("echo report", "echo told")


@pytest.fixture
def llc(llc: Llc, project_dir: Path) -> Llc:
    (project_dir / ".loops" / "work.yaml").write_text(LOOP)
    return llc


def resume_with_edited_loop(llc: Llc, project: Path, word: bytes) -> str:
    """The id of a run that was interrupted after the first line with a word, and resumed with its loop
    edited.
    """
    llc("run", "work", "--quiet")
    (folder,) = project.glob(".loops/.history/work-*")
    (journal,) = folder.glob("*.jsonl")
    lines = journal.read_bytes().splitlines(keepends=True)
    cut = next(n for n, line in enumerate(lines) if word in line)
    journal.write_bytes(b"".join(lines[: cut + 1]))
    for kept in (folder / "active", *folder.glob("checkpoint-*")):
        kept.unlink()
    folder.rename(project / ".loops/.running" / folder.name)
    (project / "log").unlink()
    (project / ".loops" / "work.yaml").write_text(EDITED)
    done = llc("resume", "work", "--accept-changes")
    assert done.returncode == 0, done.stderr
    assert b"program_changed" in (project / ".loops/.history" / folder.name / journal.name).read_bytes()
    return folder.name


@pytest.mark.parametrize("word", [b'"run_start"', b'"seq":1,"kind":"shell","result"', b'"seq":2', b'"seq":3'])
def test_each_part_is_replayed_with_its_program(llc: Llc, tmp_path: Path, word: bytes) -> None:
    """Wherever it was interrupted: it is identical, and every point can be traced and forked."""
    run = resume_with_edited_loop(llc, tmp_path, word)
    done = llc("replay", run)
    assert done.returncode == 0, done.stdout + done.stderr
    points = [json.loads(line) for line in llc("trace", run, "--json").stdout.splitlines()]
    commands = [point["effect"]["args"]["command"] for point in points if point["effect"] is not None]
    assert commands[-1].startswith("echo told")
    assert commands[0] == "echo count >> log; wc -l < log"
    back = json.loads(llc("trace", run, "--at", "2", "--json").stdout)
    assert back["effect"] == points[1]["effect"]
    for at in (1, len(commands)):
        forked = llc("fork", run, "--at", str(at), "--quiet")
        assert forked.returncode == 0, forked.stderr
        assert llc("replay", "work").returncode == 0


def test_a_case_has_one_program(llc: Llc, tmp_path: Path) -> None:
    """A run of several programs cannot become a case; another program can be compared with it."""
    resume_with_edited_loop(llc, tmp_path, b'"seq":3')
    done = llc("record", "work")
    assert done.returncode == 1
    assert "error[several-programs]" in done.stderr
    assert "cannot become a case: its program was changed" in done.stderr
    done = llc("fork", "work", "--at", "2", "--max-iterations", "3")
    assert done.returncode == 1
    assert "so a fork cannot change it again" in done.stderr
    (tmp_path / "original.yaml").write_text(LOOP)
    done = llc("replay", "work", "--against", "original.yaml")
    assert done.returncode == 1
    assert "recorded: shell `echo edited >> log`" in done.stdout
