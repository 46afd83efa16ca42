"""Slash commands (`loops.md`, section 10), with stub agents on PATH."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import llc
from llc.runtime.host.effect_context import Interrupt, Interrupted
from llc.runtime.project import agents

Perform = Callable[..., dict[str, Any]]
Stub = Callable[..., Path]


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stub:
    """Writes an agent program on PATH, `claude` unless another name is given."""
    monkeypatch.delenv("LLC_AGENT", raising=False)
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def write(script: str, name: str = "claude") -> Path:
        path = folder / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    return write


PRINT_ARGUMENTS = 'for a in "$@"; do echo "<$a>"; done'


def test_claude_reads_the_prompt_from_standard_input(
    stub: Stub, perform: Perform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Independent of its characters and its length."""
    monkeypatch.setenv("IS_SANDBOX", "1")
    stub(f"{PRINT_ARGUMENTS}; cat")
    prompt = '/ll:fix it\'s $HOME; `x` "q"\n' + "more " * 200_000
    result = perform("agent", command=prompt)
    words, _, rest = result["output"].partition("<-p>\n")
    session = r"<[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}>"
    assert re.fullmatch(
        f"<--dangerously-skip-permissions>\n<--session-id>\n{session}\n"
        "<--output-format>\n<stream-json>\n<--verbose>\n",
        words,
    )
    assert (result["exit_code"], rest) == (0, prompt)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"permissions": "edit"}, ["--permission-mode", "acceptEdits"]),
        ({"permissions": "plan", "model": "opus"}, ["--permission-mode", "plan", "--model", "opus"]),
        (
            {"permissions": "ask", "allowed_tools": ["Edit", "Bash(pytest *)"]},
            ["--permission-mode", "default", "--allowedTools", "Edit,Bash(pytest *)"],
        ),
    ],
)
def test_loop_sets_permissions_model_and_tools(
    stub: Stub, perform: Perform, options: dict[str, Any], expected: list[str]
) -> None:
    """The model and the allowed tools are passed too; the default permissions are not."""
    stub(PRINT_ARGUMENTS)
    arguments = perform("agent", command="Do it", **options)["output"].split()
    assert arguments[: len(" ".join(expected).split())] == " ".join(f"<{word}>" for word in expected).split()
    assert "<--dangerously-skip-permissions>" not in arguments


def test_options_that_an_agent_lacks_are_an_error(stub: Stub, perform: Perform) -> None:
    """No option that a loop requests is silently ignored."""
    stub("echo ran", "other")
    result = perform("agent", command="Do it", argv=["other"], permissions="plan", model="x")
    assert result["error"]["kind"] == "unknown-option"
    assert "`model` and `permissions: plan`" in result["error"]["message"]
    assert "ran" not in result["output"]


