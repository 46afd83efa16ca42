"""Agent definitions: configuration files, event rules and the handling of invalid input."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llc.ir.diagnostics import CompileError
from llc.runtime.effects.agents.event_stream import EventStream
from llc.runtime.journal.agent_activity import ACTIVITY_KINDS, AgentActivity
from llc.runtime.project import agents, configuration

Perform = Callable[..., dict[str, Any]]


def feed(
    name: str, *events: Any, thread: dict[str, int] | None = None
) -> tuple[EventStream, list[AgentActivity]]:
    """Feed events to the rules of a known agent; return the stream and the activities."""
    activities: list[AgentActivity] = []
    stream = EventStream(agents.known(name), None, activities.append, thread)
    for event in events:
        stream.feed((event if isinstance(event, str) else json.dumps(event)) + "\n")
    return stream, activities


def command(name: str, **args: Any) -> list[str]:
    return agents.Command(agents.known(name), {"command": "PROMPT", **args}, False, {}).argv


# The event format of qwen 0.24.4. The tests cannot run it, because it needs a newer Node.
QWEN = [
    {"type": "system", "subtype": "init", "session_id": "q-1", "model": "m"},
    {
        "type": "assistant",
        "session_id": "q-1",
        "message": {
            "id": "a1",
            "content": [
                {"type": "tool_use", "id": "t1", "name": "write_file", "input": {"file_path": "/w/a"}}
            ],
            "usage": {"input_tokens": 1500, "output_tokens": 40, "cache_read_input_tokens": 300},
        },
    },
    {"type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": "t1", "content": "ok"}]}},
    {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "num_turns": 2,
        "session_id": "q-1",
        "result": "Done.",
        "usage": {"input_tokens": 3000, "output_tokens": 80, "cache_read_input_tokens": 600},
        "permission_denials": [],
    },
]


def test_event_stream_of_qwen() -> None:
    """Cached tokens are part of the input of qwen, unlike those of claude, whose event format it uses."""
    stream, activities = feed("qwen", *QWEN)
    assert (stream.is_final, stream.answer, stream.session, stream.turns) == (True, "Done.", "q-1", 2)
    assert stream.usage == {"usd": None, "input_tokens": 3000, "output_tokens": 80, "tokens": 3080}
    assert [activity.kind for activity in activities] == [
        *("session", "model", "usage", "tool", "files", "tool-end", "usage", "final"),
    ]
    assert {activity.kind for activity in activities} <= ACTIVITY_KINDS.keys()


def test_tokens_of_earlier_processes_of_a_thread_are_subtracted() -> None:
    """A resumed session reports the total of all its processes."""
    done = {
        "type": "turn.completed",
        "usage": {"input_tokens": 4500, "cached_input_tokens": 900, "output_tokens": 120},
    }
    stream, _ = feed("codex", done, thread={"input": 3000, "cached": 600, "output": 80})
    assert stream.usage["tokens"] == 1540
    assert stream.thread == {"input": 4500, "cached": 900, "output": 120}


def test_error_before_the_final_event_is_a_retry() -> None:
    """An error in or after the final event fails the turn."""
    error = {"type": "error", "message": "Reconnecting... 1/5"}
    stream, activities = feed("codex", error, {"type": "turn.completed"})
    assert (stream.error, stream.is_final) == (None, True)
    assert [activity.text for activity in activities if activity.kind == "retry"] == ["Reconnecting... 1/5"]
    stream, _ = feed("codex", error, {"type": "turn.failed", "error": {"message": "lost"}})
    assert stream.error is not None
    assert (stream.error.message, stream.is_final) == ("lost", False)


def test_refused_login_stops_the_agent() -> None:
    """The later result of the stopped agent does not replace the reason."""
    retry = {"type": "system", "subtype": "api_retry", "error": "authentication_failed", "error_status": 401}
    result = {"type": "result", "is_error": True, "result": "Interrupted", "num_turns": 1}
    stream, _ = feed("claude", retry, result)
    assert stream.error is not None
    assert (stream.must_stop, stream.error.kind, stream.error.status) == (True, "auth", 401)


def test_rate_limit_error_has_the_reset_time(
    perform: Perform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of the result has the reset time, so that a run can wait until then."""
    events = [
        {"type": "rate_limit_event", "rate_limit_info": {"status": "rejected", "resetsAt": 1900000000}},
        {"type": "result", "is_error": True, "api_error_status": 429, "result": "You hit it", "num_turns": 1},
    ]
    lines = "\n".join(json.dumps(event) for event in events)
    (tmp_path / "stub").write_text(f"#!/bin/sh\ncat <<'E'\n{lines}\nE\nexit 1\n")
    (tmp_path / "stub").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    configure(tmp_path, "agents: {mine: {extends: claude, argv: [./stub]}}\n")
    error = perform("agent", agent="mine", command="x", quota={"on": "fail"})["error"]
    expected = {"kind": "rate-limit", "message": "the agent failed: You hit it"}
    assert error == {**expected, "status": 429, "resets_at": 1900000000}


