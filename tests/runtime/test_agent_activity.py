"""Agent activity is journaled while the agent works; `logs`, `status`, `trace` and `attach` show it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]
LOOP = """
name: l
initial: fix
agent: stub
states:
  fix: {action: "/fix it", next: done}
  done: {terminal: true}
"""


def write_agent(project_dir: Path, *steps: dict[str, Any] | str) -> None:
    """Write the loop and its stub agent.

    steps: a dict is an event that the agent prints, a string is a line of shell.
    """
    (project_dir / ".loops/l.yaml").write_text(LOOP)
    (project_dir / ".loops/config.yaml").write_text('agents: {stub: {argv: [./stub, "{prompt}"]}}')
    lines = ["#!/bin/sh"]
    for number, step in enumerate(steps):
        if isinstance(step, str):
            lines.append(step)
        else:
            (project_dir / f".loops/event-{number}").write_text(json.dumps(step) + "\n")
            lines.append(f"cat .loops/event-{number}")
    (project_dir / "stub").write_text("\n".join(lines) + "\n")
    (project_dir / "stub").chmod(0o755)


def message(*blocks: dict[str, Any]) -> dict[str, Any]:
    """A message of the agent with these content blocks."""
    return {"type": "assistant", "session_id": "s-1", "message": {"id": "m", "content": list(blocks)}}


def tool_use(id: str, name: str, **input: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": input}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def result(words: str, **more: Any) -> dict[str, Any]:
    report = {"type": "result", "subtype": "success", "is_error": False, "num_turns": 2, "session_id": "s-1"}
    return {**report, "result": words, "total_cost_usd": 0.25, "usage": {"input_tokens": 9}, **more}


INIT = {"type": "system", "subtype": "init", "session_id": "s-1", "model": "m-1"}
TOOL_RESULT = {
    "type": "user",
    "message": {"content": [{"type": "tool_result", "tool_use_id": "t1", "content": "ok"}]},
}


def journal(project_dir: Path) -> list[dict[str, Any]]:
    (path,) = project_dir.glob(".loops/.*/l-*/*.events.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def activities(project_dir: Path) -> list[dict[str, Any]]:
    """The agent's events, without the fields that every journal line has."""
    common = ("event", "seq", "ts", "crc")
    return [
        {name: value for name, value in event.items() if name not in common}
        for event in journal(project_dir)
        if event["event"] == "agent"
    ]


def test_every_activity_is_a_journal_event(llc: Run, project_dir: Path) -> None:
    write_agent(
        project_dir,
        INIT,
        message(text("I look.\nThen I fix."), tool_use("t1", "Edit", file_path="a.py")),
        {**TOOL_RESULT, "tool_use_result": {"filePath": "a.py"}},
        {"type": "rate_limit_event", "rate_limit_info": {"status": "rejected", "resetsAt": 2_000_000_000}},
        result("Fixed.", permission_denials=[{"tool_name": "Bash", "tool_input": {"command": "rm -rf /"}}]),
    )
    llc("run", "l")
    assert [event for event in activities(project_dir) if event["what"] != "usage"] == [
        {"what": "session", "id": "s-1"},
        {"what": "model", "name": "m-1"},
        {"what": "text", "text": "I look.\nThen I fix."},
        {"what": "tool", "id": "t1", "name": "Edit", "target": "a.py"},
        {"what": "tool-end", "id": "t1", "name": "Edit", "target": "a.py", "text": "ok"},
        {"what": "files", "files": ["a.py"]},
        {"what": "rate-limit", "name": "rejected", "resets_at": 2_000_000_000},
        {"what": "final", "text": "Fixed."},
        {"what": "refusal", "name": "Bash", "target": "rm -rf /"},
    ]
    shown = llc("logs", "l").stdout
    assert "  I look. Then I fix.\n" in shown
    assert "  [Edit a.py]\n" in shown
    assert "  rate limit: rejected, resets at 2033-05-18 03:33 UTC\n" in shown
    assert "  refused: Bash rm -rf /\n" in shown
    assert "│ Fixed.\n" in shown
    assert "0.2500 USD" in shown
    verbose = llc("logs", "l", "-v").stdout
    assert re.search(r"  I look\.\n +Then I fix\.\n", verbose)
    assert "  [Edit a.py] ended: ok\n" in verbose
    logged = [json.loads(line) for line in llc("logs", "l", "--json").stdout.splitlines()]
    assert [event["what"] for event in logged if event["event"] == "agent"][:2] == ["session", "model"]
    assert llc("replay", "l").returncode == 0


