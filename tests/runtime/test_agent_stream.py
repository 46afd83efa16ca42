"""Event streams, JSON reports and hand-offs of agents (`spec/agents.md`)."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llc.runtime.effects.agents.event_stream import EventStream
from llc.runtime.effects.handoff import MAX_HANDOFF, handoff_of
from llc.runtime.project import agents

Perform = Callable[..., dict[str, Any]]
CLAUDE = agents.known("claude")

INIT = {"type": "system", "subtype": "init", "session_id": "s-1", "tools": ["Edit"]}
TEXT = {"type": "text", "text": "I look at it.\nThen I fix it."}
EDIT = {"type": "tool_use", "id": "t1", "name": "Edit", "input": {"file_path": "src/a.py", "old_string": "x"}}
MESSAGE = {
    "type": "assistant",
    "session_id": "s-1",
    "message": {
        "id": "m1",
        "content": [TEXT, EDIT],
        "usage": {"input_tokens": 5, "cache_read_input_tokens": 10, "output_tokens": 2},
    },
}
RESULT = {
    "type": "result",
    "subtype": "success",
    "is_error": False,
    "result": "Fixed.",
    "session_id": "s-1",
    "total_cost_usd": 0.25,
    "usage": {"input_tokens": 100, "cache_creation_input_tokens": 7, "output_tokens": 20},
}


def lines(*events: Any) -> str:
    return "".join((event if isinstance(event, str) else json.dumps(event)) + "\n" for event in events)


@pytest.fixture
def write_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes `claude` a program that prints a text and exits with a code."""
    monkeypatch.delenv("LLC_AGENT", raising=False)
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)

    def write(text: str, code: int = 0, then: str = "", name: str = "claude") -> None:
        (tmp_path / f"{name}.txt").write_text(text)
        program = folder / name
        program.write_text(f"#!/bin/sh\ncat '{tmp_path}/{name}.txt'\n{then}\nexit {code}\n")
        program.chmod(0o755)

    return write


def configure(text: str) -> None:
    Path(".loops").mkdir(exist_ok=True)
    Path(".loops/config.yaml").write_text(text)


# --- events -------------------------------------------------------------------------------------


def test_final_result_is_the_output(write_agent: Callable[..., None], perform: Perform) -> None:
    """The usage and the session are in the result too."""
    write_agent(lines(INIT, MESSAGE, RESULT))
    result = perform("agent", command="/fix")
    assert (result["output"], result["exit_code"], result["session"]) == ("Fixed.", 0, "s-1")
    assert result["usage"] == {"usd": 0.25, "input_tokens": 107, "output_tokens": 20, "tokens": 127}
    assert "error" not in result


def test_text_and_tools_are_shown_immediately(write_agent: Callable[..., None], perform: Perform) -> None:
    """The text and the names of the tools are shown, not the events."""
    write_agent(lines(INIT, MESSAGE, RESULT), then="echo careful >&2")
    shown: list[tuple[str, str]] = []
    perform("agent", command="/fix", within={"on_output": lambda *chunk: shown.append(chunk)})
    text = "".join(part for stream, part in shown if stream == "output")
    assert text == "I look at it.\nThen I fix it.\n[Edit src/a.py]\n"
    assert ("stderr", "careful\n") in shown


@pytest.mark.parametrize(
    "noise",
    [
        "not json\n",
        "{half a json\n",
        '{"type": "new_kind", "data": [1, 2]}\n',
        '{"no": "type"}\n',
        "[1, 2]\n",
        '{"type": "assistant", "message": null}\n',
        '{"type": "assistant", "message": {"content": [null, {"type": "text"}, {"type": "tool_use"}]}}\n',
        '{"type": "assistant", "message": {"content": "plain words"}}\n',
        "\n\r\n",
        "[" * 200_000 + "\n",
        json.dumps({"type": "user", "message": "x" * (10 << 20)}) + "\n",
    ],
    ids=range(11),
)
def test_unknown_lines_are_ignored(write_agent: Callable[..., None], perform: Perform, noise: str) -> None:
    """Text between the events, broken JSON, unknown events and lines of 10 MB do not affect the result."""
    write_agent(lines(INIT) + noise + lines(MESSAGE) + noise + lines(RESULT))
    result = perform("agent", command="/fix")
    assert result["output"] == "Fixed."
    assert result["usage"]["tokens"] == 127
    assert "truncated" not in result


