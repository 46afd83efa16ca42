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


ARGUMENTS = 'for a in "$@"; do echo "<$a>"; done'


def test_a_prompt_goes_to_claude_through_standard_input(
    stub: Stub, perform: Perform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever stands in it, and however long it is."""
    monkeypatch.setenv("IS_SANDBOX", "1")
    stub(f"{ARGUMENTS}; cat")
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
    ("asked", "words"),
    [
        ({"permissions": "edit"}, ["--permission-mode", "acceptEdits"]),
        ({"permissions": "plan", "model": "opus"}, ["--permission-mode", "plan", "--model", "opus"]),
        (
            {"permissions": "ask", "allowed_tools": ["Edit", "Bash(pytest *)"]},
            ["--permission-mode", "default", "--allowedTools", "Edit,Bash(pytest *)"],
        ),
    ],
)
def test_a_loop_says_what_an_agent_may_do(
    stub: Stub, perform: Perform, asked: dict[str, Any], words: list[str]
) -> None:
    """In place of every permission; the model and more tools as well."""
    stub(ARGUMENTS)
    given = perform("agent", command="Do it", **asked)["output"].split()
    assert given[: len(" ".join(words).split())] == " ".join(f"<{word}>" for word in words).split()
    assert "<--dangerously-skip-permissions>" not in given


def test_an_agent_that_cannot_be_told_its_permissions_is_an_error(stub: Stub, perform: Perform) -> None:
    """Nothing that a loop asks is left out in silence."""
    stub("echo ran", "other")
    result = perform("agent", command="Do it", argv=["other"], permissions="plan", model="x")
    assert result["error"]["kind"] == "unknown-option"
    assert "`model` and `permissions: plan`" in result["error"]["message"]
    assert "ran" not in result["output"]


def test_root_gets_edits_and_a_list_of_tools(
    stub: Stub, perform: Perform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As claude refuses every permission to root; a note says so."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    monkeypatch.delenv("IS_SANDBOX", raising=False)
    stub(ARGUMENTS)
    seen: list[tuple[str, str]] = []
    result = perform("agent", {"on_output": lambda *part: seen.append(part)}, command="Do it")
    assert result["output"].startswith(
        "<--permission-mode>\n<acceptEdits>\n<--allowedTools>\n<Bash,Edit,Write,"
    )
    assert "dangerously" not in result["output"]
    assert "as root" in seen[0][1]


def report(**fields: Any) -> str:
    """A stub that reports these."""
    told = {"type": "result", "subtype": "success", "is_error": False, "num_turns": 1, "result": "Done."}
    return f"cat <<'E'\n{json.dumps({**told, **fields})}\nE"


@pytest.mark.parametrize(
    ("script", "kind", "said"),
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
def test_an_agent_that_did_no_work_is_an_error_with_its_text(
    stub: Stub, perform: Perform, script: str, kind: str, said: str
) -> None:
    """Exit code 0 proves nothing."""
    stub(script)
    error = perform("agent", command="/fix")["error"]
    assert error["kind"] == kind
    assert said in error["message"]


def test_an_agent_that_ran_out_of_turns_did_some_work(stub: Stub, perform: Perform) -> None:
    """It shows in the exit code, and the loop continues with its check."""
    stub(report(subtype="error_max_turns", is_error=True, num_turns=3) + "\nexit 1")
    result = perform("agent", command="Do it")
    assert (result["exit_code"], "error" in result) == (1, False)


def test_the_program_and_its_arguments_can_be_configured(stub: Stub, perform: Perform) -> None:
    """The loop's `agent:` arrives as `argv`."""
    stub(ARGUMENTS, "aider")
    assert (
        perform("agent", command="/fix", argv=["aider", "--yes", "-m"])["output"] == "<--yes>\n<-m>\n</fix>\n"
    )


def test_the_environment_can_name_the_program(
    stub: Stub, perform: Perform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`LLC_AGENT` is read as a shell reads words."""
    path = stub(ARGUMENTS, "my agent")
    monkeypatch.setenv("LLC_AGENT", f"'{path}' --flag 'two words'")
    assert perform("agent", command="/fix")["output"] == "<--flag>\n<two words>\n</fix>\n"


def test_the_loop_comes_before_the_environment(
    stub: Stub, perform: Perform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the loop's file says is part of the program."""
    stub("echo loop", "one")
    monkeypatch.setenv("LLC_AGENT", "two")
    assert perform("agent", command="/fix", argv=["one"])["output"] == "loop\n"


def test_an_empty_variable_means_the_default(
    stub: Stub, perform: Perform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`LLC_AGENT=` names nothing."""
    stub("echo default")
    monkeypatch.setenv("LLC_AGENT", " ")
    assert perform("agent", command="/fix")["output"] == "default\n"


def test_a_variable_with_an_open_quote_is_an_error(perform: Perform, monkeypatch: pytest.MonkeyPatch) -> None:
    """That names the variable."""
    monkeypatch.setenv("LLC_AGENT", "claude 'x")
    result = perform("agent", command="/fix")
    assert (result["exit_code"], result["error"]["kind"]) == (126, "failed-to-start")
    assert "LLC_AGENT" in result["error"]["message"]


def test_a_missing_program_is_an_error_that_names_it(
    perform: Perform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And says how to name another."""
    monkeypatch.setenv("LLC_AGENT", "no-such-agent --flag")
    result = perform("agent", command="/fix")
    assert result["exit_code"] == 127
    help = "name the agent program in the loop's `agent:` or in LLC_AGENT"
    assert result["error"] == {"kind": "not-found", "message": f"`no-such-agent` is not on PATH; {help}"}


def test_a_program_that_is_no_program_is_an_error_that_names_it(perform: Perform, tmp_path: Path) -> None:
    """A file without execute permission, a path that does not exist, a program the system cannot run."""
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


def test_an_agent_finds_its_keys_in_its_environment(stub: Stub, perform: Perform) -> None:
    """As a shell action does."""
    stub('echo "$LLC_EFFECT_ID $LLC_STATE"')
    assert perform("agent", command="/fix")["output"] == f"lint-{os.getpid()}/7 check\n"


def test_an_agents_output_is_shown_while_it_works(stub: Stub, perform: Perform) -> None:
    """Both streams."""
    stub("echo working; echo hmm >&2; exit 5")
    seen: list[tuple[str, str]] = []
    result = perform("agent", {"on_output": lambda *part: seen.append(part)}, command="/fix")
    assert sorted(seen) == [("output", "working\n"), ("stderr", "hmm\n")]
    assert (result["output"], result["stderr"], result["exit_code"]) == ("working\n", "hmm\n", 5)


def test_an_agent_is_bounded_in_time(stub: Stub, perform: Perform) -> None:
    """A time-out ends it with everything it started."""
    stub("sleep 60 & sleep 60")
    assert perform("agent", command="/fix", timeout_s=0.2)["timed_out"] == "action"


def test_an_interrupt_ends_an_agent(stub: Stub, perform: Perform, interrupt: Interrupt) -> None:
    """At once."""
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


def test_claudes_json_report_becomes_output_and_usage(stub: Stub, perform: Perform) -> None:
    """`--output-format json`: the text is the output, tokens and money are what a budget counts."""
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
def test_a_report_with_gaps_or_nonsense_counts_as_what_it_tells(
    stub: Stub, perform: Perform, report: dict[str, Any], usage: dict[str, Any]
) -> None:
    """A number that is none is not known; it never fails the step."""
    stub(f"cat <<'E'\n{json.dumps({'type': 'result', **report})}\nE")
    assert perform("agent", command="/fix")["usage"] == usage


@pytest.mark.parametrize("output", ['{"type": "other"}', "{}", "[1]", "{broken", "plain", "", "{" * 50000])
def test_other_output_is_taken_as_it_is(stub: Stub, perform: Perform, output: str, tmp_path: Path) -> None:
    """Only an object of type "result" is a report; what was used is not known then."""
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
def test_a_known_agent_is_in_the_chapter(name: str) -> None:
    """With the words it is called with."""
    chapter = (Path(llc.__file__).parent / "spec" / "agents.md").read_text("utf-8")
    words = agents.Command(agents.known(name), {"command": "PROMPT"}, False, {}).argv
    assert f"`{' '.join(words)}`" in chapter
    assert f"`{name}`" in chapter