@pytest.mark.parametrize("usd", [-5, float("inf"), float("nan"), True, "1.5", [1], 1e300, None])
def test_invalid_price_is_unknown(usd: Any) -> None:
    """An invalid price neither counts nor fails the step."""
    stream, _ = feed("claude", {"type": "result", "result": "x", "total_cost_usd": usd})
    assert stream.usage == {"usd": None, "tokens": None}


@pytest.mark.parametrize("name", agents.known_names())
@pytest.mark.parametrize(
    "malformed",
    [
        {
            "type": "assistant",
            "message": {"content": [None, 3, "x", {"type": "tool_use"}, [[]]], "usage": [1]},
        },
        {"type": "result", "permission_denials": [{}] * 5000, "usage": {"input_tokens": "x"}},
        {"type": "item.completed", "item": {"type": "file_change", "status": "completed", "changes": "x"}},
        {"type": "tool_use", "part": {"state": {"error": "rejected permission" * 10_000}, "tool": ["x"]}},
        {"type": "step_finish", "part": {"tokens": {"input": 1e400, "cache": 3}, "cost": "free"}},
        '{"type": "result", "result": "half',
        "[" * 100_000,
        '{"type": "a", "b": ' + "[" * 100_000 + "]" * 100_000 + "}",
    ],
)
def test_malformed_events_are_ignored(name: str, malformed: Any) -> None:
    """Values of a wrong type and oversized values."""
    stream, activities = feed(name, malformed)
    assert isinstance(stream.usage, dict)
    assert len(activities) < 5000
    assert all(len(activity.text) <= 1 << 20 and len(activity.target) < 5000 for activity in activities)


def test_option_needs_a_value() -> None:
    """An option without a value is not in the command; a value is one word, whatever characters it has."""
    assert "--model" not in command("claude")
    words = command("claude", model="a {prompt} b", allowed_tools=("Edit", "Bash(x *)"))
    assert words[words.index("--model") + 1] == "a {prompt} b"
    assert words[words.index("--allowedTools") + 1] == "Edit,Bash(x *)"
    assert command("aider")[-1] == "--message=PROMPT"
    assert command("codex", session="s-1", permissions="edit")[:3] == ["codex", "exec", "resume"]
    assert 'sandbox_mode="workspace-write"' in command("codex", session="s-1", permissions="edit")


def test_path_of_a_known_program_selects_that_agent() -> None:
    """The words of the known agent follow; given words replace them."""
    agent = agents.of_words(("/opt/bin/codex",))
    arguments = {"command": "x", "permissions": "plan"}
    assert agents.Command(agent, arguments, False, {}).argv == [
        "/opt/bin/codex",
        *command("codex", **arguments)[1:],
    ]
    resumed = agents.Command(agent, {**arguments, "session": "s"}, False, {}).argv
    assert resumed[:3] == ["/opt/bin/codex", "exec", "resume"]
    assert agents.Command(agents.of_words(("codex", "exec", "-")), {"command": "x"}, False, {}).argv == [
        *("codex", "exec", "-"),
    ]


def configure(folder: Path, text: str) -> Any:
    (folder / ".loops").mkdir(exist_ok=True)
    (folder / ".loops" / "config.yaml").write_text(text)
    return configuration.load(str(folder)).agents


def test_project_extends_an_agent(tmp_path: Path) -> None:
    """Missing keys are inherited; options are inserted after the program of the project's own command."""
    configured = configure(
        tmp_path,
        "agents:\n  mine: {extends: codex, argv: [./codex, exec, -], env: {A: b}}\n"
        "  careful: {extends: claude, default_permissions: plan}\n",
    )
    assert configured["mine"].events == agents.known("codex").events
    assert agents.Command(configured["mine"], {"command": "x", "model": "m"}, False, {}).argv == [
        *("./codex", "-c", 'approval_policy="never"', "-c", 'sandbox_mode="danger-full-access"', "-m", "m"),
        *("exec", "-"),
    ]
    assert agents.Command(configured["careful"], {"command": "x"}, False, {}).argv[1:3] == [
        "--permission-mode",
        "plan",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{extends: codx}", "did you mean `codex`"),
        ("{extends: codex, errors: [{kind: auth, text: '('}]}", "invalid-regex"),
        ("{extends: codex, events: [{like: {a: '['}}]}", "invalid-regex"),
        ("{argv: [[a]]}", "should begin with a program"),
        ("{argv: [a], output: events}", "needs `events`"),
        ("{argv: [a], permissions: {root: {}}}", "a mapping with keys from"),
        ("{argv: [a], stop: {signals: [KILL]}}", "unknown-value"),
    ],
)
def test_invalid_agent_definition_is_reported(tmp_path: Path, text: str, expected: str) -> None:
    """Each diagnostic has a span, and nothing starts."""
    with pytest.raises(CompileError) as error:
        configure(tmp_path, f"agents: {{a: {text}}}\n")
    reported = [
        f"{diagnostic.id} {diagnostic.message} {diagnostic.help}" for diagnostic in error.value.diagnostics
    ]
    assert any(expected in line for line in reported), reported
    assert all(diagnostic.span is not None for diagnostic in error.value.diagnostics)