@given(st.lists(st.integers(0, 2000), max_size=30))
def test_chunk_boundaries_do_not_matter(cuts: list[int]) -> None:
    """The same events are read, whatever the chunk boundaries."""
    text = lines("words", INIT, MESSAGE, "{", RESULT)
    single, chunked = EventStream(CLAUDE), EventStream(CLAUDE)
    single.feed(text)
    boundaries = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    for start, end in itertools.pairwise(boundaries):
        chunked.feed(text[start:end])
    for stream in (single, chunked):
        stream.finish()
    assert (chunked.is_final, chunked.session, chunked.answer) == (True, "s-1", "Fixed.")
    assert (chunked.texts, chunked.usage) == (single.texts, single.usage)


@given(
    st.text()
    | st.recursive(
        st.none() | st.text() | st.integers(),
        lambda inner: st.dictionaries(
            st.sampled_from(
                ["type", "message", "content", "usage", "id", "text", "name", "input", "session_id", "result"]
            ),
            inner | st.sampled_from(["assistant", "result", "system", "tool_use", "text"]) | st.lists(inner),
        ),
    ).map(json.dumps)
)
def test_any_line_is_accepted(line: str) -> None:
    """Any text and any JSON value is accepted."""
    stream = EventStream(CLAUDE, lambda text: None)
    stream.feed(line + "\n")
    stream.finish()
    assert isinstance(stream.texts, str)
    assert isinstance(stream.usage, dict)


def test_long_non_ascii_result_is_complete(write_agent: Callable[..., None], perform: Perform) -> None:
    """Characters that are split over two reads are joined."""
    write_agent(lines(INIT, {**RESULT, "result": "grün 🙂" * 20_000}))
    assert perform("agent", command="/fix")["output"] == "grün 🙂" * 20_000


def test_very_long_result_is_truncated(write_agent: Callable[..., None], perform: Perform) -> None:
    """Beginning and end are kept, with a line that states the omitted size."""
    write_agent(lines(INIT, {**RESULT, "result": "a" + "x" * (10 << 20) + "z"}))
    result = perform("agent", command="/fix")
    assert len(result["output"]) < (1 << 20) + 200
    assert result["output"].startswith("ax")
    assert result["output"].endswith("xz")
    assert result["truncated"]["output"] > (1 << 20)


def test_error_result_is_an_error(write_agent: Callable[..., None], perform: Perform) -> None:
    """Also with exit code 0; the usage counts."""
    write_agent(lines(INIT, {**RESULT, "is_error": True, "result": "Invalid API key"}))
    result = perform("agent", command="/fix")
    help = "log in with `claude auth login`, or set ANTHROPIC_API_KEY"
    assert result["error"] == {"kind": "auth", "message": f"the agent failed: Invalid API key; {help}"}
    write_agent(lines(INIT, {**RESULT, "is_error": True, "result": "Too hot"}))
    result = perform("agent", command="/fix")
    assert result["error"] == {"kind": "agent-failed", "message": "the agent failed: Too hot"}
    assert result["usage"]["usd"] == 0.25


def test_reached_turn_limit_is_no_error(write_agent: Callable[..., None], perform: Perform) -> None:
    """The exit code reports the limit; the output is the text so far."""
    report = {name: value for name, value in RESULT.items() if name != "result"}
    write_agent(lines(INIT, MESSAGE, {**report, "is_error": True, "subtype": "error_max_turns"}), code=1)
    result = perform("agent", command="/fix")
    assert (result["exit_code"], "error" in result) == (1, False)
    assert result["output"].startswith("I look at it.")


