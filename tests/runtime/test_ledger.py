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

# All of them: `make crash`.
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
    """A project with a loop that asks the agent `claude` nine times, a program that reports its cost."""

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
        """Start llc, with its messages in the file `messages`; with a number, in another project."""
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

    def wait_for(self, is_so: Callable[[], bool]) -> None:
        end = time.monotonic() + 60
        while not is_so():
            assert time.monotonic() < end
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
        return [line for line in words if line != "auth status"]  # asked before a run starts


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_a_day_has_a_limit(project: Project) -> None:
    """A call that finds the ledger used up does not start: the run stops and names it and its renewal."""
    assert project.llc("budget", "set", "day", "0.05usd").stdout == "the day: 0.0500 USD at most\n"
    done = project.llc("run", "fix", "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["status"], found["terminated_by"]) == (3, "interrupted", "budget")
    assert found["error"]["message"].startswith(
        "the budget of the day is used up: 0.0600 USD of 0.0500 USD; it renews 20"
    )
    assert len(project.starts) == 3
    (ledger,) = project.json("budget")["ledgers"]
    assert (ledger["limit"], ledger["spent"]) == (0.05, 0.06)
    assert (ledger["reserved"], ledger["left"]) == (0, 0)
    # A later run of the day says so first and does not start its first call.
    done = project.llc("run", "fix", "-q")
    assert done.returncode == 3
    assert "warning: ledger the budget of the day is used up: 0.0600 USD of 0.0500 USD" in done.stderr
    assert "to raise the limit: llc budget set day AMOUNT" in done.stderr
    checks = project.json("doctor", "fix")["checks"]["fix"]
    assert [check["status"] for check in checks if check["subject"] == "ledger"] == ["warning"]
    assert len(project.starts) == 3
    # With more, the stopped one is resumed.
    project.llc("budget", "set", "day", "1usd")
    assert project.json("resume", found["run"])["status"] == "limit"
    assert project.json("budget")["today"]["calls"] == len(project.starts) == 9


def test_the_agent_gets_what_is_reserved_as_its_cap(project: Project) -> None:
    """A quarter of the limit or what is left, less a fifth for the turn in which it is exceeded."""
    project.llc("budget", "set", "day", "0.05usd")
    project.llc("run", "fix", "-q")
    caps = [words.split("--max-budget-usd ")[1].split()[0] for words in project.starts]
    assert caps == ["0.010000", "0.010000", "0.008000"]


# --- many processes -----------------------------------------------------------------------------

# Uses what its cap allows, and one turn more: a quarter of the cap.
EXCEEDING = """#!/bin/sh
echo "$@" >> "$CALLS"
cap=$(echo "$@" | sed 's/.*--max-budget-usd \\([0-9.]*\\).*/\\1/')
cost=$(awk "BEGIN {print $cap * COST}")
sleep 0.1
echo "{\\"type\\":\\"result\\",\\"num_turns\\":1,\\"result\\":\\"ok\\",\\"total_cost_usd\\":$cost}"
"""


@pytest.mark.parametrize("part", ["1.25", "0.4"])
def test_parallel_runs_do_not_exceed_a_ledger(project: Project, part: str) -> None:
    """Many processes, agents that exceed their caps by a turn or use less: the limit is spent, not more."""
    project.agent(part, EXCEEDING)
    project.llc("budget", "set", "day", "1usd")
    runs = [project.start("run", "fix", "-q", number=number) for number in range(PROCESSES)]
    assert {run.wait(240) for run in runs} == {3}
    found = project.json("budget", "--days", "1")
    (ledger,) = found["ledgers"]
    assert ledger["reserved"] == 0
    assert 0.99 <= ledger["spent"] <= 1 + 1e-6
    assert sum(row["calls"] for row in found["days"]) == len(project.starts) >= 4


def test_killed_runs_neither_hold_nor_damage_a_ledger(project: Project) -> None:
    """Whatever they were doing: the others use the ledger, and nothing stays reserved."""
    project.agent("0.4", EXCEEDING)
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


def test_what_is_reserved_elsewhere_is_waited_for(project: Project) -> None:
    """A run whose ledger is reserved continues when another call ends, and says that it waits."""
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
    """In one process: five calls at once reserve more than there is, so one waits; none is lost."""
    project.agent("0.4", EXCEEDING)
    project.llc("budget", "set", "day", "1usd")
    names = [f"part-{number}" for number in range(8)]
    for name in names:
        text = LOOP.replace("name: fix", f"name: {name}\nscope: [{name}]").replace(
            "iterations: 9", "iterations: 1"
        )
        (project.folder / ".loops" / f"{name}.yaml").write_text(text)
    done = project.llc("batch", *names, "--at-once", "8", "--json")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert {one["terminated_by"] for one in found} == {"max_iterations"}, done.stderr
    assert len(found) == len(project.starts) == 8
    (ledger,) = project.json("budget")["ledgers"]
    assert ledger["reserved"] == 0
    assert 0.5 < ledger["spent"] < 1


def test_a_wait_can_be_stopped_and_timed_out(project: Project) -> None:
    """Ctrl-C ends it at once; the timeout of the loop counts."""
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


def test_a_killed_run_holds_nothing(project: Project) -> None:
    """Its reservation is given back when it is found dead; resumed, it pays for the call once."""
    project.llc("budget", "set", "day", "1usd")
    hanging = AGENT.replace("echo '", "test -e $CALLS.go || exec sleep 60\necho '", 1)
    project.agent("0.02", hanging)
    run = project.start("run", "fix", "-q")
    project.wait_for(lambda: len(project.starts) == 1)
    (held,) = project.json("budget")["ledgers"]
    assert (held["spent"], held["reserved"]) == (0, 0.25)
    kill_with_keeper(run)
    (held,) = project.json("budget")["ledgers"]
    assert (held["spent"], held["reserved"], held["is_least"]) == (0, 0, True)
    Path(f"{project.calls}.go").touch()
    assert project.json("resume", "fix")["status"] == "limit"
    (held,) = project.json("budget")["ledgers"]
    assert (held["spent"], held["reserved"]) == (0.18, 0)


def test_the_last_line_of_a_resumed_run_has_its_whole_cost(project: Project) -> None:
    """Of the calls before it was killed, too."""
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
def test_a_call_that_was_cut_off_counts_what_it_reported(project: Project, number: int) -> None:
    """Its process settles the reservation before it ends, or another process after its death."""
    usage = '"usage":{"input_tokens":700,"output_tokens":50}'
    said = f'{{"type":"assistant","message":{{"id":"m",{usage},"content":[]}}}}'
    project.agent("0.02", AGENT.replace("echo '", f"echo '{said}'\nexec sleep 60\necho '", 1))
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


@pytest.mark.parametrize("end", ["budget", "resume", "clean"])
def test_a_result_that_was_not_settled_is_counted_once(project: Project, end: str) -> None:
    """Killed after the journal had the result: any process settles it by the journal."""
    project.llc("run", "fix", "-q", "--budget", "calls=3")
    project.llc("budget", "set", "day", "1usd")
    (pid,) = [os.fork() or os._exit(0)]
    os.waitpid(pid, 0)
    project.rows(
        "UPDATE calls SET usd = 0, tokens = 0, calls = 0, held_usd = 0.25, pid = ?, started = 'x:1'"
        " WHERE id = 2",
        pid,
    )
    if end == "resume":
        project.llc("resume", "fix", "-q", "--budget", "calls=4")
    elif end == "clean":
        assert project.llc("clean", "--unfinished").returncode == 0
    (held,) = project.json("budget")["ledgers"]
    assert (held["spent"], held["reserved"]) == (0.08 if end == "resume" else 0.06, 0)


def test_scripted_and_replayed_runs_are_not_charged(project: Project) -> None:
    """Nor is a dry run: the database is not even created."""
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
def test_a_cost_that_is_not_believable_counts_as_reserved(project: Project, cost: str) -> None:
    """Whatever an agent reports: a call counts at most what was reserved for it, and is marked."""
    project.agent(cost)
    project.llc("budget", "set", "day", "1usd")
    project.llc("run", "fix", "-q", "--max-iterations", "1")
    (held,) = project.json("budget")["ledgers"]
    assert (held["spent"], held["is_least"]) == (0.25, True)


# --- limits -------------------------------------------------------------------------------------


def test_each_ledger_counts_its_own(project: Project, tmp_path: Path) -> None:
    """A project, an account by the fingerprint of its key, and the limits of the configuration."""
    key = {"ANTHROPIC_API_KEY": "sk-very-secret"}
    project.llc("budget", "set", "project", "5usd/month")
    project.llc("run", "fix", "-q", "--max-iterations", "1", **key)
    (row,) = project.json("budget", "--days", "1")["days"]
    assert row["account"].startswith("anthropic:")
    assert b"very-secret" not in (project.data / "llc" / "ledger.sqlite").read_bytes()
    project.llc("budget", "set", f"account:{row['account']}", "1call")
    (project.folder / ".loops" / "config.yaml").write_text("budget: {day: {calls: 2}, project: {usd: 9}}\n")
    found = project.json("budget")["ledgers"]
    assert [(one["scope"], one["period"], one["unit"], one["spent"]) for one in found] == [
        ("project", "month", "usd", 0.02),
        ("account", "ever", "calls", 1),
        ("project", "day", "calls", 1),
        ("project", "ever", "usd", 0.02),
    ]
    error = json.loads(project.llc("run", "fix", "--json", **key).stdout)["error"]
    assert error["message"] == f"the budget of the account {row['account']} is used up: 1 call of 1 call"
    # One limit for all keys of a provider.
    project.llc("budget", "set", "account:anthropic", "1calls/day")
    assert [one["spent"] for one in project.json("budget")["ledgers"] if one["name"] == "anthropic"] == [1]
    project.llc("budget", "set", f"account:{row['account']}", "none")
    error = json.loads(project.llc("run", "fix", "--json", **key).stdout)["error"]
    assert "the budget of the account anthropic in a day is used up: 1 call of 1 call" in error["message"]
    told = project.llc("budget", "set", "account:nobody", "1usd").stdout
    assert "note: no call has been charged to the account nobody yet" in told
    # Another account has its own, until the project's limit of the day.
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
def test_a_wrong_limit_is_refused(project: Project, words: tuple[str, ...]) -> None:
    done = project.llc("budget", "set", *words)
    assert done.returncode == 2
    assert "error[" in done.stderr
    assert not project.data.exists() or not (project.data / "llc" / "ledger.limits").exists()


def test_names_that_are_not_utf_8_are_stored(project: Project) -> None:
    """Of a folder, and of an agent in the environment."""
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


def test_old_calls_are_folded(project: Project) -> None:
    """Balances and days are the same; the file does not grow with each call for ever."""
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


def test_a_limit_is_removed(project: Project) -> None:
    """And the day has its own: what was used yesterday does not count."""
    project.llc("budget", "set", "day", "1call")
    project.llc("budget", "set", "day", "0.01 USD")
    project.llc("run", "fix", "-q")
    project.rows("UPDATE calls SET day = '2020-01-01'")
    assert [one["spent"] for one in project.json("budget")["ledgers"]] == [0, 0]
    assert project.llc("budget", "set", "day", "none").stdout == "removed the limit of day\n"
    assert project.json("budget")["ledgers"] == []
    assert not (project.data / "llc" / "ledger.limits").exists()


MANY = """
(defatom user:a (params x) (instructions "{{x}}"))
(parallel-map (get-field (user:a (x item)) 'status) '(1 2 3 4))
"""


def test_models_and_tasks_are_charged_to_the_key(
    project: Project, messages_server: Any, answers: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each task is a call; those that are performed at once end, and no further one starts."""
    (project.folder / ".loops" / "many.sexp").write_text(MANY)
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


def test_the_smallest_budget_is_the_cap(project: Project) -> None:
    """Of state, loop, run and ledger; what they have used is subtracted."""
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
def test_a_day_ends_at_local_midnight(zone: str, now: str, day: str, month: str) -> None:
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
    """With the accounts that were charged."""
    project.llc("run", "fix", "-q", "--max-iterations", "1")
    for words, found in ((("s",), "set"), (("set", "acc"), "account:claude"), (("set", "day", "n"), "none")):
        line = "llc budget " + " ".join(words)
        done = project.llc(_LLC_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(len(words) + 1))
        assert found in done.stdout.split(), (words, done)


# --- a database that cannot be used ---------------------------------------------------------------


def damage(project: Project) -> None:
    path = project.data / "llc" / "ledger.sqlite"
    path.write_bytes(b"no database " * 400)


def empty(project: Project) -> None:
    project.rows("DROP TABLE calls")


def newer(project: Project) -> None:
    project.rows("PRAGMA user_version = 99")


def folder(project: Project) -> None:
    path = project.data / "llc" / "ledger.sqlite"
    path.unlink()
    path.mkdir()


TROUBLES = [
    (damage, "is damaged"),
    (empty, "is damaged"),
    (newer, "has format 99"),
    (folder, "cannot be opened"),
]


@pytest.mark.parametrize(("spoil", "told"), TROUBLES)
def test_a_database_that_cannot_be_used_loses_no_run(
    project: Project, spoil: Callable[[Project], None], told: str
) -> None:
    """Without a limit a run continues with a note; with one it does not start a call, and can be resumed."""
    project.llc("run", "fix", "-q", "--max-iterations", "1")
    spoil(project)
    done = project.llc("run", "fix", "--max-iterations", "1")
    assert done.returncode == 3
    assert "note: usage of agents and models is not recorded: the ledger" in done.stderr
    assert told in done.stderr
    assert done.stderr.count("not recorded") == 1
    assert len(project.starts) == 2
    (project.folder / ".loops" / "config.yaml").write_text("budget: {day: {usd: 9}}\n")
    done = project.llc("run", "fix", "--json")
    assert json.loads(done.stdout)["terminated_by"] == "budget"
    assert told in done.stderr
    assert "a limit is set" in done.stderr
    assert "llc resume fix-" in done.stderr
    assert len(project.starts) == 2
    shown = project.llc("budget")
    assert shown.returncode == 1
    assert "error[unusable-ledger]" in shown.stderr
    assert told in shown.stderr
    assert "Traceback" not in shown.stderr + done.stderr
    shutil.rmtree(project.data)
    assert project.json("resume", json.loads(done.stdout)["run"])["status"] == "limit"


def test_a_damaged_database_with_limits_refuses_calls(project: Project) -> None:
    """That there are limits is known without it."""
    project.llc("budget", "set", "day", "9usd")
    damage(project)
    assert project.llc("run", "fix", "-q").returncode == 3
    assert project.starts == []


def test_a_locked_database_is_waited_for(project: Project) -> None:
    """For ten seconds; a lock that is released earlier delays the call only."""
    project.llc("budget", "set", "day", "9usd")
    with sqlite3.connect(project.data / "llc" / "ledger.sqlite", isolation_level=None) as lock:
        lock.execute("BEGIN EXCLUSIVE")
        found = project.json("run", "fix")
        assert "is locked by another process" in found["error"]["message"]
        run = project.start("run", "fix", "-q", "--max-iterations", "1")
        project.wait_for(lambda: any((project.folder / ".loops" / ".running").glob("*/*.jsonl")))
        lock.execute("ROLLBACK")
    assert run.wait(60) == 3
    assert len(project.starts) == 1
