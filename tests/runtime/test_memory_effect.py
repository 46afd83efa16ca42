"""The effect `context`: real world, scripted world, ranking by a model, whole runs and subcommands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from memory_projects import repository

from llc.frontend.source.files import text_source
from llc.ir.diagnostics import CompileError
from llc.runtime.effects.script_reader import read_world
from llc.runtime.effects.scripted_world import NoRule
from llc.runtime.effects.world import World
from llc.runtime.host.effect_context import Context, Interrupt, Interrupted
from llc.runtime.memory import index
from llc.runtime.models.judge import judge_of

Perform = Callable[..., dict[str, Any]]
FILES: dict[str, str | bytes] = {
    f"{name}.py": f'"""Module {name}."""\n\nengine = "{name}"\n'
    for name in ("alpha", "beta", "gamma", "delta")
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = repository(tmp_path / "project", FILES)
    monkeypatch.chdir(folder)
    return folder


def paths(result: dict[str, Any]) -> list[str]:
    return [match["path"] for match in result["matches"]]


def test_the_effect_finds_files_of_the_working_folder(project: Path, perform: Perform) -> None:
    """The result has paths, scores and lines, and the number of files."""
    result = perform("context", query="engine beta")
    assert result["matches"][0] == {
        "path": "beta.py", "score": result["matches"][0]["score"], "line": 3, "snippet": 'engine = "beta"',
    }  # fmt: skip
    assert paths(result) == ["beta.py", "alpha.py", "delta.py", "gamma.py"]
    assert result["summary"] == "4 of 4 files"
    assert set(result) == {"matches", "summary", "duration_ms", "elapsed_ms"}


def test_absent_fields_may_be_null(project: Path, perform: Perform) -> None:
    """A program passes null for each field that it omits."""
    fields = (
        "history",
        "inputs",
        "matching_strategy",
        "limit",
        "rerank",
        "model",
        "timeout_s",
        "fresh_context",
    )
    assert paths(perform("context", query="beta", **dict.fromkeys(fields))) == ["beta.py"]


def test_an_invalid_field_is_an_error_of_the_effect(project: Path, perform: Perform) -> None:
    result = perform("context", query="x", matching_strategy="metdata")
    assert result["error"]["kind"] == "bad-request"
    assert "did you mean `metadata`?" in result["error"]["message"]
    assert result["matches"] == []


def test_a_removed_folder_is_an_error_of_the_effect(project: Path, perform: Perform) -> None:
    for path in project.rglob("*.py"):
        path.unlink()
    subprocess.run(["rm", "-rf", str(project)], check=True)
    assert perform("context", query="x")["error"]["kind"] == "unreadable"


def test_sqlite_without_full_text_search_is_an_error_of_the_effect(
    project: Path, perform: Perform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the missing module."""
    monkeypatch.setattr(index, "_SCHEMA", "CREATE VIRTUAL TABLE contents USING fts9(path);\n")
    error = perform("context", query="x")["error"]
    assert (error["kind"], error["message"]) == ("no-index", "no index can be built: no such module: fts9")


@pytest.mark.parametrize(("args", "limit"), [({"timeout_s": 0}, "action"), ({"deadline_ms": 0}, "loop")])
def test_a_timeout_names_the_limit(project: Path, perform: Perform, args: dict[str, Any], limit: str) -> None:
    result = perform("context", query="x", **args)
    assert (result["timed_out"], result["error"]["kind"]) == (limit, "timeout")


def test_an_interrupt_ends_the_search(project: Path, world: World, context: Callable[..., Context]) -> None:
    interrupt = Interrupt()
    interrupt.set()

    class Effect:
        kind = "context"
        args: dict[str, Any] = {"query": "x"}  # noqa: RUF012

    with pytest.raises(Interrupted):
        world.perform(Effect(), context(interrupt=interrupt))
    interrupt.close()


def test_damage_of_the_index_is_reported(project: Path, perform: Perform) -> None:
    """The notice is on standard error and in the summary."""
    perform("context", query="x")
    (project / ".loops/.cache/memory.sqlite").write_bytes(b"damage" * 100)
    shown: list[tuple[str, str]] = []
    result = perform("context", query="beta", within={"on_output": lambda *part: shown.append(part)})
    assert paths(result) == ["beta.py"]
    assert [stream for stream, _ in shown] == ["stderr"]
    assert "has been rebuilt" in shown[0][1]
    assert "has been rebuilt" in result["summary"]


