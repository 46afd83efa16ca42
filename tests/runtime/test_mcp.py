"""Tools of MCP servers: a real one over stdio, listed, called, lost and found again; `spec/mcp.md`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from llc.frontend.mcp_servers import signature
from llc.ir.diagnostics import CompileError
from llc.runtime import configuration
from llc.runtime.effects.leftover import is_alive, start_time

pytest.importorskip("mcp", reason="the extra `mcp` is not installed")
SERVER = Path(__file__).with_name("mcp_tools_server.py")

# A server that speaks the protocol by hand: what it answers to its calls are the lines of the file `answer`.
BY_HAND = """\
import json, sys
answers = iter(open("answer"))
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    if asked["method"] == "initialize":
        version = asked["params"]["protocolVersion"]
        about = {"name": "x", "version": "1"}
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
    elif asked["method"] == "tools/list":
        result = {"tools": [{"name": "odd", "inputSchema": {"type": "object"}}]}
    else:
        sys.stdout.write(next(answers).strip().replace("ID", str(asked["id"])) + "\\n")
        sys.stdout.flush()
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    (folder / ".loops").mkdir(parents=True)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("LLC_TEST_TOKEN", "t-1")
    return folder


def configure(**servers: Any) -> None:
    Path(".loops/config.yaml").write_text(json.dumps({"mcp": servers}))


def real(**more: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(SERVER), "pids"], **more}


def run(*words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "llc", *words], capture_output=True, text=True, check=False, **more
    )


def value(text: str) -> Any:
    """What a program gives in a run of its own."""
    Path(".loops/flow.sexp").write_text(text)
    done = run("run", "flow", "--json", "--quiet")
    outcome = json.loads(done.stdout)
    assert outcome["status"] == "success", done.stderr
    return outcome["value"]


def pids() -> list[int]:
    return [int(line) for line in Path("pids").read_text().split()]


def are_gone(*processes: int) -> bool:
    end = time.monotonic() + 10
    while time.monotonic() < end:
        if not any(is_alive(pid, start_time(pid)) for pid in processes):
            return True
        time.sleep(0.05)
    return False


@pytest.fixture(scope="module")
def listing(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What `llc mcp refresh` keeps of the real server."""
    folder = tmp_path_factory.mktemp("listing")
    (folder / ".loops").mkdir()
    (folder / ".loops" / "config.yaml").write_text(json.dumps({"mcp": {"t": real()}}))
    done = run("mcp", "refresh", cwd=folder)
    assert done.returncode == 0, done.stderr + done.stdout
    return (folder / ".loops/.cache/mcp/t.json").read_text()


@pytest.fixture
def listed(project: Path, listing: str) -> Path:
    """A project that knows what the real server offers."""
    configure(t=real(env={"TOKEN": "<$LLC_TEST_TOKEN>"}))
    Path(".loops/.cache/mcp").mkdir(parents=True)
    Path(".loops/.cache/mcp/t.json").write_text(listing)
    return project


# --- listings -----------------------------------------------------------------------------------


def test_a_listing_tells_what_can_be_called(listed: Path) -> None:
    """Types, choices, what is required: checked before anything runs."""
    (row,) = json.loads(run("mcp", "list", "--json").stdout)
    tools = {tool["name"]: tool for tool in row["tools"]}
    assert tools["mcp:t.greet"]["usage"] == "(mcp:t.greet (name …) [(greeting …)])"
    assert tools["mcp:t.add"]["description"] == "The sum of two whole numbers."
    assert "mcp:t.add" in run("tools").stdout
    done = run(
        "run",
        "-e",
        """
        (mcp:t.add (x 1))
        (mcp:t.add (x 1) (y "2"))
        (mcp:t.add (x 1) (y 2) (z 3))
        (mcp:t.ad (x 1))
        (mcp:s.add (x 1))
        """,
    )
    assert done.returncode == 2
    for finding in (
        "missing-parameter",
        "wrong-type",
        "unknown-parameter",
        "did you mean `add`",
        "no MCP server is called `s`",
    ):
        assert finding in done.stderr
    assert not Path("pids").exists()


def test_without_a_listing_a_program_is_told_to_refresh(project: Path) -> None:
    """Once for each server; and again where the server's command is another one."""
    configure(t=real())
    done = run("run", "-e", "(list (mcp:t.add 1 2) (mcp:t.count))")
    assert done.returncode == 2
    assert done.stderr.count("run: llc mcp refresh t") == 1
    assert run("mcp", "refresh", "t").returncode == 0
    configure(t=real(cwd="."))
    assert "its command has changed" in run("run", "-e", "(mcp:t.count)").stderr


def test_a_server_that_cannot_be_asked_is_told(project: Path) -> None:
    """One after the other; what could be asked is kept."""
    configure(none={"command": "no-such-server"}, ends={"command": "false"}, t=real())
    done = run("mcp", "refresh")
    assert done.returncode == 1
    assert "none: the MCP server `none`: `no-such-server` is not on PATH" in done.stdout
    assert "ends: the MCP server `ends`:" in done.stdout
    assert "t: 8 tools" in done.stdout
    assert are_gone(*pids())


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
    """What is required comes first; a name that a program cannot write leaves all of them open."""
    made = signature("s", {"name": "t", "inputSchema": schema}, None).parameters
    assert (made and [(one.name, one.type, one.is_required) for one in made]) == parameters


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("mcp: [a]", "wrong-type"),
        ("mcp: {a: b}", "wrong-type"),
        ("mcp: {a: {args: [x]}}", "missing-key"),
        ("mcp: {a/b: {command: x}}", "bad-name"),
        ("mcp: {a: {command: x, args: y}}", "wrong-type"),
        ("mcp: {a: {command: x, timeout: 0}}", "wrong-type"),
        ("mcp: {a: {command: x, arg: [y]}}", "unknown-key"),
    ],
)
def test_what_is_wrong_with_a_server_is_said(project: Path, text: str, finding: str) -> None:
    """With its place in the configuration."""
    Path(".loops/config.yaml").write_text(text)
    with pytest.raises(CompileError, match=finding):
        configuration.load("")