def test_events_without_a_result_are_an_error(write_agent: Callable[..., None], perform: Perform) -> None:
    """Also with an incomplete last line; the usage so far is known, the cost is not."""
    write_agent(lines(INIT, MESSAGE) + json.dumps(RESULT)[:40])
    result = perform("agent", command="/fix")
    assert result["error"]["kind"] == "no-result"
    assert result["usage"] == {"usd": None, "input_tokens": 15, "output_tokens": 2, "tokens": 17}
    assert result["output"].startswith("I look at it.")


def test_killed_agent_is_not_reported_as_missing_result(
    write_agent: Callable[..., None], perform: Perform
) -> None:
    """The error is the signal or the timeout, not the missing result."""
    write_agent(lines(INIT, MESSAGE), then="kill -KILL $$")
    result = perform("agent", command="/fix")
    assert (result["signal"], "error" in result) == ("SIGKILL", False)
    write_agent(lines(INIT, MESSAGE), then="exec sleep 30")
    result = perform("agent", command="/fix", timeout_s=0.3)
    assert (result["timed_out"], "error" in result) == ("action", False)
    assert result["usage"]["tokens"] == 17


def test_plain_text_is_the_output(write_agent: Callable[..., None], perform: Perform) -> None:
    write_agent("just\nwords\n", code=3)
    result = perform("agent", command="/fix")
    assert (result["output"], result["exit_code"]) == ("just\nwords\n", 3)
    assert result["error"]["message"] == "the agent ended with exit code 3: words"


# --- other agents -------------------------------------------------------------------------------


def test_configured_agent_is_selected_by_name(write_agent: Callable[..., None], perform: Perform) -> None:
    """The prompt replaces `{prompt}`; an agent with `output: text` has no event stream."""
    configure(
        "agents:\n  mine: {argv: [sh, -c, 'printf \"<%s>\" \"$@\"', x, '-m={prompt}', --yes], output: text}\n"
    )
    result = perform("agent", agent="mine", command='it\'s "a" {prompt} $HOME')
    assert result["output"] == '<-m=it\'s "a" {prompt} $HOME><--yes>'


