"""Tools of MCP servers: real servers over stdio, listed, called, lost and restarted; `spec/mcp.md`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import llc
from llc.frontend.compile import compile_text
from llc.frontend.tasks.mcp_servers import signature
from llc.ir.diagnostics import CompileError
from llc.runtime.cli import dispatch
from llc.runtime.effects.world import World
from llc.runtime.host.processes import is_alive, start_time
from llc.runtime.models import helper_process
from llc.runtime.project import configuration

# `mcp` is not imported here, as its import takes longer than most test modules.
pytestmark = pytest.mark.skipif(find_spec("mcp") is None, reason="the extra `mcp` is not installed")
SERVER = Path(__file__).with_name("mcp_tools_server.py")
BY_HAND = Path(__file__).with_name("mcp_by_hand_server.py")

Value = Callable[[str], Any]


def by_file(server: Path, **more: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(server), "pids"], **more}


def configure(**servers: Any) -> None:
    Path(".loops/config.yaml").write_text(json.dumps({"mcp": servers}))


def run(*words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "llc", *words], capture_output=True, text=True, check=False, **more
    )


def pids() -> list[int]:
    return [int(line) for line in Path("pids").read_text().split()]


def are_gone(*processes: int) -> bool:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if not any(is_alive(pid, start_time(pid)) for pid in processes):
            return True
        time.sleep(0.05)
    return False


@pytest.fixture(scope="module")
def listed_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with the listing of the real server `t`, and hand-written listings of `h` and `slow`."""
    folder = tmp_path_factory.mktemp("known")
    (folder / ".loops").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        configure(
            t=by_file(SERVER, env={"TOKEN": "<$LLC_TEST_TOKEN>"}),
            h=by_file(BY_HAND),
            slow=by_file(BY_HAND, timeout=1, env={"DELAY": "1.2"}),
        )
    done = run("mcp", "refresh", cwd=folder)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "t: 8 tools" in done.stdout
    (folder / "pids").unlink()
    return folder


