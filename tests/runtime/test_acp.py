"""Agents that speak the Agent Client Protocol, with a stub agent; real agents: `test_real_agents`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from keepers import kill_with_keeper
from waiting import is_running

from llc.runtime.host.effect_context import Interrupt, Interrupted
from llc.runtime.journal.agent_activity import AgentActivity

Perform = Callable[..., dict[str, Any]]
# Stub agent that answers every request of the client; PROMPT is replaced by the code that handles a prompt.
AGENT = """\
import json, os, sys, time

def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

def receive():
    return json.loads(sys.stdin.readline())

def update(**fields):
    send(method="session/update", params={"sessionId": "s", "update": fields})

def say(text):
    update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": text})

def tool(status, id="t", kind="execute", **fields):
    update(sessionUpdate="tool_call_update", toolCallId=id, kind=kind, title="a title", status=status,
           **fields)

def ask(kind, path=None, options=("allow_once", "reject_once")):
    found = [{"optionId": "o-" + option, "name": option, "kind": option} for option in options]
    asked = {"toolCallId": "t", "kind": kind, "title": "a title"}
    if path is not None:
        asked["locations"] = [{"path": path}]
    send(id=7, method="session/request_permission", params={"toolCall": asked, "options": found})
    chosen = receive()["result"]["outcome"].get("optionId")
    if str(chosen).startswith("o-allow"):
        tool("completed")
    return chosen

def file(method, **params):
    send(id=8, method="fs/" + method, params={"sessionId": "s", **params})
    answer = receive()
    return answer["error"]["message"] if "error" in answer else answer["result"].get("content", "written")

CAPABLE = {"loadSession": True}
VERSION = 1
END = {"stopReason": "end_turn"}
SETTINGS
for line in sys.stdin:
    message = json.loads(line)
    method, result = message.get("method"), {}
    EACH
    if method == "initialize":
        result = {"protocolVersion": VERSION, "agentCapabilities": CAPABLE}
    elif method == "session/new":
        result = {"sessionId": "s"}
    elif method == "session/load":
        say("said before")
    elif method == "session/prompt":
        PROMPT
        result = END
    send(id=message["id"], result=result)
