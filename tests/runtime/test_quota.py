"""Quota: agents of an exhausted account wait for its reset behind one circuit breaker."""

from __future__ import annotations

import email.utils
import importlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from keepers import kill_with_keeper

from llc.runtime.host import clock
from llc.runtime.ledger import breakers
from llc.runtime.ledger import database as ledger_database
from llc.runtime.models import provider
from llc.runtime.models.quota import reset_in

# `make crash` starts all of them.
PROCESSES = 50 if os.environ.get("LLC_CRASH") else 12
# An agent that prints events of Claude Code. The file `reset` has the time at which the quota is renewed.
AGENT = """#!/bin/sh
case " $* " in *" -p "*) ;; *) exit 0 ;; esac
cat > /dev/null
now=$(date +%s.%N)
echo "$now" >> "$STARTS"
reset=$(cat "$RESET")
echo '{"type":"system","subtype":"init","session_id":"s-1","model":"m"}'
if [ "$(printf '%s\\n%s\\n' "$now" "$reset" | sort -g | head -1)" = "$now" ]; then
  echo '{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":'"$reset"'}}'
  echo '{"type":"result","subtype":"success","is_error":true,"api_error_status":429,"num_turns":1,"result":"You hit your limit","session_id":"s-1"}'
  exit 1
fi
echo '{"type":"assistant","message":{"id":"m","content":[{"type":"tool_use","id":"t","name":"Bash","input":{"command":"true"}}]}}'
echo '{"type":"result","subtype":"success","is_error":false,"num_turns":1,"result":"done","total_cost_usd":0.5,"session_id":"s-1","usage":{"input_tokens":9,"output_tokens":1}}'
"""  # noqa: E501 -- each line is one event
# llc with a check of its breaker every 0.5 s instead of every 15 s.
LLC = """
from llc import __main__
from llc.runtime.models import quota
quota._CHECK_INTERVAL = 0.5
exit(__main__.main())
"""
LOOP = """
name: ask
initial: fix
scope: []
agent: claude
MORE
states:
  fix:
    action: "do it"
    action_type: prompt
    evaluate: {type: exit_code}
    on_success: done
    on_failure: lost
    on_error: lost
  done: {terminal: true}
  lost: {terminal: true, status: failure}
"""


class Service:
    """A project whose agent uses a service with a quota. reset: the time at which the quota is renewed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.starts_file, self.reset_file = folder / "starts", folder / "reset"
        self.env = {
            **os.environ,
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "XDG_DATA_HOME": str(folder / "data"),
            "STARTS": str(self.starts_file),
            "RESET": str(self.reset_file),
            "HOME": str(folder),
        }
        for name in ("ANTHROPIC_API_KEY", "LLC_AGENT"):
            self.env.pop(name, None)
        (folder / "bin").mkdir()
        (folder / ".loops").mkdir()
        agent = folder / "bin" / "claude"
        agent.write_text(AGENT)
        agent.chmod(0o755)
        self.loop("")
        self.started: list[subprocess.Popen[str]] = []

    def loop(self, more: str) -> None:
        (self.folder / ".loops" / "ask.yaml").write_text(LOOP.replace("MORE", more))

    def resets_in(self, seconds: float) -> float:
        """Exhaust the quota for this number of seconds; returns the time of the renewal."""
        moment = float(int(time.time() + seconds + 1))
        self.reset_file.write_text(f"{moment:.0f}")
        return moment

    @property
    def starts(self) -> list[float]:
        """The times at which the agent was started."""
        if not self.starts_file.exists():
            return []
        return [float(line) for line in self.starts_file.read_text().splitlines()]

    def start(self, *words: str, **env: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", LLC, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.folder,
            env={**self.env, **env},
        )
        self.started.append(process)
        return process

    def llc(self, *words: str, **env: str) -> tuple[int, str]:
        process = self.start(*words, **env)
        output, _ = process.communicate(timeout=300)
        return process.returncode, output

    def events(self) -> list[dict[str, Any]]:
        """The events of the only run."""
        (path,) = self.folder.glob(".loops/.*/ask-*/*.events.jsonl")
        return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]

    def agent_events(self, type: str) -> list[dict[str, Any]]:
        return [event for event in self.events() if event["event"] == "agent" and event["what"] == type]

    def is_waiting_for_quota(self) -> bool:
        return bool(list(self.folder.glob(".loops/.*/ask-*/*.events.jsonl"))) and bool(
            self.agent_events("quota-wait")
        )


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = Service(tmp_path)
    yield service
    for process in service.started:
        if process.poll() is None:
            process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def wait_until(condition: Callable[[], object], seconds: float = 120) -> None:
    """Wait for a condition."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition did not become true"
        time.sleep(0.05)