def test_environment_can_name_a_configured_agent(
    write_agent: Callable[..., None], perform: Perform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`LLC_AGENT` can be the name of a configured agent."""
    configure("agents: {mine: {argv: [echo, mine]}}\n")
    monkeypatch.setenv("LLC_AGENT", "mine")
    assert perform("agent", command="/fix")["output"] == "mine /fix\n"


def test_unknown_agent_is_an_error_with_a_suggestion(perform: Perform, tmp_path: Path) -> None:
    """The agent does not start."""
    os.chdir(tmp_path)
    configure("agents: {mine: {argv: [echo]}}\n")
    result = perform("agent", agent="mien", command="/fix")
    assert (result["exit_code"], result["error"]["kind"]) == (126, "unknown-agent")
    assert "did you mean `mine`?" in result["error"]["message"]


def test_fields_select_values_of_a_json_report(write_agent: Callable[..., None], perform: Perform) -> None:
    """Each field is a path; the report may be the last of several lines."""
    configure(
        "agents:\n  other:\n    argv: [other]\n    output: json\n    fields:\n"
        "      {result: .messages.-1.text, session: id, usd: cost,\n"
        "       input_tokens: tokens.0, output_tokens: tokens.1}\n"
    )
    report = {"id": "t-9", "messages": [{"text": "a"}, {"text": "done"}], "cost": 0.1, "tokens": [3, 4]}
    write_agent("starting\n" + json.dumps(report) + "\n", name="other")
    result = perform("agent", agent="other", command="/fix")
    assert (result["output"], result["session"]) == ("done", "t-9")
    assert result["usage"] == {"usd": 0.1, "input_tokens": 3, "output_tokens": 4, "tokens": 7}


@pytest.mark.parametrize(
    ("output", "kind"),
    [
        ("no json", "invalid-json"),
        ("{}", "no-result"),
        ('{"error": "quota"}', "agent-failed"),
        ("", "invalid-json"),
    ],
)
def test_json_report_without_a_result_is_an_error(
    write_agent: Callable[..., None], perform: Perform, output: str, kind: str
) -> None:
    """The output is the text that the agent printed."""
    configure("agents: {other: {argv: [other], output: json}}\n")
    write_agent(output, name="other")
    result = perform("agent", agent="other", command="/fix")
    assert (result["error"]["kind"], result["output"]) == (kind, output)


@pytest.mark.parametrize(
    ("text", "diagnostic_id"),
    [
        ("agents: [a]", "wrong-type"),
        ("agents: {a: b}", "wrong-type"),
        ("agents: {a: {output: text}}", "missing-field"),
        ("agents: {a: {argv: []}}", "empty-list"),
        ("agents: {a: {argv: [x], output: xml}}", "unknown-value"),
        ("agents: {a: {argv: [x], fields: {result: y}}}", "contradictory-keys"),
        ("agents: {a: {argv: [x], output: json, fields: {resul: y}}}", "bad-name"),
        ("agents: {a: {argv: [x], out: json}}", "unknown-key"),
        ("agents: {a: {argv: [x], resume: x}}", "wrong-type"),
        ("agents: {a: {argv: [x], resume: [x, '{prompt}']}}", "missing-placeholder"),
    ],
)
def test_invalid_agents_entry_is_reported(tmp_path: Path, text: str, diagnostic_id: str) -> None:
    from llc.ir.diagnostics import CompileError
    from llc.runtime.project import configuration

    (tmp_path / ".loops").mkdir()
    (tmp_path / ".loops" / "config.yaml").write_text(text)
    with pytest.raises(CompileError, match=diagnostic_id):
        configuration.load(str(tmp_path))


# --- hand-offs ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("done", None),
        ("I would write CONTEXT_HANDOFF: at the end", None),
        ("CONTEXT_HANDOFF: go on with b", "go on with b"),
        ("work\n**CONTEXT_HANDOFF:** a\nand b\n", "a\nand b"),
        ("a and b are left\nCONTEXT_HANDOFF:\n", "a and b are left"),
        ("CONTEXT_HANDOFF:", "(it said nothing more)"),
    ],
)
def test_handoff_marker_starts_a_line(output: str, expected: str | None) -> None:
    """The hand-off is the text after the marker; if there is none, the text before it."""
    assert handoff_of(output) == expected


def test_handoff_text_is_limited() -> None:
    assert len(handoff_of("CONTEXT_HANDOFF: " + "x" * (1 << 20)) or "") == MAX_HANDOFF


LOOP = """
name: work
initial: fix
on_handoff: continue
max_handoffs: 2
states:
  fix:
    action: "/fix all"
    evaluate: {type: exit_code}
    capture: fixed
    on_success: done
    on_failure: done
  done: {terminal: true, action: "echo ${captured.fixed.output} ${captured.fixed.session}"}
"""
# Hands over until it has been called as often as the file `until` says.
AGENT = """\
#!/bin/sh
[ "$1" = auth ] && exit
n=$(($(cat count 2>/dev/null || echo 0) + 1)); echo $n > count
printf '%s\\n===\\n' "$(cat)" >> prompts
if [ $n -lt $(cat until) ]; then text='CONTEXT_HANDOFF: after '$n; else text=finished; fi
printf '{"type": "result", "result": "%s", \
"session_id": "s-%s", "usage": {"output_tokens": 10}}\\n' "$text" $n
"""


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs `llc` in a project with an agent that hands over."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "claude"
    program.write_text(AGENT)
    program.chmod(0o755)
    (tmp_path / ".loops").mkdir()
    (tmp_path / "until").write_text("3")
    monkeypatch.chdir(tmp_path)
    env = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    env = {name: value for name, value in env.items() if name != "LLC_AGENT"}

    def run(*words: str, loop: str = "") -> subprocess.CompletedProcess[str]:
        if loop:
            (tmp_path / ".loops" / "work.yaml").write_text(loop)
        return subprocess.run(
            [sys.executable, "-m", "llc", *words], capture_output=True, text=True, check=False, env=env
        )

    return run


def prompts() -> list[str]:
    return Path("prompts").read_text().split("\n===\n")[:-1]


Work = Callable[..., subprocess.CompletedProcess[str]]


def test_new_session_gets_the_handoff_text(work: Work) -> None:
    """The new session gets the command and the hand-off text; the last result counts."""
    completed = work("run", "work", "--json", loop=LOOP)
    outcome = json.loads(completed.stdout)
    assert (outcome["status"], outcome["iterations"]) == ("success", 1)
    first, second, third = prompts()
    assert first == "/fix all"
    assert second.startswith("/fix all\n\nThe session before")
    assert second.endswith("\n\nafter 1")
    assert third.endswith("\n\nafter 2")
    assert "│ finished s-3" in completed.stderr


def test_number_of_handoffs_is_limited(work: Work) -> None:
    """Beyond `max_handoffs`, the loop ends as by a limit, with exit code 3."""
    Path("until").write_text("9")
    completed = work("run", "work", "--json", loop=LOOP)
    outcome = json.loads(completed.stdout)
    assert (outcome["status"], outcome["terminated_by"], completed.returncode) == ("limit", "handoff", 3)
    assert len(prompts()) == 3


def test_handoff_ends_the_loop_by_default(work: Work) -> None:
    """The default of the seed."""
    completed = work(
        "run", "work", "--json", loop=LOOP.replace("on_handoff: continue\nmax_handoffs: 2\n", "")
    )
    outcome = json.loads(completed.stdout)
    assert (outcome["terminated_by"], outcome["final_state"], completed.returncode) == ("handoff", "fix", 3)
    assert prompts() == ["/fix all"]


def test_paused_loop_continues_on_resume(work: Work) -> None:
    """The exit code is 130; no session is repeated, and the new session gets the hand-off text."""
    completed = work("run", "work", "--json", loop=LOOP.replace("continue", "pause"))
    outcome = json.loads(completed.stdout)
    assert (outcome["status"], outcome["terminated_by"], completed.returncode) == (
        "interrupted",
        "handoff",
        130,
    )
    assert "Loop paused: fix" in completed.stderr
    assert "Resume with: llc resume" in completed.stderr
    assert work("resume", "work", "--json").returncode == 130
    completed = work("resume", "work", "--json")
    assert json.loads(completed.stdout)["status"] == "success"
    assert [text.rpartition("\n")[2] for text in prompts()] == ["/fix all", "after 1", "after 2"]
    replayed = work("replay", "work")
    assert replayed.returncode == 0, replayed.stderr


def test_budget_is_checked_before_a_new_session(work: Work) -> None:
    completed = work("run", "work", "--json", loop=LOOP + "budget: {tokens: 15}\n")
    assert json.loads(completed.stdout)["terminated_by"] == "budget"
    assert len(prompts()) == 2


def test_scripted_agent_can_hand_over(work: Work) -> None:
    Path("world.yaml").write_text(
        "- {state: fix, results: [{output: 'CONTEXT_HANDOFF: x'}, {output: ok, session: s-2}]}\n"
        "- {state: done}\n"
    )
    completed = work("run", "work", "--json", "--script", "world.yaml", loop=LOOP)
    assert json.loads(completed.stdout)["status"] == "success"
    assert "hands over (continue): x" in completed.stderr
