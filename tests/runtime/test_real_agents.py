"""Real agent programs against a model server on the loopback device, without a login (`spec/agents.md`).

The fixture `installed` installs the programs once from the npm registry, into `tests/.cache`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from llc.runtime.host.effect_context import Interrupt, Interrupted
from llc.runtime.host.leftovers import end_effect
from llc.runtime.journal.agent_activity import AgentActivity
from llc.runtime.ledger import breakers

from .agent_homes import environment_of
from .model_server import Fail, Hang, ModelServer, Say, Shell, Write

# opencode and gemini take seconds of processor time for a start: what faster agents show too is tested with
# them by `make agents` only.
IS_LARGE = bool(os.environ.get("LLC_AGENTS"))
AGENTS = ("claude", "codex", "opencode", "gemini")
BRIDGES = {"claude-acp": "claude-agent-acp", "codex-acp": "codex-acp"}
Perform = Callable[..., dict[str, Any]]


@pytest.fixture
def models() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture
def use(
    installed: Callable[[str], Path], project_dir: Path, monkeypatch: pytest.MonkeyPatch, models: ModelServer
) -> Callable[[str], None]:
    """Puts a program on PATH, with a clean home whose only model server is the test server."""

    def use(name: str) -> None:
        program = installed(BRIDGES.get(name, name.removesuffix("-acp")))
        for variable, value in environment_of(project_dir / "home", program, models.url).items():
            monkeypatch.setenv(variable, value)
        # Its bridge takes any value for a sandbox, Claude Code only 1.
        for variable in ("LLC_AGENT", "IS_SANDBOX"):
            monkeypatch.delenv(variable, raising=False)

    return use


class Observed:
    """The observed activity of an agent."""

    def __init__(self) -> None:
        self.activities: list[AgentActivity] = []

    def of(self, kind: str) -> list[AgentActivity]:
        return [activity for activity in self.activities if activity.kind == kind]


def each_agent(*names: str, left_out: tuple[str, ...] = ("opencode",)) -> pytest.MarkDecorator:
    """Parametrise by these agents; those in `left_out` run only in `make agents`."""
    return pytest.mark.parametrize("name", [name for name in names if IS_LARGE or name not in left_out])


ALL = each_agent(*AGENTS, left_out=())
FAST = each_agent(*AGENTS, left_out=("opencode", "gemini"))


@ALL
def test_an_agent_uses_tools_and_writes_files(
    name: str, use: Callable[[str], None], models: ModelServer, perform: Perform
) -> None:
    """Text, a shell command and a file are in the project and in the record, and usage is counted."""
    use(name)
    models.then(Shell("echo ran > shell.txt"), Write(os.path.abspath("new.txt"), "fresh"), Say("All done."))
    seen = Observed()
    result = perform("agent", {"on_agent": seen.activities.append}, agent=name, command="Do it.")
    assert "error" not in result, result
    assert Path("shell.txt").read_text() == "ran\n"
    assert Path("new.txt").read_text().strip() == "fresh"
    assert result["output"].rstrip("\n") == "All done."
    assert result["session"] == seen.of("session")[-1].id
    # Three requests, whose cached tokens count once.
    assert (result["usage"]["input_tokens"], result["usage"]["output_tokens"]) == (4500, 120)
    assert any("shell.txt" in tool.target for tool in seen.of("tool"))
    assert not seen.of("tool-end")[0].is_error
    assert any(file.endswith("new.txt") for files in seen.of("files") for file in files.files)
    assert seen.of("final")[-1].text == "All done."


@FAST
def test_a_refused_key_is_an_error_with_a_fix(
    name: str, use: Callable[[str], None], models: ModelServer, perform: Perform
) -> None:
    """At once, without the agent's own retries."""
    use(name)
    models.then(Fail(401, "invalid api key"))
    began = time.monotonic()
    result = perform("agent", agent=name, command="Do it.", timeout_s=1800)
    assert result["error"]["kind"] == "auth", result
    assert "log in" in result["error"]["message"] or "_API_KEY" in result["error"]["message"]
    assert time.monotonic() - began < 180


