"""A closed terminal: running actions continue, and `llc resume` takes them over. Uses real terminals."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import terminals
from waiting import is_running, wait_for

from llc.runtime.host.errors import EXIT_HANGUP

# A shell action and an agent; each writes output before and after the terminal is closed.
ACTION = (
    "echo $$ >> started; echo one; echo two >&2; until test -e go; do sleep 0.02; done; "
    "echo three; echo four >&2"
)
AGENT = (
    'echo \'{"type":"system","session_id":"s"}\'; echo $$ >> started; until test -e go; do sleep 0.02; done; '
    'echo \'{"type":"result","subtype":"success","is_error":false,"result":"all is done","session_id":"s"}\''
)
LOOP = """\
name: NAME
scope: [NAME]
initial: work
states:
  work:
    action: ACTION
    capture: output
    ROUTES
    on_error: failed
  after: {action: 'printf %s ${captured.output.output} > output-NAME', on_success: done, on_failure: failed}
  done: {terminal: true}
  failed: {terminal: true, status: failure}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / ".loops").mkdir()
    (tmp_path / "bin").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    yield tmp_path
    (tmp_path / "go").touch()
    llc("stop", "--all", "--wait", "0")


def write_loop(project: Path, name: str = "job", action: str = f"'{ACTION}'", routes: str = "") -> None:
    routes = routes or "on_success: after\n    on_failure: failed"
    text = LOOP.replace("NAME", name).replace("ACTION", action).replace("ROUTES", routes)
    (project / ".loops" / f"{name}.yaml").write_text(text)


def llc(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "llc", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def started_actions(project: Path) -> list[int]:
    """Process ids of the started actions."""
    path = project / "started"
    return [int(line) for line in path.read_text().splitlines()] if path.exists() else []


def journals(project: Path) -> list[list[dict[str, Any]]]:
    paths = sorted(project.glob(".loops/.*/*/*.events.jsonl"))
    return [[json.loads(line) for line in path.read_text().splitlines()] for path in paths]


def count_events(project: Path, kind: str) -> int:
    return sum(event["event"] == kind for events in journals(project) for event in events)


def close_terminal(project: Path, *words: str, actions: int = 1, resumed: int = 0) -> None:
    """Start llc on a terminal; close the terminal when `actions` actions are recorded and have started."""
    child = terminals.spawn(*words)
    wait_for(lambda: len(started_actions(project)) == actions)
    wait_for(
        lambda: count_events(project, "process") >= actions and count_events(project, "run_resume") == resumed
    )
    os.close(child.child_fd)
    _, status = os.waitpid(child.pid, 0)
    child.closed = True
    assert os.waitstatus_to_exitcode(status) == EXIT_HANGUP
    assert all(is_running(pid) for pid in started_actions(project))


def first_results(project: Path) -> list[Any]:
    """Result of the first action of each run, without times."""
    collected = []
    for events in journals(project):
        result = next(event["result"] for event in events if event["event"] == "action_complete")
        collected.append({name: value for name, value in result.items() if not name.endswith("_ms")})
    return collected


def results_without_hangup(project: Path) -> list[Any]:
    """The same results from runs without a hangup; deletes the records of these runs."""
    (project / "go").touch()
    names = [path.stem for path in sorted((project / ".loops").glob("*.yaml"))]
    for name in names:
        answer = llc("run", name, "-q")
        assert answer.returncode == 0, answer.stderr
    collected = first_results(project)
    shutil.rmtree(project / ".loops" / ".history")
    (project / "go").unlink()
    (project / "started").unlink()
    return collected


@pytest.mark.parametrize("times", [1, 2])
def test_shell_action_continues(project: Path, times: int) -> None:
    """`resume` takes the action over, also after a second hangup during a first `resume`."""
    write_loop(project)
    expected = results_without_hangup(project)
    close_terminal(project, "run", "job")
    (events,) = journals(project)
    assert (events[-1]["event"], events[-1]["reason"]) == ("run_interrupted", "hangup")
    if times == 2:
        close_terminal(project, "resume", "job", resumed=1)
    (project / "go").touch()
    answer = llc("resume", "job")
    assert answer.returncode == 0, answer.stderr
    assert "its result is used" in answer.stderr
    assert len(started_actions(project)) == 1
    assert first_results(project) == expected
    assert (project / "output-job").read_text() == "one\nthree"


def test_agent_continues(project: Path) -> None:
    """The agent is not started again."""
    agent = project / "bin" / "claude"
    agent.write_text(f'#!/bin/sh\n[ "$LLC_EFFECT_ID" ] || exit 0\n{AGENT}\n')
    agent.chmod(0o700)
    write_loop(project, action="Do it\n    action_type: prompt\n    agent: claude", routes="next: after")
    expected = results_without_hangup(project)
    close_terminal(project, "run", "job", "--no-preflight")
    (project / "go").touch()
    answer = llc("resume", "job", "-q")
    assert answer.returncode == 0, answer.stderr
    assert len(started_actions(project)) == 1
    assert first_results(project) == expected
    assert (project / "output-job").read_text() == "all is done"


def test_actions_of_all_runs_of_a_batch_continue(project: Path) -> None:
    for name in ("job", "other"):
        write_loop(project, name)
    expected = results_without_hangup(project)
    close_terminal(project, "batch", "job", "other", actions=2)
    (project / "go").touch()
    answer = llc("batch", "--resume")
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert len(started_actions(project)) == 2
    assert first_results(project) == expected


def test_repeated_hangup_is_ignored(project: Path) -> None:
    """The second SIGHUP does not force an exit.

    A closed terminal may send SIGHUP to the session and to the foreground process. If standard error is
    another file, it gets exactly one line: how to resume.
    """
    write_loop(project)
    command = [sys.executable, "-m", "llc", "run", "job", "-q"]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    (action,) = wait_for(lambda: started_actions(project))
    wait_for(lambda: any(event["event"] == "process" for event in journals(project)[0]))
    for _ in range(5):
        run.send_signal(signal.SIGHUP)
    errors = run.communicate(timeout=60)[1]
    assert run.returncode == EXIT_HANGUP
    assert re.fullmatch(r"Resume with: llc resume job-[0-9a-f-]+\n", errors)
    assert is_running(action)
    wait_for(lambda: "to take it over: llc resume" in llc("status", "job").stdout)
    assert llc("stop", "job").returncode == 0
    assert not is_running(action)
    assert llc("status", "job").stdout.splitlines()[0].endswith(": interrupted (by hangup)")


def test_actions_not_reached_by_an_interrupted_resume_continue(project: Path) -> None:
    """The next `resume` takes them over and does not perform them again."""
    (project / "many.sexp").write_text(
        "(parallel-map (lambda (n) (get-field (system:execute_shell_command (string-append "
        '"echo $$ >> started; until test -e go; do sleep 0.02; done; echo " (to-string n))) (quote stdout))) '
        "(list 1 2 3))\n"
    )
    close_terminal(project, "run", "many.sexp", actions=3)
    close_terminal(project, "resume", "many", "--jobs", "1", actions=3, resumed=1)
    (project / "go").touch()
    answer = llc("resume", "many", "--json", "-q")
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout)["value"] == ["1\n", "2\n", "3\n"]
    assert len(started_actions(project)) == 3
