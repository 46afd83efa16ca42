"""Preflight and `llc doctor`: a run that cannot work is refused before it starts, with a fix."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from keepers import KILL

Llc = Callable[..., subprocess.CompletedProcess[str]]

LOOP = """name: fix
initial: touch
max_iterations: 3
states:
  touch: {action: "touch started", next: work}
  work: {ACTION, next: done}
  done: {terminal: true}
"""


@pytest.fixture
def project(project_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose PATH has no agents, and a clean home."""
    (project_dir / "bin").mkdir()
    (project_dir / "home").mkdir()
    monkeypatch.setenv("PATH", f"{project_dir / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(project_dir / "home"))
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "LLC_AGENT"):
        monkeypatch.delenv(name, raising=False)
    return project_dir


def write_loop(project: Path, action: str, more: str = "") -> None:
    (project / ".loops" / "fix.yaml").write_text(LOOP.replace("ACTION", action) + more)


def write_program(project: Path, name: str, text: str) -> None:
    path = project / "bin" / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def refusal(project: Path, llc: Llc, *words: str) -> str:
    """The message of a refused run, of which no action started and no file remains."""
    done = llc("run", "fix", *words)
    assert done.returncode == 1
    assert "error[preflight]" in done.stderr
    assert not (project / "started").exists()
    assert not list((project / ".loops").glob(".running/*"))
    return done.stderr


AGENT = 'action: "Repair it.", action_type: prompt'


def test_a_missing_agent_refuses_the_run(project: Path, llc: Llc) -> None:
    """The message has the install command and the option that skips the check."""
    write_loop(project, AGENT)
    message = refusal(project, llc)
    assert "`claude` is not on PATH" in message
    assert "npm install -g" in message
    assert llc("run", "fix", "--no-preflight").returncode == 1
    assert (project / "started").exists()


def test_resume_and_batch_check_the_same(project: Path, llc: Llc) -> None:
    """A run whose agent was not checked or was uninstalled is refused and unchanged."""
    write_loop(project, AGENT)
    (project / ".loops" / "other.yaml").write_text(
        LOOP.replace("ACTION", AGENT).replace("name: fix", "name: other")
    )
    done = llc("batch", "fix", "other")
    assert done.returncode == 2  # as for jobs whose loops are invalid
    assert "`claude` is not on PATH" in done.stderr
    assert not (project / "started").exists()
    assert not list((project / ".loops").glob(".running/*"))

    write_program(project, "claude", KILL)
    subprocess.run([sys.executable, "-m", "llc", "run", "fix", "-q", "--no-preflight"], check=False)
    (journal,) = (project / ".loops").glob(".running/*/*.events.jsonl")
    (project / "bin" / "claude").unlink()
    before = journal.read_bytes()
    for words in (["resume", "fix"], ["batch", "--resume"]):
        done = llc(*words)
        assert done.returncode == 1
        assert "`claude` is not on PATH" in done.stderr + done.stdout
        assert journal.read_bytes() == before
    assert "preflight" not in llc("resume", "fix", "--no-preflight").stderr
    assert journal.parent.exists() is False or journal.read_bytes() != before


def test_a_budget_in_usd_needs_an_agent_that_states_its_cost(project: Path, llc: Llc) -> None:
    """Otherwise the message suggests limits of calls or tokens; a model with a price is accepted too."""
    write_program(project, "codex", "exit 0")
    write_loop(project, f"{AGENT}, agent: codex", "budget: {usd: 1}\n")
    message = refusal(project, llc)
    assert "agent codex: does not state what it costs" in message
    assert "limit `calls` or `tokens` instead" in message
    write_loop(project, f"{AGENT}, agent: codex")
    assert "does not state" in refusal(project, llc, "--budget", "usd=1")
    assert "does not state" not in llc("run", "fix", "--budget", "calls=1").stderr
    (project / "started").unlink()
    write_loop(project, f"{AGENT}, agent: codex, model: gpt-5.5", "budget: {usd: 1}\n")
    (project / ".loops" / "config.yaml").write_text("models: {gpt-5.5: {provider: openai, price: [1, 10]}}\n")
    assert "does not state" not in llc("run", "fix").stderr


def test_an_agent_without_a_login_refuses_the_run(project: Path, llc: Llc, monkeypatch: Any) -> None:
    """If the agent's own command reports it; a key in the environment counts as a login."""
    write_loop(project, AGENT)
    write_program(project, "claude", "echo '{\"loggedIn\": false}'; exit 1")
    assert "agent claude: is not logged in" in refusal(project, llc)
    write_program(project, "claude", "echo unknown command; exit 1")
    assert "error[preflight]" not in llc("run", "fix").stderr
    write_program(project, "claude", "echo '{\"loggedIn\": false}'; exit 1")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-test")
    assert "error[preflight]" not in llc("run", "fix").stderr


def test_a_login_check_that_hangs_is_ignored(project: Path, llc: Llc) -> None:
    """The run starts after a few seconds."""
    write_loop(project, AGENT)
    write_program(project, "claude", '[ "$1" = auth ] && sleep 600; echo hello')
    assert "error[preflight]" not in llc("run", "fix").stderr


