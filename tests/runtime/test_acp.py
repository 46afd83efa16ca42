"""Agents that speak the Agent Client Protocol, against a stub agent; real agents: `test_real_agents`."""

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

from llc.runtime.host.effect_context import Interrupt, Interrupted
from llc.runtime.journal.agent_activity import AgentActivity

Perform = Callable[..., dict[str, Any]]
# Answers every request of the client; PROMPT is what it does with the prompt.
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
    """Performs a prompt with an agent that does this.

    each: what it does with each message. entry: more keys of its entry.
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


def test_a_turn(play: Play) -> None:
    result = play("say('do'); say('ne')")
    assert "error" not in result, result
    assert (result["output"].rstrip(), result["session"]) == ("done", "s")


def test_a_loaded_session_does_not_repeat_what_was_said(play: Play) -> None:
    result = play(session="s")
    assert result["output"].rstrip() == "done", result


def test_what_is_repeated_after_the_session_is_loaded_does_not_count(play: Play) -> None:
    """As Gemini CLI does it; otherwise an agent that does nothing would seem to work."""
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


def test_an_agent_that_cannot_continue_says_so(play: Play) -> None:
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
def test_permissions(play: Play, permissions: str, kind: str, path: str | None, expected: str) -> None:
    result = play(f"say(str(ask({kind!r}, {path!r})))", permissions=permissions)
    assert result["output"].rstrip() == expected, result
    if "reject" in expected:
        assert result["error"]["kind"] == "refused"
        assert kind in result["error"]["message"]
        assert result["error"]["message"].endswith("allow it with `permissions`")  # it lacks `allowed_tools`
    else:
        assert "error" not in result


def test_the_mode_of_a_session_is_set_before_the_prompt(play: Play, project_dir: Path) -> None:
    """For agents that ask for nothing in their own mode; one without modes is an error that names it."""
    noted = "open('log', 'a').write(str(method) + ' ' + str(message['params'].get('modeId')) + chr(10))"
    refuse = "if 'mode' in method: send(id=message['id'], error={'code': 1, 'message': 'no modes'}); continue"
    modes = "permissions: {plan: {session_mode: careful}}"
    result = play(entry=modes, each=noted, permissions="plan")
    assert "error" not in result, result
    seen = Path("log").read_text().splitlines()
    assert seen[1:] == ["session/new None", "session/set_mode careful", "session/prompt None"]
    Path("log").unlink()
    assert "error" not in play(entry=modes, each=noted)
    assert "set_mode" not in Path("log").read_text()
    told = play(entry=modes, each=refuse, permissions="plan")["error"]["message"]
    assert "`session/set_mode`: no modes" in told


def test_without_a_fitting_option_the_request_is_cancelled(play: Play) -> None:
    result = play("say(str(ask('execute', None, ['other'])))")
    assert (result["output"].rstrip(), result["error"]["kind"]) == ("None", "refused")


@pytest.mark.parametrize(
    ("reason", "told"),
    [("refusal", "refuses the task"), ("cancelled", "cancelled the turn"), ("max_tokens", "limit of tokens")],
)
def test_other_ends_of_a_turn_are_errors(play: Play, reason: str, told: str) -> None:
    result = play(f"say('half')\nEND = {{'stopReason': {reason!r}}}")
    assert told in result["error"]["message"], result


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
def test_malformed_messages_do_no_harm(play: Play, prompt: str) -> None:
    result = play(prompt)
    assert "error" not in result, result
    assert result["output"].rstrip() == "done"


@pytest.mark.parametrize(
    ("prompt", "settings", "told"),
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
def test_broken_conversations_are_errors(play: Play, prompt: str, settings: str, told: str) -> None:
    result = play(prompt, settings)
    assert told in result["error"]["message"], result
    assert "Traceback" not in result["stderr"]


@pytest.mark.parametrize("limits", [{"idle_timeout_s": 6}, {"timeout_s": 6}])
def test_a_turn_that_is_stopped_is_cancelled_first(play: Play, limits: dict[str, Any]) -> None:
    """So that the session has what was interrupted. With the limit, nothing of it is left."""
    result = play(
        "open('pid', 'w').write(str(os.getpid()))\nopen('got', 'w').write(receive()['method'])", **limits
    )
    if "idle_timeout_s" in limits:
        assert result["error"]["kind"] == "idle-timeout", result
    else:
        assert result["timed_out"] == "action", result
    assert Path("got").read_text() == "session/cancel"
    assert not processes_with(int(Path("pid").read_text()))


def test_an_interrupt_cancels_the_turn(play: Play, interrupt: Interrupt) -> None:
    def stop() -> None:
        while not Path("begun").exists():
            time.sleep(0.02)
        interrupt.set()

    threading.Thread(target=stop, daemon=True).start()
    with pytest.raises(Interrupted):
        play("open('begun', 'w').close()\nopen('got', 'w').write(receive()['method'])")
    assert Path("got").read_text() == "session/cancel"


def test_an_agent_that_ignores_everything_is_killed(play: Play) -> None:
    """Its input is closed, then TERM, then KILL."""
    ignore = "import signal\n[signal.signal(one, signal.SIG_IGN) for one in (signal.SIGINT, signal.SIGTERM)]"
    result = play("open('pid', 'w').write(str(os.getpid()))\ntime.sleep(600)", ignore, idle_timeout_s=6)
    assert result["error"]["kind"] == "idle-timeout", result
    assert not processes_with(int(Path("pid").read_text()))


def processes_with(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


# --- tools ------------------------------------------------------------------------------------


def test_a_tool_whose_end_comes_late_is_waited_for(play: Play) -> None:
    result = play(
        "tool('in_progress', 'late'); say('done')\nsend(id=message['id'], result=END)\n"
        "time.sleep(0.5); tool('completed', 'late'); continue"
    )
    assert "error" not in result, result
    assert result["output"].rstrip() == "done"


@pytest.mark.parametrize(
    ("prompt", "told"),
    [
        ("tool('in_progress'); say('done')", "without reporting the end of `execute(a title)`"),
        ("tool('in_progress', '1'); tool('completed', '1'); tool('failed')", "`execute(a title)` had failed"),
    ],
)
def test_a_turn_with_an_open_or_failed_tool_is_no_success(play: Play, prompt: str, told: str) -> None:
    """Only what the agent says after a failure shows that it has noticed it."""
    result = play(prompt)
    assert told in result["error"]["message"], result


def test_a_failed_tool_that_the_agent_answers_is_no_failure(play: Play) -> None:
    result = play("tool('failed'); say('done otherwise')")
    assert "error" not in result, result


def test_a_turn_without_any_work_is_an_error(play: Play) -> None:
    assert play("pass")["error"]["kind"] == "no-work"


# --- files of the project ---------------------------------------------------------------------


def test_files_of_the_project(play: Play, project_dir: Path) -> None:
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
def test_other_files_are_refused(
    play: Play, project_dir: Path, tmp_path_factory: Any, method: str, path: str
) -> None:
    """By `..`, by an absolute path, and through links of folders and of files."""
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


def test_plan_writes_no_file(play: Play, project_dir: Path) -> None:
    result = play("say(file('write_text_file', path='new.txt', content='x'))", permissions="plan")
    assert result["error"]["kind"] == "refused", result
    assert not (project_dir / "new.txt").exists()


# --- costs ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("amounts", "expected"),
    [("[1, 3, 2]", 3.0), ("[float('nan'), -1, '2', True, None, 1e300, 10**400]", None), ("[0.5, -9]", 0.5)],
)
def test_false_costs_do_not_count(play: Play, amounts: str, expected: float | None) -> None:
    """The cost of a session never falls, and is a number of US dollars."""
    result = play(
        f"for usd in {amounts}:\n"
        "    update(sessionUpdate='usage_update', cost={'amount': usd, 'currency': 'USD'})\n"
        "update(sessionUpdate='usage_update', cost={'amount': 99, 'currency': 'EUR'})\nsay('done')"
    )
    assert result["usage"]["usd"] == expected, result


def test_only_what_a_continued_session_adds_counts(play: Play) -> None:
    """The agent states what the session has cost; after a crash all of it is new."""
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


def test_a_run_that_is_killed_continues_the_session(play: Play, project_dir: Path) -> None:
    """kill -9 of llc in the middle of a tool: the tool is ended and named, and the session is loaded."""
    play(
        "open('told', 'a').write(json.dumps(message) + '\\n')\n"
        "if not os.path.exists('begun'):\n"
        "    import subprocess\n"
        "    child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "    open('child', 'w').write(str(child.pid))\n"
        "    tool('in_progress', rawInput={'command': 'sleep 600'})\n"
        "    open('begun', 'w').close()\n"
        "    time.sleep(600)\n"
        "say('done')",
        "open('begun', 'w').close()",
    )
    for name in ("told", "begun"):
        (project_dir / name).unlink()
    script = project_dir / "agent.py"
    script.write_text(script.read_text().replace("\nopen('begun', 'w').close()\n", "\n", 1))
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
    first, second = [json.loads(line)["params"] for line in (project_dir / "told").read_text().splitlines()]
    assert (first["sessionId"], second["sessionId"]) == ("s", "s")
    assert first["prompt"][0]["text"] == "Do the steps"
    assert "interrupted" in second["prompt"][0]["text"]
    assert "execute sleep 600" in second["prompt"][0]["text"]
    assert not processes_with(int((project_dir / "child").read_text()))


# --- a person is asked --------------------------------------------------------------------------

ASKING = "say(str(ask('execute')) + str(ask('edit', 'new.txt')))"


def test_a_person_is_asked(play: Play, project_dir: Path) -> None:
    """`permissions: ask`: one request after the other, by `llc answer`; waiting is no silence."""
    play(ASKING)
    loop = LOOP.replace("fix: {", "fix: {idle_timeout: 6, permissions: ask, capture: fixed, ")
    (project_dir / ".loops" / "job.yaml").write_text(loop)
    run = subprocess.Popen([*LLC, "run", "job", "-q"], stdout=subprocess.DEVNULL)
    texts = []
    for said in ("allow", "reject"):
        end = time.monotonic() + 60
        while not (found := json.loads(llc_output("answer", "--json"))):
            assert run.poll() is None
            assert time.monotonic() < end
        texts.append((found[0]["text"], found[0]["choices"]))
        if not texts[1:]:
            time.sleep(7)  # longer than the time-out
        llc_output("answer", "job", said)
    assert run.wait(60) == 1
    choices = ["allow", "reject"]
    assert texts == [
        ("Allow the agent `execute a title`?", choices),
        ("Allow the agent `edit new.txt`?", choices),
    ]
    logged = llc_output("logs", "job", "-v")
    assert "o-allow_onceo-reject_once" in logged
    assert "was refused edit(new.txt)" in logged


def test_without_input_no_person_is_asked(play: Play, project_dir: Path) -> None:
    play(ASKING)
    (project_dir / ".loops" / "job.yaml").write_text(LOOP.replace("fix: {", "fix: {permissions: ask, "))
    done = subprocess.run([*LLC, "run", "job", "-q", "--no-input"], check=False, timeout=60)
    assert done.returncode == 1
    assert "was refused execute(a title), edit(new.txt)" in llc_output("logs", "job", "-v")


def llc_output(*words: str) -> str:
    done = subprocess.run([*LLC, *words], capture_output=True, text=True, check=False, timeout=60)
    return done.stdout


# --- what is recorded, and configurations -------------------------------------------------------


def test_what_it_does_is_told(play: Play, perform: Perform) -> None:
    play()
    seen: list[AgentActivity] = []
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
    perform("agent", {"on_agent": seen.append}, agent="played", command="Do it.")
    assert [one.kind for one in seen] == ["session", "tool", "tool-end", "files", "text", "usage", "final"]
    assert (seen[1].name, seen[1].target, seen[3].files) == ("edit", "x.txt", ("x.txt",))


@pytest.mark.parametrize(
    "entry", ["{protocol: acp}", "{protocol: acp, extends: claude}", "{protocol: x, argv: [a]}"]
)
def test_an_agent_needs_a_command_of_its_own(project_dir: Path, perform: Perform, entry: str) -> None:
    (project_dir / ".loops" / "config.yaml").write_text(f"agents: {{played: {entry}}}\n")
    result = perform("agent", agent="played", command="Do it.")
    assert result["error"]["kind"] == "bad-configuration", result
    assert "protocol" in result["error"]["message"]
