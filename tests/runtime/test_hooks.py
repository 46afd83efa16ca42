"""Hooks: commands before and after a loop and its states, in every paradigm (`spec/loops.md`, Hooks)."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from keepers import KILL

import llc
from llc.frontend.compile import compile_text
from llc.ir.diagnostics import CompileError
from llc.ir.verify import verify

HOOKS = """
hooks:
  before: echo before >>log
  after: echo after >>log
  before_state: echo "in $LLC_STATE" >>log
  after_state: echo "out $LLC_STATE" >>log
  on_error: echo "error ${result.details.message?}" >>log
  on_limit: echo limit >>log
"""
STATES = """
name: x
initial: check
max_iterations: 2
HOOKS
states:
  check: {action: ACTION, on_success: done, on_failure: fix MORE}
  fix: {action: 'echo fix >>log', next: check}
  done: {terminal: true}
"""


def loop(action: str = "exit 0", more: str = "", hooks: str = HOOKS) -> str:
    text = STATES.replace("HOOKS", hooks).replace("ACTION", f"'{action}'")
    return text.replace("MORE", f", {more}" if more else "")


def run(project_dir: Path, text: str) -> tuple[llc.RunResult, list[str]]:
    (project_dir / "x.yaml").write_text(text)
    assert not list(verify(compile_text(text, "x.yaml").program))
    result = llc.run("x.yaml")
    log = project_dir / "log"
    return result, log.read_text().splitlines() if log.exists() else []


@pytest.mark.parametrize(
    ("action", "end", "log"),
    [
        ("exit 0", "success", "in check, out check, after"),
        (
            "exit 1",
            "limit",
            f"{', '.join(['in check, out check, in fix, fix, out fix'] * 2)}, limit, after",
        ),
        ("exit 9", "error", "in check, error , after"),
    ],
)
def test_hooks_run_in_order(action: str, end: str, log: str, project_dir: Path) -> None:
    """Each hook runs at its position, whatever ends the loop."""
    result, log_lines = run(project_dir, loop(action))
    assert result.status == end
    assert log_lines == ["before", *log.split(", ")]


PARADIGMS = {
    "goal": "goal: it works\ntools: [test -e ok, touch ok]",
    "convergence": "check: cat n\ntoward: 0\nusing: echo 0 >n",
    "invariants": "constraints: [{name: c, check: test -e ok, fix: touch ok}]",
    "imperative": "steps: [touch ok]\nuntil: {check: test -e ok}",
    "fsm": "initial: a\nstates: {a: {action: touch ok, next: done}, done: {terminal: true}}",
}


@pytest.mark.parametrize("paradigm", PARADIGMS)
def test_every_paradigm_has_hooks(paradigm: str, project_dir: Path) -> None:
    """The states that a paradigm is rewritten to have the hooks; its terminal states have none."""
    (project_dir / "n").write_text("3\n")
    result, log_lines = run(project_dir, f"paradigm: {paradigm}\nname: x\n{PARADIGMS[paradigm]}{HOOKS}")
    assert result.status == "success"
    assert (log_lines[0], log_lines[-1]) == ("before", "after")
    entered, exited = ([line for line in log_lines if line.startswith(word)] for word in ("in ", "out "))
    assert len(entered) == len(exited) >= 1
    assert "in done" not in entered


def test_hooks_of_a_state_are_inside_those_of_the_loop(project_dir: Path) -> None:
    own = "hooks: {before: 'echo own in >>log', after: 'echo own out >>log'}"
    _, log_lines = run(project_dir, loop(more=own))
    assert log_lines == ["before", "in check", "own in", "own out", "out check", "after"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_failing_hook_is_an_error_of_its_state(when: str, project_dir: Path) -> None:
    """Its error takes the state's route; no hook of the state runs again."""
    own = f"hooks: {{{when}: {{run: exit 4, on_failure: fail}}}}, on_error: done"
    result, log_lines = run(project_dir, loop("echo act >>log", own))
    assert (result.status, result.final_state) == ("success", "done")
    act = ["act"] if when == "after" else []
    assert log_lines == [
        "before",
        "in check",
        *act,
        f"error hook `{when}` of `check` failed: exit code 4",
        "after",
    ]


def test_a_failing_hook_without_a_route_ends_the_run(project_dir: Path) -> None:
    result, log_lines = run(project_dir, loop(more="hooks: {before: exit 4}"))
    assert result.status == "error"
    assert result.error is not None
    assert result.error["message"] == "hook `before` of `check` failed: exit code 4"
    assert log_lines == ["before", "in check", "error ", "after"]