def test_a_run_waits_for_the_reset(service: Service) -> None:
    """The agent starts again after the reset, in the same effect; journal and logs show the wait."""
    reset = service.resets_in(3)
    code, output = service.llc("run", "ask")
    assert code == 0, output
    assert "waiting for the quota of the account claude until" in output
    first, second = service.starts
    assert first < reset <= second
    (wait,) = service.agent_events("quota-wait")
    assert (wait["name"], wait["resets_at"]) == ("claude", reset + 1)
    assert service.agent_events("quota-over")[0]["delay_s"] > 0
    (result,) = [event["result"] for event in service.events() if event["event"] == "action_complete"]
    assert result["usage"]["tokens"] == 10
    assert "waiting for the quota of the account claude" in service.llc("logs", "ask")[1]


def test_many_runs_start_one_probe(service: Service) -> None:
    """While the breaker of the account is open no run starts its agent; after the reset one run probes."""
    service.resets_in(3600)
    (service.folder / ".loops" / "ask.yaml").write_text(LOOP.replace("MORE", ""))
    first = service.start("run", "ask")
    wait_until(service.is_waiting_for_quota)
    assert len(service.starts) == 1
    # The breaker of the account is open: none of these starts an agent.
    others = [service.start("run", "ask") for _ in range(PROCESSES - 1)]
    database = service.folder / "data" / "llc" / "ledger.sqlite"

    def waiting() -> int:
        paths = service.folder.glob(".loops/.*/ask-*/*.events.jsonl")
        return sum('"quota-wait"' in path.read_text() for path in paths)

    wait_until(lambda: waiting() == PROCESSES, 300)
    assert len(service.starts) == 1
    before = [cpu_time(process.pid) for process in (first, *others)]
    time.sleep(2)
    used = [cpu_time(process.pid) - known for process, known in zip((first, *others), before, strict=True)]
    assert max(used) < 0.5, used
    # The quota is renewed soon, and the breaker has the time.
    reset = service.resets_in(2)
    with closing(sqlite3.connect(database, timeout=30)) as db, db:
        db.execute("UPDATE breakers SET until = ?", (reset,))
    for process in (first, *others):
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0, output
    assert len(service.starts) == PROCESSES + 1
    start_times = sorted(service.starts)
    assert start_times[1] >= reset
    with closing(sqlite3.connect(database)) as db:
        assert db.execute("SELECT count(*) FROM breakers").fetchone() == (0,)


EVALUATED_LOOP = """
name: ask
initial: look
scope: []
llm: {model: claude-haiku-4-5}
states:
  look:
    action: "echo it is good"
    evaluate: {type: llm_structured, prompt: "Is it good?"}
    on_success: done
    on_failure: lost
    on_error: lost
  done: {terminal: true}
  lost: {terminal: true, status: failure}
"""


def test_a_model_waits_for_its_account(service: Service, messages_server: Any, answers: ModuleType) -> None:
    """Model and agent calls with the same key wait until the quota is renewed."""
    (service.folder / ".loops" / "ask.yaml").write_text(EVALUATED_LOOP)
    key = {"ANTHROPIC_API_KEY": "test-key", "ANTHROPIC_BASE_URL": messages_server.url}
    messages_server.answers[:] = [answers.status(429, "no more today", retry_after=3600)]
    first = service.start("run", "ask", **key)
    wait_until(service.is_waiting_for_quota)
    (wait,) = service.agent_events("quota-wait")
    assert wait["name"].startswith("anthropic:")
    assert "no more today" in wait["text"]
    assert 3500 < wait["resets_at"] - time.time() < 3700
    requests = len(messages_server.requests)
    assert requests == 1
    second = service.start("run", "ask", **key)
    wait_until(lambda: len(list(service.folder.glob(".loops/.running/ask-*/*.events.jsonl"))) == 2)
    wait_until(lambda: all(map(is_waiting, service.folder.glob(".loops/.running/ask-*/*.events.jsonl"))))
    # An agent with the same key waits too.
    (service.folder / ".loops" / "work.yaml").write_text(LOOP.replace("MORE", "on_quota: fail"))
    code, output = service.llc("run", "work", **key)
    assert code == 1, output
    assert "the agent was not started" in output
    assert service.starts == []
    assert len(messages_server.requests) == requests
    messages_server.answers[:] = [answers.verdict("success")]
    assert service.llc("budget", "close", f"account:{wait['name']}")[0] == 0
    for run in (first, second):
        output, _ = run.communicate(timeout=300)
        assert run.returncode == 0, output
        assert "waiting for the quota of the account anthropic:" in output
    assert len(messages_server.requests) == requests + 2