@pytest.fixture
def project(tmp_path: Path, listed_project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the project for one test."""
    folder = tmp_path / "project"
    shutil.copytree(listed_project / ".loops", folder / ".loops")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("LLC_TEST_TOKEN", "t-1")
    return folder


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """A world for all tests of the module, as a server takes time to start."""
    world = World()
    yield world
    world.close()


@pytest.fixture
def value(listed_project: Path, world: World, monkeypatch: pytest.MonkeyPatch) -> Value:
    """Evaluates a program in the listed project; all tests share the servers."""
    monkeypatch.chdir(listed_project)
    monkeypatch.setenv("LLC_TEST_TOKEN", "t-1")
    Path("pids").touch()
    return lambda text: llc.evaluate(text, world=world)


def refused(text: str) -> str:
    """The compile error of a program."""
    with pytest.raises(CompileError) as caught:
        llc.compile(text, "<flow>.sexp")
    return "\n".join(
        f"{finding.id}: {finding.message} ({finding.help})" for finding in caught.value.diagnostics
    )


# --- listings -----------------------------------------------------------------------------------


def test_calls_are_checked_against_the_listing(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Types, choices and required parameters are checked before execution."""
    assert dispatch.command("llc", ["mcp", "list", "t", "--json"]) == 0
    (row,) = json.loads(capfd.readouterr().out)
    tools = {tool["name"]: tool for tool in row["tools"]}
    assert tools["mcp:t.greet"]["usage"] == "(mcp:t.greet (name …) [(greeting …)])"
    assert tools["mcp:t.add"]["description"] == "The sum of two whole numbers."
    assert dispatch.command("llc", ["tools"]) == 0
    assert "mcp:t.add" in capfd.readouterr().out
    message = refused(
        """
        (mcp:t.add (x 1))
        (mcp:t.add (x 1) (y "2"))
        (mcp:t.add (x 1) (y 2) (z 3))
        (mcp:t.ad (x 1))
        (mcp:s.add (x 1))
        """
    )
    for finding in (
        "missing-parameter",
        "wrong-type",
        "unknown-parameter",
        "did you mean `add`",
        "no MCP server is called `s`",
    ):
        assert finding in message
    assert not Path("pids").exists()


def test_a_missing_listing_is_reported_with_the_refresh_command(project: Path) -> None:
    """Once for each server, and again if the command of the server changed."""
    configure(t=by_file(SERVER, cwd="."))
    assert "its command has changed" in refused("(mcp:t.count)")
    Path(".loops/.cache/mcp/t.json").unlink()
    assert refused("(list (mcp:t.add 1 2) (mcp:t.count))").count("run: llc mcp refresh t") == 1


def test_a_task_line_reports_a_missing_listing(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    Path(".loops/.cache/mcp/t.json").unlink()
    for name, says in (
        ("mcp:t.add", "run: llc mcp refresh t"),
        ("mcp:h.ad", "its tools are: `say`"),
        ("mcp:x.y", "no MCP"),
    ):
        assert dispatch.command("llc", ["task", name]) == 2
        assert says in capfd.readouterr().err


def test_a_damaged_listing_is_reported(project: Path) -> None:
    """The error suggests to refresh it."""
    for text in ("", "{", "[]", '{"digest": 5}', '{"digest": null, "tools": [5]}'):
        Path(".loops/.cache/mcp/t.json").write_text(text)
        assert "run: llc mcp refresh t" in refused("(mcp:t.count)")


def test_servers_that_cannot_be_listed_are_reported(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """All of them are reported, and the listings of the other servers are kept."""
    configure(none={"command": "no-such-server"}, ends={"command": "false"}, h=by_file(BY_HAND))
    assert dispatch.command("llc", ["mcp", "refresh"]) == 1
    output = capfd.readouterr().out
    assert "none: the MCP server `none`: `no-such-server` is not on PATH" in output
    assert "ends: the MCP server `ends`:" in output
    assert "h: 4 tools" in output
    assert are_gone(*pids())


ANY = {"type": "object"}
STRANGE = {"type": "object", "properties": {"a": {"type": ["x", 5], "enum": ["\x1b[31m"]}}}
OFFERS = (
    {"tools": [{"name": "a\x1b[31m\nb", "inputSchema": ANY}]},
    {"tools": [{"name": "x" * 5000, "description": "y" * 50_000, "inputSchema": ANY}] * 50},
    {"tools": [{"name": "deep", "inputSchema": STRANGE}]},
)


@pytest.mark.parametrize("offers", OFFERS, ids=range(len(OFFERS)))
def test_any_offer_of_a_server_is_listed_or_refused(
    project: Path, offers: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    """Names with control characters, very long names, malformed schemas."""
    Path("offers").write_text(json.dumps(offers))
    configure(h=by_file(BY_HAND))
    code = dispatch.command("llc", ["mcp", "refresh"])
    output = capfd.readouterr().out
    assert code == 0, output
    assert "\x1b" not in output
    for words in (["mcp", "list"], ["tools"]):
        assert dispatch.command("llc", words) == 0
        assert "\x1b" not in capfd.readouterr().out


@pytest.mark.parametrize(
    ("schema", "parameters"),
    [
        ({"properties": {"a": {"type": "array"}}, "required": ["a"]}, [("a", "list", True)]),
        ({"type": "object", "properties": {"a": {"type": ["string", "null"]}}}, [("a", "any", False)]),
        ({"type": "object", "properties": {"a b": {}}}, None),
        (None, None),
        ({"type": "object", "properties": {"b": {}, "a": {"type": "object"}}, "required": ["a"]},
         [("a", "map", True), ("b", "any", False)]),
    ],
)  # fmt: skip
def test_a_schema_becomes_parameters(schema: Any, parameters: Any) -> None:
    """Required parameters come first; a name that a program cannot write leaves all parameters unchecked."""
    made = signature("s", {"name": "t", "inputSchema": schema}, None).parameters
    assert (made and [(one.name, one.type, one.is_required) for one in made]) == parameters


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("mcp: [a]", "wrong-type"),
        ("mcp: {a: b}", "wrong-type"),
        ("mcp: {a: {args: [x]}}", "missing-field"),
        ("mcp: {a/b: {command: x}}", "bad-name"),
        ("mcp: {a: {command: x, args: y}}", "wrong-type"),
        ("mcp: {a: {command: x, timeout: 0}}", "out-of-range"),
        ("mcp: {a: {command: x, arg: [y]}}", "unknown-key"),
    ],
)
def test_a_malformed_server_configuration_is_a_diagnostic(project: Path, text: str, finding: str) -> None:
    """It has a span."""
    Path(".loops/config.yaml").write_text(text)
    with pytest.raises(CompileError, match=finding):
        configuration.load("")


# --- calls --------------------------------------------------------------------------------------


def test_results_are_values(project: Path) -> None:
    """Numbers, texts and maps; the server ends with the run."""
    Path(".loops/flow.sexp").write_text(
        """
        (list (mcp:t.add (x 1) (y 2)) (mcp:t.greet "Ada") (mcp:t.greet "Ada" (greeting "Hi"))
              (mcp:t.look (what "w")) (mcp:t.count) (mcp:t.count) (map mcp:t.greet '("x"))
              (parallel-map (begin item (mcp:t.count)) '(1 2 3)))
        """
    )
    done = run("run", "flow", "--json", "--quiet")
    *output, at_once = json.loads(done.stdout)["value"]
    where = {"what": "w", "found": [1, 2.5, None, True], "env": "<t-1>", "cwd": str(project)}
    assert output == [3, "Hello, Ada!", "Hi, Ada!", where, 1, 2, ["Hello, x!"]]
    assert sorted(at_once) == [3, 4, 5]
    (pid,) = pids()
    assert are_gone(pid)


def test_an_error_of_a_tool_is_a_fault(value: Value) -> None:
    """`try` catches it, and the server continues."""
    kind, before, after = value(
        """
        (let ((before (mcp:t.count)))
          (list (try (mcp:t.fail (message "oh no")) (catch e (get e "kind"))) before (mcp:t.count)))
        """
    )
    assert (kind, after) == ("mcp-error", before + 1)


def answer(result: Any) -> str:
    """The text of an answer, as the language writes it."""
    return json.dumps('{"jsonrpc": "2.0", "id": ID, "result": ' + json.dumps(result) + "}")


WELL = answer({"content": [{"type": "text", "text": "well"}]})


def test_a_crashed_server_is_a_fault_and_is_restarted(value: Value) -> None:
    """The message has the last lines of its error output."""
    kind, message, again = value(
        f"""
        (let ((fault (try (mcp:h.die) (catch e e))))
          (list (get fault "kind") (get fault "message") (mcp:h.say {WELL})))
        """
    )
    assert (kind, again) == ("mcp-crash", "well")
    assert "last words" in message
    assert len(message) < 2000


def test_the_start_of_a_server_does_not_count_for_the_timeout(value: Value) -> None:
    """The server takes longer to start than the timeout of a call."""
    assert value(f"(mcp:slow.say {WELL})") == "well"


def test_a_hanging_server_is_ended_and_restarted(value: Value) -> None:
    """By its `timeout`; the next call gets a new server."""
    assert value(f"(mcp:slow.say {WELL})") == "well"
    hung = pids()[-1]
    assert value(f"""(list (try (mcp:slow.hang) (catch e (get e "kind"))) (mcp:slow.say {WELL}))""") == [
        "timeout",
        "well",
    ]
    assert are_gone(hung)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('{"jsonrpc": "2.0", "id": ID, "result": {"content": 5}}', "mcp-reply"),
        ('{"jsonrpc": "2.0", "id": ID, "error": {"code": -32603, "message": "no good"}}', "mcp-error"),
        ('half {\n{"jsonrpc": "2.0", "id": "other", "result": {}}\n\xff\x00[]\n5', "timeout"),
    ],
    ids=["another-shape", "an-error", "garbage"],
)
def test_a_malformed_answer_is_a_fault(value: Value, text: str, kind: str) -> None:
    """The next call succeeds."""
    output = value(
        f"""
        (list (try (mcp:slow.say {json.dumps(text)}) (catch e (get e "kind")))
              (mcp:slow.say {WELL}))
        """
    )
    assert output == [kind, "well"]