def test_concurrent_effects_are_independent(project: Path, context: Callable[..., Context]) -> None:
    """Threads of one process, each with its own world, start without an index."""
    results: list[dict[str, Any]] = []

    def look(query: str) -> None:
        class Effect:
            kind = "context"
            args: dict[str, Any] = {"query": query}  # noqa: RUF012

        world = World()
        results.append(world.perform(Effect(), context()))
        world.close()

    threads = [
        threading.Thread(target=look, args=(name,)) for name in ("alpha", "beta", "gamma", "delta") * 3
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(paths(result)[0] for result in results) == sorted([*FILES] * 3)
    assert all(result["summary"] == "1 of 4 files" for result in results)


# --- ranked by a model ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(answers: ModuleType) -> Iterator[Any]:
    with answers.MessagesServer() as server:
        yield server


@pytest.fixture(scope="module")
def ranking_world(server: Any) -> Iterator[World]:
    """A world for all tests of the module, as the import of the client takes more than a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANTHROPIC_BASE_URL", server.url)
        patch.setenv("ANTHROPIC_API_KEY", "test-key")
        patch.delenv("ANTHROPIC_AUTH_TOKEN", raising=False)
        patch.setenv("NO_PROXY", "127.0.0.1")
        world = World()
        judge_of(world)
    yield world
    world.close()


@pytest.fixture
def rank(project: Path, ranking_world: World, server: Any, context: Callable[..., Context]) -> Perform:
    """`rank(reply, …, query="x")`: the result if the server answers with these replies."""

    def rank(*replies: Any, **args: Any) -> dict[str, Any]:
        class Effect:
            kind = "context"

        Effect.args = {"rerank": True, **args}  # type: ignore[attr-defined]
        server.requests.clear()
        server.answers[:] = replies
        return ranking_world.perform(Effect(), context())  # type: ignore[arg-type]

    return rank


def test_a_model_ranks_the_matches(rank: Perform, answers: ModuleType, server: Any) -> None:
    """Ranked matches precede the others; the request has paths and lines and forces one tool."""
    result = rank(answers.tool({"ranking": [3, 2, 3]}), query="engine", limit=3)
    assert paths(result) == ["delta.py", "beta.py", "alpha.py"]
    assert result["usage"] == {
        "input_tokens": 120,
        "output_tokens": 30,
        "tokens": 150,
        "cache_read_tokens": 0,
        "cache_write_tokens": 0,
        "usd": result["usage"]["usd"],
    }
    (request,) = server.requests
    assert request["tool_choice"] == {"type": "tool", "name": "evaluate"}
    prompt = "".join(part["text"] for part in request["messages"][0]["content"])
    assert "<task>\nengine\n</task>" in prompt
    assert '3. delta.py  |  engine = "delta"' in prompt
    assert "4. gamma.py" in prompt
    assert '"""Module' not in prompt


def test_the_field_model_overrides_the_environment(
    rank: Perform, answers: ModuleType, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLC_LLM_MODEL", "claude-sonnet-4-5")
    rank(answers.tool({"ranking": []}), query="engine")
    rank_model = server.requests[0]["model"]
    rank(answers.tool({"ranking": []}), query="engine", model="claude-opus-4-1")
    assert (rank_model, server.requests[0]["model"]) == ("claude-sonnet-4-5", "claude-opus-4-1")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (("tool", {"ranking": [0]}), "the reply breaks the schema"),
        (("tool", {"ranking": [5]}), "the reply breaks the schema"),
        (("tool", {"order": [1]}), "the reply breaks the schema"),
        (("text", "gamma first"), "did not call the tool"),
        (("status", 401), "HTTP 401"),
    ],
)
def test_a_failed_ranking_keeps_the_order(
    rank: Perform, answers: ModuleType, answer: tuple[str, Any], reason: str
) -> None:
    """The summary has the reason."""
    result = rank(getattr(answers, answer[0])(answer[1]), query="engine", limit=2)
    assert paths(result) == ["alpha.py", "beta.py"]
    assert "error" not in result
    assert reason in result["summary"]


def test_a_timeout_of_the_ranking_keeps_the_order(rank: Perform, answers: ModuleType) -> None:
    result = rank(answers.stall(), query="engine", timeout_s=1)
    assert paths(result) == ["alpha.py", "beta.py", "delta.py", "gamma.py"]
    assert "not ranked by a model: no reply" in result["summary"]


def test_without_matches_no_model_is_asked(rank: Perform, answers: ModuleType, server: Any) -> None:
    assert rank(answers.tool({"ranking": []}), query="zzz")["matches"] == []
    assert server.requests == []


# --- scripted ---------------------------------------------------------------------------------


def scripted(text: str, context: Callable[..., Context], **args: Any) -> dict[str, Any]:
    class Effect:
        kind = "context"

    Effect.args = args  # type: ignore[attr-defined]
    return read_world(text_source(text)).perform(Effect(), context())  # type: ignore[arg-type]


def test_a_script_returns_paths_or_matches(context: Callable[..., Context]) -> None:
    """A rule is chosen by words of the query; omitted fields have defaults."""
    text = (
        "- {command: deploy, matches: [{path: d.md, score: 3.5}]}\n- {matches: [a.py, b.py], summary: two}\n"
    )
    assert scripted(text, context, query="how to deploy")["matches"] == [{"path": "d.md", "score": 3.5}]
    result = scripted(text, context, query=None)
    assert paths(result) == ["a.py", "b.py"]
    assert (result["summary"], result["duration_ms"]) == ("two", 0)