def is_waiting(journal: Path) -> bool:
    return '"quota-wait"' in journal.read_text()


@pytest.mark.parametrize(
    ("retry_after", "seconds"),
    [
        ("3600", 3600),
        ("a date", 3600),
        ("20", None),
        ("-5", None),
        ("", None),
        ("soon", None),
        ("nan", None),
        ("inf", None),
        ("1e300", None),
        ("Fri, 01 Jan 2100 00:00:00 GMT", None),
        ("Fri, 99 Jan 99999 00:00:00 GMT", None),
    ],
)
def test_a_long_retry_after_is_a_quota(retry_after: str, seconds: int | None) -> None:
    """A rate limit is a quota if `retry-after` is longer than the client waits."""
    if retry_after == "a date":
        retry_after = email.utils.formatdate(time.time() + 3600, usegmt=True)
    quota = provider.quota_of(rate_limit_error("anthropic", None, {"retry-after": retry_after}))
    if seconds is None:
        assert quota == {}
    else:
        assert quota["kind"] == "quota"
        assert abs(quota["resets_at"] - time.time() - seconds) < 300


def test_an_openai_account_without_credit_has_no_reset() -> None:
    """OpenAI's API reports it by an error code."""
    body = {"message": "You exceeded your current quota", "code": "insufficient_quota"}
    assert provider.quota_of(rate_limit_error("openai", body, {})) == {"kind": "quota"}
    assert provider.quota_of(rate_limit_error("openai", {"code": None}, {})) == {}


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Your credit balance is too low to access the Anthropic API.", {"kind": "quota"}),
        ("max_tokens: must be greater than 0", {}),
    ],
)
def test_an_anthropic_account_without_credit_has_no_reset(message: str, expected: dict[str, str]) -> None:
    """Anthropic's API reports it in the text of a 400, the status of invalid requests."""
    response = SimpleNamespace(request=None, status_code=400, headers={})
    body = {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
    client = importlib.import_module("anthropic")
    error = client.BadRequestError(f"Error code: 400 - {body}", response=response, body=body)
    assert provider.quota_of(error) == expected


def rate_limit_error(package: str, body: Any, headers: dict[str, str]) -> Exception:
    """The exception of a client for a 429; the import of each client takes a second."""
    response = SimpleNamespace(request=None, status_code=429, headers=headers)
    client = importlib.import_module(package)
    error: Exception = client.RateLimitError("slow down", response=response, body=body)
    return error


def cpu_time(pid: int) -> float:
    """The CPU time of a process in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_one_probe_at_a_time(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the reset one call may start; the others wait for its result or the end of its process."""
    monkeypatch.setattr(breakers, "_RESET_MARGIN_S", 0.0)
    reset = clock.time() + 0.2
    breakers.trip("a", "used up", reset, "r/1")
    assert breakers.admit("a", "r/2").breaker is not None
    wait_until(lambda: clock.time() > reset)
    assert breakers.admit("a", "r/2") == (None, True)
    blocking = breakers.admit("a", "r/3").breaker
    assert blocking is not None
    assert blocking.run == "r/2"
    breakers.release("a", "r/2")
    assert breakers.admit("a", "r/3").is_probe
    # After another failure the time of the reset is unknown.
    breaker = breakers.trip("a", "used up", None, "r/3")
    assert breaker.failures == 2
    assert 890 < breaker.until - clock.time() <= 900
    assert breakers.admit("b", "r/4") == (None, False)
    assert breakers.close("a")
    assert not breakers.close("a")
    assert breakers.admit("a", "r/4") == (None, False)


def test_a_probe_of_a_dead_process_blocks_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    breakers.trip("a", "used up", None, "r/1")
    with closing(sqlite3.connect(ledger_database.place())) as db, db:
        db.execute("UPDATE breakers SET until = ?, run = 'r/2', pid = 1, started = 'x'", (clock.time() - 1,))
        db.execute("UPDATE breakers SET probe = ?", (clock.time(),))
    assert breakers.admit("a", "r/3").is_probe


@pytest.mark.parametrize(
    "resets_at", [0.0, -1.0, 1.0, 3.2e8 + 1.8e9, 1.9e12, float("nan"), float("inf"), float("-inf")]
)
def test_an_implausible_reset_time_is_ignored(resets_at: float) -> None:
    """Past times, times in ten years, milliseconds and non-finite numbers; the waits grow up to an hour."""
    is_waiting_for_quota = [
        breakers.next_probe(resets_at, failures, 1.8e9) - 1.8e9 for failures in (1, 2, 3, 4, 99)
    ]
    assert is_waiting_for_quota == [300, 900, 1800, 3600, 3600]


def test_a_reset_that_has_just_passed_is_probed_soon() -> None:
    assert breakers.next_probe(1.8e9 - 5, 1, 1.8e9) == 1.8e9 + 30


def test_a_breaker_opened_in_the_future_blocks_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock may have been set back."""
    now = clock.time()
    monkeypatch.setattr(clock, "time", lambda: now + 86400)
    breakers.trip("a", "used up", now + 2 * 86400, "r/1")
    assert breakers.admit("a", "r/2").breaker is not None
    monkeypatch.setattr(clock, "time", lambda: now)
    assert breakers.admit("a", "r/2").is_probe


@pytest.mark.parametrize(
    "row",
    [
        ("a", "soon", 0.0, "r", 1),
        ("a", 1e300, 1e300, "r", 1),
        ("a", 9e12, "x", b"\xff", "many"),
        ("a", -1e300, 0.0, "r", -5),
    ],
)
def test_a_damaged_row_blocks_no_call(row: tuple[Any, ...]) -> None:
    breakers.trip("a", "used up", None, "r/1")
    with closing(sqlite3.connect(ledger_database.place())) as db, db:
        db.execute("DELETE FROM breakers")
        db.execute("INSERT INTO breakers (account, until, opened, reason, failures) VALUES (?,?,?,?,?)", row)
    assert breakers.admit("a", "r/2").breaker is None
    breakers.trip("a", "used up", None, "r/2")
    assert breakers.admit("a", "r/3").breaker is not None


NOON = time.mktime((2026, 11, 22, 12, 0, 0, 0, 0, -1))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("You've hit your usage limit. Try again at 2:58 PM.", 2 * 3600 + 58 * 60),
        ("usage limit. Try again at 11:30 AM.", 23.5 * 3600),
        ("hit your session limit · resets 3pm", 3 * 3600),
        ("resets 18:05", 6 * 3600 + 5 * 60),
        ("Try again at 99:99 PM", None),
        ("resets 13pm", None),
        ("resets 5", None),
        ("resets " + "9" * 5000, None),
        ("", None),
    ],
)
def test_a_time_of_day_in_a_message_is_the_reset(text: str, seconds: float | None) -> None:
    """Local time, today or tomorrow."""
    assert reset_in(text, NOON) == (None if seconds is None else NOON + seconds)


def test_a_time_of_day_in_utc_is_the_reset() -> None:
    noon = 20_000 * 86400 + 12 * 3600
    assert reset_in("resets 2:54pm (UTC)", noon) == noon + 2 * 3600 + 54 * 60


def test_an_interrupt_ends_the_wait(service: Service) -> None:
    """A resumed run continues to wait and does not start the agent again."""
    service.resets_in(3600)
    process = service.start("run", "ask")
    wait_until(service.is_waiting_for_quota)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    resume_and_close_breaker(service)


def test_a_killed_run_continues_to_wait(service: Service) -> None:
    """After SIGKILL a resumed run continues to wait, even with the policy `fail` for effects in doubt."""
    service.resets_in(3600)
    process = service.start("run", "ask")
    wait_until(service.is_waiting_for_quota)
    shown = service.llc("status", "ask")[1]
    assert "quota of the account claude until" in shown
    kill_with_keeper(process)
    process.communicate()
    resume_and_close_breaker(service)


def resume_and_close_breaker(service: Service) -> None:
    """Resume the run; it waits until the breaker is closed manually, then starts the agent once."""
    process = service.start("resume", "ask", "--on-unknown", "fail")
    wait_until(lambda: len(service.agent_events("quota-wait")) > 1)
    assert len(service.starts) == 1
    service.reset_file.write_text("0")
    code, output = service.llc("budget", "close", "account:claude")
    assert (code, output) == (0, "the circuit breaker of the account claude is closed\n")
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    assert len(service.starts) == 2
    results = [event for event in service.events() if event["event"] == "action_complete"]
    assert len(results) == 1


@pytest.mark.parametrize(
    ("more", "code", "final"), [("on_quota: fail", 1, "lost"), ("on_quota: spare", 0, "done")]
)
def test_on_quota_selects_error_or_state(service: Service, more: str, code: int, final: str) -> None:
    """A second run does not start its agent."""
    if "spare" in more:
        more += "\n"
        text = LOOP.replace("  done: {term", "  spare: {action: echo spare, next: done}\n  done: {term")
        (service.folder / ".loops" / "ask.yaml").write_text(text.replace("MORE", more))
    else:
        service.loop(more)
    service.resets_in(3600)
    for _ in range(2):
        exit_code, output = service.llc("run", "ask", "--json")
        assert exit_code == code, output
        assert f'"final_state": "{final}"' in output
    assert len(service.starts) == 1


def test_on_quota_of_a_prompt_overrides_that_of_the_loop(service: Service) -> None:
    (service.folder / ".loops" / "ask.yaml").write_text(
        "{paradigm: invariants, name: ask, agent: claude, on_quota: wait,"
        " constraints: [{name: a, check: 'false', fix: {prompt: Fix, on_quota: fail}}]}"
    )
    service.resets_in(3600)
    code, output = service.llc("run", "ask", "--json")
    assert code == 1, output
    assert "quota" in output or "rate-limit" in output
    assert len(service.starts) == 1


def test_a_wait_longer_than_max_quota_wait_is_an_error(service: Service) -> None:
    service.loop("max_quota_wait: 60")
    service.resets_in(3600)
    code, output = service.llc("run", "ask")
    assert code == 1, output
    assert "the quota of the account claude is used up until" in output


@pytest.mark.parametrize(
    "content", [b"not a database, but long enough to be looked at" * 99, b"SQLite format 3\0"]
)
def test_a_damaged_database_does_not_stop_the_wait(service: Service, content: bytes) -> None:
    """Each run waits for the reset that its own agent reported."""
    folder = service.folder / "data" / "llc"
    folder.mkdir(parents=True)
    (folder / "ledger.sqlite").write_bytes(content)
    reset = service.resets_in(5)
    code, output = service.llc("run", "ask")
    assert code == 0, output
    assert "Traceback" not in output
    first, second = service.starts
    assert first < reset <= second


def test_control_characters_of_an_account_are_not_shown(service: Service) -> None:
    name = "a\x1b[31m\nb"
    agent = service.folder / "bin" / name
    agent.write_text(AGENT)
    agent.chmod(0o755)
    text = LOOP.replace("agent: claude", "agent: {program: " + json.dumps(name) + ", args: [-p]}")
    (service.folder / ".loops" / "ask.yaml").write_text(text.replace("MORE", "max_quota_wait: 60"))
    service.resets_in(3600)
    code, output = service.llc("run", "ask")
    assert code == 1, output
    assert "\x1b" not in output
    assert "\x1b" not in service.llc("budget")[1]


def test_a_locked_database_does_not_stop_the_wait(
    service: Service, perform: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run waits without the shared breaker and reports this once."""
    for name in ("PATH", "XDG_DATA_HOME", "STARTS", "RESET", "HOME"):
        monkeypatch.setenv(name, service.env[name])
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.chdir(service.folder)
    monkeypatch.setattr(ledger_database, "LOCK_TIMEOUT_S", 0.05)
    breakers.trip("other", "used up", None, "r/1")
    reset = service.resets_in(2)
    shown: list[str] = []
    with closing(sqlite3.connect(ledger_database.place(), isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        result = perform(
            "agent", {"on_output": lambda _, text: shown.append(text)}, agent="claude", command="x"
        )
        db.execute("ROLLBACK")
    assert "error" not in result, result
    assert len("".join(shown).split("this run waits for quotas by itself")) == 2
    first, second = service.starts
    assert first < reset <= second


def test_an_unknown_state_in_on_quota_is_a_diagnostic(service: Service) -> None:
    service.loop("on_quota: dome")
    code, output = service.llc("validate", "ask")
    assert code == 2
    assert "no state named `dome`" in output
    assert "did you mean `done`" in output


def test_budget_lists_open_breakers(service: Service) -> None:
    """With the time, the reason and the command that closes the breaker."""
    service.loop("on_quota: fail")
    reset = service.resets_in(3600)
    service.llc("run", "ask")
    shown = service.llc("budget")[1]
    assert "calls of the account claude are blocked until" in shown
    assert "llc budget close account:claude" in shown
    (breaker,) = json.loads(service.llc("budget", "--json")[1])["breakers"]
    assert breaker["account"] == "claude"
    assert breaker["until"] == clock.timestamp(reset + 1)
    assert service.llc("budget", "close", "account:other")[1].endswith("was not open\n")
    assert service.llc("budget", "close", "day")[0] == 2