"""


@pytest.fixture
def play(project_dir: Path, perform: Perform) -> Callable[..., dict[str, Any]]:
    """Performs a prompt with the stub agent.

    prompt: code that handles the prompt. settings: code at the start of the agent. each: code that handles
    every message. entry: further keys of the agent's configuration.
    """

    def play(
        prompt: str = "say('done')", settings: str = "", each: str = "", entry: str = "", **args: Any
    ) -> dict[str, Any]:
        text = AGENT.replace("SETTINGS", settings).replace("PROMPT", prompt.replace("\n", "\n        "))
        text = text.replace("EACH", each)
        (project_dir / "agent.py").write_text(text)
        (project_dir / ".loops" / "config.yaml").write_text(
            f"agents:\n  played: {{protocol: acp, argv: [{sys.executable}, agent.py], {entry}}}\n"
        )
        return perform("agent", **{"agent": "played", "command": "Do it.", "timeout_s": 120, **args})

    return play


Play = Callable[..., dict[str, Any]]


def test_turn_returns_output_and_session(play: Play) -> None:
    result = play("say('do'); say('ne')")
    assert "error" not in result, result
    assert (result["output"].rstrip(), result["session"]) == ("done", "s")


def test_output_excludes_the_history_of_a_loaded_session(play: Play) -> None:
    result = play(session="s")
    assert result["output"].rstrip() == "done", result


def test_history_sent_late_is_not_work(play: Play) -> None:
    """Gemini CLI repeats a session late; without this rule, an agent that does nothing would seem to work."""
    result = play(
        "pass",
        "before = send\n"
        "def send(**message):\n"
        "    before(**message)\n"
        "    if message.get('id') == 2: time.sleep(0.2); say('said before'); tool('completed')",
        session="s",
    )
    assert result["error"]["kind"] == "no-work", result
    assert result["output"] == ""


def test_agent_without_load_session_cannot_continue(play: Play) -> None:
    result = play(settings="CAPABLE = {}", session="s")
    assert result["error"]["kind"] == "no-session", result


@pytest.mark.parametrize(
    ("permissions", "kind", "path", "expected"),
    [
        ("skip", "execute", None, "o-allow_once"),
        ("edit", "edit", "new.txt", "o-allow_once"),
        ("edit", "edit", "../outside.txt", "o-reject_once"),
        ("edit", "edit", None, "o-reject_once"),
        ("edit", "execute", None, "o-reject_once"),
        ("plan", "read", None, "o-reject_once"),
        ("ask", "edit", "new.txt", "o-reject_once"),
    ],
)
def test_permission_requests_are_answered_by_the_permission_mode(
    play: Play, permissions: str, kind: str, path: str | None, expected: str
) -> None:
    result = play(f"say(str(ask({kind!r}, {path!r})))", permissions=permissions)
    assert result["output"].rstrip() == expected, result
    if "reject" in expected:
        assert result["error"]["kind"] == "refused"
        assert kind in result["error"]["message"]
        assert result["error"]["message"].endswith("allow it with `permissions`")  # it lacks `allowed_tools`
    else:
        assert "error" not in result


def test_the_mode_of_a_session_is_set_before_the_prompt(play: Play, project_dir: Path) -> None:
    """`session_mode` is for agents that ask for no permission in their default mode.

    An agent that refuses the mode is an error with the agent's message.
    """
    log_message = "open('log', 'a').write(str(method) + ' ' + str(message['params'].get('modeId')) + chr(10))"
    refuse = "if 'mode' in method: send(id=message['id'], error={'code': 1, 'message': 'no modes'}); continue"
    modes = "permissions: {plan: {session_mode: careful}}"
    result = play(entry=modes, each=log_message, permissions="plan")
    assert "error" not in result, result
    calls = Path("log").read_text().splitlines()
    assert calls[1:] == ["session/new None", "session/set_mode careful", "session/prompt None"]
    Path("log").unlink()
    assert "error" not in play(entry=modes, each=log_message)
    assert "set_mode" not in Path("log").read_text()
    message = play(entry=modes, each=refuse, permissions="plan")["error"]["message"]
    assert "`session/set_mode`: no modes" in message


def test_permission_request_without_a_usable_option_is_cancelled(play: Play) -> None:
    result = play("say(str(ask('execute', None, ['other'])))")
    assert (result["output"].rstrip(), result["error"]["kind"]) == ("None", "refused")


@pytest.mark.parametrize(
    ("reason", "message"),
    [("refusal", "refuses the task"), ("cancelled", "cancelled the turn"), ("max_tokens", "limit of tokens")],
)
def test_other_stop_reasons_are_errors(play: Play, reason: str, message: str) -> None:
    result = play(f"say('half')\nEND = {{'stopReason': {reason!r}}}")
    assert message in result["error"]["message"], result


@pytest.mark.parametrize(
    "prompt",
    [
        "print('no JSON'); print('{\"half\": '); print('[1]'); print('null'); say('done')",
        "print('[' * 100_000); say('done')",
        "update(sessionUpdate=['list'], content=3); send(method='session/update', params=[1]); say('done')",
        "update(sessionUpdate='tool_call', toolCallId={}, kind=4, content={}, status='failed'); say('done')",
        "update(sessionUpdate='usage_update', cost={'amount': 'x', 'currency': 'USD'}); say('done')",
        "send(id=5, method='fs/read_text_file', params={}); sys.stdin.readline(); say('done')",
        "update(sessionUpdate='usage_update', cost={'amount': 10**400, 'currency': 'USD'}); say('done')",
        "send(id=5, method='terminal/create', params={'command': 'touch made'}); receive(); say('done')",
        "send(id='a', method='no/such', params=3); receive(); send(method='no/such'); say('done')",
        "[update(sessionUpdate='agent_thought_chunk', content={}) for _ in range(50_000)]; say('done')",
        "[tool('in_progress', str(i)) or tool('completed', str(i)) for i in range(3000)]; say('done')",
        "print('x' * (50 << 20)); say('done')",
    ],
)
def test_malformed_messages_are_ignored(play: Play, prompt: str) -> None:
    result = play(prompt)
    assert "error" not in result, result
    assert result["output"].rstrip() == "done"


@pytest.mark.parametrize(
    ("prompt", "settings", "message"),
    [
        ("sys.exit(3)", "", "ended with exit code 3 before it answered `session/prompt`"),
        ("", "sys.exit(0)", "before it answered `initialize`"),
        ("", "VERSION = 9", "speaks version 9"),
        ("", "VERSION = None", "speaks version null"),
        ("END = []", "", "a reason that llc does not know"),
        ("send(id=99, result={}); time.sleep(60)", "", "answered the request 99, which llc did not send"),
        ("sys.stdout.write('{\"half\": '); sys.stdout.flush(); os._exit(4)", "", "ended with exit code 4"),
        ("os.kill(os.getpid(), 9)", "", "ended by SIGKILL before it answered `session/prompt`"),
        ("print('x' * (65 << 20)); time.sleep(60)", "", "sent a message of more than 64 MiB"),
        ("message['id'] = None", "", "answered the request null, which llc did not send"),
    ],
)
def test_protocol_violations_are_errors(play: Play, prompt: str, settings: str, message: str) -> None:
    result = play(prompt, settings)
    assert message in result["error"]["message"], result
    assert "Traceback" not in result["stderr"]


@pytest.mark.parametrize("limits", [{"idle_timeout_s": 6}, {"timeout_s": 6}])
def test_timeout_cancels_the_turn_first(play: Play, limits: dict[str, Any]) -> None:
    """The session keeps the interrupted turn; after the time limit no process of the agent is left."""
    result = play(
        "open('pid', 'w').write(str(os.getpid()))\nopen('got', 'w').write(receive()['method'])", **limits
    )
    if "idle_timeout_s" in limits:
        assert result["error"]["kind"] == "idle-timeout", result
    else:
        assert result["timed_out"] == "action", result
    assert Path("got").read_text() == "session/cancel"
    assert not is_running(int(Path("pid").read_text()))


def test_interrupt_cancels_the_turn(play: Play, interrupt: Interrupt) -> None:
    def stop() -> None:
        while not Path("started").exists():
            time.sleep(0.02)
        interrupt.set()

    threading.Thread(target=stop, daemon=True).start()
    with pytest.raises(Interrupted):
        play("open('started', 'w').close()\nopen('got', 'w').write(receive()['method'])")
    assert Path("got").read_text() == "session/cancel"


def test_agent_that_ignores_signals_is_killed(play: Play) -> None:
    """llc closes the agent's input, then sends SIGTERM, then SIGKILL."""
    ignore = (
        "import signal\n[signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)]"
    )
    result = play("open('pid', 'w').write(str(os.getpid()))\ntime.sleep(600)", ignore, idle_timeout_s=6)
    assert result["error"]["kind"] == "idle-timeout", result
    assert not is_running(int(Path("pid").read_text()))