@pytest.mark.parametrize(
    ("key", "log"), [("before", ["error ", "after"]), ("after", ["in check", "out check"])]
)
def test_a_failing_hook_of_the_loop_ends_the_run(key: str, log: list[str], project_dir: Path) -> None:
    """The run ends with an error; a failing `after` does not run again."""
    line = next(line for line in HOOKS.splitlines() if line.startswith(f"  {key}:"))
    hooks = HOOKS.replace(line, f"  {key}: {{run: echo {key} >>log; exit 2, on_failure: fail}}")
    result, log_lines = run(project_dir, loop(hooks=hooks))
    assert result.status == "error"
    expected = ["before", *log] if key == "before" else ["before", *log, "after"]
    assert log_lines == expected


def test_ignored_failure_is_recorded(
    project_dir: Path, llc: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    (project_dir / "x.yaml").write_text(loop(hooks="hooks: {after: exit 3}"))
    done = llc("run", "x.yaml")
    assert done.returncode == 0
    assert "hook `after` failed: exit code 3; ignored" in done.stderr + done.stdout
    shown = llc("logs", "x")
    assert "hook after" in shown.stdout


def test_final_hooks_run_after_the_timeout_of_the_loop(project_dir: Path) -> None:
    """The hook's own timeout applies, not that of the loop."""
    hooks = (
        "timeout: 1\nhooks: {on_limit: 'sleep 0.2; echo limit >>log', after: {run: sleep 600, timeout: 0.2}}"
    )
    result, log_lines = run(project_dir, loop("sleep 600", hooks=hooks))
    assert (result.status, result.terminated_by) == ("limit", "timeout")
    assert log_lines == ["limit"]


def test_interrupted_hook_runs_again(project_dir: Path) -> None:
    """A run killed in its last hook repeats only this hook when it is resumed."""
    hooks = f"""hooks:
  before: echo before >>log
  after: |
    echo after >>log
    test -e once || {{ touch once; {KILL}; sleep 60; }}
"""
    (project_dir / "x.yaml").write_text(loop("echo act >>log", hooks=hooks))
    command = [sys.executable, "-m", "llc"]
    first = subprocess.run([*command, "run", "-q", "x.yaml"], cwd=project_dir, timeout=120, check=False)
    assert first.returncode == -signal.SIGKILL
    resumed = subprocess.run([*command, "resume", "-q", "x"], cwd=project_dir, timeout=120, check=False)
    assert resumed.returncode == 0
    assert (project_dir / "log").read_text().split() == ["before", "act", "after", "after"]


def test_graph_shows_hooks(project_dir: Path, llc: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    (project_dir / "x.yaml").write_text(loop(more="hooks: {before: echo own}"))
    shown = llc("graph", "x.yaml").stdout
    assert "before: echo own" in shown
    assert "hook on_limit: echo limit >>log" in shown


@pytest.mark.parametrize(
    ("hooks", "message"),
    [
        ("hooks: {before: ''}", "`before` is empty"),
        ("hooks: {befor: x}", "did you mean `before`?"),
        ("hooks: [x]", "`hooks` should be a mapping"),
        ("hooks: {before: {timeout: 3}}", "`before` needs `run`"),
        ("hooks: {after: 'echo ${prev.output}'}", "may be missing where a hook of the loop runs"),
        ("hooks: {after: 'echo ${captured.nothing.output?}'}", "no state captures `nothing`"),
        ("hooks: {before: {run: x, on_failure: stop}}", "`on_failure` cannot be `stop`"),
        ("hooks: {on_limit: {run: x, on_failure: fail}}", "`on_failure` has no effect"),
        ("hooks: {before: 'echo ${context.x}'}", "context.x"),
        ('hooks: {before: "python3 -c ${env.CODE}"}', "CODE"),
    ],
)
def test_invalid_hooks_are_reported(hooks: str, message: str) -> None:
    """One diagnostic, at the line of the hook."""
    try:
        diagnostics = compile_text(loop(hooks=hooks), "x.yaml").diagnostics
    except CompileError as error:
        diagnostics = error.diagnostics
    shown = [f"{diagnostic.message} {diagnostic.help or ''}" for diagnostic in diagnostics]
    assert any(message in text for text in shown), shown
    assert all(diagnostic.span is not None and diagnostic.span.line == 5 for diagnostic in diagnostics)
