"""Rules 10 to 14 of `loops.md`: actions, models, maintaining, scopes, budgets, in the real world."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from keepers import kill_with_keeper

from llc.frontend.compile import compile_text
from llc.ir.diagnostics import CompileError

Run = Callable[..., Any]

ONE = """
name: one
initial: a
states:
  a: {action: %s, %s on_success: z, on_failure: z, on_error: z}
  z: {terminal: true}
"""


def one_action_loop(action: str, more: str = "") -> str:
    """A loop with one action."""
    return ONE % (json.dumps(action), more)


def result_of(ran: Any) -> dict[str, Any]:
    return ran.event_fields("action_complete", "result")[0]


# --- 10 Actions -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "more", "kind"),
    [
        ("/ll:fix now", "", "agent"),
        ("/fix", "", "agent"),
        ("/usr/bin/true", "", "shell"),
        ("/setup.sh", "", "shell"),
        ("make", "", "shell"),
        ("/fix", "action_type: shell,", "shell"),
        ("please fix it", "action_type: slash,", "agent"),
    ],
)
def test_rule_10_a_slash_and_a_command_word_are_a_slash_command(
    scripted: Run, action: str, more: str, kind: str
) -> None:
    """A path is a program; `action_type` overrides the detection."""
    assert scripted(one_action_loop(action, more), "[{}, {kind: evaluate, verdict: success}]").event_fields(
        "action_start", "kind"
    ) == [kind]


def test_rule_10_actions_run_in_bash_if_available(real: Run) -> None:
    """Bash syntax works as in the author's terminal."""
    assert real(
        one_action_loop("[[ abc == a* ]] && shopt -q login_shell || [[ -n $BASH_VERSION ]]")
    ).verdicts == ["success"]


def test_rule_10_actions_run_in_sh_without_bash(
    real: Run, project: Path, programs: Callable[[str, str], Path]
) -> None:
    """The shell is searched on the PATH."""
    sh = programs("sh", 'echo "sh ran: $2" > ran; exec /bin/sh "$@"')
    assert real(one_action_loop("true"), PATH=str(sh.parent)).verdicts == ["success"]
    assert (project / "ran").read_text() == "sh ran: true\n"


def test_rule_10_stdin_of_an_action_is_empty(real: Run) -> None:
    """A program that reads it does not wait for a person."""
    assert result_of(real(one_action_loop("cat; echo end")))["output"] == "end\n"


def test_rule_10_stdout_and_stderr_are_captured_separately(real: Run) -> None:
    """And shown live: with `--json`, everything but the JSON object is on stderr."""
    ran = real(one_action_loop("echo out; echo err >&2"))
    assert (result_of(ran)["output"], result_of(ran)["stderr"]) == ("out\n", "err\n")
    assert "out" in ran.stderr
    assert "err" in ran.stderr


def test_rule_10_a_huge_output_is_on_disk_and_its_ends_in_variables(real: Run, project: Path) -> None:
    """It neither blocks nor fills memory."""
    ran = real(
        one_action_loop(
            "echo first; head -c 5000000 /dev/zero | tr '\\0' x; echo; echo last", "capture: big,"
        )
    )
    (output,) = [
        path for path in project.glob(".loops/.history/*/outputs/*") if path.stat().st_size > 2_000_000
    ]
    assert output.stat().st_size == 5_000_000 + len("first\n\nlast\n")
    (complete,) = [event for event in ran.events if event["event"] == "action_complete"]
    assert complete["result"]["truncated"]["output"] == output.stat().st_size


