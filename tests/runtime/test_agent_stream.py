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
WORDS = {"type": "text", "text": "I look at it.\nThen I fix it."}
EDIT = {"type": "tool_use", "id": "t1", "name": "Edit", "input": {"file_path": "src/a.py", "old_string": "x"}}
SAID = {
    "type": "assistant",
    "session_id": "s-1",
    "message": {
        "id": "m1",
        "content": [WORDS, EDIT],
        "usage": {"input_tokens": 5, "cache_read_input_tokens": 10, "output_tokens": 2},
    },
}
DONE = {
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
def says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes `claude` a program that writes a text, and ends with a code."""
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


def test_the_result_is_the_output(says: Callable[..., None], perform: Perform) -> None:
    """With what was used and the session."""
    says(lines(INIT, SAID, DONE))
    result = perform("agent", command="/fix")
    assert (result["output"], result["exit_code"], result["session"]) == ("Fixed.", 0, "s-1")
    assert result["usage"] == {"usd": 0.25, "input_tokens": 107, "output_tokens": 20, "tokens": 127}
    assert "error" not in result


def test_what_it_says_and_does_is_shown_as_it_comes(says: Callable[..., None], perform: Perform) -> None:
    """Its words and the names of its tools, not the events."""
    says(lines(INIT, SAID, DONE), then="echo careful >&2")
    shown: list[tuple[str, str]] = []
    perform("agent", command="/fix", within={"on_output": lambda *said: shown.append(said)})
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
def test_what_is_not_understood_is_passed_over(
    says: Callable[..., None], perform: Perform, noise: str
) -> None:
    """Words between the events, broken JSON, unknown events, 10 MB in a line: the result counts."""
    says(lines(INIT) + noise + lines(SAID) + noise + lines(DONE))
    result = perform("agent", command="/fix")
    assert result["output"] == "Fixed."
    assert result["usage"]["tokens"] == 127
    assert "truncated" not in result


@given(st.lists(st.integers(0, 2000), max_size=30))
def test_pieces_do_not_matter(cuts: list[int]) -> None:
    """However the text is cut into pieces, the same is read."""
    text = lines("words", INIT, SAID, "{", DONE)
    whole, pieces = EventStream(CLAUDE), EventStream(CLAUDE)
    whole.feed(text)
    places = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    for start, end in itertools.pairwise(places):
        pieces.feed(text[start:end])
    for stream in (whole, pieces):
        stream.finish()
    assert (pieces.is_final, pieces.session, pieces.answer) == (True, "s-1", "Fixed.")
    assert (pieces.texts, pieces.usage) == (whole.texts, whole.usage)


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
def test_nothing_it_says_is_too_odd(line: str) -> None:
    """Any text, any JSON: something is made of it."""
    stream = EventStream(CLAUDE, lambda text: None)
    stream.feed(line + "\n")
    stream.finish()
    assert isinstance(stream.texts, str)
    assert isinstance(stream.usage, dict)


def test_a_result_that_is_no_utf8_is_still_one(says: Callable[..., None], perform: Perform) -> None:
    """Characters that come in two reads are put together."""
    says(lines(INIT, {**DONE, "result": "grün 🙂" * 20_000}))
    assert perform("agent", command="/fix")["output"] == "grün 🙂" * 20_000


def test_a_very_long_result_is_cut(says: Callable[..., None], perform: Perform) -> None:
    """Its ends are kept, with a line that says how much is missing."""
    says(lines(INIT, {**DONE, "result": "a" + "x" * (10 << 20) + "z"}))
    result = perform("agent", command="/fix")
    assert len(result["output"]) < (1 << 20) + 200
    assert result["output"].startswith("ax")
    assert result["output"].endswith("xz")
    assert result["truncated"]["output"] > (1 << 20)


def test_an_agent_that_fails_is_an_error(says: Callable[..., None], perform: Perform) -> None:
    """Also where it ends with 0; what it used counts."""
    says(lines(INIT, {**DONE, "is_error": True, "result": "Invalid API key"}))
    result = perform("agent", command="/fix")
    help = "log in with `claude auth login`, or set ANTHROPIC_API_KEY"
    assert result["error"] == {"kind": "auth", "message": f"the agent failed: Invalid API key; {help}"}
    says(lines(INIT, {**DONE, "is_error": True, "result": "Too hot"}))
    result = perform("agent", command="/fix")
    assert result["error"] == {"kind": "agent-failed", "message": "the agent failed: Too hot"}
    assert result["usage"]["usd"] == 0.25


def test_an_agent_that_ran_out_of_turns_did_some_work(says: Callable[..., None], perform: Perform) -> None:
    """Its exit code says what to make of it; its output is what it said."""
    report = {name: value for name, value in DONE.items() if name != "result"}
    says(lines(INIT, SAID, {**report, "is_error": True, "subtype": "error_max_turns"}), code=1)
    result = perform("agent", command="/fix")
    assert (result["exit_code"], "error" in result) == (1, False)
    assert result["output"].startswith("I look at it.")


def test_events_without_a_result_are_an_error(says: Callable[..., None], perform: Perform) -> None:
    """Half a line in the end; what was used until then is known, but no price."""
    says(lines(INIT, SAID) + json.dumps(DONE)[:40])
    result = perform("agent", command="/fix")
    assert result["error"]["kind"] == "no-result"
    assert result["usage"] == {"usd": None, "input_tokens": 15, "output_tokens": 2, "tokens": 17}
    assert result["output"].startswith("I look at it.")


def test_a_killed_agent_says_so_itself(says: Callable[..., None], perform: Perform) -> None:
    """The signal is the reason, not the missing result; a time-out likewise."""
    says(lines(INIT, SAID), then="kill -KILL $$")
    result = perform("agent", command="/fix")
    assert (result["signal"], "error" in result) == ("SIGKILL", False)
    says(lines(INIT, SAID), then="exec sleep 30")
    result = perform("agent", command="/fix", timeout_s=0.3)
    assert (result["timed_out"], "error" in result) == ("action", False)
    assert result["usage"]["tokens"] == 17


def test_plain_text_is_as_it_is(says: Callable[..., None], perform: Perform) -> None:
    """An agent that knows nothing of events."""
    says("just\nwords\n", code=3)
    result = perform("agent", command="/fix")
    assert (result["output"], result["exit_code"]) == ("just\nwords\n", 3)
    assert result["error"]["message"] == "the agent ended with exit code 3: words"


# --- other agents -------------------------------------------------------------------------------


def test_an_agent_of_the_configuration_is_called_by_name(says: Callable[..., None], perform: Perform) -> None:
    """The prompt stands where `{prompt}` is; `text` is not looked into."""
    configure(
        "agents:\n  mine: {argv: [sh, -c, 'printf \"<%s>\" \"$@\"', x, '-m={prompt}', --yes], output: text}\n"
    )
    result = perform("agent", agent="mine", command='it\'s "a" {prompt} $HOME')
    assert result["output"] == '<-m=it\'s "a" {prompt} $HOME><--yes>'


def test_the_environment_may_name_one(
    says: Callable[..., None], perform: Perform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`LLC_AGENT` of one word that the configuration knows."""
    configure("agents: {mine: {argv: [echo, mine]}}\n")
    monkeypatch.setenv("LLC_AGENT", "mine")
    assert perform("agent", command="/fix")["output"] == "mine /fix\n"


def test_an_unknown_agent_is_an_error_that_names_the_known(perform: Perform, tmp_path: Path) -> None:
    """Nothing is started."""
    os.chdir(tmp_path)
    configure("agents: {mine: {argv: [echo]}}\n")
    result = perform("agent", agent="mien", command="/fix")
    assert (result["exit_code"], result["error"]["kind"]) == (126, "unknown-agent")
    assert "did you mean `mine`?" in result["error"]["message"]


def test_a_report_of_json_is_read_by_its_fields(says: Callable[..., None], perform: Perform) -> None:
    """Each a path; the report may be the last of several lines."""
    configure(
        "agents:\n  other:\n    argv: [other]\n    output: json\n    fields:\n"
        "      {result: .messages.-1.text, session: id, usd: cost,\n"
        "       input_tokens: tokens.0, output_tokens: tokens.1}\n"
    )
    report = {"id": "t-9", "messages": [{"text": "a"}, {"text": "done"}], "cost": 0.1, "tokens": [3, 4]}
    says("starting\n" + json.dumps(report) + "\n", name="other")
    result = perform("agent", agent="other", command="/fix")
    assert (result["output"], result["session"]) == ("done", "t-9")
    assert result["usage"] == {"usd": 0.1, "input_tokens": 3, "output_tokens": 4, "tokens": 7}


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        ("no json", "invalid-json"),
        ("{}", "no-result"),
        ('{"error": "quota"}', "agent-failed"),
        ("", "invalid-json"),
    ],
)
def test_a_report_without_a_result_is_an_error(
    says: Callable[..., None], perform: Perform, written: str, kind: str
) -> None:
    """What it wrote stays the output."""
    configure("agents: {other: {argv: [other], output: json}}\n")
    says(written, name="other")
    result = perform("agent", agent="other", command="/fix")
    assert (result["error"]["kind"], result["output"]) == (kind, written)


