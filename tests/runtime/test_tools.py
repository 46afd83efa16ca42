"""Tools in a real world: files, commands with all kinds of values, misbehaving Python functions."""

from __future__ import annotations

import json
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llc.frontend.source.files import text_source
from llc.frontend.tasks.tools_file import read_tools
from llc.runtime.effects.tools import builtin_tools
from llc.runtime.effects.world import World
from llc.runtime.host.effect_context import Context, Interrupt, Interrupted

Use = Callable[..., dict[str, Any]]


class Effect:
    def __init__(self, kind: str, args: dict[str, Any]) -> None:
        self.kind = kind
        self.args = args


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.chdir(tmp_path)
    world = World()
    yield world
    world.close()


@pytest.fixture
def interrupt() -> Iterator[Interrupt]:
    interrupt = Interrupt()
    yield interrupt
    interrupt.close()


@pytest.fixture
def perform(world: World, interrupt: Interrupt) -> Callable[..., dict[str, Any]]:
    """Perform an effect in an empty folder."""

    def perform(kind: str, **args: Any) -> dict[str, Any]:
        context = Context(
            run_id="run-1",
            effect_id="run-1/7",
            loop=None,
            state=None,
            iteration=None,
            elapsed_ms=lambda: 0,
            interrupt=interrupt,
        )
        return world.perform(Effect(kind, args), context)

    return perform


@pytest.fixture
def use(perform: Callable[..., dict[str, Any]]) -> Use:
    """Use a built-in tool, or the tool of a declaration (YAML without its name)."""

    def use(tool: str, /, **args: Any) -> dict[str, Any]:
        if tool.startswith("system:"):
            return perform("tool", name=tool, args=args)
        (definition,), findings = read_tools(text_source(f"- name: own\n  {tool}", "tools.yaml"))
        assert [item for item in findings if item.is_error] == []
        values = {parameter.name: parameter.default for parameter in definition.order} | args
        present = {name: value for name, value in values.items() if value is not None}
        return perform(
            "tool", name="own", args=present, definition=definition.definition, timeout_s=definition.timeout_s
        )

    return use


# --- shell commands in a folder -----------------------------------------------------------------


def test_a_command_runs_in_the_given_folder(perform: Use, tmp_path: Path) -> None:
    """With and without a shell; the working directory of the run is unchanged."""
    (tmp_path / "-a b").mkdir()
    for command in ("pwd", "pwd; true"):
        result = perform("shell", command=command, cwd="-a b")
        assert (result["output"], result["exit_code"]) == (f"{tmp_path}/-a b\n", 0)
    assert os.getcwd() == str(tmp_path)


def test_a_missing_folder_is_an_error(perform: Use) -> None:
    """The command is not run."""
    result = perform("shell", command="touch ran", cwd="nowhere")
    assert (result["exit_code"], result["error"]["kind"]) == (126, "no-folder")
    assert perform("shell", command="true", cwd="a\0b")["error"]["kind"] == "no-folder"


def test_a_timeout_ends_a_command_in_a_folder(perform: Use) -> None:
    result = perform("shell", command="sleep 60", cwd=".", timeout_s=0.2)
    assert result["timed_out"] == "action"


# --- read_files -----------------------------------------------------------------------------------


def test_files_are_read_in_order(use: Use, tmp_path: Path) -> None:
    """The content of a file that cannot be read is an error message."""
    (tmp_path / "a.txt").write_text("ä\n")
    (tmp_path / "large").write_bytes(b"x" * 101)
    (tmp_path / "bin").write_bytes(b"\xff\x00")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    paths = ["a.txt", "none", "large", "bin", "folder", "pipe", "a\0b", "a.txt"]
    entries = use("system:read_files", file_paths=paths, max_bytes=100)["value"]
    assert [entry["path"] for entry in entries] == paths
    assert entries[0] == entries[-1] == {"path": "a.txt", "content": "ä\n", "size": 3}
    kinds = [entry["error"]["kind"] for entry in entries[1:-1]]
    assert kinds == ["not-found", "too-large", "not-text", "not-a-file", "not-a-file", "unreadable"]
    assert all(entry["content"] == f"[{entry['error']['message']}]" for entry in entries[1:-1])
    assert entries[2]["content"] == "[`large` has 101 bytes, more than 100]"