def is_running(pid: int) -> bool:
    """Whether a process is alive; a dead one may remain until its parent waits for it."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] not in "ZX"


def test_rule_10_timeout_ends_the_process_group(real: Run, project: Path) -> None:
    """Also a child that keeps the pipe open and ignores TERM, in the middle of a line."""
    started_at = time.monotonic()
    ran = real(
        one_action_loop(
            "(trap '' TERM; echo $BASHPID > pid; printf part; sleep 60) & sleep 60", "timeout: 1,"
        )
    )
    assert time.monotonic() - started_at < 30
    assert ran.event_fields("evaluate", "details")[0]["reason"] == "timeout"
    assert result_of(ran)["output"] == "part"
    assert not is_running(int((project / "pid").read_text()))


def test_rule_10_background_child_does_not_delay_the_step(real: Run, project: Path) -> None:
    """The step ends with its command, though the child keeps the pipe open."""
    started_at = time.monotonic()
    ran = real(one_action_loop("sleep 60 & echo $! > pid; echo done"))
    os.kill(int((project / "pid").read_text()), signal.SIGKILL)
    assert time.monotonic() - started_at < 30
    assert (ran.verdicts, result_of(ran)["output"]) == (["success"], "done\n")


def test_rule_10_slash_commands_go_to_claude(
    real: Run, project: Path, programs: Callable[[str, str], Path]
) -> None:
    """The command is the standard input of `claude --dangerously-skip-permissions … -p`."""
    answered = '{"type": "result", "num_turns": 1, "result": "done"}'
    programs("claude", f"printf '%s|' \"$@\" > argv; cat >> argv; echo '{answered}'")
    assert real(one_action_loop('/ll:fix it\'s "now"'), "--no-llm").code == 0
    words = "--dangerously-skip-permissions --session-id [-0-9a-f]{36} --output-format stream-json --verbose"
    flags = words.replace(" ", r"\|")
    argv, _, prompt = (project / "argv").read_text().partition("|-p|")
    assert re.fullmatch(flags, argv)
    assert prompt == '/ll:fix it\'s "now"'


def test_rule_10_the_agent_can_be_configured(
    real: Run, project: Path, programs: Callable[[str, str], Path]
) -> None:
    """The program and its arguments."""
    programs("my-agent", "printf '%s|' \"$@\" > argv")
    assert (
        real("agent: {program: my-agent, args: [--ask, a b]}" + one_action_loop("/ll:fix"), "--no-llm").code
        == 0
    )
    assert (project / "argv").read_text() == "--ask|a b|/ll:fix|"


def test_rule_10_a_missing_program_is_an_error_that_names_it(real: Run) -> None:
    """For shell commands and for agents."""
    ran = real(one_action_loop("no-such-program --flag"))
    assert ran.verdicts == ["error"]
    assert "no-such-program" in ran.event_fields("evaluate", "details")[0]["message"]
    ran = real("agent: {program: no-such-agent}" + one_action_loop("/ll:fix"), "--no-llm", "--no-preflight")
    assert ran.verdicts == ["error"]
    assert "no-such-agent" in ran.event_fields("evaluate", "details")[0]["message"]


# --- 11 Model evaluation ----------------------------------------------------------------------

FIX = """
name: fix
initial: fix
llm: {timeout: %s}
states:
  fix:
    action: /ll:fix
    evaluate: {type: llm_structured, min_confidence: 0.7, uncertain_suffix: true}
    route: {success: done, success_uncertain: probe, failure: probe, _: probe%s}
  probe: {action: "echo ${result.verdict} ${result.details.message:default=}", next: done}
  done: {terminal: true}