def test_control_characters_of_an_agent_are_not_shown(llc: Run, project_dir: Path) -> None:
    """Escape sequences in names, targets and texts do not reach the terminal in any view."""
    hostile = "\x1b]0;title\x07\x1b[2Jx\x9b31m\u202ey\r"
    write_agent(
        project_dir,
        INIT,
        message(text(hostile), tool_use("t1", hostile, file_path=f"{hostile}\nz")),
        result(hostile),
    )
    llc("run", "l")
    targets = [event["target"] for event in activities(project_dir) if "target" in event]
    assert targets[0] == f"{hostile.strip()} z"
    for words in ("logs l", "logs l -v", "trace l", "status l"):
        completed = llc(*words.split())
        assert completed.returncode == 0, completed.stderr
        assert not set(completed.stdout) & set("\x1b\x07\x9b\u202e\r"), words


def test_number_of_recorded_activities_is_limited(llc: Run, project_dir: Path) -> None:
    write_agent(
        project_dir,
        INIT,
        "i=0; while [ $i -lt 120 ]; do cat .loops/many; i=$((i+1)); done",
        result("Done."),
    )
    line = json.dumps(message(text("word"))) + "\n"
    (project_dir / ".loops/many").write_text(line * 100)
    assert llc("run", "l", "-q").returncode == 0
    recorded = activities(project_dir)
    assert len(recorded) == 10_001
    assert recorded[-1] == {"what": "bound"}
    assert [
        event["result"]["output"] for event in journal(project_dir) if event["event"] == "action_complete"
    ] == ["Done."]


def test_long_texts_are_stored_once_by_digest(llc: Run, project_dir: Path) -> None:
    words = "many words " * 10_000
    write_agent(project_dir, INIT, message(text(words)), message(text(words)), result("Done."))
    llc("run", "l", "-q")
    recorded = [event["text"] for event in activities(project_dir) if event["what"] == "text"]
    assert recorded[0] == recorded[1]
    assert recorded[0]["size"] == len(words)
    assert words.strip() in llc("logs", "l", "-v").stdout


def test_secrets_in_activities_are_masked(
    llc: Run, project_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEPLOY_TOKEN", "hunter2-hunter2")
    write_agent(
        project_dir,
        INIT,
        message(text("I use hunter2-hunter2"), tool_use("t1", "Bash", command="x hunter2-hunter2")),
    )
    llc("run", "l")
    (path,) = project_dir.glob(".loops/.*/l-*/*.events.jsonl")
    assert "hunter2-hunter2" not in path.read_text()
    shown = llc("logs", "l").stdout
    assert "  I use ***\n" in shown
    assert "  [Bash x ***]\n" in shown


def test_recorded_activities_survive_kill_9(project_dir: Path) -> None:
    """After kill -9 of llc and the agent, session, running tool and tree before the step are recorded."""
    subprocess.run(["git", "init", "-q", "."], cwd=project_dir, check=True)
    write_agent(
        project_dir,
        INIT,
        "echo x > new",
        message(text("I look."), tool_use("t1", "Bash", command="sleep 60")),
        "exec sleep 60",
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "llc", "run", "l"], stdout=subprocess.PIPE, text=True, cwd=project_dir
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "[Bash sleep 60]" in line:
            break
    process.kill()
    process.communicate()
    recorded = journal(project_dir)
    (child,) = [event["pid"] for event in recorded if event["event"] == "process"]
    os.killpg(child, signal.SIGKILL)
    activity_kinds = [
        event["what"] for event in recorded if event["event"] == "agent" and event["what"] != "usage"
    ]
    assert activity_kinds == ["session", "model", "text", "tool"]
    assert [event["when"] for event in recorded if event["event"] == "tree"] == ["before"]

    def llc(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "llc", *words], capture_output=True, text=True, cwd=project_dir
        )

    status = json.loads(llc("status", "l", "--json").stdout)
    assert status["status"] == "crashed"
    assert status["agent"]["session"] == "s-1"
    assert status["agent"]["running"] == ["Bash sleep 60"]
    diff = llc("diff", "l", "fix", "--name-only")
    assert diff.stdout == "new\n"
    assert diff.stderr == "note: a step has not ended; the comparison uses the current files\n"
    assert not list(project_dir.glob(".loops/.running/l-*/trees/now-*"))
    write_agent(project_dir, INIT, "echo y > other", result("Done."))
    assert llc("resume", "l").returncode == 0
    assert llc("diff", "--name-only").stdout.splitlines()[-2:] == ["other", "stub"]
    assert "new" in llc("diff", "--name-only").stdout.splitlines()