@pytest.mark.parametrize(
    ("text", "finding"),
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
def test_what_is_wrong_with_an_agents_entry_is_said(tmp_path: Path, text: str, finding: str) -> None:
    """With its place."""
    from llc.ir.diagnostics import CompileError
    from llc.runtime.project import configuration

    (tmp_path / ".loops").mkdir()
    (tmp_path / ".loops" / "config.yaml").write_text(text)
    with pytest.raises(CompileError, match=finding):
        configuration.load(str(tmp_path))


# --- hand-offs ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("output", "handed"),
    [
        ("done", None),
        ("I would write CONTEXT_HANDOFF: at the end", None),
        ("CONTEXT_HANDOFF: go on with b", "go on with b"),
        ("work\n**CONTEXT_HANDOFF:** a\nand b\n", "a\nand b"),
        ("a and b are left\nCONTEXT_HANDOFF:\n", "a and b are left"),
        ("CONTEXT_HANDOFF:", "(it said nothing more)"),
    ],
)
def test_a_handoff_begins_a_line(output: str, handed: str | None) -> None:
    """All that follows is handed on; else what came before."""
    assert handoff_of(output) == handed


def test_a_handoff_has_its_bounds() -> None:
    """A prompt of a megabyte helps nobody."""
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
# Hands over until it has been called so often as the file `until` says.
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
    """Runs `llc` in a project where an agent hands over."""
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