def test_the_total_size_of_files_is_limited(
    use: Use, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file beyond the limit has an error; a smaller file after it is read."""
    monkeypatch.setattr(builtin_tools, "MAX_TOTAL", 10)
    for name, size in (("a", 6), ("b", 5), ("c", 4)):
        (tmp_path / name).write_text("x" * size)
    entries = use("system:read_files", file_paths=["a", "b", "c"], max_bytes=100)["value"]
    assert ["error" in entry for entry in entries] == [False, True, False]


def test_invalid_or_too_many_paths_are_an_error(use: Use) -> None:
    assert use("system:read_files", file_paths=[5], max_bytes=1)["error"]["kind"] == "type-error"
    many = use("system:read_files", file_paths=["x"] * 1001, max_bytes=1)
    assert many["error"]["kind"] == "too-many-files"


# --- list_directory -------------------------------------------------------------------------------


def test_a_folder_is_listed_in_order(use: Use, tmp_path: Path) -> None:
    """Names are sorted, folders have a slash, hidden files are included."""
    for name in ("b", "a", ".hidden"):
        (tmp_path / name).touch()
    (tmp_path / "sub").mkdir()
    result = use("system:list_directory", directory_path=".", max_entries=10)
    assert result["value"] == [".hidden", "a", "b", "sub/"]


@pytest.mark.parametrize(
    ("path", "kind"),
    [("none", "not-found"), ("file", "not-a-folder"), ("a\0", "unreadable"), (".", "too-large")],
)
def test_a_folder_that_cannot_be_listed_is_an_error(use: Use, tmp_path: Path, path: str, kind: str) -> None:
    """A missing folder, a file, an invalid path, or more entries than allowed."""
    (tmp_path / "file").touch()
    (tmp_path / "other").touch()
    assert use("system:list_directory", directory_path=path, max_entries=1)["error"]["kind"] == kind


# --- write_file -----------------------------------------------------------------------------------


def test_a_file_is_written_with_its_folders(use: Use, tmp_path: Path) -> None:
    """A replaced file keeps its permissions; no temporary file remains."""
    result = use("system:write_file", file_path="a/b/c.txt", content="ä", overwrite=True)
    assert result["value"] == {"file_path": "a/b/c.txt", "bytes": 2, "created": True}
    os.chmod(tmp_path / "a/b/c.txt", 0o750)
    result = use("system:write_file", file_path="a/b/c.txt", content="new", overwrite=True)
    assert result["value"]["created"] is False
    assert (tmp_path / "a/b/c.txt").read_text() == "new"
    assert stat.S_IMODE(os.stat(tmp_path / "a/b/c.txt").st_mode) == 0o750
    assert os.listdir(tmp_path / "a/b") == ["c.txt"]


def test_concurrent_writes_of_a_file_are_atomic(tmp_path: Path) -> None:
    """The content is that of one writer, and no temporary file remains."""
    path = tmp_path / "file"
    texts = [str(number) * 100_000 for number in range(8)]

    def write(text: str) -> None:
        builtin_tools.write_file({"file_path": str(path), "content": text, "overwrite": True})

    threads = [threading.Thread(target=write, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_text() in texts
    assert os.listdir(tmp_path) == ["file"]


def test_a_link_is_followed(use: Use, tmp_path: Path) -> None:
    """The target is written; the link remains."""
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    use("system:write_file", file_path="link", content="new", overwrite=True)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


@pytest.mark.parametrize(
    ("path", "content", "kind"),
    [
        ("there", "x", "file-exists"),
        ("folder", "x", "not-a-file"),
        ("there/x", "x", "unwritable"),
        ("", "x", "bad-path"),
        ("a\0", "x", "unwritable"),
        ("new", "\ud800", "not-text"),
    ],
)
def test_a_failed_write_changes_nothing(use: Use, tmp_path: Path, path: str, content: str, kind: str) -> None:
    (tmp_path / "there").write_text("old")
    (tmp_path / "folder").mkdir()
    result = use("system:write_file", file_path=path, content=content, overwrite=False)
    assert result["error"]["kind"] == kind
    assert (tmp_path / "there").read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == ["folder", "there"]


# --- commands -------------------------------------------------------------------------------------

SHOW = """command: [python3, -c, "import sys, json; print(json.dumps(sys.argv[1:]))", {words}]
  output: json
  parameters: {{a: any, b: {{required: false}}, c: {{required: false}}}}"""


@pytest.mark.parametrize(
    ("words", "args", "expected"),
    [
        ('"${a}"', {"a": "x y; $HOME `id`"}, ["x y; $HOME `id`"]),
        ('"--a=${a}-${b}"', {"a": 5, "b": True}, ["--a=5-true"]),
        ('"--a=${a}", "--b=${b}", last', {"a": 1.5}, ["--a=1.5", "last"]),
        ('"${a}"', {"a": ["x", 2, {"k": None}]}, ["x", "2", '{"k": null}']),
        ('"${a}"', {"a": []}, []),
        ('"-${a}"', {"a": [1, 2]}, ["-[1, 2]"]),
        ('"$${a}"', {"a": 1}, ["${a}"]),
    ],
)
def test_a_list_is_run_without_a_shell(
    use: Use, words: str, args: dict[str, Any], expected: list[str]
) -> None:
    """A list value expands to several arguments; an omitted parameter removes its argument."""
    assert use(SHOW.format(words=words), **args)["value"] == expected


TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
@given(first=TEXTS, second=TEXTS)
def test_values_are_quoted_for_the_shell(use: Use, first: str, second: str) -> None:
    """Outside quotes, in double and single quotes, and in a here-document."""
    tool = """parameters: [a, b, many]
  command: |
    printf '%s\\0' ${a} "x ${b} y" '${a}' ${many}
    cat <<E
    ${b}.
    E
"""
    value = use(tool, a=first, b=second, many=[second, first])["value"]
    assert value.split("\0") == [first, f"x {second} y", first, second, first, f"{second}."]


@pytest.mark.parametrize(
    ("output", "command", "expected"),
    [
        ("text", "printf 'a\\n\\n'", {"value": "a\n"}),
        ("text", "echo out; echo why >&2; exit 3", {"error": "tool-failed"}),
        ("json", "echo '[1, 2]'", {"value": [1, 2]}),
        ("json", "echo 'no json'", {"error": "invalid-json"}),
        ("json", "echo NaN", {"error": "invalid-json"}),
        ("json", "head -c 200000 /dev/zero | tr '\\0' '['", {"error": "invalid-json"}),
        ("result", "echo out; exit 3", {"value": {"stdout": "out\n", "stderr": "", "exit_code": 3}}),
        ("text", "kill -9 $$", {"error": "signal"}),
    ],
)
def test_results_of_a_command(use: Use, output: str, command: str, expected: dict[str, Any]) -> None:
    """Text, JSON or the complete result; otherwise an error."""
    result = use(f"command: {json.dumps(command)}\n  output: {output}")
    if "error" in expected:
        assert result["error"]["kind"] == expected["error"]
    else:
        value = result["value"]
        if isinstance(value, dict) and "stdout" in value:
            printed = {name: value[name] for name in ("stdout", "stderr", "exit_code")}
            error = {
                "type": "TASK_FAILURE", "reason": "subtask_failure", "message": "exit code 3", "details": {}
            }  # fmt: skip
            assert {name: value.pop(name) for name in ("status", "content", "notes")} == {
                "status": "FAILED",
                "content": "out\n",
                "notes": {**printed, "error": error},
            }
        assert value == expected["value"]


def test_the_error_of_a_command_has_exit_code_and_stderr(use: Use) -> None:
    error = use("command: 'echo because >&2; exit 3'")["error"]
    assert error["message"] == "exit code 3: because"
    assert error["details"] == {"exit_code": 3, "stderr": "because\n"}


@pytest.mark.parametrize(
    ("tool", "args", "kind"),
    [
        ("command: [no-such-program]", {}, "not-found"),
        ("command: [./none]", {}, "not-found"),
        ("command: [echo, '${a}']\n  parameters: [a]", {"a": "x\0y"}, "unsendable-text"),
        ("command: 'echo ${a}'\n  parameters: [a]", {"a": "x\0y"}, "unsendable-text"),
        ("command: ['${a}']\n  parameters: [a]", {"a": ""}, "not-found"),
        ("command: [sleep, 60]\n  timeout: 0.2", {}, "timeout"),
    ],
)
def test_a_command_that_cannot_run_is_an_error(use: Use, tool: str, args: dict[str, Any], kind: str) -> None:
    """The kind of the error names the cause."""
    assert use(tool, **args)["error"]["kind"] == kind


def test_an_unknown_tool_is_an_error(perform: Use) -> None:
    assert perform("tool", name="far:away", args={"x": 1})["error"]["kind"] == "unknown-tool"


# --- Python functions -----------------------------------------------------------------------------

MODULE = """
import os, pathlib, sys, time
import attrs

@attrs.frozen
class Point:
    x: int
    y: tuple

calls = 0

def add(x, y=1):
    return x + y

def count():
    global calls
    calls += 1
    return [calls, os.environ["LLC_EFFECT_ID"]]

def noisy():
    print("out"); sys.stderr.write("err"); os.write(1, b'{"value": "forged"}\\n')
    return "quiet"

def point(): return {"point": Point(1, (2, 3)), "path": pathlib.Path("a/b")}
def crash(): os._exit(3)
def segfault(): os.kill(os.getpid(), 11)
def leave(): sys.exit(4)
def hang(): time.sleep(600)
def fail(): raise ValueError("no good " + "x" * 5000)
def odd(): return {1: 2}
def strange(): return object()
def huge(): return "x" * (64 << 20)
async def later(x): return x
value = 5
"""


@pytest.fixture
def module(tmp_path: Path) -> None:
    (tmp_path / ".loops").mkdir()
    (tmp_path / ".loops" / "own_tools.py").write_text(MODULE)


def python(name: str, more: str = "") -> str:
    return f"python: own_tools:{name}\n  parameters: [x, y]\n  {more}"


def test_a_python_function_is_called(use: Use, module: None) -> None:
    """Arguments are passed by name; results are plain data, attrs objects or paths; functions may be
    async.
    """
    assert use(python("add"), x=2, y=3)["value"] == 5
    assert use(python("add"), x=2)["value"] == 3
    assert use(python("point"))["value"] == {"point": {"x": 1, "y": [2, 3]}, "path": "a/b"}
    assert use(python("later"), x="soon")["value"] == "soon"


def test_functions_of_a_run_share_a_process(use: Use, module: None) -> None:
    """A module is imported once; each call has its effect id."""
    assert use(python("count"))["value"] == [1, "run-1/7"]
    assert use(python("count"))["value"][0] == 2


def test_output_of_a_function_is_not_its_result(use: Use, module: None) -> None:
    """Neither `print` nor a write to the file descriptor changes the result."""
    assert use(python("noisy"))["value"] == "quiet"


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("crash", "crash", "exit code 3"),
        ("segfault", "crash", "SIGSEGV"),
        ("leave", "tool-error", "SystemExit: 4"),
        ("fail", "tool-error", "ValueError: no good"),
        ("odd", "tool-error", "not a text"),
        ("strange", "tool-error", "not plain data"),
        ("huge", "crash", "32 MiB"),
        ("none", "tool-error", "has no `none`"),
        ("value", "tool-error", "is not a function"),
    ],
)
def test_a_misbehaving_function_is_an_error(
    use: Use, module: None, name: str, kind: str, message: str
) -> None:
    """The next call of a tool succeeds."""
    error = use(python(name))["error"]
    assert error["kind"] == kind
    assert message in error["message"]
    assert len(error["message"]) < 1000
    assert use(python("add"), x=1)["value"] == 2


def test_a_timeout_ends_a_function(use: Use, module: None) -> None:
    """The next call has a new process."""
    assert use(python("hang", "timeout: 0.3"))["error"]["kind"] == "timeout"
    assert use(python("count"))["value"][0] == 1


def test_an_interrupt_ends_a_function(use: Use, module: None, interrupt: Interrupt) -> None:
    started = time.monotonic()
    timer = threading.Timer(0.3, interrupt.set)
    timer.start()
    with pytest.raises(Interrupted):
        use(python("hang"))
    timer.join()
    assert time.monotonic() - started < 30


def test_a_missing_module_is_an_error_with_its_name(use: Use) -> None:
    error = use("python: no_such_module_here:f")["error"]
    assert "no_such_module_here" in error["message"]


# --- tasks ----------------------------------------------------------------------------------------


def test_a_task_without_a_definition_fails(perform: Use) -> None:
    """Tasks of `--declare` have results in scripted worlds only."""
    result = perform("task", name="user:x", inputs={})["result"]
    assert result["status"] == "FAILED"
    assert result["notes"]["error"]["message"] == "the task `user:x` has no instructions"