def test_attach_shows_tools_and_the_final_answer(llc: Run, project_dir: Path) -> None:
    wait_for_go = "while [ ! -e go ]; do sleep 0.1; done"
    write_agent(
        project_dir,
        INIT,
        message(tool_use("t1", "Edit", file_path="a.py")),
        wait_for_go,
        result("All is fixed."),
    )
    # The fixture runs llc in this process; a background run needs its own.
    subprocess.run([sys.executable, "-m", "llc", "run", "l", "--background"], check=True)
    deadline = time.monotonic() + 60
    while not any(event["what"] == "tool" for event in activities(project_dir)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    status = json.loads(llc("status", "l", "--json").stdout)
    assert status["agent"]["running"] == ["Edit a.py"]
    command = [sys.executable, "-m", "llc", "attach", "l"]
    attached = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert attached.stderr is not None
    assert attached.stdout is not None
    assert attached.stderr.readline().startswith("Attached to")
    # `attach` reads output of a running action only after it has attached.
    assert any("[Edit a.py]" in line for line in attached.stdout)
    (project_dir / "go").touch()
    shown, _ = attached.communicate(timeout=60)
    assert "All is fixed." in shown
    # The last line states the cost, as in the foreground.
    assert shown.rstrip().endswith(", 0.2500 USD, 9 tokens)")


def test_status_and_trace_show_agent_activity(llc: Run, project_dir: Path) -> None:
    (project_dir / "kept.py").write_text("x")
    write_agent(
        project_dir,
        INIT,
        message(tool_use("t1", "Edit", file_path="a.py")),
        TOOL_RESULT,
        message(tool_use("t2", "Bash", command="pytest")),
        "echo x > a.py",
        result("All is fixed."),
    )
    llc("run", "l")
    status = llc("status", "l").stdout
    assert re.search(r"  agent +session s-1, model m-1, 2 tools", status)
    assert re.search(r"  answer +All is fixed\.", status)
    activity = json.loads(llc("status", "l", "--json").stdout)["agent"]
    assert (activity["tools"], activity["answer"]) == (2, "All is fixed.")
    trace = llc("trace", "l", "--at", "1").stdout
    assert "  [Edit a.py]\n" in trace
    assert "  [Bash pytest]\n" in trace
    assert "All is fixed." in trace


def test_empty_usage_is_not_shown(llc: Run, project_dir: Path) -> None:
    """For an agent that reports neither tokens nor cost, no log, trace or report has an empty line."""
    report = result("all done")
    del report["total_cost_usd"], report["usage"]
    write_agent(project_dir, INIT, message(text("looking")), report)
    assert llc("run", "l", "--quiet").returncode == 0
    assert any(event["what"] == "usage" for event in activities(project_dir))
    for command in (("logs", "l", "--verbose"), ("trace", "l")):
        shown = llc(*command)
        assert shown.returncode == 0
        assert not re.search(r"used *$", shown.stdout, re.M)
        assert "\n     \n" not in shown.stdout
    page = json.loads(llc("report", "l", "--format", "json", "-o", "-").stdout)
    assert '["usage", ' not in json.dumps(page)


def test_fork_shares_agent_activity(llc: Run, project_dir: Path) -> None:
    """Long texts are stored separately and are shared too."""
    words = "many words " * 10_000
    write_agent(
        project_dir, INIT, message(text(words), tool_use("t1", "Edit", file_path="a.py")), result("Done.")
    )
    loop = LOOP.replace("next: done", "next: two").replace(
        "  done:", '  two: {action: "true", next: done}\n  done:'
    )
    (project_dir / ".loops/l.yaml").write_text(loop)
    llc("run", "l", "-q")
    assert llc("fork", "l", "--at", "2", "-q").returncode == 0
    run_ids = [path.parent.name for path in project_dir.glob(".loops/.history/l-*/*.jsonl")]
    forked = max(run_ids)
    shown = llc("logs", forked, "-v").stdout
    assert "is forked from" in shown
    assert "[Edit a.py]" in shown
    assert words.strip() in shown
