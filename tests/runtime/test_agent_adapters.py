"""Agent definitions: configuration files, event rules and their handling of invalid input."""

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


def read(
    name: str, *events: Any, thread: dict[str, int] | None = None
) -> tuple[EventStream, list[AgentActivity]]:
    """What the rules of an agent make of events."""
    seen: list[AgentActivity] = []
    stream = EventStream(agents.known(name), None, seen.append, thread)
    for event in events:
        stream.feed((event if isinstance(event, str) else json.dumps(event)) + "\n")
    return stream, seen


def command(name: str, **args: Any) -> list[str]:
    return agents.Command(agents.known(name), {"command": "PROMPT", **args}, False, {}).argv


# In the shapes of qwen 0.24.4, which the tests cannot run: it needs a newer Node.
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


def test_a_stream_of_qwen() -> None:
    """Its cached tokens are part of the input, unlike those of the agent whose shapes it uses."""
    stream, seen = read("qwen", *QWEN)
    assert (stream.is_final, stream.answer, stream.session, stream.turns) == (True, "Done.", "q-1", 2)
    assert stream.usage == {"usd": None, "input_tokens": 3000, "output_tokens": 80, "tokens": 3080}
    assert [activity.kind for activity in seen] == [
        *("session", "model", "usage", "tool", "files", "tool-end", "usage", "final"),
    ]
    assert {activity.kind for activity in seen} <= ACTIVITY_KINDS.keys()


def test_tokens_of_a_thread_are_counted_from_its_last_process_on() -> None:
    """A resumed session states the sum of all."""
    done = {
        "type": "turn.completed",
        "usage": {"input_tokens": 4500, "cached_input_tokens": 900, "output_tokens": 120},
    }
    stream, _ = read("codex", done, thread={"input": 3000, "cached": 600, "output": 80})
    assert stream.usage["tokens"] == 1540
    assert stream.thread == {"input": 4500, "cached": 900, "output": 120}


def test_an_error_before_the_final_event_was_survived() -> None:
    """One after it, or in it, was not."""
    error = {"type": "error", "message": "Reconnecting... 1/5"}
    stream, seen = read("codex", error, {"type": "turn.completed"})
    assert (stream.error, stream.is_final) == (None, True)
    assert [activity.text for activity in seen if activity.kind == "retry"] == ["Reconnecting... 1/5"]
    stream, _ = read("codex", error, {"type": "turn.failed", "error": {"message": "lost"}})
    assert stream.error is not None
    assert (stream.error.message, stream.is_final) == ("lost", False)


def test_a_login_that_is_refused_stops_the_agent() -> None:
    """What it says while it is stopped does not hide the reason."""
    retry = {"type": "system", "subtype": "api_retry", "error": "authentication_failed", "error_status": 401}
    result = {"type": "result", "is_error": True, "result": "Interrupted", "num_turns": 1}
    stream, _ = read("claude", retry, result)
    assert stream.error is not None
    assert (stream.must_stop, stream.error.kind, stream.error.status) == (True, "auth", 401)