def test_memory_of_an_event_stream_is_limited() -> None:
    """After 20,000 events, only the end of the text is kept."""
    stream = EventStream(agents.known("opencode"))
    line = json.dumps({"type": "text", "sessionID": "s", "part": {"text": "x" * 100}}) + "\n"
    for _ in range(100):
        stream.feed(line * 200)
    assert len(stream.texts) <= (1 << 20) + 1
    assert not stream.is_final


def test_agent_does_not_start_if_the_prompt_is_too_large(
    perform: Perform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gemini would truncate the prompt and do nothing."""
    monkeypatch.chdir(tmp_path)
    configure(tmp_path, "agents: {small: {argv: [touch, started], prompt: {by: stdin, max_bytes: 10}}}\n")
    result = perform("agent", agent="small", command="x" * 11)
    assert result["error"]["kind"] == "too-large"
    assert not (tmp_path / "started").exists()


LOOP = """\
name: work
initial: one
agent: mine
states:
  one: {action: "first", action_type: prompt, next: other}
  other: {action: "aside", action_type: prompt, agent: theirs, next: two}
  two: {action: "second", action_type: prompt, session: continue, next: three}
  three: {action: "third", action_type: prompt, next: done}
  done: {terminal: true}
"""
# Reports the total tokens of its thread, as codex does.
AGENT = """\
#!/bin/sh
name=$1; shift; echo "$name $@" >> calls
echo '{"type": "thread.started", "thread_id": "'$name'-1"}'
echo '{"type": "item.completed", "item": {"type": "agent_message", "text": "ok"}}'
echo '{"type": "turn.completed", "usage": {"input_tokens": '$(wc -l < calls)'000, "output_tokens": 0}}'
"""


def test_state_continues_the_last_session_of_its_agent(llc: Callable[..., Any], project_dir: Path) -> None:
    """Not the session of another agent; tokens count from the end of the continued session."""
    for name in ("mine", "theirs"):
        (project_dir / name).write_text(AGENT)
        (project_dir / name).chmod(0o755)
    configure(
        project_dir,
        "agents:\n"
        + "".join(
            f"  {name}: {{extends: codex, argv: [./{name}, {name}, '{{prompt}}'], options: [],\n"
            f"    resume: [./{name}, {name}, --resume, '{{session}}', '{{prompt}}']}}\n"
            for name in ("mine", "theirs")
        ),
    )
    (project_dir / ".loops" / "work.yaml").write_text(LOOP)
    done = llc("run", "work", "--json")
    assert done.returncode == 0, done.stderr
    assert (project_dir / "calls").read_text().splitlines() == [
        *("mine first", "theirs aside", "mine --resume mine-1 second", "mine third"),
    ]
    (project_dir / "calls").unlink()
    # 1,000 and 2,000; 3,000, of which 1,000 were counted before; 4,000 of a new session.
    assert "9,000 tokens" in llc("run", "work").stdout


def test_fork_keeps_the_last_session(llc: Callable[..., Any], project_dir: Path) -> None:
    """A later `continue` uses the session that was forked; a fork without a session starts one."""
    (project_dir / "mine").write_text(AGENT)
    (project_dir / "mine").chmod(0o755)
    configure(
        project_dir,
        "agents:\n  mine: {extends: codex, argv: [./mine, mine, '{prompt}'], options: [],\n"
        "    resume: [./mine, mine, --resume, '{session}', '{prompt}'],\n"
        "    fork: [./mine, copy, --fork, '{session}', '{prompt}']}\n",
    )
    states = LOOP.replace("agent: theirs", "session: fork")
    states = states.replace("action_type", "session: fork, action_type", 1)
    again = '  again: {action: "again", action_type: prompt, next: other}\n  other:'
    states = states.replace("next: other", "next: again").replace("  other:", again)
    (project_dir / ".loops" / "work.yaml").write_text(states)
    done = llc("run", "work", "--json")
    assert done.returncode == 0, done.stderr
    assert (project_dir / "calls").read_text().splitlines() == [
        *("mine first", "mine again", "copy --fork mine-1 aside"),
        *("mine --resume mine-1 second", "mine third"),
    ]


@pytest.mark.parametrize(
    ("name", "option"), [("claude", "--max-turns"), ("qwen", "--max-session-turns"), ("codex", None)]
)
def test_max_turns_needs_an_option_of_the_agent(name: str, option: str | None) -> None:
    words = command(name, max_turns=3)
    assert ("max_turns" in agents.capabilities_of(agents.known(name))) == (option is not None)
    assert "max_turns" in agents.required_of({"max_turns": 3})
    if option is not None:
        assert words[words.index(option) + 1] == "3"
    assert option not in command(name)
