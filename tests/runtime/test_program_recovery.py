"""A run without its program file: the program is recompiled if the source gives the same program."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from in_process import run_llc
from keepers import kill_with_keeper

from llc.frontend.compile import compile_text
from llc.vm.code.emit import emit

LOOP = """
name: job
initial: first
context: {word: hello}
states:
  first: {action: 'echo first >> log', next: second}
  second:
    action: 'echo second ${context.word} >> log; touch here; until [ -e go ]; do sleep 0.02; done'
    next: done
  done: {terminal: true}
"""


@pytest.fixture
def project(project_dir: Path) -> Path:
    (project_dir / ".loops" / "job.yaml").write_text(LOOP)
    return project_dir


def kill_run(project: Path, *words: str) -> Path:
    """Kill a run in its second action and let that action end; returns the run's folder."""
    process = subprocess.Popen([sys.executable, "-m", "llc", *words, "-q"])
    end = time.monotonic() + 60
    while not (project / "here").exists():
        assert time.monotonic() < end
        time.sleep(0.02)
    kill_with_keeper(process)
    process.wait()
    (project / "here").unlink()
    (project / "go").touch()
    (folder,) = project.glob(".loops/.running/job-*")
    return folder


def llc(*words: str) -> dict[str, Any]:
    """The JSON output of a command, with its exit code and standard error."""
    done = run_llc(*words, "--json")
    answer = json.loads(done.stdout) if done.stdout else {}
    return {**answer, "exit": done.returncode, "shown": done.stderr}


def lose(path: Path) -> None:
    path.unlink()


def damage(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] + b"?" + data[len(data) // 2 + 1 :])


def replace(path: Path) -> None:
    path.write_bytes(emit(compile_text(LOOP.replace("first >>", "other >>"), "job.yaml").program).to_bytes())


LOSSES = pytest.mark.parametrize("lost", [lose, damage, replace])


@LOSSES
def test_a_lost_program_is_rebuilt_from_its_source(project: Path, lost: Callable[[Path], None]) -> None:
    """With the options of the run; a notice reports it, and the file is restored."""
    folder = kill_run(project, "run", "job", "--context", "word=you")
    original = (folder / "program.llb").read_bytes()
    lost(folder / "program.llb")
    answer = llc("resume", "job")
    assert (answer["exit"], answer["status"]) == (0, "success"), answer["shown"]
    assert "; rebuilt it from .loops/job.yaml, which gives the same program" in answer["shown"]
    assert (project / "log").read_text() == "first\nsecond you\nsecond you\n"
    assert (project / ".loops" / ".history" / folder.name / "program.llb").read_bytes() == original


@LOSSES
@pytest.mark.parametrize(
    ("text", "why"),
    [
        (LOOP.replace("first >>", "more >>"), ".loops/job.yaml gives another program now"),
        ("name: job\nstates: [\n", ".loops/job.yaml is not valid now"),
        (None, ".loops/job.yaml does not exist any more"),
    ],
)
def test_a_run_whose_source_changed_is_not_resumed(
    project: Path, lost: Callable[[Path], None], text: str | None, why: str
) -> None:
    """Nothing is performed; the error names the file to restore, and the run resumes once it is restored."""
    folder = kill_run(project, "run", "job")
    lost(folder / "program.llb")
    record = (folder / "job.events.jsonl").read_bytes()
    source = project / ".loops" / "job.yaml"
    source.unlink()
    if text is not None:
        source.write_text(text)
    answer = llc("resume", "job")
    assert answer["exit"] == 1
    assert (
        answer["error"]["kind"] == {lose: "no-program", damage: "bad-image", replace: "wrong-program"}[lost]
    )
    assert answer["error"]["message"].endswith(f", and {why}")
    assert "restore " in answer["error"]["help"]
    assert (folder / "job.events.jsonl").read_bytes() == record
    source.write_text(LOOP)
    assert llc("resume", "job")["status"] == "success"


@LOSSES
def test_an_accepted_program_is_rebuilt_too(project: Path, lost: Callable[[Path], None]) -> None:
    """`program-2.llb` is rebuilt from the accepted source if that is unchanged."""
    kill_run(project, "run", "job")
    (project / "go").unlink()
    (project / ".loops" / "job.yaml").write_text(LOOP.replace("second $", "changed $"))
    folder = kill_run(project, "resume", "job", "--accept-changes")
    lost(folder / "program-2.llb")
    answer = llc("resume", "job")
    assert (answer["exit"], answer["status"]) == (0, "success"), answer["shown"]
    assert (project / "log").read_text() == "first\nsecond hello\nchanged hello\nchanged hello\n"


@pytest.mark.parametrize("verb", ["replay", "trace", "record", "fork"])
def test_commands_that_read_a_run_rebuild_its_program(project: Path, verb: str) -> None:
    """Also for a run in the history."""
    (project / "go").touch()
    assert llc("run", "job")["exit"] == 0
    (image,) = project.glob(".loops/.history/*/program.llb")
    image.unlink()
    more = {"fork": ["--at", "2", "-q"], "record": ["-o", "case.yaml"]}.get(verb, [])
    command = [sys.executable, "-m", "llc", verb, "job", *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert image.exists()


def test_a_secret_in_an_option_must_be_unchanged(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that was compiled with a secret is rebuilt only with the same secret."""
    monkeypatch.setenv("MY_TOKEN", "correct-horse")
    folder = kill_run(project, "run", "job", "--context", "word=correct-horse")
    (folder / "program.llb").unlink()
    monkeypatch.setenv("MY_TOKEN", "wrong-horse")
    answer = llc("resume", "job")
    assert (answer["exit"], answer["error"]["kind"]) == (1, "no-program")
    monkeypatch.delenv("MY_TOKEN")
    assert llc("resume", "job")["exit"] == 1
    monkeypatch.setenv("MY_TOKEN", "correct-horse")
    assert llc("resume", "job")["status"] == "success"
    assert "second correct-horse" in (project / "log").read_text()


def test_an_edited_source_is_compared_with_the_recorded_options(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if an option contains a secret or a text that is stored in its own file."""
    monkeypatch.setenv("MY_TOKEN", "correct-horse")
    word = "correct-horse" + "x" * 40_000
    kill_run(project, "run", "job", "--context", f"word={word}")
    source = project / ".loops" / "job.yaml"
    source.write_text(LOOP.replace("first >>", "more >>"))
    answer = llc("resume", "job", "--accept-changes")
    assert answer["status"] == "success", answer["shown"]
    assert "~ first: action" in answer["shown"]
    assert "correct-horse" not in answer["shown"]


@LOSSES
def test_an_expression_is_rebuilt_from_the_journal(project: Path, lost: Callable[[Path], None]) -> None:
    """It has no source file."""
    command = "echo $LLC_EFFECT_ID >> log; touch here; until [ -e go ]; do sleep 0.02; done; echo 7"
    text = f'(system:execute_shell_command (command "{command}"))'
    process = subprocess.Popen([sys.executable, "-m", "llc", "run", "-e", text, "-q"])
    end = time.monotonic() + 60
    while not (project / "here").exists():
        assert time.monotonic() < end
        time.sleep(0.02)
    kill_with_keeper(process)
    process.wait()
    (project / "go").touch()
    (image,) = project.glob(".loops/.running/*/program.llb")
    lost(image)
    answer = llc("resume", image.parent.name)
    assert (answer["exit"], answer["status"]) == (0, "success"), answer["shown"]
    assert "rebuilt it from its expression" in answer["shown"]
    assert answer["value"]["stdout"] == "7\n"