def test_a_new_session_carries_the_handoff_on(work: Work) -> None:
    """It is given the command again, with what was handed over; the last result counts."""
    told = work("run", "work", "--json", loop=LOOP)
    outcome = json.loads(told.stdout)
    assert (outcome["status"], outcome["iterations"]) == ("success", 1)
    first, second, third = prompts()
    assert first == "/fix all"
    assert second.startswith("/fix all\n\nThe session before")
    assert second.endswith("\n\nafter 1")
    assert third.endswith("\n\nafter 2")
    assert "│ finished s-3" in told.stderr


def test_sessions_that_follow_are_bounded(work: Work) -> None:
    """Then the loop ends as by a limit, exit code 3."""
    Path("until").write_text("9")
    told = work("run", "work", "--json", loop=LOOP)
    outcome = json.loads(told.stdout)
    assert (outcome["status"], outcome["terminated_by"], told.returncode) == ("limit", "handoff", 3)
    assert len(prompts()) == 3


def test_a_loop_ends_at_a_handoff_where_it_says_nothing(work: Work) -> None:
    """The seed's choice."""
    told = work("run", "work", "--json", loop=LOOP.replace("on_handoff: continue\nmax_handoffs: 2\n", ""))
    outcome = json.loads(told.stdout)
    assert (outcome["terminated_by"], outcome["final_state"], told.returncode) == ("handoff", "fix", 3)
    assert prompts() == ["/fix all"]


def test_a_paused_loop_goes_on_when_it_is_resumed(work: Work) -> None:
    """Exit code 130 as for an interrupt; nothing is performed twice, and the new session has the text."""
    told = work("run", "work", "--json", loop=LOOP.replace("continue", "pause"))
    outcome = json.loads(told.stdout)
    assert (outcome["status"], outcome["terminated_by"], told.returncode) == ("interrupted", "handoff", 130)
    assert "Loop paused: fix" in told.stderr
    assert "Resume with: llc resume" in told.stderr
    assert work("resume", "work", "--json").returncode == 130
    told = work("resume", "work", "--json")
    assert json.loads(told.stdout)["status"] == "success"
    assert [text.rpartition("\n")[2] for text in prompts()] == ["/fix all", "after 1", "after 2"]
    replayed = work("replay", "work")
    assert replayed.returncode == 0, replayed.stderr


def test_a_budget_comes_before_a_new_session(work: Work) -> None:
    """A session that would start over budget does not start."""
    told = work("run", "work", "--json", loop=LOOP + "budget: {tokens: 15}\n")
    assert json.loads(told.stdout)["terminated_by"] == "budget"
    assert len(prompts()) == 2


def test_a_scripted_agent_hands_over_too(work: Work) -> None:
    """By what it prints."""
    Path("world.yaml").write_text(
        "- {state: fix, results: [{output: 'CONTEXT_HANDOFF: x'}, {output: ok, session: s-2}]}\n"
        "- {state: done}\n"
    )
    told = work("run", "work", "--json", "--script", "world.yaml", loop=LOOP)
    assert json.loads(told.stdout)["status"] == "success"
    assert "hands over (continue): x" in told.stderr