# --- tools ------------------------------------------------------------------------------------


def test_late_end_of_a_tool_is_awaited(play: Play) -> None:
    result = play(
        "tool('in_progress', 'late'); say('done')\nsend(id=message['id'], result=END)\n"
        "time.sleep(0.5); tool('completed', 'late'); continue"
    )
    assert "error" not in result, result
    assert result["output"].rstrip() == "done"


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("tool('in_progress'); say('done')", "without reporting the end of `execute(a title)`"),
        ("tool('in_progress', '1'); tool('completed', '1'); tool('failed')", "`execute(a title)` had failed"),
    ],
)
def test_turn_with_an_open_or_failed_tool_is_an_error(play: Play, prompt: str, message: str) -> None:
    """Only text that the agent sends after a failure shows that the agent has noticed it."""
    result = play(prompt)
    assert message in result["error"]["message"], result


def test_failed_tool_followed_by_text_is_no_error(play: Play) -> None:
    result = play("tool('failed'); say('done otherwise')")
    assert "error" not in result, result


def test_turn_without_work_is_an_error(play: Play) -> None:
    assert play("pass")["error"]["kind"] == "no-work"


# --- files of the project ---------------------------------------------------------------------


def test_agent_reads_and_writes_project_files(play: Play, project_dir: Path) -> None:
    (project_dir / "old.txt").write_text("one\ntwo\nthree\n")
    result = play(
        "say(file('read_text_file', path=os.path.abspath('old.txt'), line=2, limit=1))\n"
        "say(file('write_text_file', path=os.path.abspath('a/b/new.txt'), content='fresh'))\n"
        "say(file('write_text_file', path='old.txt', content='less'))"
    )
    assert "error" not in result, result
    assert result["output"] == "two\nwrittenwritten"
    assert ((project_dir / "a/b/new.txt").read_text(), (project_dir / "old.txt").read_text()) == (
        "fresh",
        "less",
    )