"""


@pytest.fixture(scope="session")
def answers() -> ModuleType:
    """The module that creates the answers of the local model server."""
    path = Path(__file__).parents[1] / "runtime" / "messages_server.py"
    spec = importlib.util.spec_from_file_location("llc_tests_rules_messages_server", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def server(
    answers: ModuleType, monkeypatch: pytest.MonkeyPatch, programs: Callable[[str, str], Path]
) -> Iterator[Any]:
    """A local Messages API for the real client, and an agent that prints a word."""
    programs("claude", """echo '{"type": "result", "num_turns": 1, "result": "did it\\\\n"}'""")
    with answers.MessagesServer() as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield server


def test_rule_11_a_model_judges_by_forced_tool_use(real: Run, server: Any, answers: ModuleType) -> None:
    """The request has the tool, the prompt, the token limit and the output excerpt of the seed.

    Output of an agent is included only with `sees: output`; otherwise the judge sees the actions of the
    agent.
    """
    server.then(answers.verdict("success", 0.9, "it works"))
    ran = real(FIX % ("30, sees: output", ""))
    assert (ran.code, ran.verdicts, ran.path) == (0, ["success"], "fix1 done1")
    (request,) = server.requests
    assert request["tool_choice"] == {"type": "tool", "name": "evaluate"}
    assert request["max_tokens"] == 256
    (message,) = request["messages"]
    prompt = "Evaluate whether this action succeeded based on its output."
    (part,) = message["content"]
    assert part["text"] == f"{prompt}\n\n<action_output>\ndid it\n\n</action_output>"
    assert request["tools"][0]["input_schema"]["required"] == ["verdict", "confidence", "reason"]


def test_rule_11_low_confidence_gets_the_suffix(real: Run, server: Any, answers: ModuleType) -> None:
    """Below `min_confidence`, if the loop enables the suffix."""
    server.then(answers.verdict("success", 0.69))
    assert real(FIX % (30, "")).verdicts == ["success_uncertain"]


def test_rule_11_client_retries_after_a_429(real: Run, server: Any, answers: ModuleType) -> None:
    server.then(answers.status(429, retry_after=0.05), answers.verdict("success", 0.9))
    assert real(FIX % (30, "")).verdicts == ["success"]
    assert len(server.requests) == 2


def refusals(answers: ModuleType) -> dict[str, Any]:
    return {
        "a 5xx that stays": answers.status(500, retry_after=0.02),
        "no tool call": answers.text("I would say it went well."),
        "a reply that breaks the schema": answers.tool({"verdict": "splendid", "confidence": 2}),
        "a time-out": answers.stall(),
    }


@pytest.mark.parametrize(
    "refusal", ["a 5xx that stays", "no tool call", "a reply that breaks the schema", "a time-out"]
)
def test_rule_11_model_errors_take_the_error_route(
    real: Run, server: Any, answers: ModuleType, refusal: str
) -> None:
    """`result` has the reason."""
    server.then(refusals(answers)[refusal])
    ran = real(FIX % (0.5 if refusal == "a time-out" else 30, ", _error: probe"))
    assert (ran.code, ran.path, ran.verdicts) == (0, "fix1 probe1 done1", ["error"])
    assert ran.commands[-1] != "echo 'error' ''"


def test_rule_11_unrouted_model_error_ends_the_loop(
    real: Run, server: Any, answers: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing API key is reported as such, not as a connection failure."""
    server.then(answers.verdict("success", 0.9))
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    ran = real(FIX.replace("llm: {", "llm: {judge: model, ") % (30, ""), "--no-preflight")
    assert (ran.code, ran.ended) == (1, ("error", "error", "fix"))
    assert "ANTHROPIC_API_KEY" in ran.error
    assert server.requests == []


def test_rule_11_loop_timeout_ends_a_model_call(real: Run, server: Any, answers: ModuleType) -> None:
    """The `timeout` of rule 1 includes model calls."""
    server.then(answers.stall())
    ran = real("timeout: 1.5" + FIX % (30, ", _error: probe"))
    assert (ran.code, ran.ended) == (3, ("limit", "timeout", "fix"))


def test_rule_11_without_models_slash_commands_are_judged_by_exit_code(
    real: Run, server: Any, programs: Callable[[str, str], Path]
) -> None:
    """With `--no-llm` and with `llm.enabled: false`; no model is called."""
    programs("claude", "exit 1")
    assert real(one_action_loop("/ll:fix"), "--no-llm").verdicts == ["failure"]
    assert real("llm: {enabled: false}" + one_action_loop("/ll:fix")).verdicts == ["failure"]
    assert server.requests == []


def test_rule_11_without_models_an_explicit_evaluator_needs_an_error_route(real: Run) -> None:
    """Otherwise the loop is invalid."""
    ran = real(FIX % (30, ""), "--no-llm")
    assert ran.code == 2
    assert ran.outcome["error"]["diagnostics"][0]["id"] == "llm-disabled"


# --- 12 Maintain ------------------------------------------------------------------------------

MAINTAIN = """
name: keep
initial: check
maintain: true
backoff: 3
%s
max_iterations: 2
states:
  check: {action: make check, on_success: fine, on_failure: fix}
  fix: {action: make fix, next: check}
  fine: {terminal: true, on_maintain: check}
"""


@pytest.mark.parametrize(
    ("delay", "seconds"), [("", 3), ("maintain_delay: 60", 60), ("maintain_delay: 0", None)]
)
def test_rule_12_a_terminal_with_on_maintain_starts_the_next_cycle(
    scripted: Run, delay: str, seconds: float | None
) -> None:
    """After `maintain_delay` seconds, by default `backoff`."""
    ran = scripted(MAINTAIN % delay, "[{state: check, results: [{}, {exit_code: 2}]}]")
    assert ran.path == "check1 fine1 check1"
    assert ran.event_fields("cycle", "cycle") == [2]
    slept = [
        event["args"]["seconds"] for event in ran.events if event.get("kind") == "sleep" and "args" in event
    ]
    assert slept == ([seconds] if seconds else [])


