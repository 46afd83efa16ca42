"""A closed terminal: actions continue, and `llc resume` takes them over; with real terminals."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import terminals

from llc.runtime.host.errors import EXIT_HANGUP

# An action and an agent: each says something before and after the terminal is closed.
WAITS = (
    "echo $$ >> begun; echo one; echo two >&2; until test -e go; do sleep 0.02; done; "
    "echo three; echo four >&2"
)
AGENT = (
    'echo \'{"type":"system","session_id":"s"}\'; echo $$ >> begun; until test -e go; do sleep 0.02; done; '
    'echo \'{"type":"result","subtype":"success","is_error":false,"result":"all is done","session_id":"s"}\''
)
LOOP = """\
name: NAME
scope: [NAME]
initial: work
states:
  work:
    action: ACTION
    capture: said
    ROUTES
    on_error: failed
  after: {action: 'printf %s ${captured.said.output} > said-NAME', on_success: done, on_failure: failed}
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


def write(project: Path, name: str = "job", action: str = f"'{WAITS}'", routes: str = "") -> None:
    routes = routes or "on_success: after\n    on_failure: failed"
    text = LOOP.replace("NAME", name).replace("ACTION", action).replace("ROUTES", routes)
    (project / ".loops" / f"{name}.yaml").write_text(text)


def llc(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "llc", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def wait_for(condition: Callable[[], Any]) -> Any:
    end = time.monotonic() + 60
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)
    return found


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def begun(project: Path) -> list[int]:
    """The pids of the actions that have begun."""
    path = project / "begun"
    return [int(line) for line in path.read_text().splitlines()] if path.exists() else []


def journals(project: Path) -> list[list[dict[str, Any]]]:
    paths = sorted(project.glob(".loops/.*/*/*.events.jsonl"))
    return [[json.loads(line) for line in path.read_text().splitlines()] for path in paths]


def count(project: Path, kind: str) -> int:
    return sum(event["event"] == kind for events in journals(project) for event in events)


def close_terminal(project: Path, *words: str, actions: int = 1, resumed: int = 0) -> None:
    """Start llc on a terminal and close that when so many actions are on record and have begun."""
    child = terminals.spawn(*words)
    wait_for(lambda: len(begun(project)) == actions)
    wait_for(lambda: count(project, "process") >= actions and count(project, "run_resume") == resumed)
    os.close(child.child_fd)
    _, status = os.waitpid(child.pid, 0)
    child.closed = True
    assert os.waitstatus_to_exitcode(status) == EXIT_HANGUP
    assert all(is_alive(pid) for pid in begun(project))


def results(project: Path) -> list[Any]:
    """What the first actions gave, but for times."""
    found = []
    for events in journals(project):
        result = next(event["result"] for event in events if event["event"] == "action_complete")
        found.append({name: value for name, value in result.items() if not name.endswith("_ms")})
    return found


def expected(project: Path) -> list[Any]:
    """The same of runs without an accident, whose records are removed."""
    (project / "go").touch()
    names = [path.stem for path in sorted((project / ".loops").glob("*.yaml"))]
    for name in names:
        answer = llc("run", name, "-q")
        assert answer.returncode == 0, answer.stderr
    found = results(project)
    shutil.rmtree(project / ".loops" / ".history")
    (project / "go").unlink()
    (project / "begun").unlink()
    return found


@pytest.mark.parametrize("times", [1, 2])
def test_a_shell_action_continues(project: Path, times: int) -> None:
    """`resume` takes it over; so does another one, if the terminal of the first one is closed too."""
    write(project)
    without = expected(project)
    close_terminal(project, "run", "job")
    (events,) = journals(project)
    assert (events[-1]["event"], events[-1]["reason"]) == ("run_interrupted", "hangup")
    if times == 2:
        close_terminal(project, "resume", "job", resumed=1)
    (project / "go").touch()
    answer = llc("resume", "job")
    assert answer.returncode == 0, answer.stderr
    assert "its result is used" in answer.stderr
    assert len(begun(project)) == 1
    assert results(project) == without
    assert (project / "said-job").read_text() == "one\nthree"


def test_an_agent_continues(project: Path) -> None:
    """Its session is not begun again."""
    agent = project / "bin" / "claude"
    agent.write_text(f'#!/bin/sh\n[ "$LLC_EFFECT_ID" ] || exit 0\n{AGENT}\n')
    agent.chmod(0o700)
    write(project, action="Do it\n    action_type: prompt\n    agent: claude", routes="next: after")
    without = expected(project)
    close_terminal(project, "run", "job", "--no-preflight")
    (project / "go").touch()
    answer = llc("resume", "job", "-q")
    assert answer.returncode == 0, answer.stderr
    assert len(begun(project)) == 1
    assert results(project) == without
    assert (project / "said-job").read_text() == "all is done"


def test_the_actions_of_a_batch_continue(project: Path) -> None:
    """Those of all its runs."""
    for name in ("job", "other"):
        write(project, name)
    without = expected(project)
    close_terminal(project, "batch", "job", "other", actions=2)
    (project / "go").touch()
    answer = llc("batch", "--resume")
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert len(begun(project)) == 2
    assert results(project) == without


def test_several_hangups_are_one(project: Path) -> None:
    """A terminal may tell its end to the session and to the process in front, so a second SIGHUP insists on
    nothing; where standard error is another file, it has the one line that says how to resume."""
    write(project)
    command = [sys.executable, "-m", "llc", "run", "job", "-q"]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    (action,) = wait_for(lambda: begun(project))
    wait_for(lambda: any(event["event"] == "process" for event in journals(project)[0]))
    for _ in range(5):
        run.send_signal(signal.SIGHUP)
    errors = run.communicate(timeout=60)[1]
    assert run.returncode == EXIT_HANGUP
    assert re.fullmatch(r"Resume with: llc resume job-[0-9a-f-]+\n", errors)
    assert is_alive(action)
    wait_for(lambda: "to take it over: llc resume" in llc("status", "job").stdout)
    assert llc("stop", "job").returncode == 0
    assert not is_alive(action)
    assert llc("status", "job").stdout.splitlines()[0].endswith(": interrupted (by hangup)")


def test_actions_that_a_resume_has_not_come_to(project: Path) -> None:
    """They stay what they were for the next one: taken over, not performed again."""
    (project / "many.sexp").write_text(
        "(parallel-map (lambda (n) (get-field (system:execute_shell_command (string-append "
        '"echo $$ >> begun; until test -e go; do sleep 0.02; done; echo " (to-string n))) (quote stdout))) '
        "(list 1 2 3))\n"
    )
    close_terminal(project, "run", "many.sexp", actions=3)
    close_terminal(project, "resume", "many", "--jobs", "1", actions=3, resumed=1)
    (project / "go").touch()
    answer = llc("resume", "many", "--json", "-q")
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout)["value"] == ["1\n", "2\n", "3\n"]
    assert len(begun(project)) == 3