def test_a_judge_without_a_key_refuses_the_run(project: Path, llc: Llc, monkeypatch: Any) -> None:
    """Unless the loop's agent can evaluate."""
    write_loop(project, 'action: "echo done", evaluate: {type: llm_structured}')
    text = (project / ".loops" / "fix.yaml").read_text().replace(", next: done", ", route: {_: done}")
    (project / ".loops" / "fix.yaml").write_text(text)
    assert "judge claude-haiku-4-5: there is no API key" in refusal(project, llc)
    write_program(project, "claude", "echo")
    (check,) = json.loads(llc("doctor", "fix", "--json").stdout)["checks"]["fix"]
    assert (check["status"], "`claude` judges" in check["message"]) == ("ok", True)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-test")
    (check,) = json.loads(llc("doctor", "fix", "--json").stdout)["checks"]["fix"]
    assert (check["subject"], check["message"]) == ("judge claude-haiku-4-5", "a key is set")


def test_an_unknown_slash_command_is_a_warning(project: Path, llc: Llc) -> None:
    """Commands of the project, the user and the agent are known; a plugin's command may exist."""
    write_program(project, "claude", "echo")
    for command, is_known in (("/fix it", False), ("/review", True), ("/ll:fix", True), ("/mine", True)):
        folder = project / "home" / ".claude" / "skills" / "mine"
        folder.mkdir(parents=True, exist_ok=True)
        write_loop(project, f'action: "{command}"')
        text = llc("doctor", "fix").stdout
        assert ("is known" not in text) == is_known, command
    commands = project / ".claude" / "commands"
    commands.mkdir(parents=True)
    (commands / "fix.md").write_text("Fix it.")
    write_loop(project, 'action: "/fix it"')
    assert "is known" not in llc("doctor", "fix").stdout


def test_a_missing_command_is_a_warning(project: Path, llc: Llc) -> None:
    """An earlier state may install it; only a program with agents is checked."""
    write_loop(project, 'action: "no-such-program -x"')
    done = llc("doctor", "fix")
    assert (done.returncode, "command no-such-program: is not on PATH" in done.stdout) == (0, True)
    assert "warning: command" not in llc("run", "fix").stderr


def test_scripted_and_dry_runs_need_nothing(project: Path, llc: Llc) -> None:
    write_loop(project, AGENT)
    (project / "world.yaml").write_text("rules:\n  - {output: fine}\n")
    assert llc("run", "fix", "--script", "world.yaml").returncode == 0
    assert llc("run", "fix", "--dry-run").returncode == 0


def test_doctor_checks_installation_and_loops(project: Path, llc: Llc) -> None:
    """Also the versions of agents; a broken loop hides no other."""
    write_program(
        project, "claude", '[ "$1" = auth ] && { echo \'{"loggedIn": true}\'; exit; }; echo "9.8.7 (Claude)"'
    )
    write_loop(project, AGENT)
    (project / ".loops" / "bad.yaml").write_text("name: bad\nstates: {a: {}}\n")
    done = llc("doctor", "--json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["ok"]) == (1, False)
    assert list(report["checks"]) == ["installation", "bad", "fix"]
    assert [check["status"] for check in report["checks"]["fix"]] == ["ok"]
    assert report["checks"]["bad"][0]["help"] == "llc validate bad"
    message = {check["subject"]: check["message"] for check in report["checks"]["installation"]}
    assert message["agent claude"].endswith("claude 9.8.7, tested with 2.1.197")
    (project / ".loops" / "bad.yaml").unlink()
    assert llc("doctor").returncode == 0
    unknown = llc("doctor", "nope")
    assert (unknown.returncode, "Traceback" in unknown.stderr) == (1, False)


def test_a_program_without_agents_is_not_checked(project: Path, llc: Llc) -> None:
    """The module of the check is not imported."""
    write_loop(project, 'action: "echo x"')
    code = (
        "import sys; sys.argv=['llc','run','fix','-q']\nfrom llc.runtime.cli import entry\n"
        "entry.main()\nassert 'llc.runtime.launch.preflight' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_broken_configuration_is_a_failed_check(project: Path, llc: Llc) -> None:
    """Of the installation and of each loop; it is not an internal error."""
    write_loop(project, 'action: "echo done", evaluate: {type: llm_structured}')
    text = (project / ".loops" / "fix.yaml").read_text().replace(", next: done", ", route: {_: done}")
    (project / ".loops" / "fix.yaml").write_text(text)
    (project / ".loops" / "config.yaml").write_text("agents: 5\n")
    done = llc("doctor")
    assert (done.returncode, "internal" in done.stderr, "configuration" in done.stdout) == (1, False, True)


def test_a_login_is_checked_once(project: Path, llc: Llc) -> None:
    """However many states use the agent."""
    write_loop(project, AGENT, f"  more: {{{AGENT}, next: done}}\n")
    text = (
        (project / ".loops" / "fix.yaml")
        .read_text()
        .replace(
            '{action: "Repair it.", action_type: prompt, next: done}',
            '{action: "Repair it.", action_type: prompt, next: more}',
            1,
        )
    )
    (project / ".loops" / "fix.yaml").write_text(text)
    write_program(project, "claude", f"echo asked >> {project / 'asked'}; echo '{{}}'")
    assert llc("doctor", "fix").returncode == 0
    assert (project / "asked").read_text() == "asked\n"