def test_rule_12_max_iterations_bounds_each_cycle(scripted: Run) -> None:
    """Each cycle may have two iterations; the third cycle exceeds the limit."""
    codes = ", ".join(f"{{exit_code: {code}}}" for code in (1, 0, 1, 0, 1, 1, 1))
    ran = scripted(MAINTAIN % "", f"[{{state: check, results: [{codes}]}}, {{state: fix}}]")
    assert ran.ended == ("limit", "max_iterations", "fix")
    assert ran.event_fields("cycle", "cycle") == [2, 3]


# --- 13 Scope ---------------------------------------------------------------------------------


def scoped(scope: str, action: str = "true", name: str = "other") -> str:
    return f"name: {name}\nscope: {scope}\n" + one_action_loop(action).partition("\nname: one\n")[2]


@contextmanager
def holding(project: Path, scope: str) -> Iterator[subprocess.Popen[str]]:
    """A run that holds a scope."""
    (project / "holder.yaml").write_text(scoped(scope, "echo $$ > pid; mv pid held; exec sleep 60", "holder"))
    command = [sys.executable, "-m", "llc", "run", "holder.yaml", "--quiet"]
    process = subprocess.Popen(command, text=True, stderr=subprocess.PIPE)
    try:
        while not (project / "held").exists():
            assert process.poll() is None
            time.sleep(0.02)
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
        with suppress(ProcessLookupError):  # the action survives only if the run was killed
            os.kill(int((project / "held").read_text()), signal.SIGKILL)


def test_rule_13_scopes_are_compared_by_component(real: Run, project: Path) -> None:
    """`src/a` and `src/ab` do not overlap; `src/a/x`, `./src/../src/a` and `.` do overlap `src/a`."""
    with holding(project, "[src/a]"):
        assert real(scoped("[src/ab]")).code == 0
        assert real(scoped("[tests, src/b]")).code == 0
        for overlapping in ("[src/a/x]", "[./src/../src/a/]", "[.]", "[tests, src]"):
            ran = real(scoped(overlapping))
            assert (ran.code, ran.outcome["status"]) == (1, "error"), overlapping


def test_rule_13_no_scope_is_the_whole_project_and_a_conflict_names_the_holder(
    real: Run, project: Path
) -> None:
    """The message contains the run id of the holder."""
    with holding(project, "[deep/inside]"):
        (run,) = (project / ".loops" / ".running").glob("holder-*")
        ran = real(one_action_loop("true"))
        assert ran.code == 1
        assert run.name in ran.error


def test_rule_13_a_dead_holder_holds_nothing(real: Run, project: Path) -> None:
    """Also if its pid belongs to another process now."""
    with holding(project, "[.]") as process:
        kill_with_keeper(process)
        process.wait()
        (folder,) = (project / ".loops" / ".running").glob("holder-*")
        for file in folder.iterdir():  # the pid of a live process
            if file.is_file() and file.suffix != ".jsonl":
                data = file.read_bytes()
                file.write_bytes(data.replace(str(process.pid).encode(), str(os.getpid()).encode()))
        assert real(one_action_loop("true")).code == 0


# --- 14 Budgets -------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", ["{usd: 0.05}", "{tokens: 1000}"])
def test_rule_14_budget_limits_reported_usage(
    real: Run, programs: Callable[[str, str], Path], budget: str
) -> None:
    """The agent reports 0.02 dollars and 400 tokens per call: the fourth call does not start."""
    report = {
        "type": "result",
        "result": "done",
        "total_cost_usd": 0.02,
        "usage": {"input_tokens": 300, "output_tokens": 100},
    }
    programs("claude", f"[ \"$1\" = auth ] && exit\necho ran >> count; echo '{json.dumps(report)}'; exit 1")
    loop = f"budget: {budget}" + one_action_loop("/ll:fix").replace("on_failure: z", "on_failure: a")
    ran = real(loop, "--no-llm")
    assert (ran.code, ran.ended) == (3, ("limit", "budget", "a"))
    assert Path("count").read_text() == "ran\n" * 3


def test_rule_14_budget_is_part_of_the_ir() -> None:
    """The machine enforces it."""
    program = compile_text("budget: {usd: 5, tokens: 200000}" + one_action_loop("/ll:fix")).program
    assert (program.meta.limits.budget_usd, program.meta.limits.budget_tokens) == (5, 200000)


def test_rule_14_a_budget_is_positive() -> None:
    """A budget of zero is an error."""
    with pytest.raises(CompileError):
        compile_text("budget: {usd: 0}" + one_action_loop("/ll:fix"))
