"""Ledgers of agent usage: limits per day, project and account, in the user's database."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from in_process import run_llc
from keepers import kill_with_keeper

# The complete number of processes is for `make crash`.
PROCESSES = 50 if os.environ.get("LLC_CRASH") else 12
LOOP = """
name: fix
initial: fix
max_iterations: 9
states:
  fix: {action: "do it", action_type: prompt, next: again}
  again: {action: "true", on_success: fix, on_failure: done}
  done: {terminal: true}
"""
AGENT = """#!/bin/sh
echo "$@" >> "$CALLS"
echo '{"type":"result","subtype":"success","is_error":false,"num_turns":1,"result":"ok",
"total_cost_usd":COST,"session_id":"s","usage":{"input_tokens":900,"output_tokens":100}}' | tr -d '\\n'
"""


class Project:
    """A project with a loop that calls the stub agent `claude` nine times; the agent reports its cost."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls = folder / "calls"
        self.data = folder / "data"
        self.env = {
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "XDG_DATA_HOME": str(self.data),
            "CALLS": str(self.calls),
            "HOME": str(folder),
        }
        (folder / "bin").mkdir()
        (folder / ".loops").mkdir()
        (folder / ".loops" / "fix.yaml").write_text(LOOP)
        self.agent("0.02")

    def agent(self, cost: str, script: str = AGENT) -> None:
        path = self.folder / "bin" / "claude"
        path.write_text(script.replace("COST", cost))
        path.chmod(0o755)

    def llc(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        return run_llc(*words, folder=self.folder, **self.env, **env)

    def json(self, *words: str, **env: str) -> Any:
        done = self.llc(*words, "--json", **env)
        assert done.stdout, done.stderr
        return json.loads(done.stdout)

    def start(self, *words: str, number: int = 0) -> subprocess.Popen[bytes]:
        """Start llc with its output in the file `messages`; with a number, in another project folder."""
        folder = self.folder / str(number) if number else self.folder
        if number:
            shutil.copytree(self.folder / ".loops", folder / ".loops", dirs_exist_ok=True)
        with open(self.folder / "messages", "ab") as file:
            return subprocess.Popen(
                [sys.executable, "-m", "llc", *words],
                cwd=folder,
                env={**os.environ, **self.env},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )

    @property
    def messages(self) -> str:
        return (self.folder / "messages").read_text()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with contextlib.closing(sqlite3.connect(self.data / "llc" / "ledger.sqlite")) as db, db:
            return db.execute(statement, values).fetchall()

    @property
    def journals(self) -> list[Path]:
        return list(self.folder.glob(".loops/.running/*/*.events.jsonl"))

    @property
    def starts(self) -> list[str]:
        words = self.calls.read_text().splitlines() if self.calls.exists() else []
        return [line for line in words if line != "auth status"]  # called before a run starts


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_day_limit_stops_runs(project: Project) -> None:
    """A call does not start if the ledger is used up; the error names the ledger and its renewal time."""
    assert project.llc("budget", "set", "day", "0.05usd").stdout == "the day: 0.0500 USD at most\n"
    done = project.llc("run", "fix", "--json")
    outcome = json.loads(done.stdout)
    assert (done.returncode, outcome["status"], outcome["terminated_by"]) == (3, "interrupted", "budget")
    assert outcome["error"]["message"].startswith(
        "the budget of the day is used up: 0.0600 USD of 0.0500 USD; it renews 20"
    )
    assert len(project.starts) == 3
    (ledger,) = project.json("budget")["ledgers"]
    assert (ledger["limit"], ledger["spent"]) == (0.05, 0.06)
    assert (ledger["reserved"], ledger["left"]) == (0, 0)
    # A later run on the same day shows a warning and does not start its first call.
    done = project.llc("run", "fix", "-q")
    assert done.returncode == 3
    assert "warning: ledger the budget of the day is used up: 0.0600 USD of 0.0500 USD" in done.stderr
    assert "to raise the limit: llc budget set day AMOUNT" in done.stderr
    checks = project.json("doctor", "fix")["checks"]["fix"]
    assert [check["status"] for check in checks if check["subject"] == "ledger"] == ["warning"]
    assert len(project.starts) == 3
    # With a higher limit, the stopped run can be resumed.
    project.llc("budget", "set", "day", "1usd")
    assert project.json("resume", outcome["run"])["status"] == "limit"
    assert project.json("budget")["today"]["calls"] == len(project.starts) == 9


def test_agent_is_capped_by_its_reservation(project: Project) -> None:
    """A quarter of the limit or the rest, less a fifth for the turn that exceeds the cap."""
    project.llc("budget", "set", "day", "0.05usd")
    project.llc("run", "fix", "-q")
    caps = [words.split("--max-budget-usd ")[1].split()[0] for words in project.starts]
    assert caps == ["0.010000", "0.010000", "0.008000"]


# --- many processes -----------------------------------------------------------------------------

# Uses a multiple of its cap; 1.25 is one turn too much.
EXCEEDING_AGENT = """#!/bin/sh
echo "$@" >> "$CALLS"
cap=$(echo "$@" | sed 's/.*--max-budget-usd \\([0-9.]*\\).*/\\1/')
cost=$(awk "BEGIN {print $cap * COST}")
sleep 0.1
echo "{\\"type\\":\\"result\\",\\"num_turns\\":1,\\"result\\":\\"ok\\",\\"total_cost_usd\\":$cost}"
"""


@pytest.mark.parametrize("cap_multiple", ["1.25", "0.4"])
def test_parallel_runs_do_not_exceed_a_ledger(project: Project, cap_multiple: str) -> None:
    """Agents of many processes exceed their caps by a turn or use less; the total stays within the limit."""
    project.agent(cap_multiple, EXCEEDING_AGENT)
    project.llc("budget", "set", "day", "1usd")
    runs = [project.start("run", "fix", "-q", number=number) for number in range(PROCESSES)]
    assert {run.wait(240) for run in runs} == {3}
    report = project.json("budget", "--days", "1")
    (ledger,) = report["ledgers"]
    assert ledger["reserved"] == 0
    assert 0.99 <= ledger["spent"] <= 1 + 1e-6
    assert sum(row["calls"] for row in report["days"]) == len(project.starts) >= 4


def test_killed_runs_release_their_reservations(project: Project) -> None:
    """After kill -9 at any point, other runs use the ledger, and nothing stays reserved."""
    project.agent("0.4", EXCEEDING_AGENT)
    project.llc("budget", "set", "day", "1usd")
    runs = [project.start("run", "fix", "-q", number=number) for number in range(1, 25)]
    for number, run in enumerate(runs):
        if number % 2:
            time.sleep(0.1)
            kill_with_keeper(run)
    assert {run.wait(120) for run in runs} <= {3, -signal.SIGKILL}
    (ledger,) = project.json("budget")["ledgers"]
    assert ledger["reserved"] == 0
    assert 0.99 <= ledger["spent"] <= 1 + 1e-6
    assert project.rows("PRAGMA integrity_check") == [("ok",)]


def test_run_waits_for_reservations_of_other_runs(project: Project) -> None:
    """A run waits while other calls reserve the ledger, says so, and continues when a call ends."""
    project.llc("budget", "set", "day", "2calls")
    work = "[ $1 = auth ] || until test -e $CALLS.go; do sleep 0.05; done"
    project.agent("0.01", AGENT.replace("echo '", f"{work}\necho '", 1))
    runs = [project.start("run", "fix", "--max-iterations", "1", number=number) for number in (1, 2, 3)]
    project.wait_for(lambda: "waiting until one of them ends" in project.messages)
    (project.folder / "calls.go").touch()
    assert [run.wait(60) for run in runs] == [3, 3, 3]
    assert len(project.starts) == 2
    assert "is reserved by other calls; waiting until one of them ends" in project.messages


def test_runs_of_a_batch_wait_for_each_other(project: Project) -> None:
    """Five concurrent calls of one process reserve more than the limit, so one waits; none is lost."""
    project.agent("0.4", EXCEEDING_AGENT)
    project.llc("budget", "set", "day", "1usd")
    names = [f"part-{number}" for number in range(8)]
    for name in names:
        text = LOOP.replace("name: fix", f"name: {name}\nscope: [{name}]").replace(
            "iterations: 9", "iterations: 1"
        )
        (project.folder / ".loops" / f"{name}.yaml").write_text(text)
    done = project.llc("batch", *names, "--at-once", "8", "--json")
    outcomes = [json.loads(line) for line in done.stdout.splitlines()]
    assert {outcome["terminated_by"] for outcome in outcomes} == {"max_iterations"}, done.stderr
    assert len(outcomes) == len(project.starts) == 8
    (ledger,) = project.json("budget")["ledgers"]
    assert ledger["reserved"] == 0
    assert 0.5 < ledger["spent"] < 1


def test_wait_for_a_reservation_can_be_stopped(project: Project) -> None:
    """Ctrl-C ends the wait at once, and the timeout of the loop applies."""
    project.agent("0.01", AGENT.replace("echo '", "exec sleep 60\necho '", 1))
    project.llc("budget", "set", "day", "1calls")
    holder = project.start("run", "fix", "-q")
    project.wait_for(lambda: len(project.starts) == 1)
    waiting = project.start("run", "fix", number=1)
    project.wait_for(lambda: "waiting until one of them ends" in project.messages)
    waiting.send_signal(signal.SIGINT)
    assert waiting.wait(10) == 130
    path = project.folder / "1" / ".loops" / "fix.yaml"
    path.write_text(LOOP + "timeout: 1\n")
    shutil.copytree(project.folder / "1", project.folder / "2")
    timed = subprocess.run(
        [sys.executable, "-m", "llc", "run", "fix", "--json"],
        cwd=project.folder / "2",
        env={**os.environ, **project.env},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert json.loads(timed.stdout)["terminated_by"] == "timeout", timed.stderr
    assert len(project.starts) == 1
    holder.send_signal(signal.SIGINT)
    assert holder.wait(20) == 130


# --- runs that end in the middle ----------------------------------------------------------------


def test_killed_run_releases_its_reservation(project: Project) -> None:
    """Its reservation is released when the process is found dead; after a resume the call counts once."""
    project.llc("budget", "set", "day", "1usd")
    hanging = AGENT.replace("echo '", "test -e $CALLS.go || exec sleep 60\necho '", 1)
    project.agent("0.02", hanging)
    run = project.start("run", "fix", "-q")
    project.wait_for(lambda: len(project.starts) == 1)
    (ledger,) = project.json("budget")["ledgers"]
    assert (ledger["spent"], ledger["reserved"]) == (0, 0.25)
    kill_with_keeper(run)
    (ledger,) = project.json("budget")["ledgers"]
    assert (ledger["spent"], ledger["reserved"], ledger["is_least"]) == (0, 0, True)
    Path(f"{project.calls}.go").touch()
    assert project.json("resume", "fix")["status"] == "limit"
    (ledger,) = project.json("budget")["ledgers"]
    assert (ledger["spent"], ledger["reserved"]) == (0.18, 0)


def test_last_line_of_a_resumed_run_has_its_total_cost(project: Project) -> None:
    """The cost of calls before the kill is included."""
    hang = "[ -e $CALLS.go ] || [ $1 = auth ] || { [ -e $CALLS.one ] && exec sleep 60; touch $CALLS.one; }"
    project.agent("0.02", AGENT.replace("echo '", f"{hang}\necho '", 1))
    run = project.start("run", "fix", "-q")
    project.wait_for(lambda: len(project.starts) == 2)
    kill_with_keeper(run)
    run.wait()
    Path(f"{project.calls}.go").touch()
    done = project.llc("resume", "fix", "--on-unknown", "rerun")
    assert done.stdout.splitlines()[-1].endswith(", 0.1800 USD, 9,000 tokens)"), done.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_call_counts_its_reported_usage(project: Project, number: int) -> None:
    """Its process settles the reservation before it ends; after kill -9 another process does."""
    usage = '"usage":{"input_tokens":700,"output_tokens":50}'
    usage_event = f'{{"type":"assistant","message":{{"id":"m",{usage},"content":[]}}}}'
    project.agent("0.02", AGENT.replace("echo '", f"echo '{usage_event}'\nexec sleep 60\necho '", 1))
    project.llc("budget", "set", "day", "1usd")
    run = project.start("run", "fix", "-q")
    project.wait_for(lambda: any('"usage"' in path.read_text() for path in project.journals))
    if number == signal.SIGKILL:
        kill_with_keeper(run)
    else:
        run.send_signal(number)
    assert run.wait(20) in (130, -number)
    if number == signal.SIGKILL:
        project.json("budget")
    assert project.rows("SELECT pid, usd, tokens, calls, unknown FROM calls") == [(None, 0, 750, 1, 1)]
    project.llc("clean", "--unfinished")  # ends the agent


@pytest.mark.parametrize("settled_by", ["budget", "resume", "clean"])
def test_unsettled_result_is_counted_once(project: Project, settled_by: str) -> None:
    """If a process dies after recording a result, another process settles the reservation by the journal."""
    project.llc("run", "fix", "-q", "--budget", "calls=3")
    project.llc("budget", "set", "day", "1usd")
    (pid,) = [os.fork() or os._exit(0)]
    os.waitpid(pid, 0)
    project.rows(
        "UPDATE calls SET usd = 0, tokens = 0, calls = 0, held_usd = 0.25, pid = ?, started = 'x:1'"
        " WHERE id = 2",
        pid,
    )
    if settled_by == "resume":
        project.llc("resume", "fix", "-q", "--budget", "calls=4")
    elif settled_by == "clean":
        assert project.llc("clean", "--unfinished").returncode == 0
    (ledger,) = project.json("budget")["ledgers"]
    assert (ledger["spent"], ledger["reserved"]) == (0.08 if settled_by == "resume" else 0.06, 0)


def test_scripted_and_replayed_runs_are_not_charged(project: Project) -> None:
    """A dry run is free too; the database is not even created."""
    (project.folder / "world.yaml").write_text("- {kind: agent, usage: {usd: 1}}\n- {kind: shell}\n")
    for words in (
        ["run", "fix", "--script", "world.yaml", "-q"],
        ["run", "fix", "--dry-run"],
        ["replay", "fix"],
    ):
        assert project.llc(*words).returncode in (0, 3), words
    config = project.folder / ".loops" / "config.yaml"
    config.write_text("budget: {day: {usd: 1}}\n")
    (limit,) = project.json("budget", "--days", "2")["ledgers"]
    assert (limit["limit"], limit["spent"]) == (1, 0)
    assert not project.data.exists()


# --- what agents report -------------------------------------------------------------------------


@pytest.mark.parametrize("cost", ['"a lot"', "-5", "NaN", "1e308", "1e999", "null", "true", "[1]", "1e12"])
def test_implausible_cost_counts_as_the_reservation(project: Project, cost: str) -> None:
    """A call counts at most its reservation, and is marked."""
    project.agent(cost)
    project.llc("budget", "set", "day", "1usd")
    project.llc("run", "fix", "-q", "--max-iterations", "1")
    (ledger,) = project.json("budget")["ledgers"]
    assert (ledger["spent"], ledger["is_least"]) == (0.25, True)


# --- limits -------------------------------------------------------------------------------------


def test_each_ledger_counts_its_own_calls(project: Project, tmp_path: Path) -> None:
    """Limits of the project, of accounts (by the fingerprint of the key), and of the configuration."""
    key = {"ANTHROPIC_API_KEY": "sk-very-secret"}
    project.llc("budget", "set", "project", "5usd/month")
    project.llc("run", "fix", "-q", "--max-iterations", "1", **key)
    (row,) = project.json("budget", "--days", "1")["days"]
    assert row["account"].startswith("anthropic:")
    assert b"very-secret" not in (project.data / "llc" / "ledger.sqlite").read_bytes()
    project.llc("budget", "set", f"account:{row['account']}", "1call")
    (project.folder / ".loops" / "config.yaml").write_text("budget: {day: {calls: 2}, project: {usd: 9}}\n")
    ledgers = project.json("budget")["ledgers"]
    assert [(ledger["scope"], ledger["period"], ledger["unit"], ledger["spent"]) for ledger in ledgers] == [
        ("project", "month", "usd", 0.02),
        ("account", "ever", "calls", 1),
        ("project", "day", "calls", 1),
        ("project", "ever", "usd", 0.02),
    ]
    error = json.loads(project.llc("run", "fix", "--json", **key).stdout)["error"]
    assert error["message"] == f"the budget of the account {row['account']} is used up: 1 call of 1 call"
    # One limit applies to all keys of a provider.
    project.llc("budget", "set", "account:anthropic", "1calls/day")
    assert [
        ledger["spent"] for ledger in project.json("budget")["ledgers"] if ledger["name"] == "anthropic"
    ] == [1]
    project.llc("budget", "set", f"account:{row['account']}", "none")
    error = json.loads(project.llc("run", "fix", "--json", **key).stdout)["error"]
    assert "the budget of the account anthropic in a day is used up: 1 call of 1 call" in error["message"]
    message = project.llc("budget", "set", "account:nobody", "1usd").stdout
    assert "note: no call has been charged to the account nobody yet" in message
    # Another account has its own ledger; the project's limit of the day still applies.
    error = json.loads(project.llc("run", "fix", "--json").stdout)["error"]
    assert error["message"].startswith(
        "the budget of the project in a day is used up: 2 calls of 2 calls; it"
    )
    assert ".loops/config.yaml" in error["help"]
    assert len(project.starts) == 2


@pytest.mark.parametrize(
    "words",
    [
        ("day", "20"),
        ("day", "usd"),
        ("day", "20eur"),
        ("day", "-1usd"),
        ("day", "1e9usd"),
        ("day", "9999999999999usd"),
        ("day", "1.5calls"),
        ("day", "5usd/month"),
        ("project", "5usd/year"),
        ("week", "5usd"),
        ("account:", "5usd"),
        ("account", "5usd"),
        ("day:x", "5usd"),
        ("day",),
        (),
    ],
)
def test_invalid_limit_is_refused(project: Project, words: tuple[str, ...]) -> None:
    done = project.llc("budget", "set", *words)
    assert done.returncode == 2
    assert "error[" in done.stderr
    assert not project.data.exists() or not (project.data / "llc" / "ledger.limits").exists()


def test_names_that_are_not_utf_8_are_stored(project: Project) -> None:
    """Names of a folder and of an agent in the environment."""
    folder = os.fsdecode(os.fsencode(project.folder) + b"/caf\xe9")
    shutil.copytree(project.folder / ".loops", Path(folder, ".loops"))
    shutil.copy(project.folder / "bin" / "claude", os.fsdecode(os.fsencode(project.folder) + b"/bin/a\xe9"))
    project.llc("-C", folder, "budget", "set", "project", "1usd")
    assert project.llc("-C", folder, "run", "fix", "-q", "--max-iterations", "1").returncode == 3
    done = project.llc(
        "-C", folder, "run", "fix", "-q", "--max-iterations", "1", LLC_AGENT=os.fsdecode(b"a\xe9")
    )
    assert "Traceback" not in done.stderr
    (ledger,) = json.loads(project.llc("-C", folder, "budget", "--json").stdout)["ledgers"]
    assert ledger["name"].endswith("caf\\xe9")
    assert ledger["spent"] == 0.02


def test_old_calls_are_aggregated(project: Project) -> None:
    """Totals and days stay the same, while the size of the file is limited."""
    project.llc("budget", "set", "project", "1000usd")
    with contextlib.closing(sqlite3.connect(project.data / "llc" / "ledger.sqlite")) as db, db:
        row = (str(project.folder), "r", "account", "agent", "model", 0.25, 10, 1)
        db.executemany(
            "INSERT INTO calls (project, run, account, agent, model, usd, tokens, calls, seq, day)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [(*row, number, f"2024-01-{number % 20 + 10}") for number in range(999)],
        )
    before = project.json("budget", "--days", "99999")
    project.llc("run", "fix", "-q", "--max-iterations", "1")
    assert project.rows("SELECT count(*), sum(calls) FROM calls") == [(21, 1000)]
    after = project.json("budget", "--days", "99999")
    assert after["days"][1:] == before["days"]
    assert after["ledgers"][0]["spent"] == 999 * 0.25 + 0.02


def test_limit_can_be_removed(project: Project) -> None:
    """The limit of a day ignores the usage of earlier days."""
    project.llc("budget", "set", "day", "1call")
    project.llc("budget", "set", "day", "0.01 USD")
    project.llc("run", "fix", "-q")
    project.rows("UPDATE calls SET day = '2020-01-01'")
    assert [ledger["spent"] for ledger in project.json("budget")["ledgers"]] == [0, 0]
    assert project.llc("budget", "set", "day", "none").stdout == "removed the limit of day\n"
    assert project.json("budget")["ledgers"] == []
    assert not (project.data / "llc" / "ledger.limits").exists()


PARALLEL_TASKS = """
(defatom user:a (params x) (instructions "{{x}}"))
(parallel-map (get-field (user:a (x item)) 'status) '(1 2 3 4))
"""


def test_models_and_tasks_are_charged_to_the_key(
    project: Project, messages_server: Any, answers: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each task is a call; running calls end, and no further call starts."""
    (project.folder / ".loops" / "many.sexp").write_text(PARALLEL_TASKS)
    messages_server.then(answers.text("ok", tokens=(1000, 0)))
    env = {name: os.environ[name] for name in ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY", "NO_PROXY")}
    project.llc("budget", "set", "day", "3calls")
    project.llc("budget", "set", "month", "1usd")
    done = project.llc("run", "many", "--json", **env)
    assert json.loads(done.stdout)["terminated_by"] == "budget", done.stderr
    assert len(messages_server.requests) == 3
    (row,) = project.json("budget", "--days", "1")["days"]
    assert (row["calls"], row["agent"], row["tokens"], row["unknown"]) == (3, "", 3000, 0)
    assert row["model"].startswith("claude-")
    assert row["account"].startswith("anthropic:")
    assert row["usd"] > 0
    project.llc("budget", "set", "day", "4calls")
    assert project.json("resume", "many", **env)["status"] == "success"
    assert len(messages_server.requests) == 4


def test_smallest_budget_is_the_cap(project: Project) -> None:
    """Of state, loop, run and ledger, the smallest remaining budget is used."""
    text = LOOP.replace('"do it",', '"do it", budget: {usd: 0.1},') + "budget: {usd: 0.2}\n"
    (project.folder / ".loops" / "fix.yaml").write_text(text)
    project.llc("run", "fix", "-q", "--max-iterations", "3")
    project.llc("run", "fix", "-q", "--max-iterations", "1", "--budget", "usd=0.05")
    project.llc("budget", "set", "day", "0.1usd")
    project.llc("run", "fix", "-q", "--max-iterations", "1")
    caps = [float(words.split("--max-budget-usd ")[1].split()[0]) for words in project.starts]
    assert caps == [0.08, 0.064, 0.048, 0.04, 0.016]


@pytest.mark.parametrize(
    ("zone", "now", "day", "month"),
    [
        ("Europe/Berlin", "2026-03-28 12:00", "2026-03-29 00:00", "2026-04-01 00:00"),
        ("Europe/Berlin", "2026-03-29 00:00", "2026-03-30 00:00", "2026-04-01 00:00"),  # 23 hours
        ("Europe/Berlin", "2026-12-31 23:59", "2027-01-01 00:00", "2027-01-01 00:00"),
        ("America/Sao_Paulo", "2018-11-03 12:00", "2018-11-04 01:00", "2018-12-01 00:00"),  # no midnight
    ],
)
def test_day_ends_at_local_midnight(zone: str, now: str, day: str, month: str) -> None:
    program = (
        "import sys, time; from llc.runtime.ledger.limits import renewal_text, days_back\n"
        "now = time.mktime(time.strptime(sys.argv[1], '%Y-%m-%d %H:%M'))\n"
        "print(renewal_text('day', now), renewal_text('month', now), renewal_text('ever', now), sep=';')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, now],
        env={**os.environ, "TZ": zone},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{day};{month};never\n"


def test_ledgers_are_completed(project: Project) -> None:
    """Charged accounts are candidates too."""
    project.llc("run", "fix", "-q", "--max-iterations", "1")
    for words, candidate in (
        (("s",), "set"),
        (("set", "acc"), "account:claude"),
        (("set", "day", "n"), "none"),
    ):
        line = "llc budget " + " ".join(words)
        done = project.llc(_LLC_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(len(words) + 1))
        assert candidate in done.stdout.split(), (words, done)


# --- a database that cannot be used -------------------------------------------------------------


def overwrite(project: Project) -> None:
    path = project.data / "llc" / "ledger.sqlite"
    path.write_bytes(b"no database " * 400)


def drop_table(project: Project) -> None:
    project.rows("DROP TABLE calls")


def set_newer_format(project: Project) -> None:
    project.rows("PRAGMA user_version = 99")


def replace_by_folder(project: Project) -> None:
    path = project.data / "llc" / "ledger.sqlite"
    path.unlink()
    path.mkdir()


DAMAGES = [
    (overwrite, "is damaged"),
    (drop_table, "is damaged"),
    (set_newer_format, "has format 99"),
    (replace_by_folder, "cannot be opened"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGES)
def test_unusable_database_loses_no_run(
    project: Project, damage: Callable[[Project], None], message: str
) -> None:
    """Without a limit the run continues with a note; with a limit no call starts; the run is resumable."""
    project.llc("run", "fix", "-q", "--max-iterations", "1")
    damage(project)
    done = project.llc("run", "fix", "--max-iterations", "1")
    assert done.returncode == 3
    assert "note: usage of agents and models is not recorded: the ledger" in done.stderr
    assert message in done.stderr
    assert done.stderr.count("not recorded") == 1
    assert len(project.starts) == 2
    (project.folder / ".loops" / "config.yaml").write_text("budget: {day: {usd: 9}}\n")
    done = project.llc("run", "fix", "--json")
    assert json.loads(done.stdout)["terminated_by"] == "budget"
    assert message in done.stderr
    assert "a limit is set" in done.stderr
    assert "llc resume fix-" in done.stderr
    assert len(project.starts) == 2
    shown = project.llc("budget")
    assert shown.returncode == 1
    assert "error[unusable-ledger]" in shown.stderr
    assert message in shown.stderr
    assert "Traceback" not in shown.stderr + done.stderr
    shutil.rmtree(project.data)
    assert project.json("resume", json.loads(done.stdout)["run"])["status"] == "limit"


def test_damaged_database_with_limits_refuses_calls(project: Project) -> None:
    """The existence of limits is recorded outside the database."""
    project.llc("budget", "set", "day", "9usd")
    overwrite(project)
    assert project.llc("run", "fix", "-q").returncode == 3
    assert project.starts == []


def test_locked_database_delays_the_call(project: Project) -> None:
    """The wait lasts ten seconds; if the lock is released earlier, the call is only delayed."""
    project.llc("budget", "set", "day", "9usd")
    with sqlite3.connect(project.data / "llc" / "ledger.sqlite", isolation_level=None) as lock:
        lock.execute("BEGIN EXCLUSIVE")
        outcome = project.json("run", "fix")
        assert "is locked by another process" in outcome["error"]["message"]
        run = project.start("run", "fix", "-q", "--max-iterations", "1")
        project.wait_for(lambda: any((project.folder / ".loops" / ".running").glob("*/*.jsonl")))
        lock.execute("ROLLBACK")
    assert run.wait(60) == 3
    assert len(project.starts) == 1
