"""The budget of a run: usage of models and agents is counted; a call over budget does not start."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from in_process import run_llc

from llc.ir.effects import UNITS
from llc.runtime.host.errors import UserError
from llc.runtime.project.budget import Spending, limits_of_options

Llc = Callable[..., subprocess.CompletedProcess[str]]
# Results of calls without a model; the tests of prices use the model server.
WORLD = "- {task: user:a, content: ok, usage: {usd: 0.001, tokens: 1000}}\n"
MANY = """
(defatom user:a (params x) (instructions "{{x}}"))
(map (get-field (user:a (x item)) 'status) '(1 2 3 4))
"""


@pytest.fixture
def llc(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    messages_server: Any,
    answers: ModuleType,
) -> Llc:
    """Run llc in a project with a flow of four calls, 1000 tokens and 0.001 USD each.

    `llc("scripted", …)` is `run` in a scripted world.
    """
    (tmp_path / ".loops").mkdir()
    (tmp_path / "world.yaml").write_text(WORLD)
    (tmp_path / ".loops" / "many.sexp").write_text(MANY)
    (tmp_path / ".loops" / "at-once.sexp").write_text(MANY.replace("(map", "(parallel-map"))
    messages_server.then(answers.text("ok", tokens=(1000, 0)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("LLC_LLM_MODEL", raising=False)

    def llc(*words: str) -> subprocess.CompletedProcess[str]:
        if words[0] == "scripted":
            words = ("run", *words[1:], "--script", "world.yaml")
        return run_llc(*words)

    return llc


def count_started_calls() -> int:
    """The number of started task calls in all runs of the project."""
    journals = Path(".loops").glob(".*/*/*.events.jsonl")
    events = [json.loads(line) for path in journals for line in path.read_text().splitlines()]
    return sum(event["event"] == "effect_start" and event["kind"] == "task" for event in events)


@pytest.mark.parametrize(
    ("budget", "calls", "message"),
    [
        ("usd=0.0015", 2, "the run has used 0.0020 USD of 0.0015 USD"),
        ("tokens=3000", 3, "the run has used 3,000 tokens of 3,000 tokens"),
        ("calls=1", 1, "the run has used 1 call of 1 call"),
        ("seconds=0", 0, "the run has used 0.0 seconds of 0.0 seconds"),
    ],
)
def test_a_call_over_budget_does_not_start(llc: Llc, budget: str, calls: int, message: str) -> None:
    """The run stops with exit code 3, and the message has the usage and the option to continue."""
    done = llc("scripted", "many", "--json", "--budget", budget)
    assert done.returncode == 3, done.stderr
    outcome = json.loads(done.stdout)
    assert (outcome["status"], outcome["terminated_by"]) == ("interrupted", "budget")
    assert outcome["error"]["message"] == message
    assert count_started_calls() == calls
    assert f"llc resume {outcome['run']} --budget" in done.stderr


def test_the_usage_of_the_client_counts(llc: Llc, messages_server: Any) -> None:
    """Tokens cost the price of the model; a resumed run with a larger budget repeats no call."""
    done = llc("run", "many", "--json", "--budget", "usd=0.0025")
    assert json.loads(done.stdout)["error"]["message"] == "the run has used 0.0030 USD of 0.0025 USD"
    assert len(messages_server.requests) == 3
    done = llc("resume", "many", "--budget", "usd=1", "--json")
    assert json.loads(done.stdout)["value"] == ["COMPLETE"] * 4
    assert len(messages_server.requests) == 4


def test_a_run_with_a_larger_budget_is_resumed(llc: Llc) -> None:
    """Earlier usage counts, and no call is repeated."""
    assert llc("scripted", "many", "--budget", "calls=1", "-q").returncode == 3
    assert llc("resume", "many", "-q").returncode == 3
    assert llc("resume", "many", "--budget", "calls=3", "-q").returncode == 3
    assert count_started_calls() == 3
    done = llc("resume", "many", "--budget", "calls=4", "--json")
    assert json.loads(done.stdout)["value"] == ["COMPLETE"] * 4
    assert count_started_calls() == 4


def test_running_calls_finish_when_the_budget_is_used_up(llc: Llc, messages_server: Any) -> None:
    """No further call starts."""
    done = llc("run", "at-once", "--jobs", "2", "--json", "--budget", "tokens=1")
    assert json.loads(done.stdout)["terminated_by"] == "budget", done.stderr
    assert len(messages_server.requests) == 2


def test_the_project_has_a_budget(llc: Llc, tmp_path: Path) -> None:
    """In its configuration; the option overrides it for each unit."""
    (tmp_path / ".loops" / "config.yaml").write_text("budget: {calls: 1, tokens: 2000}\n")
    assert llc("scripted", "many", "-q").returncode == 3
    assert count_started_calls() == 1
    done = llc("scripted", "many", "--json", "--budget", "calls=9")
    assert json.loads(done.stdout)["error"]["message"] == "the run has used 2,000 tokens of 2,000 tokens"


def test_a_model_of_unknown_price_is_not_called(llc: Llc, messages_server: Any, tmp_path: Path) -> None:
    """With a budget in USD; a configured price, also of 0, allows the call."""
    config = tmp_path / ".loops" / "config.yaml"
    config.write_text("tasks: {model: strange-model}\n")
    done = llc("run", "many", "--json", "--budget", "usd=5")
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, messages_server.requests) == (3, [])
    assert (
        error["message"] == "the price of `strange-model` is unknown, so a budget in USD cannot be enforced"
    )
    assert "give it a `price` under `models`" in error["help"]
    config.write_text("models: [{name: strange-model, price: [0, 0]}]\ntasks: {model: strange-model}\n")
    assert llc("resume", "many", "-q").returncode == 0
    assert len(messages_server.requests) == 4


AGENT = """
(defatom user:a (params) (runner agent) (instructions "Do it."))
(list (get-field (user:a) 'status) (get-field (user:a) 'status))
"""


@pytest.mark.parametrize("unit", ["usd", "tokens"])
def test_an_agent_of_unknown_usage_uses_up_the_budget(llc: Llc, tmp_path: Path, unit: str) -> None:
    """The usage is known only after the call; `=none` removes the limit."""
    (tmp_path / ".loops" / "config.yaml").write_text("tasks: {agent: [echo]}\n")
    (tmp_path / ".loops" / "two.sexp").write_text(AGENT)
    done = llc("run", "two", "--json", "--budget", f"{unit}=1000", "--budget", "calls=9")
    outcome = json.loads(done.stdout)
    assert (done.returncode, outcome["terminated_by"]) == (3, "budget")
    assert "the usage of a call is unknown" in outcome["error"]["message"]
    assert f"--budget {unit}=none" in outcome["error"]["help"]
    done = llc("resume", "two", "--json", "--budget", f"{unit}=none")
    assert json.loads(done.stdout)["value"] == ["COMPLETE", "COMPLETE"], done.stderr


LOOP = """
name: fixing
initial: fix
budget: {usd: 5}
states:
  fix: {action: /fix, evaluate: {type: exit_code}, on_success: fix, on_failure: done}
  done: {terminal: true}
"""


def test_unknown_usage_uses_up_the_budget_of_a_loop(
    llc: Llc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The VM adds the remaining budget if the agent reports no cost."""
    monkeypatch.setenv("LLC_AGENT", "echo")
    (tmp_path / ".loops" / "fixing.yaml").write_text(LOOP)
    done = llc("run", "fixing", "--json")
    outcome = json.loads(done.stdout)
    assert (done.returncode, outcome["terminated_by"], outcome["iterations"]) == (3, "budget", 2), done.stderr
    shown = llc("run", "fixing")
    assert "does not report its usage counts as the whole remaining budget" in shown.stdout + shown.stderr


def test_status_shows_the_budget(llc: Llc) -> None:
    """With usage and limit of each unit."""
    llc("scripted", "many", "--budget", "calls=2", "--budget", "usd=1", "-q")
    status = json.loads(llc("status", "many", "--json").stdout)
    assert (status["status"], status["terminated_by"]) == ("interrupted", "budget")
    budget = status["budget"]
    assert budget["calls"] == {"used": 2, "limit": 2}
    assert budget["usd"] == {"used": 0.002, "limit": 1}
    assert budget["tokens"] == {"used": 2000, "limit": None}
    shown = llc("status", "many").stdout
    assert "interrupted (by budget)" in shown
    assert "2 of 2 calls" in shown


def test_the_python_api_accepts_a_budget(llc: Llc) -> None:
    import llc as package

    outcome = package.run("many", script="world.yaml", budget={"calls": 2, "usd": 0.5})
    assert (outcome.status, outcome.terminated_by, outcome.exit_code) == ("interrupted", "budget", 3)
    assert count_started_calls() == 2


@pytest.mark.parametrize("text", ["eur=1", "calls=x", "calls=1.5", "usd=-1", "usd=nan", "usd=inf", "tokens"])
def test_invalid_budgets_are_refused(llc: Llc, text: str) -> None:
    done = llc("run", "many", "--budget", text)
    assert done.returncode == 2
    assert "--budget" in done.stderr


def test_an_option_replaces_the_limit_of_its_unit_only() -> None:
    assert limits_of_options([("usd", "2.5")], {"usd": 1, "calls": 3}) == {"usd": 2.5, "calls": 3}
    assert limits_of_options([("usd", "none"), ("tokens", "none")], {"usd": 1, "calls": 3}) == {"calls": 3}
    with pytest.raises(UserError):
        limits_of_options([("calls", "1e99")], {})


def test_a_repeated_effect_counts_as_one_call() -> None:
    """Its reported usage counts each time."""
    spending = Spending({"calls": 2})
    for _ in range(2):
        spending.begin(7, "task")
    assert spending.used["calls"] == 1
    assert spending.refusal("task", {}) is None
    spending.begin(8, "agent")
    assert spending.refusal("evaluate", {}) is not None
    assert spending.refusal("agent", {}, 8) is None
    assert spending.refusal("shell", {}) is None
    assert set(spending.used) == set(UNITS)