def test_a_limit_with_a_known_reset_time_states_it(
    perform: Perform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the error of the result, so that a run can wait until then."""
    events = [
        {"type": "rate_limit_event", "rate_limit_info": {"status": "rejected", "resetsAt": 1900000000}},
        {"type": "result", "is_error": True, "api_error_status": 429, "result": "You hit it", "num_turns": 1},
    ]
    lines = "\n".join(json.dumps(event) for event in events)
    (tmp_path / "say").write_text(f"#!/bin/sh\ncat <<'E'\n{lines}\nE\nexit 1\n")
    (tmp_path / "say").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    configure(tmp_path, "agents: {mine: {extends: claude, argv: [./say]}}\n")
    error = perform("agent", agent="mine", command="x", quota={"on": "fail"})["error"]
    told = {"kind": "rate-limit", "message": "the agent failed: You hit it"}
    assert error == {**told, "status": 429, "resets_at": 1900000000}


@pytest.mark.parametrize("usd", [-5, float("inf"), float("nan"), True, "1.5", [1], 1e300, None])
def test_a_false_price_is_not_known(usd: Any) -> None:
    """It neither counts nor fails the step."""
    stream, _ = read("claude", {"type": "result", "result": "x", "total_cost_usd": usd})
    assert stream.usage == {"usd": None, "tokens": None}


@pytest.mark.parametrize("name", agents.known_names())
@pytest.mark.parametrize(
    "odd",
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
def test_odd_events_do_no_harm(name: str, odd: Any) -> None:
    """Whatever has the wrong type, or is too much."""
    stream, seen = read(name, odd)
    assert isinstance(stream.usage, dict)
    assert len(seen) < 5000
    assert all(len(activity.text) <= 1 << 20 and len(activity.target) < 5000 for activity in seen)


def test_a_group_of_words_needs_its_values() -> None:
    """An option that nothing asks for is not in the command; a value is one word, whatever is in it."""
    assert "--model" not in command("claude")
    words = command("claude", model="a {prompt} b", allowed_tools=("Edit", "Bash(x *)"))
    assert words[words.index("--model") + 1] == "a {prompt} b"
    assert words[words.index("--allowedTools") + 1] == "Edit,Bash(x *)"
    assert command("aider")[-1] == "--message=PROMPT"
    assert command("codex", session="s-1", permissions="edit")[:3] == ["codex", "exec", "resume"]
    assert 'sandbox_mode="workspace-write"' in command("codex", session="s-1", permissions="edit")


def test_a_path_of_a_known_program_is_that_agent() -> None:
    """With all of its words; words of one's own replace them."""
    found = agents.of_words(("/opt/bin/codex",))
    asked = {"command": "x", "permissions": "plan"}
    assert agents.Command(found, asked, False, {}).argv == ["/opt/bin/codex", *command("codex", **asked)[1:]]
    resumed = agents.Command(found, {**asked, "session": "s"}, False, {}).argv
    assert resumed[:3] == ["/opt/bin/codex", "exec", "resume"]
    assert agents.Command(agents.of_words(("codex", "exec", "-")), {"command": "x"}, False, {}).argv == [
        *("codex", "exec", "-"),
    ]


def configure(folder: Path, text: str) -> Any:
    (folder / ".loops").mkdir(exist_ok=True)
    (folder / ".loops" / "config.yaml").write_text(text)
    return configuration.load(str(folder)).agents


def test_a_project_extends_an_agent(tmp_path: Path) -> None:
    """What it does not say is as llc has it; its own words get the options after the program."""
    found = configure(
        tmp_path,
        "agents:\n  mine: {extends: codex, argv: [./codex, exec, -], env: {A: b}}\n"
        "  careful: {extends: claude, default_permissions: plan}\n",
    )
    assert found["mine"].events == agents.known("codex").events
    assert agents.Command(found["mine"], {"command": "x", "model": "m"}, False, {}).argv == [
        *("./codex", "-c", 'approval_policy="never"', "-c", 'sandbox_mode="danger-full-access"', "-m", "m"),
        *("exec", "-"),
    ]
    assert agents.Command(found["careful"], {"command": "x"}, False, {}).argv[1:3] == [
        "--permission-mode",
        "plan",
    ]


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("{extends: codx}", "did you mean `codex`"),
        ("{extends: codex, errors: [{kind: auth, text: '('}]}", "invalid-regex"),
        ("{extends: codex, events: [{like: {a: '['}}]}", "invalid-regex"),
        ("{argv: [[a]]}", "should begin with a program"),
        ("{argv: [a], output: events}", "needs `events`"),
        ("{argv: [a], permissions: {root: {}}}", "permission modes are"),
        ("{argv: [a], stop: {signals: [KILL]}}", "unknown-value"),
    ],
)
def test_what_is_wrong_with_an_agent_is_said(tmp_path: Path, text: str, finding: str) -> None:
    """With its place, and nothing starts."""
    with pytest.raises(CompileError) as error:
        configure(tmp_path, f"agents: {{a: {text}}}\n")
    told = [f"{found.id} {found.message} {found.help}" for found in error.value.diagnostics]
    assert any(finding in line for line in told), told
    assert all(found.span is not None for found in error.value.diagnostics)


def test_an_agent_that_floods_is_read_in_bounded_memory() -> None:
    """A hundred thousand events, of which the end is kept."""
    stream = EventStream(agents.known("opencode"))
    line = json.dumps({"type": "text", "sessionID": "s", "part": {"text": "x" * 100}}) + "\n"
    for _ in range(100):
        stream.feed(line * 200)
    assert len(stream.texts) <= (1 << 20) + 1
    assert not stream.is_final


def test_a_prompt_beyond_the_limit_never_starts(
    perform: Perform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gemini would cut it, and do nothing."""
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
# Counts the tokens of its thread, as codex does.
AGENT = """\
#!/bin/sh
name=$1; shift; echo "$name $@" >> calls
echo '{"type": "thread.started", "thread_id": "'$name'-1"}'
echo '{"type": "item.completed", "item": {"type": "agent_message", "text": "ok"}}'
echo '{"type": "turn.completed", "usage": {"input_tokens": '$(wc -l < calls)'000, "output_tokens": 0}}'
"""


def test_a_state_continues_the_last_session_of_its_agent(llc: Callable[..., Any], project_dir: Path) -> None:
    """Not that of another agent; its tokens are counted from there on."""
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
    # 1,000 and 2,000; 3,000 of which 1,000 were counted before; 4,000 of a new session.
    assert "9,000 tokens" in llc("run", "work").stdout


def test_a_fork_leaves_the_last_session_as_it_is(llc: Callable[..., Any], project_dir: Path) -> None:
    """A later `continue` is of the session that was copied; a fork without a session begins one."""
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
def test_turns_have_a_cap_where_the_agent_has_an_option(name: str, option: str | None) -> None:
    words = command(name, max_turns=3)
    assert ("max_turns" in agents.capabilities_of(agents.known(name))) == (option is not None)
    assert "max_turns" in agents.required_of({"max_turns": 3})
    if option is not None:
        assert words[words.index(option) + 1] == "3"
    assert option not in command(name)