def test_claude_as_root_gets_edits_and_a_list_of_tools(
    stub: Stub, perform: Perform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """claude refuses `--dangerously-skip-permissions` as root; a note states the replacement."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    monkeypatch.delenv("IS_SANDBOX", raising=False)
    stub(PRINT_ARGUMENTS)
    shown: list[tuple[str, str]] = []
    result = perform("agent", {"on_output": lambda *part: shown.append(part)}, command="Do it")
    assert result["output"].startswith(
        "<--permission-mode>\n<acceptEdits>\n<--allowedTools>\n<Bash,Edit,Write,"
    )
    assert "dangerously" not in result["output"]
    assert "as root" in shown[0][1]


def report(**fields: Any) -> str:
    """Stub script that prints a report with these fields."""
    success = {"type": "result", "subtype": "success", "is_error": False, "num_turns": 1, "result": "Done."}
    return f"cat <<'E'\n{json.dumps({**success, **fields})}\nE"


@pytest.mark.parametrize(
    ("script", "kind", "message"),
    [
        (report(num_turns=0, result="What?"), "no-work", "What?"),
        (report(num_turns=0, result="Unknown command: /fix"), "unknown-command", "Unknown command: /fix"),
        (report(result="Unknown skill: fix"), "unknown-command", "Unknown skill: fix"),
        (
            report(permission_denials=[{"tool_name": "Bash", "tool_input": {"command": "pytest -q"}}]),
            "refused",
            "Bash(pytest -q)",
        ),
        ("echo 'cannot start' >&2; exit 3", "failed-exit", "exit code 3: cannot start"),
        ('echo \'{"type": "system", "subtype": "init"}\'', "no-result", "without a result"),
        ("", "no-result", "it wrote nothing; check it with `llc doctor`"),
        (report(num_turns=0, result="ok"), "no-work", "did no work: ok; write the action as a prompt"),
        (
            """echo '{"type": "system", "subtype": "init"}'; yes $(printf %01000d 0)""",
            "agent-failed",
            "it wrote more than 16 MiB of lines that are not events, and was stopped; see `llc logs -v`",
        ),
        ('printf \'{"type": "assi\'', "no-result", "its output is incomplete"),
    ],
)
def test_failed_agent_is_an_error_with_its_text(
    stub: Stub, perform: Perform, script: str, kind: str, message: str
) -> None:
    """Exit code 0 alone is no success."""
    stub(script)
    error = perform("agent", command="/fix")["error"]
    assert error["kind"] == kind
    assert message in error["message"]


def test_reached_turn_limit_is_no_error(stub: Stub, perform: Perform) -> None:
    """The exit code shows it, and the loop continues with its check."""
    stub(report(subtype="error_max_turns", is_error=True, num_turns=3) + "\nexit 1")
    result = perform("agent", command="Do it")
    assert (result["exit_code"], "error" in result) == (1, False)


def test_program_and_arguments_can_be_configured(stub: Stub, perform: Perform) -> None:
    """The key `agent` of a loop arrives as `argv`."""
    stub(PRINT_ARGUMENTS, "aider")
    assert (
        perform("agent", command="/fix", argv=["aider", "--yes", "-m"])["output"] == "<--yes>\n<-m>\n</fix>\n"
    )


def test_environment_can_name_the_program(
    stub: Stub, perform: Perform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`LLC_AGENT` is split into words as by a shell."""
    path = stub(PRINT_ARGUMENTS, "my agent")
    monkeypatch.setenv("LLC_AGENT", f"'{path}' --flag 'two words'")
    assert perform("agent", command="/fix")["output"] == "<--flag>\n<two words>\n</fix>\n"


def test_loop_takes_precedence_over_the_environment(
    stub: Stub, perform: Perform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop file is part of the program."""
    stub("echo loop", "one")
    monkeypatch.setenv("LLC_AGENT", "two")
    assert perform("agent", command="/fix", argv=["one"])["output"] == "loop\n"


def test_empty_llc_agent_means_the_default(
    stub: Stub, perform: Perform, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub("echo default")
    monkeypatch.setenv("LLC_AGENT", " ")
    assert perform("agent", command="/fix")["output"] == "default\n"


def test_llc_agent_with_an_open_quote_is_an_error(perform: Perform, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLC_AGENT", "claude 'x")
    result = perform("agent", command="/fix")
    assert (result["exit_code"], result["error"]["kind"]) == (126, "failed-to-start")
    assert "LLC_AGENT" in result["error"]["message"]


def test_missing_program_is_an_error_with_its_name(perform: Perform, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message states how to select another program."""
    monkeypatch.setenv("LLC_AGENT", "no-such-agent --flag")
    result = perform("agent", command="/fix")
    assert result["exit_code"] == 127
    help = "name the agent program in the loop's `agent:` or in LLC_AGENT"
    assert result["error"] == {"kind": "not-found", "message": f"`no-such-agent` is not on PATH; {help}"}


def test_program_that_cannot_be_executed_is_an_error(perform: Perform, tmp_path: Path) -> None:
    """A file without execute permission, a missing path, and a file that the system cannot execute."""
    plain = tmp_path / "plain"
    plain.write_text("text")
    result = perform("agent", command="/fix", argv=[str(plain)])
    assert (result["exit_code"], result["error"]["kind"]) == (126, "not-executable")
    result = perform("agent", command="/fix", argv=[str(tmp_path / "none")])
    assert (result["exit_code"], result["error"]["kind"]) == (127, "not-found")
    plain.chmod(0o755)
    result = perform("agent", command="/fix", argv=[str(plain)])
    assert (result["exit_code"], result["error"]["kind"]) == (126, "failed-to-start")
    assert "Exec format error" in result["error"]["message"]


def test_agent_has_the_effect_id_and_state_in_its_environment(stub: Stub, perform: Perform) -> None:
    stub('echo "$LLC_EFFECT_ID $LLC_STATE"')
    assert perform("agent", command="/fix")["output"] == f"lint-{os.getpid()}/7 check\n"


def test_both_output_streams_are_shown_while_the_agent_works(stub: Stub, perform: Perform) -> None:
    stub("echo working; echo hmm >&2; exit 5")
    shown: list[tuple[str, str]] = []
    result = perform("agent", {"on_output": lambda *part: shown.append(part)}, command="/fix")
    assert sorted(shown) == [("output", "working\n"), ("stderr", "hmm\n")]
    assert (result["output"], result["stderr"], result["exit_code"]) == ("working\n", "hmm\n", 5)


def test_timeout_ends_the_agent_and_its_children(stub: Stub, perform: Perform) -> None:
    stub("sleep 60 & sleep 60")
    assert perform("agent", command="/fix", timeout_s=0.2)["timed_out"] == "action"


def test_interrupt_ends_the_agent_at_once(stub: Stub, perform: Perform, interrupt: Interrupt) -> None:
    stub("exec sleep 60")
    threading.Timer(0.2, interrupt.set).start()
    with pytest.raises(Interrupted):
        perform("agent", command="/fix")


REPORT = {
    "type": "result",
    "subtype": "success",
    "is_error": False,
    "result": "Fixed 3 files.",
    "total_cost_usd": 0.0421,
    "usage": {
        "input_tokens": 10,
        "cache_creation_input_tokens": 2000,
        "cache_read_input_tokens": 30000,
        "output_tokens": 400,
    },
}


def test_json_report_of_claude_becomes_output_and_usage(stub: Stub, perform: Perform) -> None:
    """With `--output-format json`, the text is the output; budgets use tokens and cost."""
    stub(f"cat <<'E'\n{json.dumps(REPORT)}\nE")
    result = perform("agent", command="/fix")
    assert result["output"] == "Fixed 3 files."
    assert result["usage"] == {"usd": 0.0421, "input_tokens": 32010, "output_tokens": 400, "tokens": 32410}


UNKNOWN = {"usd": None, "tokens": None}


@pytest.mark.parametrize(
    ("report", "usage"),
    [
        ({"total_cost_usd": 1}, {"usd": 1, "tokens": None}),
        ({"usage": {"output_tokens": 5}}, {"usd": None, "input_tokens": 0, "output_tokens": 5, "tokens": 5}),
        ({"usage": 3, "total_cost_usd": -1}, UNKNOWN),
        ({"usage": {"output_tokens": "many", "input_tokens": True}, "total_cost_usd": 1e999}, UNKNOWN),
    ],
)  # fmt: skip
def test_invalid_fields_of_a_report_are_ignored(
    stub: Stub, perform: Perform, report: dict[str, Any], usage: dict[str, Any]
) -> None:
    """An invalid number counts as unknown; it never fails the step."""
    stub(f"cat <<'E'\n{json.dumps({'type': 'result', **report})}\nE")
    assert perform("agent", command="/fix")["usage"] == usage


@pytest.mark.parametrize("output", ['{"type": "other"}', "{}", "[1]", "{broken", "plain", "", "{" * 50000])
def test_output_without_a_report_is_unchanged(
    stub: Stub, perform: Perform, output: str, tmp_path: Path
) -> None:
    """Only an object of type "result" is a report; otherwise the usage is unknown."""
    (tmp_path / "output").write_text(output)
    stub(f"cat {tmp_path / 'output'}", "other")
    result = perform("agent", command="/fix", argv=["other"])
    assert (result["output"], "error" in result) == (output, False)
    assert result["usage"] == UNKNOWN
    stub(f"cat {tmp_path / 'output'}")
    result = perform("agent", command="/fix")
    assert (result["output"], result["error"]["kind"]) == (output, "no-result")
    assert result["usage"] == UNKNOWN


@pytest.mark.parametrize("name", agents.known_names())
def test_known_agent_is_in_the_chapter(name: str) -> None:
    """The chapter has the name and the command line of every known agent."""
    chapter = (Path(llc.__file__).parent / "spec" / "agents.md").read_text("utf-8")
    words = agents.Command(agents.known(name), {"command": "PROMPT"}, False, {}).argv
    assert f"`{' '.join(words)}`" in chapter
    assert f"`{name}`" in chapter
