"""Recordings of programs of several files: loops in flows, functions in loops, tools."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from in_process import run_llc

Llc = Callable[..., subprocess.CompletedProcess[str]]

LOOP = """name: fix-types
initial: check
context: {paths: src/}
states:
  check:
    action: "mypy ${context.paths}"
    capture: report
    on_success: done
    on_failure: look
  look:
    call: reports.sexp#count-errors
    args: ["${captured.report.output}"]
    capture: errors
    evaluate: {type: convergence, target: 0}
    route: {progress: fix, stall: stuck, target: done}
  fix: {action: "/ll:manage_issue bug fix", next: check}
  stuck: {terminal: true, status: failure}
  done: {terminal: true}
max_iterations: 10
"""
REPORTS = '(define (count-errors report) (length (regex-find-all ": error:" report)))\n'
RELEASE = """(define (clean paths) (run-loop "fix-types" (context (paths paths)) (max-iterations 3)))
(map (lambda (paths) (get (clean paths) "status")) '("src/" "tests/"))
"""
WORLD = """
rules:
  - command: "mypy 'src/'"
    results:
      - {exit_code: 1, output: "src/a.py:3: error: no\\nsrc/b.py:7: error: nor this\\n"}
      - {exit_code: 0, output: "Success\\n"}
  - {command: "mypy 'tests/'", exit_code: 0, output: "Success\\n"}
  - {kind: agent, output: "fixed\\n"}
"""


@pytest.fixture
def llc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Llc:
    """Run llc in a project of three files, in which the flow was run."""
    loops = tmp_path / ".loops"
    loops.mkdir()
    (loops / "fix-types.yaml").write_text(LOOP)
    (loops / "reports.sexp").write_text(REPORTS)
    (loops / "release.sexp").write_text(RELEASE)
    (tmp_path / "world.yaml").write_text(WORLD)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)

    llc = run_llc
    done = llc("run", "release", "--script", "world.yaml", "--record", "release", "--quiet")
    assert done.returncode == 0, done.stderr
    return llc


def test_a_linked_program_is_replayed(llc: Llc, tmp_path: Path) -> None:
    """Its case passes and reports a change in any of its files."""
    assert llc("replay", "release").returncode == 0
    assert llc("test").stdout == "pass .loops/tests/release.yaml\n1 case: 1 passed\n"
    (tmp_path / ".loops/fix-types.yaml").write_text(LOOP.replace('action: "mypy', 'action: "mypy --strict'))
    done = llc("test")
    assert "effect 1 differs from the recording" in done.stdout
    assert "--> .loops/fix-types.yaml:5:" in done.stdout
    (tmp_path / ".loops/fix-types.yaml").write_text(LOOP)
    (tmp_path / ".loops/reports.sexp").write_text(REPORTS.replace(": error:", ": fatal:"))
    done = llc("test")
    assert "now:      verdict `target` in `fix-types/look` (convergence)" in done.stdout


def test_a_linked_program_is_traced_in_its_files(llc: Llc) -> None:
    """Each point has its state with the loop, and its line."""
    points = [json.loads(line) for line in llc("trace", "release", "--json").stdout.splitlines()]
    assert [point["state"] for point in points if point["effect"] and point["effect"]["kind"] != "clock"] == [
        "fix-types/check",
        "fix-types/fix",
        "fix-types/check",
        "fix-types/check",
    ]
    assert {point["file"] for point in points[:-1]} == {".loops/fix-types.yaml"}
    point = json.loads(llc("trace", "release", "--at", "fix-types/fix", "--json").stdout)
    assert point["effect"]["args"]["command"] == "/ll:manage_issue bug fix"
    assert point["frames"][-1]["slots"]["captured.errors"]["output"] == "2"


def test_a_linked_program_is_forked_in_a_loop(llc: Llc) -> None:
    done = llc("fork", "release", "--state", "fix-types/fix", "--json")
    assert json.loads(done.stdout)["value"] == ["success", "success"], done.stderr
    assert "in `fix-types/fix`, iteration 1" in done.stderr
