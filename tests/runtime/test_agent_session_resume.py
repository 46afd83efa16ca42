"""A resumed run ends the tools that survived an interrupted agent, then continues its session.

The stub agent keeps sessions in the format of Claude Code; a step is done when it is in the session.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import postgres
import pytest
from crash_projects import Runner
from keepers import kill_with_keeper

IS_LARGE = bool(os.environ.get("LLC_CRASH"))
STEPS = 2
LOOP = """
name: job
initial: fix
agent: stub
states:
  fix: {action: "Do the steps", action_type: prompt, next: done, on_error: bad}
  done: {terminal: true}
  bad: {terminal: true, status: failure}
"""
# The stub appends each prompt to `prompts` and each finished step to `work`; each tool appends to `tools`.
STUB = """#!{python} -IS
import json, os, sys, time
words = sys.argv[1:]
def option(name):
    return words[words.index(name) + 1] if name in words else None
def emit(**event):
    print(json.dumps(event), flush=True)
def add(name, text):
    with open(name, "a") as file:
        file.write(text + "\\n")
def fail(message):
    emit(type="result", subtype="error_during_execution", is_error=True, num_turns=0, errors=[message])
    sys.exit(1)
prompt = sys.stdin.read()
new, old = option("--session-id"), option("--resume")
path = f"sessions/{{new or old}}"
if old and not os.path.exists(path):
    fail("No conversation found with session ID: " + old)
if new and os.path.exists(path):
    fail("Session ID " + new + " is already in use.")
time.sleep(0.02)
if not old:
    open(path, "w").close()
add("prompts", json.dumps({{"resume": bool(old), "prompt": prompt}}))
emit(type="system", subtype="init", session_id=new or old, model="m")
done = open(path).read().split()
for step in map(str, range({steps})):
    if step in done:
        continue
    command = "echo begin " + step + " >> tools; sleep {seconds}; echo end " + step + " >> tools"
    use = {{"type": "tool_use", "id": "t" + step, "name": "Bash", "input": {{"command": "tool " + step}}}}
    emit(type="assistant", session_id=new or old, message={{"id": "m" + step, "content": [use]}})
    tool = os.fork()
    if not tool:
        os.setsid()  # as agents start their tools
        os.execv("/bin/sh", ["sh", "-c", command])
    os.waitpid(tool, 0)
    add(path, step)
    add("work", step)
    block = {{"type": "tool_result", "tool_use_id": "t" + step, "content": "ok"}}
    emit(type="user", message={{"content": [block]}})
