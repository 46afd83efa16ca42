"""Loops with computed names: linked into the program when their state is entered, then pinned."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from in_process import run_llc
from keepers import KILL

from llc.frontend.compile import compile_text
from llc.ir.diagnostics import CompileError

MAIN = """\
name: main
initial: choose
timeout: 100
states:
  choose:
    action: "head -n 1 names; sed -i 1d names"
    capture: chosen
    evaluate: {type: output_contains, pattern: "."}
    on_success: dispatch
    on_failure: done
  dispatch:
    loop: ${captured.chosen.output}
    with: {what: "${captured.chosen.output}", more: 1}
    on_success: choose
    on_failure: bad
    on_error: odd
  bad: {action: "echo failed >>log", next: choose}
  odd: {action: "echo ${result.details.message} >>log", next: choose}
  done: {terminal: true}
"""
LOOPS = {
    "a": 'context: {what: none}\nstates:\n  x: {action: "echo a ${context.what} >>log", next: done}\n'
    "  done: {terminal: true}\n",
    "b": 'states:\n  x: {action: "echo b >>log", next: y}\n  y: {loop: a, next: done}\n'
    "  done: {terminal: true, status: failure}\n",
    "c": 'states:\n  x: {loop: "${env.NEXT:default=}", on_success: done, on_failure: done, on_error: bad}\n'
    "  bad: {terminal: true, status: failure}\n  done: {terminal: true}\n",
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".loops").mkdir()
    (tmp_path / ".loops" / "main.yaml").write_text(MAIN)
    for name, text in LOOPS.items():
        (tmp_path / ".loops" / f"{name}.yaml").write_text(f"name: {name}\ninitial: x\n{text}")
    return tmp_path


def write_names(project: Path, *names: str) -> None:
    (project / "names").write_text("".join(f"{name}\n" for name in names))


def log_lines(project: Path) -> list[str]:
    return (project / "log").read_text().splitlines()


def journal(project: Path) -> list[dict[str, object]]:
    (path,) = project.glob(".loops/.*/main-*/*.events.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_loop_is_entered_by_a_computed_name(project: Path) -> None:
    """Each name gives one program change; checks its verdict, its `with` and the effects of its states."""
    write_names(project, "a", "b", "a")
    done = run_llc("run", "main", "--json")
    assert json.loads(done.stdout)["status"] == "success"
    assert log_lines(project) == ["a a", "b", "a none", "failed", "a a"]
    changes = [event["link"] for event in journal(project) if event["event"] == "program_changed"]
    assert changes == [[".loops/main.yaml", "dispatch", "a"], [".loops/main.yaml", "dispatch", "b"]]
    assert run_llc("replay", "main").returncode == 0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("zz", ".loops/main.yaml:12: no loop `zz`"),
        ("main", "runs itself: .loops/main.yaml → .loops/main.yaml"),
        ("../outside", "`../outside` lies outside the folder of loops"),
        ("/etc/none.yaml", "no loop `/etc/none.yaml`"),
        ("linked", "`linked` lies outside the folder of loops"),
        ("broken", "unknown key"),
        ("x" * 5000, "no loop `xxx"),
        ("a b; echo made", "no loop `a b; echo made`"),
    ],
)
def test_unknown_loop_name_is_an_error_of_the_state(project: Path, name: str, message: str) -> None:
    """The error takes the error route with its reason; no file outside the loop folder is read."""
    (project / "outside.yaml").write_text("name: outside\n")
    os.symlink(project / "outside.yaml", project / ".loops" / "linked.yaml")
    (project / ".loops" / "broken.yaml").write_text("name: broken\ninitial: x\nstates: {x: {nope: 1}}\n")
    write_names(project, name)
    assert run_llc("run", "main").returncode == 0
    (line,) = log_lines(project)
    assert message in line or (name == "broken" and ".loops/broken.yaml:3: " in line)


def test_cycle_through_computed_names_is_an_error(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEXT", "main")
    write_names(project, "c")
    assert run_llc("run", "main").returncode == 0
    assert log_lines(project) == ["failed"]
    results = [
        event["result"] for event in journal(project) if event.get("kind") == "link" and "result" in event
    ]
    assert "runs itself" in str(results[-1])


def test_run_resumes_with_the_loop_version_that_it_entered(project: Path) -> None:
    """Later edits of the loop do not apply; another loop needs the unchanged files of the program."""
    kill = f"echo b >>log; test -e killed || {{ touch killed; {KILL}; }}"
    loop = project / ".loops" / "b.yaml"
    loop.write_text(json.dumps({"name": "b", "initial": "x", "states": {
        "x": {"action": kill, "next": "done"}, "done": {"terminal": True}}}))  # fmt: skip
    write_names(project, "b", "b", "a")
    killed = subprocess.run([sys.executable, "-m", "llc", "run", "main"], capture_output=True, timeout=60)
    assert killed.returncode == -9
    loop.write_text(loop.read_text().replace("echo b", "echo new"))
    resumed = run_llc("resume", "main")
    assert resumed.returncode == 0, resumed.stderr
    assert log_lines(project)[:3] == ["b", "b", "b"]
    assert "was edited since the run began" in log_lines(project)[3]
    assert run_llc("replay", "main").returncode == 0


def test_scope_is_the_whole_project(project: Path) -> None:
    """The paths of the loop are unknown when the run takes its locks."""
    text = MAIN.replace("timeout: 100", "scope: [src]")
    assert compile_text(text, ".loops/main.yaml").program.meta.scope == (".",)


def test_constant_loop_name_is_checked_at_compile_time(project: Path) -> None:
    with pytest.raises(CompileError, match="no loop `zz`"):
        compile_text(MAIN.replace("loop: ${captured.chosen.output}", "loop: zz"), ".loops/main.yaml")
    with pytest.raises(CompileError, match="is empty"):
        compile_text(MAIN.replace("loop: ${captured.chosen.output}", 'loop: ""'), ".loops/main.yaml")