def test_a_too_large_answer_is_a_fault(value: Value, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helper_process, "MAX_ANSWER", 1 << 20)
    kind, message, again = value(
        f"""
        (let ((fault (try (mcp:h.flood) (catch e e))))
          (list (get fault "kind") (get fault "message") (mcp:h.say {WELL})))
        """
    )
    assert (kind, again) == ("mcp-crash", "well")
    assert "longer than 1 MiB" in message


def test_a_malformed_listing_is_reported(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    Path("offers").write_text(json.dumps({"tools": [{"name": 5, "inputSchema": ANY}]}))
    configure(h=by_file(BY_HAND))
    assert dispatch.command("llc", ["mcp", "refresh"]) == 1
    output = capfd.readouterr().out
    assert output.startswith("h: the MCP server `h`: its answer is invalid: tools.0.name: ")
    assert output.count("\n") == 1


def test_a_removed_tool_is_a_fault(value: Value) -> None:
    """The present tools of the server count, not those of the listing at compile time."""
    listing = Path(".loops/.cache/mcp/t.json")
    text = listing.read_text()
    listing.write_text(text.replace('"name": "count"', '"name": "gone"'))
    try:
        kind, message = value('(try (mcp:t.gone) (catch e (list (get e "kind") (get e "message"))))')
    finally:
        listing.write_text(text)
    assert kind == "mcp-error"
    assert "gone" in message


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_run_leaves_no_server(project: Path, number: int) -> None:
    """Neither after SIGKILL of the run nor after an interrupt during a call."""
    Path(".loops/flow.sexp").write_text("(mcp:h.hang)")
    started = subprocess.Popen(
        [sys.executable, "-m", "llc", "run", "flow", "--quiet"],
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    end = time.monotonic() + 60
    while not Path("pids").exists() and time.monotonic() < end:
        time.sleep(0.05)
    os.kill(started.pid, number)
    assert started.wait(20) != 0
    assert are_gone(*pids())


def test_a_scripted_world_replaces_a_server(project: Path) -> None:
    """A rule names the tool; no server is started."""
    Path("world.yaml").write_text("- {tool: 'mcp:t.add', args: {x: 1}, value: 41}\n")
    Path(".loops/flow.sexp").write_text("(mcp:t.add 1 2)")
    assert llc.run("flow", script="world.yaml").value == 41
    assert not Path("pids").exists()


def test_without_the_package_the_error_names_the_extra(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("mcp").mkdir()
    Path("mcp/__init__.py").write_text("raise ModuleNotFoundError(\"No module named 'mcp'\", name='mcp')\n")
    monkeypatch.setenv("PYTHONPATH", str(Path.cwd()))
    done = run("run", "-e", "(mcp:t.count)")
    assert "pip install '.[mcp]'" in done.stderr


# --- states of loops ----------------------------------------------------------------------------

STATE = """\
name: x
initial: a
context: {{server: t}}
states:
  a: {{action: echo 40, capture: said, next: b}}
  b:
    action_type: mcp_tool
    action: {action}
    params: {params}
    capture: got
    timeout: 30
    route: {{success: ok, tool_error: wrong, not_found: absent, timeout: late}}
  ok: {{action: "echo ${{captured.got.output}} ${{result.verdict}} >shown", next: done}}
  wrong: {{action: "echo ${{captured.got.stderr}} >shown", next: failed}}
  absent: {{terminal: true}}
  late: {{terminal: true}}
  done: {{terminal: true}}
  failed: {{terminal: true, status: failure}}
"""


CALLS = """\
name: x
initial: a
context: {server: t}
states:
  a: {action: echo 40, capture: said, next: add}
  add: {action_type: mcp_tool, action: t/add, params: {x: "${captured.said.output}", y: 2}, capture: got,
        route: {success: added}}
  added: {action: "echo ${captured.got.output} ${result.verdict} >>shown", next: greet}
  greet: {action_type: mcp_tool, action: "${context.server}/greet", params: {name: "it's; $(x)"},
          capture: got, route: {success: greeted}}
  greeted: {action: "echo ${captured.got.output} ${result.verdict} >>shown", next: fail}
  fail: {action_type: mcp_tool, action: t/fail, params: {message: so}, capture: got,
         route: {tool_error: failed}}
  failed: {action: "echo ${captured.got.stderr} >>shown", next: crash}
  crash: {action_type: mcp_tool, action: t/crash, params: {}, capture: got, route: {tool_error: crashed}}
  crashed: {action: "echo ${captured.got.stderr} >>shown", next: nowhere}
  nowhere: {action_type: mcp_tool, action: nowhere/add, params: {x: 1}, route: {not_found: absent}}
  absent: {terminal: true}
"""


def test_a_state_calls_a_tool(project: Path) -> None:
    """With values of the run; the end of the call is the verdict, the value of the tool the output."""
    Path(".loops/x.yaml").write_text(CALLS)
    assert llc.run("x").final_state == "absent"
    added, greeted, *errors = Path("shown").read_text().splitlines()
    assert added == '{"result": 42} success'
    assert greeted == '{"result": "Hello, it\'s; $(x)!"} success'
    assert "Error executing tool fail" in errors[0]
    assert "out of cheese" in "\n".join(errors[1:])


def test_timeouts_of_state_and_loop_end_a_tool_call(project: Path) -> None:
    """The timeout of the state is a verdict, that of the loop ends the loop."""
    text = STATE.format(action="t/wait", params="{seconds: 600}").replace("timeout: 30", "timeout: 0.2")
    Path(".loops/x.yaml").write_text(text)
    assert llc.run("x").final_state == "late"
    Path(".loops/x.yaml").write_text(text.replace("    timeout: 0.2\n", "") + "timeout: 0.5\n")
    assert llc.run("x").terminated_by == "timeout"


@pytest.mark.parametrize(
    ("old", "new", "id"),
    [
        ("action: t/add", "action: add", "bad-call"),
        ("action: t/add", 'action: "${captured.said.output}/add"', "bad-call"),
        ("params: {x: 1}", "params: [1]", "wrong-type"),
        ("params: {x: 1}", 'params: {x: "${captured.sad.output}"}', "unset-capture"),
        ("tool_error: wrong", "tool_errror: wrong", "unknown-verdict"),
        ("action_type: mcp_tool", "action_type: shell", "unused-key"),
    ],
)
def test_mistakes_in_a_call_of_a_tool(old: str, new: str, id: str) -> None:
    text = STATE.format(action="t/add", params="{x: 1}").replace(old, new)
    try:
        diagnostics = compile_text(text).diagnostics
    except CompileError as error:
        diagnostics = error.diagnostics
    assert id in {item.id for item in diagnostics}, [item.message for item in diagnostics]