emit(type="result", subtype="success", is_error=False, num_turns=2, result="Done.", session_id=new or old)
"""


class Job:
    """A project with the loop and its stub agent."""

    def __init__(self, folder: Path, seconds: float = 0.05, settings: str = "") -> None:
        self.folder = folder
        (folder / ".loops").mkdir(parents=True)
        (folder / "sessions").mkdir()
        (folder / ".loops/job.yaml").write_text(LOOP)
        (folder / ".loops/config.yaml").write_text(
            f"agents: {{stub: {{extends: claude, argv: [./stub]{settings}}}}}"
        )
        (folder / "stub").write_text(STUB.format(python=sys.executable, steps=STEPS, seconds=seconds))
        (folder / "stub").chmod(0o755)

    def lines(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    def prompts(self) -> list[str]:
        return [json.loads(line)["prompt"] for line in self.lines("prompts")]

    def events(self) -> list[dict[str, object]]:
        paths = list(self.folder.glob(".loops/.*/job-*/*.events.jsonl"))
        events: list[dict[str, object]] = []
        for line in paths[0].read_text().splitlines() if paths else ():
            events.append(json.loads(line))
        return events

    def is_running(self) -> bool:
        return bool(list(self.folder.glob(".loops/.running/job-*/*.events.jsonl")))


@pytest.fixture(scope="module", params=["files", "database"])
def llc(request: pytest.FixtureRequest) -> Iterator[Runner]:
    """llc with each of the two run stores."""
    job: dict[str, Any] = {}
    if request.param == "database":
        job["database"] = postgres.cluster_database(request.getfixturevalue("postgres_server"))
    with Runner(**job) as runner:
        yield runner


def test_run_killed_at_any_write_resumes_the_session(llc: Runner, tmp_path: Path) -> None:
    """No step of the session is repeated, no tool keeps running, and the run ends as expected."""
    job = Job(tmp_path / "alone")
    assert llc(job.folder, "run", "job", "-q") == 0
    assert job.lines("work") == ["0", "1"]
    writes = llc.writes
    assert writes > 10
    for at in range(1, writes + 1, 1 if IS_LARGE else 2):
        job = Job(tmp_path / str(at))
        llc(job.folder, "run", "job", "-q", fault="after", at=at)
        if not job.is_running():
            continue
        assert llc(job.folder, "resume", "job", "-q") == 0, (at, (job.folder / "shown").read_text())
        assert Counter(job.lines("work")) == {"0": 1, "1": 1}, at
        sessions = {event["id"] for event in job.events() if event.get("what") == "session"}
        assert len(sessions) == 1, at


def start(job: Job) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "llc", "run", "job", "-q"], cwd=job.folder, stderr=subprocess.DEVNULL
    )


def wait_for(job: Job, name: str, line: str) -> None:
    deadline = time.monotonic() + 60
    while line not in job.lines(name):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def resume(job: Job, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "llc", "resume", "job", *words],
        cwd=job.folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGTERM])
def test_running_tool_is_ended_and_named(tmp_path: Path, signal_number: int) -> None:
    """After kill -9 the tool survives in its own process session; a stop also stops the agent."""
    job = Job(tmp_path / "p", seconds=4)
    run = start(job)
    wait_for(job, "tools", "begin 1")
    if signal_number == signal.SIGKILL:
        kill_with_keeper(run)
    run.send_signal(signal_number)
    run.wait(timeout=30)
    before = job.lines("tools")
    completed = resume(job)
    assert completed.returncode == 0, completed.stderr
    if signal_number == signal.SIGKILL:
        assert "it was ended" in completed.stderr
    assert before == ["begin 0", "end 0", "begin 1"]
    assert job.lines("tools") == ["begin 0", "end 0", "begin 1", "begin 1", "end 1"]
    first, second = job.prompts()
    assert first == "Do the steps"
    assert "\n| Bash tool 1\n" in second
    assert "Bash tool 0" not in second
    assert "Do the steps" not in second
    (decision,) = [event["unknown"] for event in job.events() if event["event"] == "run_resume"]
    assert list(decision.values()) == ["continue"]  # type: ignore[attr-defined]


def test_on_unknown_rerun_starts_a_new_session(tmp_path: Path) -> None:
    """`--on-unknown rerun` starts a new session."""
    job = Job(tmp_path / "p", seconds=0.5)
    run = start(job)
    wait_for(job, "tools", "begin 1")
    kill_with_keeper(run)
    assert resume(job, "--on-unknown", "rerun").returncode == 0
    assert job.prompts() == ["Do the steps", "Do the steps"]
    assert len(list((job.folder / "sessions").iterdir())) == 2


def test_process_that_left_its_session_is_ended(tmp_path: Path) -> None:
    """A process is found by the effect's id in its environment, whatever its group, session and parent."""
    from llc.runtime.host.leftovers import end_effect

    effect = f"job-{os.getpid()}/7"  # other runs of this test are left alone
    child = "import os, time\nfor _ in '12': os.fork() and os._exit(0); os.setsid()\ntime.sleep(60)"
    env = {**os.environ, "LLC_EFFECT_ID": effect}
    subprocess.run([sys.executable, "-c", child], env=env, check=True)
    deadline = time.monotonic() + 60
    ended: list[int] = []
    while not ended and time.monotonic() < deadline:
        ended = end_effect(effect, ())
    assert len(ended) == 1
    assert end_effect(effect, ()) == []
