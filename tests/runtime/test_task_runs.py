"""Flows with model tasks on the command line: the real client against a local Messages API."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from keepers import kill_with_keeper

Llc = Callable[..., subprocess.CompletedProcess[str]]

SUMMARISE = """
(defatom user:summarise (params text) (instructions "Summarise: {{text}}"))
(user:summarise (text "a long story"))
"""


@pytest.fixture
def llc(llc: Llc, project_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Llc:
    """Run llc in a project."""
    for name in ("NO_COLOR", "FORCE_COLOR", "LLC_LLM_MODEL"):
        monkeypatch.delenv(name, raising=False)
    return llc


def test_a_task_of_a_flow_is_performed_by_a_model(
    llc: Llc, messages_server: Any, answers: ModuleType, tmp_path: Path
) -> None:
    """From `defatom` to its task result; the reply is shown while it arrives."""
    messages_server.then(answers.text("It is\nshort.", tokens=(1000, 200)))
    (tmp_path / ".loops" / "sum.sexp").write_text(SUMMARISE)
    done = llc("run", "sum", "--json")
    assert json.loads(done.stdout)["value"] == {
        "status": "COMPLETE",
        "content": "It is\nshort.",
        "notes": {
            "model": "claude-haiku-4-5",
            "usage": {
                "input_tokens": 1000,
                "output_tokens": 200,
                "tokens": 1200,
                "cache_read_tokens": 0,
                "cache_write_tokens": 0,
                "usd": 0.002,
            },
        },
    }
    assert "│ short." in done.stderr
    (sent,) = messages_server.requests
    assert sent["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "Summarise: a long story"}]}
    ]


def test_a_recorded_call_is_not_repeated(
    llc: Llc, messages_server: Any, answers: ModuleType, tmp_path: Path
) -> None:
    """After SIGKILL during the second call only this call is repeated, with the history of the first."""
    messages_server.then(answers.text("one"), answers.stall(), answers.text("two"))
    (tmp_path / ".loops" / "two.sexp").write_text(
        '(defatom user:a (params) (instructions "First."))\n'
        '(defatom user:b (params) (instructions "Second.") (history_config (use_session_history true)))\n'
        "(user:a)\n(get-field (user:b) 'content)\n"
    )
    process = subprocess.Popen([sys.executable, "-m", "llc", "run", "two", "-q"])
    deadline = time.monotonic() + 60
    while len(messages_server.requests) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    kill_with_keeper(process)
    process.wait()
    done = llc("resume", "two", "--json")
    assert json.loads(done.stdout)["value"] == "two", done.stderr
    sent_texts = [
        [sent["content"][0]["text"] for sent in request["messages"]] for request in messages_server.requests
    ]
    assert sent_texts == [["First."], ["First.", "one", "Second."], ["First.", "one", "Second."]]


def kill_during_a_call(tmp_path: Path, server: Any) -> None:
    """Run the flow `pay` and kill it during its call."""
    process = subprocess.Popen([sys.executable, "-m", "llc", "run", "pay", "-q"])
    deadline = time.monotonic() + 60
    while not server.requests:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    kill_with_keeper(process)
    process.wait()


PAY = """
(defatom user:pay (params) (instructions "Do it.") (on_unknown %s))
(try (get-field (user:pay) 'content) (catch e (get e "kind")))
"""


def test_a_call_in_doubt_is_not_repeated_without_consent(
    llc: Llc, messages_server: Any, answers: ModuleType, tmp_path: Path
) -> None:
    """With `on_unknown: fail` it is a fault; with `ask` the resume needs an option."""
    messages_server.then(answers.stall(), answers.text("done"))
    source = tmp_path / ".loops" / "pay.sexp"
    source.write_text(PAY % "fail")
    kill_during_a_call(tmp_path, messages_server)
    done = llc("resume", "pay", "--json")
    assert json.loads(done.stdout)["value"] == "unknown-outcome", done.stderr
    assert len(messages_server.requests) == 1
    messages_server.requests.clear()
    messages_server.answers.insert(0, answers.stall())
    source.write_text(PAY % "ask")
    kill_during_a_call(tmp_path, messages_server)
    refused = llc("resume", "pay", "--json")
    assert json.loads(refused.stdout)["error"]["kind"] == "unknown-outcome"
    assert len(messages_server.requests) == 1
    done = llc("resume", "pay", "--json", "--on-unknown", "rerun")
    assert json.loads(done.stdout)["value"] == "done"
    assert len(messages_server.requests) == 2


def test_the_helper_of_a_killed_run_ends(
    llc: Llc, messages_server: Any, answers: ModuleType, tmp_path: Path
) -> None:
    messages_server.then(answers.stall())
    (tmp_path / ".loops" / "pay.sexp").write_text(PAY % "fail")
    process = subprocess.Popen([sys.executable, "-m", "llc", "run", "pay", "-q"])
    deadline = time.monotonic() + 60
    while not messages_server.requests:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    listed = subprocess.run(["ps", "-A", "-o", "ppid=,pid="], capture_output=True, text=True, check=True)
    pairs = [line.split() for line in listed.stdout.splitlines()]
    helpers = [pid for parent, pid in pairs if parent == str(process.pid)]
    assert helpers
    kill_with_keeper(process)
    process.wait()
    while any(
        subprocess.run(["ps", "-p", pid], capture_output=True, check=False).returncode == 0 for pid in helpers
    ):
        assert time.monotonic() < deadline
        time.sleep(0.05)


HOSTILE = """
(defatom user:a (params) (instructions "Do.")
  (output_format (type "json") (schema "{\\"type\\": \\"object\\", \\"required\\": [\\"n\\"]}")))
(map (get-field (user:a) "notes.error.details.kind") (range 0 %d))
"""


def test_every_error_of_a_server_is_recorded(
    llc: Llc, messages_server: Any, answers: ModuleType, tmp_path: Path
) -> None:
    """A run with all these errors completes and can be replayed without a server."""
    start_event = answers.event(
        next(answers.events({"content": [], "usage": {}, "id": "m", "type": "message"}))
    )
    replies = [
        (answers.status(401, "no key"), 1, "unauthorized"),
        (answers.status(404, "no such model"), 1, "bad-request"),
        (answers.half(answers.result({"n": 1})), 1, "connection"),
        (answers.body(start_event, "text/event-stream"), 1, "connection"),
        (answers.body(b"<html>", "text/html"), 1, "invalid-reply"),
        (answers.text("x" * (10 << 20)), 1, "too-long"),
        (answers.result({"m": 1}), 1, None),
        (answers.text('{"n": '), 1, None),
        (answers.status(429, "slow down", retry_after=0.01), 3, "rate-limited"),
        (answers.status(500, "boom", retry_after=0.01), 3, "server-error"),
        (answers.drip(), 1, "timeout"),
    ]
    messages_server.then(*(answer for answer, times, _ in replies for _ in range(times)))
    (tmp_path / ".loops" / "config.yaml").write_text("tasks: {timeout: 2}\n")
    (tmp_path / ".loops" / "all.sexp").write_text(HOSTILE % len(replies))
    done = llc("run", "all", "--json")
    assert json.loads(done.stdout)["value"] == [kind for _, _, kind in replies], done.stderr
    requests = len(messages_server.requests)
    assert requests == sum(times for _, times, _ in replies)
    replayed = llc("replay", "all")
    assert "is identical" in replayed.stdout
    assert len(messages_server.requests) == requests


def test_ctrl_c_stops_a_run_during_a_reply(
    llc: Llc, messages_server: Any, answers: ModuleType, tmp_path: Path
) -> None:
    """The exit code is 130, and a resumed run repeats the task."""
    messages_server.then(answers.drip(), answers.text("done"))
    (tmp_path / ".loops" / "sum.sexp").write_text(SUMMARISE)
    process = subprocess.Popen([sys.executable, "-m", "llc", "run", "sum", "-q"], stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while not messages_server.requests:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 130
    assert process.stderr is not None
    process.stderr.close()
    done = llc("resume", "sum", "--json")
    assert json.loads(done.stdout)["value"]["content"] == "done"


def test_a_failed_task_is_shown_with_its_reason(
    llc: Llc, messages_server: Any, answers: ModuleType, tmp_path: Path
) -> None:
    """The program continues."""
    messages_server.then(answers.status(400, "no such model"))
    (tmp_path / ".loops" / "sum.sexp").write_text(SUMMARISE)
    done = llc("run", "sum")
    assert done.returncode == 0
    assert "FAILED: HTTP 400: no such model" in done.stdout


def test_concurrent_tasks_of_parallel_map(
    llc: Llc, messages_server: Any, answers: ModuleType, tmp_path: Path
) -> None:
    """The results are in the order of the items."""
    messages_server.then(answers.text("ok"))
    (tmp_path / ".loops" / "many.sexp").write_text(
        '(defatom user:a (params x) (instructions "{{x}}"))\n'
        "(parallel-map (get-field (user:a (x item)) 'content) '(1 2 3))\n"
    )
    done = llc("run", "many", "--json")
    assert json.loads(done.stdout)["value"] == ["ok", "ok", "ok"], done.stderr
    assert len(messages_server.requests) == 3


def test_a_run_without_tasks_imports_no_model_modules(llc: Llc, tmp_path: Path) -> None:
    """They would delay each start."""
    (tmp_path / ".loops" / "one.sexp").write_text("(+ 1 2)")
    code = (
        "import sys; from llc.runtime.cli.entry import main\n"
        "sys.argv = ['llc', 'run', 'one', '-q']\n"
        "try: main()\nexcept SystemExit: pass\n"
        "unwanted = 'llc.runtime.models', 'llc.runtime.effects.task'\n"
        "print([name for name in sys.modules if name.startswith(unwanted)])"
    )
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