# --- calls --------------------------------------------------------------------------------------


def test_results_are_values(listed: Path) -> None:
    """Numbers, texts, maps; the server lives as long as the run, and ends with it."""
    told = value(
        """
        (list (mcp:t.add (x 1) (y 2)) (mcp:t.greet "Ada") (mcp:t.greet "Ada" (greeting "Hi"))
              (mcp:t.look (what "w")) (mcp:t.count) (mcp:t.count) (map mcp:t.greet '("x")))
        """
    )
    where = {"what": "w", "found": [1, 2.5, None, True], "env": "<t-1>", "cwd": str(listed)}
    assert told == [3, "Hello, Ada!", "Hi, Ada!", where, 1, 2, ["Hello, x!"]]
    (pid,) = pids()
    assert are_gone(pid)


def test_what_a_tool_says_is_a_fault(listed: Path) -> None:
    """`try` catches it; the server goes on."""
    told = value(
        """
        (list (try (mcp:t.fail (message "oh no")) (catch e (get e "kind")))
              (mcp:t.count))
        """
    )
    assert told == ["mcp-error", 1]


def test_a_server_that_ends_is_a_fault_and_is_started_again(listed: Path) -> None:
    """The fault tells what it wrote last."""
    kind, message, count = value(
        """
        (let ((fault (try (mcp:t.crash) (catch e e))))
          (list (get fault "kind") (get fault "message") (mcp:t.count)))
        """
    )
    assert (kind, count) == ("mcp-crash", 1)
    assert "out of cheese" in message
    assert len(pids()) == 2
    assert are_gone(*pids())


def test_a_tool_that_takes_too_long_is_a_fault(listed: Path) -> None:
    """By the server's `timeout`; the run goes on, and nothing is left."""
    configure(t=real(timeout=1.5))
    Path("pids").unlink(missing_ok=True)
    told = value(
        """
        (list (mcp:t.count) (try (mcp:t.wait (seconds 60.0)) (catch e (get e "kind"))))
        """
    )
    assert told == [1, "timeout"]
    assert are_gone(*pids())


def test_effects_at_once_share_one_server(listed: Path) -> None:
    """One after the other."""
    told = value("(parallel-map (begin item (mcp:t.count)) '(1 2 3))")
    assert sorted(told) == [1, 2, 3]
    assert len(pids()) == 1


ODD = (
    '{"jsonrpc": "2.0", "id": ID, "result": {"content": 5}}',
    '{"jsonrpc": "2.0", "id": ID, "result": "text"}',
    '{"jsonrpc": "2.0", "id": ID, "error": {"code": -32603, "message": "no good"}}',
    '{"jsonrpc": "2.0", "id": "other", "result": {}}',
    "half {",
)


def test_an_answer_that_is_none_is_a_fault(project: Path) -> None:
    """A result of another shape, an error, an answer to nobody, no JSON; then one that is one."""
    Path("server.py").write_text(BY_HAND)
    Path("answer").write_text("\n".join((*ODD, '{"jsonrpc": "2.0", "id": ID, "result": {"content": []}}')))
    configure(h={"command": sys.executable, "args": ["server.py"], "timeout": 1.5})
    assert run("mcp", "refresh").returncode == 0
    told = value("""(map (try (begin item (mcp:h.odd)) (catch e (get e "kind"))) '(1 2 3 4 5 6))""")
    assert told == ["mcp-reply", "timeout", "mcp-error", "timeout", "timeout", None]


def test_a_killed_run_leaves_no_server(listed: Path) -> None:
    """Not after kill -9 of the run, not after an interrupt in the middle of a call."""
    Path(".loops/flow.sexp").write_text("(begin (mcp:t.count) (mcp:t.wait (seconds 60.0)))")
    for number in (signal.SIGKILL, signal.SIGINT):
        Path("pids").unlink(missing_ok=True)
        started = subprocess.Popen(
            [sys.executable, "-m", "llc", "run", "flow"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        assert started.stdout is not None
        for line in started.stdout:
            if b"mcp:t.wait" in line:
                break
        time.sleep(0.5)
        os.kill(started.pid, number)
        assert started.wait(20) != 0
        started.stdout.close()
        assert are_gone(*pids())


def test_a_scripted_world_answers_for_a_server(listed: Path) -> None:
    """By the tool's name; nothing is started."""
    Path("world.yaml").write_text("- {tool: 'mcp:t.add', args: {x: 1}, value: 41}\n")
    Path(".loops/flow.sexp").write_text("(mcp:t.add 1 2)")
    done = run("run", "flow", "--json", "--script", "world.yaml")
    assert json.loads(done.stdout)["value"] == 41
    assert not Path("pids").exists()


def test_without_the_package_the_error_says_what_to_install(
    listed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is an extra."""
    Path("mcp").mkdir()
    Path("mcp/__init__.py").write_text("raise ModuleNotFoundError(\"No module named 'mcp'\", name='mcp')\n")
    monkeypatch.setenv("PYTHONPATH", str(Path.cwd()))
    done = run("run", "-e", "(mcp:t.count)")
    assert "pip install 'llc-loops[mcp]'" in done.stderr