@pytest.mark.parametrize(
    "path", ["../outside.txt", "/etc/passwd", "away/x", "deep/../../x", "link.txt", "", "a\\0b", "."]
)
@pytest.mark.parametrize("method", ["read_text_file", "write_text_file"])
def test_files_outside_the_project_are_refused(
    play: Play, project_dir: Path, tmp_path_factory: Any, method: str, path: str
) -> None:
    """The paths leave the project by `..`, as absolute paths, and through symbolic links."""
    outside = tmp_path_factory.mktemp("outside")
    (outside / "x").write_text("secret")
    (project_dir / "away").symlink_to(outside)
    (project_dir / "link.txt").symlink_to(outside / "x")
    (project_dir / "deep").mkdir()
    result = play(f"say(file({method!r}, path='{path}', content='changed'))")
    assert "secret" not in result["output"]
    assert "written" not in result["output"]
    if path:
        assert result["error"]["kind"] == "refused", result
    assert (outside / "x").read_text() == "secret"
    assert [file.name for file in outside.iterdir()] == ["x"]


def test_a_special_file_is_neither_read_nor_written(play: Play, project_dir: Path) -> None:
    os.mkfifo(project_dir / "pipe")
    result = play(
        "say(file('read_text_file', path='pipe')); say(file('write_text_file', path='pipe', content='x'))"
    )
    assert result["output"].count("pipe: ") == 2, result


def test_permission_mode_plan_refuses_writes(play: Play, project_dir: Path) -> None:
    result = play("say(file('write_text_file', path='new.txt', content='x'))", permissions="plan")
    assert result["error"]["kind"] == "refused", result
    assert not (project_dir / "new.txt").exists()


# --- costs ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("amounts", "expected"),
    [("[1, 3, 2]", 3.0), ("[float('nan'), -1, '2', True, None, 1e300, 10**400]", None), ("[0.5, -9]", 0.5)],
)
def test_invalid_costs_are_ignored(play: Play, amounts: str, expected: float | None) -> None:
    """The cost of a session is a number of US dollars that never falls; other values are ignored."""
    result = play(
        f"for usd in {amounts}:\n"
        "    update(sessionUpdate='usage_update', cost={'amount': usd, 'currency': 'USD'})\n"
        "update(sessionUpdate='usage_update', cost={'amount': 99, 'currency': 'EUR'})\nsay('done')"
    )
    assert result["usage"]["usd"] == expected, result


def test_continued_session_counts_only_new_cost(play: Play) -> None:
    """The agent reports the total cost of its session; without a recorded total, all of it is new."""
    prompt = "update(sessionUpdate='usage_update', cost={'amount': 5, 'currency': 'USD'}); say('done')"
    assert play(prompt)["thread"] == {"usd": 5}
    assert play(prompt, session="s", thread={"usd": 2})["usage"]["usd"] == 3.0
    assert play(prompt, session="s")["usage"]["usd"] == 5.0


# --- kill -9 ----------------------------------------------------------------------------------

LLC = [sys.executable, "-m", "llc"]
LOOP = """\
name: job
initial: fix
agent: played
states:
  fix: {action: "Do the steps", action_type: prompt, next: done, on_error: bad}
  done: {terminal: true}
  bad: {terminal: true, status: failure}
"""


def test_killed_run_continues_the_session(play: Play, project_dir: Path) -> None:
    """`resume` ends the running tool, names it in the prompt and loads the session."""
    play(
        "open('prompts', 'a').write(json.dumps(message) + '\\n')\n"
        "if not os.path.exists('started'):\n"
        "    import subprocess\n"
        "    child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "    open('child', 'w').write(str(child.pid))\n"
        "    tool('in_progress', rawInput={'command': 'sleep 600'})\n"
        "    open('started', 'w').close()\n"
        "    time.sleep(600)\n"
        "say('done')",
        "open('started', 'w').close()",
    )
    for name in ("prompts", "started"):
        (project_dir / name).unlink()
    script = project_dir / "agent.py"
    script.write_text(script.read_text().replace("\nopen('started', 'w').close()\n", "\n", 1))
    (project_dir / ".loops" / "job.yaml").write_text(LOOP)
    run = subprocess.Popen([*LLC, "run", "job", "-q"], stdout=subprocess.DEVNULL)

    def has_recorded_tool() -> bool:
        paths = project_dir.glob(".loops/.running/job-*/*.events.jsonl")
        return any('"sleep 600"' in path.read_text() for path in paths)

    end = time.monotonic() + 60
    while not has_recorded_tool():
        assert run.poll() is None
        assert time.monotonic() < end
        time.sleep(0.02)
    kill_with_keeper(run)
    run.wait()
    resumed = subprocess.run([*LLC, "resume", "job"], capture_output=True, text=True, check=False, timeout=60)
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    first, second = [
        json.loads(line)["params"] for line in (project_dir / "prompts").read_text().splitlines()
    ]
    assert (first["sessionId"], second["sessionId"]) == ("s", "s")
    assert first["prompt"][0]["text"] == "Do the steps"
    assert "interrupted" in second["prompt"][0]["text"]
    assert "execute sleep 600" in second["prompt"][0]["text"]
    assert not is_running(int((project_dir / "child").read_text()))