def test_a_script_may_return_an_error_or_a_timeout(context: Callable[..., Context]) -> None:
    failed = scripted("- {kind: context, error: unreadable}", context, query="x")
    assert (failed["matches"], failed["error"]["kind"]) == ([], "unreadable")
    late = scripted("- {kind: context, matches: [], duration_ms: 5000}", context, query="x", timeout_s=1)
    assert (late["timed_out"], late["error"]["kind"]) == ("action", "timeout")


def test_a_query_without_a_rule_is_an_error(context: Callable[..., Context]) -> None:
    """The message contains the query."""
    with pytest.raises(NoRule, match=r"no rule answers `context`.*query `deploy`"):
        scripted("- {kind: context, command: other, matches: []}", context, query="deploy")


@pytest.mark.parametrize("matches", ["a.py", "[1]", "[{score: 1}]", "{path: a}"])
def test_malformed_matches_of_a_script_are_a_diagnostic(matches: str) -> None:
    with pytest.raises(CompileError) as caught:
        read_world(text_source(f"- {{matches: {matches}}}"))
    assert [finding.id for finding in caught.value.diagnostics] == ["wrong-type"]


# --- runs and subcommands ---------------------------------------------------------------------


def llc(project: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    env = {**os.environ, "XDG_CACHE_HOME": str(project.parent / "cache"), "ANTHROPIC_API_KEY": ""}
    command = [sys.executable, "-m", "llc", *words]
    return subprocess.run(command, cwd=project, env=env, capture_output=True, check=False)


def evaluate(project: Path, expression: str) -> Any:
    """The value of an expression, evaluated by a run."""
    done = llc(project, "run", "--json", "-e", expression)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["value"]


def test_a_program_gets_the_paths(project: Path) -> None:
    """The call works with and without prefix, concurrently, and its fault can be caught."""
    assert evaluate(project, '(get_context (query "beta"))') == ["beta.py"]
    assert evaluate(project, '(call system:get_context (query "beta"))') == ["beta.py"]
    matches = evaluate(project, '(parallel-map (get_context item) (list "alpha" "beta" "gamma"))')
    assert matches == [["alpha.py"], ["beta.py"], ["gamma.py"]]
    assert evaluate(project, '(try (get_context (limit 0)) (catch e (get e "kind")))') == "bad-request"
    assert evaluate(project, "(let ((get_context (lambda (x) x))) (get_context 3))") == 3


def test_a_file_name_with_any_bytes_survives_a_run(project: Path) -> None:
    """Program, journal and subcommands keep the bytes of the name."""
    (project / os.fsdecode(b"raw\xff.txt")).write_text("treasure")
    assert evaluate(project, '(map string-length (get_context (query "treasure")))') == [8]
    (journal,) = project.glob(".loops/.history/*/*.events.jsonl")
    assert rb"raw\udcff.txt" in journal.read_bytes()
    done = llc(project, "context", "treasure", "--json")
    assert os.fsencode(json.loads(done.stdout)["matches"][0]["path"]) == b"raw\xff.txt"
    done = llc(project, "context", "treasure")
    assert done.stdout.endswith(b":1: treasure\n")


def test_matches_are_in_the_journal(project: Path) -> None:
    evaluate(project, '(get_context (query "beta"))')
    (journal,) = project.glob(".loops/.history/*/*.events.jsonl")
    assert b'"path":"beta.py"' in journal.read_bytes().replace(b'": "', b'":"')


def test_subcommands_report_a_damaged_index(project: Path) -> None:
    """The notice is on standard error, or in `notices` of the JSON output."""
    llc(project, "index")
    path = project / ".loops/.cache/memory.sqlite"
    path.write_bytes(b"damage" * 100)
    done = llc(project, "index", "--json")
    report = json.loads(done.stdout)
    assert (report["files"], report["new"], done.returncode) == (4, 4, 0)
    assert "has been rebuilt" in report["notices"][0]
    path.write_bytes(b"damage" * 100)
    done = llc(project, "context", "beta")
    assert b"has been rebuilt" in done.stderr
    assert done.stdout == b'beta.py:1: """Module beta."""\n'


def test_control_characters_of_a_file_are_not_shown(project: Path) -> None:
    """Neither those of its name nor those of its lines."""
    (project / "evil\x1b[31m\n.txt").write_text("treasure \x1b]0;title\x07 here\n")
    done = llc(project, "context", "treasure")
    assert b"\x1b" not in done.stdout
    assert done.stdout.count(b"\n") == 1


def test_invalid_arguments_are_refused(project: Path) -> None:
    """Errors suggest the nearest value, and an empty result exits with 1."""
    done = llc(project, "context", "x", "--strategy", "contnt")
    assert done.returncode == 2
    assert b"did you mean `content`?" in done.stderr
    assert llc(project, "context").returncode == 2
    assert llc(project, "context", "x", "-n", "0").returncode == 2
    done = llc(project, "context", "zzz")
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"nothing found in 4 files" in done.stderr
    assert b"there is no word" in llc(project, "context", "???").stderr