@pytest.mark.parametrize("name", ["claude", "codex"])
def test_a_rate_limit_is_reported(
    name: str, use: Callable[[str], None], models: ModelServer, perform: Perform
) -> None:
    """opencode and gemini do not report rate limits."""
    use(name)
    models.then(Fail(429, "You are out of requests", retry_after=7200))
    result = perform("agent", agent=name, command="Do it.", timeout_s=60, quota={"on": "fail"})
    assert result["error"]["kind"] == "rate-limit", result


@pytest.mark.parametrize("name", ["claude", "codex"])
def test_an_exhausted_quota_is_waited_for(
    name: str,
    use: Callable[[str], None],
    models: ModelServer,
    perform: Perform,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One effect: a tool, an exhausted quota, a wait, and the same session continues to the end."""
    use(name)
    monkeypatch.setattr(breakers, "BACKOFF_S", (2.0,))
    limit = Fail(429, "You are out of requests", retry_after=7200)
    models.then(Shell("echo ran >> shell.txt"), limit, Say("All done."))
    seen = Observed()
    result = perform("agent", {"on_agent": seen.activities.append}, agent=name, command="Do it.")
    assert "error" not in result, result
    assert result["output"].rstrip("\n") == "All done."
    assert Path("shell.txt").read_text() == "ran\n"
    assert len(seen.of("quota-wait")) == len(seen.of("quota-over")) == 1
    assert breakers.open_breakers() == []


@each_agent("opencode", "gemini")
def test_an_agent_that_retries_silently_is_stopped_when_idle(
    name: str, use: Callable[[str], None], models: ModelServer, perform: Perform
) -> None:
    """It does not report the quota, so no circuit breaker opens."""
    use(name)
    models.then(*[Fail(429, "You are out of requests", retry_after=7200)] * 9)
    result = perform("agent", agent=name, command="Do it.", idle_timeout_s=20, quota={"on": "fail"})
    assert result["error"]["kind"] in ("idle-timeout", "rate-limit"), result
    is_told = result["error"]["kind"] == "rate-limit"
    assert len(breakers.open_breakers()) == is_told


@pytest.mark.parametrize(
    ("name", "permissions", "step"),
    [("claude", "ask", Shell("touch made")), ("codex", "plan", Write("made", "x"))],
)
def test_a_refused_tool_is_an_error(
    name: str, permissions: str, step: Any, use: Callable[[str], None], models: ModelServer, perform: Perform
) -> None:
    """Although the program exits with 0."""
    use(name)
    models.then(step, Say("I was not permitted to."))
    result = perform("agent", agent=name, command="Do it.", permissions=permissions)
    assert (result["error"]["kind"], result["exit_code"]) == ("refused", 0), result
    assert "permissions" in result["error"]["message"]
    assert not Path("made").exists()


@FAST
def test_idle_timeout_ends_a_silent_agent(
    name: str, use: Callable[[str], None], models: ModelServer, perform: Perform
) -> None:
    """No process of the agent remains."""
    use(name)
    models.then(Hang())
    result = perform("agent", agent=name, command="Do it.", timeout_s=60, idle_timeout_s=6)
    assert result["error"]["kind"] == "idle-timeout", result
    assert "wrote nothing for 6 s" in result["error"]["message"]


@FAST
def test_an_interrupt_ends_the_tools_of_an_agent(
    name: str, use: Callable[[str], None], models: ModelServer, perform: Perform, interrupt: Interrupt
) -> None:
    """A shell command of an agent has its own session."""
    use(name)
    models.then(Shell("touch begun; sleep 15; touch survived"), Say("done"))

    def stop() -> None:
        while not Path("begun").exists():
            time.sleep(0.05)
        interrupt.set()

    threading.Thread(target=stop, daemon=True).start()
    with pytest.raises(Interrupted):
        perform("agent", {"effect_id": f"stop-{name}-{os.getpid()}/1"}, agent=name, command="Do it.")
    assert end_effect(f"stop-{name}-{os.getpid()}/1", ()) == []


@FAST
def test_a_session_continues(
    name: str, use: Callable[[str], None], models: ModelServer, perform: Perform
) -> None:
    """With its history; only the new tokens count."""
    use(name)
    models.then(Say("I remember."))
    first = perform("agent", agent=name, command="The word is elderflower.")
    continued = perform(
        "agent", agent=name, command="Which word?", session=first["session"], thread=first.get("thread")
    )
    assert "error" not in continued, continued
    assert "elderflower" in json.dumps(models.requests[-1])
    assert continued["session"] == first["session"]
    assert continued["usage"]["input_tokens"] == 1500


@each_agent("claude", "codex", "opencode")
def test_a_session_is_forked(
    name: str, use: Callable[[str], None], models: ModelServer, perform: Perform
) -> None:
    """The copy has the history of the original session, which does not change."""
    use(name)
    models.then(Say("I remember."))
    first = perform("agent", agent=name, command="The word is elderflower.")
    old = {"session": first["session"], "thread": first.get("thread")}
    copy = perform("agent", agent=name, command="Which word? The number is 4711.", fork=True, **old)
    assert "error" not in copy, copy
    assert "elderflower" in json.dumps(models.requests[-1])
    assert copy["session"] != first["session"]
    assert copy["usage"]["input_tokens"] == 1500
    continued = perform("agent", agent=name, command="Which number?", **old)
    assert continued["session"] == first["session"]
    assert "elderflower" in json.dumps(models.requests[-1])
    assert "4711" not in json.dumps(models.requests[-1])


ACP = each_agent("opencode-acp", "gemini-acp", left_out=("opencode-acp",))


@ACP
def test_an_acp_agent_uses_tools_and_continues_its_session(
    name: str, use: Callable[[str], None], models: ModelServer, perform: Perform
) -> None:
    """Agent Client Protocol: text, a shell command, a file and the usage."""
    use(name)
    models.then(Shell("echo ran > shell.txt"), Write(os.path.abspath("new.txt"), "fresh"), Say("All done."))
    seen = Observed()
    result = perform("agent", {"on_agent": seen.activities.append}, agent=name, command="Say elderflower.")
    assert "error" not in result, result
    assert Path("shell.txt").read_text() == "ran\n"
    assert Path("new.txt").read_text().strip() == "fresh"
    assert result["output"].rstrip("\n") == "All done."
    assert result["session"] == seen.of("session")[-1].id
    if name == "gemini-acp":
        assert (result["usage"]["input_tokens"], result["usage"]["output_tokens"]) == (4500, 120)
    else:
        assert result["usage"]["usd"] == pytest.approx(0.00384)
    assert [tool.target for tool in seen.of("tool")] == ["echo ran > shell.txt", os.path.abspath("new.txt")]
    assert [tool.is_error for tool in seen.of("tool-end")] == [False, False]
    assert [file for files in seen.of("files") for file in files.files] == [os.path.abspath("new.txt")]
    continued = perform(
        "agent", agent=name, command="Which word?", session=result["session"], thread=result.get("thread")
    )
    if name == "gemini-acp" and "error" in continued:  # within the minute in which the session started
        assert continued["error"]["kind"] == "no-session", continued
        assert "use the agent `gemini`, or `session: new`" in continued["error"]["message"]
        return
    assert "error" not in continued, continued
    assert continued["session"] == result["session"]
    assert continued["output"].rstrip("\n") == "All done."
    assert "elderflower" in json.dumps(models.requests[-1])
    if name == "opencode-acp":
        assert continued["usage"]["usd"] == pytest.approx(0.00128)


@ACP
def test_permissions_are_answered_by_the_kind_of_tool(
    name: str, use: Callable[[str], None], models: ModelServer, perform: Perform
) -> None:
    """`edit` allows the file and not the shell; the refusal names the tool and the fix."""
    use(name)
    models.then(Write(os.path.abspath("new.txt"), "fresh"), Shell("touch made"), Say("I may not."))
    result = perform("agent", agent=name, command="Do it.", permissions="edit")
    assert Path("new.txt").exists()
    assert not Path("made").exists()
    assert result["error"]["kind"] == "refused", result
    assert "execute(touch made)" in result["error"]["message"]
    assert "permissions" in result["error"]["message"]


@ACP
def test_a_refused_key_is_named_by_the_protocol(
    name: str, use: Callable[[str], None], models: ModelServer, perform: Perform
) -> None:
    use(name)
    models.then(Fail(401, "invalid api key"))
    result = perform("agent", agent=name, command="Do it.", timeout_s=60)
    assert result["error"]["kind"] == "auth", result
    assert "log in" in result["error"]["message"]


@ACP
def test_silence_and_its_tools_end_by_the_protocol(
    name: str, use: Callable[[str], None], models: ModelServer, perform: Perform
) -> None:
    use(name)
    models.then(Shell("sleep 61"), Say("done"))
    within = {"effect_id": f"quiet-{name}-{os.getpid()}/1"}
    result = perform("agent", within, agent=name, command="Do it.", timeout_s=60, idle_timeout_s=5)
    assert result["error"]["kind"] == "idle-timeout", result
    assert end_effect(str(within["effect_id"]), ()) == []


@pytest.mark.skipif(not IS_LARGE, reason="`make agents`: they take a gigabyte")
@pytest.mark.parametrize(
    ("name", "permissions", "done"),
    [
        ("claude-acp", "skip", "shell file"),
        ("claude-acp", "edit", "file"),
        ("claude-acp", "plan", ""),
        ("codex-acp", "skip", "shell file"),
        ("codex-acp", "edit", "shell file"),
        ("codex-acp", "plan", ""),
    ],
)
def test_an_acp_bridge(
    name: str, permissions: str, done: str, use: Callable[[str], None], models: ModelServer, perform: Perform
) -> None:
    """Claude Code and Codex by packages of the protocol: tools, refusals, and the session continues."""
    use(name)
    models.then(Shell("touch shell.txt"), Write(os.path.abspath("new.txt"), "fresh"), Say("That is all."))
    options = {"agent": name, "permissions": permissions}
    result = perform("agent", command="Say elderflower.", **options)
    assert Path("shell.txt").exists() == ("shell" in done), result
    assert Path("new.txt").exists() == ("file" in done), result
    if done != "shell file":
        assert result["error"]["kind"] == "refused", result
        return
    assert "error" not in result, result
    continued = perform(
        "agent", command="Which?", session=result["session"], thread=result.get("thread"), **options
    )
    assert continued["session"] == result["session"]
    assert "elderflower" in json.dumps(models.requests[-1])


LOOP = """\
paradigm: invariants
name: green
agent: {agent}
max_iterations: 3
constraints:
  - name: tests
    check: {{run: "python -m unittest -q", success: [0], failure: [1, 2, 5]}}
    fix: {{prompt: "Make the tests pass"}}
"""


@each_agent("claude", "codex", "opencode")
def test_one_line_changes_the_agent_of_a_loop(
    name: str, use: Callable[[str], None], models: ModelServer, project_dir: Path
) -> None:
    """The same loop repairs a failing test with each agent.

    The repaired file has another size: Python considers a file of the same size and second unchanged.
    """
    use(name)
    (project_dir / ".loops" / "green.yaml").write_text(LOOP.format(agent=name))
    (project_dir / "test_sum.py").write_text(
        "import unittest\n\nclass Sum(unittest.TestCase):\n"
        "    def test_sum(self):\n        self.assertEqual(1 - 1, 2)\n"
    )
    models.then(Shell("sed -i 's/1 - 1/1 + 1 + 0/' test_sum.py"), Say("Repaired."))
    words = [sys.executable, "-m", "llc", "run", "green", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr + done.stdout
    assert json.loads(done.stdout)["final_state"] == "all_valid"
    assert "AssertionError: 0 != 2" in json.dumps(models.requests[0])


def test_a_loop_names_the_command_of_an_acp_agent(
    use: Callable[[str], None], models: ModelServer, project_dir: Path
) -> None:
    """`agent: {acp: [...]}` needs no agent file."""
    use("gemini-acp")
    (project_dir / ".loops" / "job.yaml").write_text(
        "name: job\ninitial: fix\nagent: {acp: [gemini, --acp, --skip-trust]}\nstates:\n"
        "  fix: {action: Do it, action_type: prompt, next: done, on_error: bad}\n"
        "  done: {terminal: true}\n  bad: {terminal: true, status: failure}\n"
    )
    models.then(Shell("echo ran > shell.txt"), Say("Done."))
    words = [sys.executable, "-m", "llc", "run", "job"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr + done.stdout
    assert Path("shell.txt").read_text() == "ran\n"


def test_a_person_answers_an_agent(
    use: Callable[[str], None], models: ModelServer, project_dir: Path
) -> None:
    """`permissions: ask` by the protocol: with `llc answer` the shell is allowed and the file is refused."""
    use("opencode-acp")
    # The agent's default settings allow all tools.
    config = Path(os.environ["OPENCODE_CONFIG"])
    asking = {"permission": {"bash": "ask", "edit": "ask"}}
    config.write_text(json.dumps(json.loads(config.read_text()) | asking))
    (project_dir / ".loops" / "job.yaml").write_text(
        "name: job\ninitial: fix\nagent: opencode-acp\npermissions: ask\nstates:\n"
        "  fix: {action: Do it, action_type: prompt, next: done, on_error: bad}\n"
        "  done: {terminal: true}\n  bad: {terminal: true, status: failure}\n"
    )
    models.then(Shell("echo ran > shell.txt"), Write(os.path.abspath("new.txt"), "x"), Say("I may not."))
    llc = [sys.executable, "-m", "llc"]
    run = subprocess.Popen([*llc, "run", "job", "-q"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    asked = []
    try:
        for answer in ("allow", "reject"):
            end = time.monotonic() + 120
            while not (found := json.loads(_output([*llc, "answer", "--json"]))):
                assert run.poll() is None, _output([*llc, "logs", "job", "-v"])
                assert time.monotonic() < end
                time.sleep(0.1)
            asked.append(found[0]["text"])
            _output([*llc, "answer", "job", answer])
        assert run.wait(120) == 1
    finally:
        run.kill()
        run.wait()
    assert [text.partition(" ")[0] for text in asked] == ["Allow", "Allow"]
    assert "echo ran > shell.txt" in asked[0]
    assert "new.txt" in asked[1]
    assert Path("shell.txt").read_text() == "ran\n"
    assert not Path("new.txt").exists()
    assert "was refused edit(" in _output([*llc, "logs", "job", "-v"])


def _output(words: list[str]) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=120).stdout


def test_the_price_of_the_model_applies_to_an_agent_without_cost(
    use: Callable[[str], None], models: ModelServer, perform: Perform
) -> None:
    """Codex states no cost; the price of the loop's model is an upper bound, as cached tokens count fully."""
    use("codex")
    models.then(Say("Done."))
    result = perform("agent", agent="codex", command="Do it.", model="gpt-5.5")
    assert result["usage"]["usd"] == pytest.approx((1500 * 5 + 40 * 30) / 1e6)
    assert perform("agent", agent="codex", command="Do it.")["usage"]["usd"] is None