# --- questions to a person --------------------------------------------------------------------------

REQUESTS = "say(str(ask('execute')) + str(ask('edit', 'new.txt')))"


def test_permission_requests_go_to_a_person(play: Play, project_dir: Path) -> None:
    """`llc answer` answers one request after the other; the waiting time is not idle time."""
    play(REQUESTS)
    loop = LOOP.replace("fix: {", "fix: {idle_timeout: 6, permissions: ask, capture: fixed, ")
    (project_dir / ".loops" / "job.yaml").write_text(loop)
    run = subprocess.Popen([*LLC, "run", "job", "-q"], stdout=subprocess.DEVNULL)
    texts = []
    for choice in ("allow", "reject"):
        end = time.monotonic() + 60
        while not (questions := json.loads(llc_output("answer", "--json"))):
            assert run.poll() is None
            assert time.monotonic() < end
        texts.append((questions[0]["text"], questions[0]["choices"]))
        if not texts[1:]:
            time.sleep(7)  # longer than idle_timeout
        llc_output("answer", "job", choice)
    assert run.wait(60) == 1
    choices = ["allow", "reject"]
    assert texts == [
        ("Allow the agent `execute a title`?", choices),
        ("Allow the agent `edit new.txt`?", choices),
    ]
    logged = llc_output("logs", "job", "-v")
    assert "o-allow_onceo-reject_once" in logged
    assert "was refused edit(new.txt)" in logged


def test_no_input_refuses_permission_requests(play: Play, project_dir: Path) -> None:
    play(REQUESTS)
    (project_dir / ".loops" / "job.yaml").write_text(LOOP.replace("fix: {", "fix: {permissions: ask, "))
    done = subprocess.run([*LLC, "run", "job", "-q", "--no-input"], check=False, timeout=60)
    assert done.returncode == 1
    assert "was refused execute(a title), edit(new.txt)" in llc_output("logs", "job", "-v")


def llc_output(*words: str) -> str:
    done = subprocess.run([*LLC, *words], capture_output=True, text=True, check=False, timeout=60)
    return done.stdout


# --- activity and configuration -------------------------------------------------------


def test_activity_is_reported(play: Play, perform: Perform) -> None:
    play()
    activities: list[AgentActivity] = []
    Path("agent.py").write_text(
        Path("agent.py")
        .read_text()
        .replace(
            "say('done')",
            "update(sessionUpdate='tool_call', toolCallId='a', kind='edit', title='write');"
            "update(sessionUpdate='tool_call_update', toolCallId='a', status='completed', content="
            "[{'type': 'diff', 'path': 'x.txt', 'newText': ''}]); say('done')",
        )
    )
    perform("agent", {"on_agent": activities.append}, agent="played", command="Do it.")
    assert [activity.kind for activity in activities] == [
        "session",
        "tool",
        "tool-end",
        "files",
        "text",
        "usage",
        "final",
    ]
    assert (activities[1].name, activities[1].target, activities[3].files) == ("edit", "x.txt", ("x.txt",))


@pytest.mark.parametrize(
    "entry", ["{protocol: acp}", "{protocol: acp, extends: claude}", "{protocol: x, argv: [a]}"]
)
def test_acp_agent_needs_its_own_command(project_dir: Path, perform: Perform, entry: str) -> None:
    (project_dir / ".loops" / "config.yaml").write_text(f"agents: {{played: {entry}}}\n")
    result = perform("agent", agent="played", command="Do it.")
    assert result["error"]["kind"] == "bad-configuration", result
    assert "protocol" in result["error"]["message"]
