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


def test_the_effect_finds_files_of_the_folder_of_the_run(project: Path, perform: Perform) -> None:
    """Paths, scores, lines, and how many files there are."""
    result = perform("context", query="engine beta")
    assert result["matches"][0] == {
        "path": "beta.py", "score": result["matches"][0]["score"], "line": 3, "snippet": 'engine = "beta"',
    }  # fmt: skip
    assert paths(result) == ["beta.py", "alpha.py", "delta.py", "gamma.py"]
    assert result["summary"] == "4 of 4 files"
    assert set(result) == {"matches", "summary", "duration_ms", "elapsed_ms"}


def test_absent_fields_may_be_null(project: Path, perform: Perform) -> None:
    """As a program gives them that leaves them out."""
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


def test_a_wrong_field_is_an_error_of_the_effect(project: Path, perform: Perform) -> None:
    """The program gets to know what is wrong."""
    result = perform("context", query="x", matching_strategy="metdata")
    assert result["error"]["kind"] == "bad-request"
    assert "did you mean `metadata`?" in result["error"]["message"]
    assert result["matches"] == []


def test_a_folder_that_is_gone_is_an_error_of_the_effect(project: Path, perform: Perform) -> None:
    """The files cannot be listed."""
    for path in project.rglob("*.py"):
        path.unlink()
    subprocess.run(["rm", "-rf", str(project)], check=True)
    assert perform("context", query="x")["error"]["kind"] == "unreadable"


def test_a_sqlite_that_cannot_do_it_is_an_error_of_the_effect(
    project: Path, perform: Perform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One without full-text search, as some systems have: it says what is missing."""
    monkeypatch.setattr(index, "_SCHEMA", "CREATE VIRTUAL TABLE contents USING fts9(path);\n")
    error = perform("context", query="x")["error"]
    assert (error["kind"], error["message"]) == ("no-index", "no index can be built: no such module: fts9")


@pytest.mark.parametrize(("args", "says"), [({"timeout_s": 0}, "action"), ({"deadline_ms": 0}, "loop")])
def test_time_that_is_over_is_told(project: Path, perform: Perform, args: dict[str, Any], says: str) -> None:
    """Whose time it was too."""
    result = perform("context", query="x", **args)
    assert (result["timed_out"], result["error"]["kind"]) == (says, "timeout")


def test_an_interrupt_ends_it(project: Path, world: World, context: Callable[..., Context]) -> None:
    """Whatever it is at."""
    interrupt = Interrupt()
    interrupt.set()

    class Effect:
        kind = "context"
        args: dict[str, Any] = {"query": "x"}  # noqa: RUF012

    with pytest.raises(Interrupted):
        world.perform(Effect(), context(interrupt=interrupt))
    interrupt.close()


def test_damage_is_told_to_whoever_watches(project: Path, perform: Perform) -> None:
    """As output on standard error, and in the summary."""
    perform("context", query="x")
    (project / ".loops/.cache/memory.sqlite").write_bytes(b"damage" * 100)
    told: list[tuple[str, str]] = []
    result = perform("context", query="beta", within={"on_output": lambda *words: told.append(words)})
    assert paths(result) == ["beta.py"]
    assert [stream for stream, _ in told] == ["stderr"]
    assert "has been rebuilt" in told[0][1]
    assert "has been rebuilt" in result["summary"]


def test_effects_at_once_do_not_hinder_each_other(project: Path, context: Callable[..., Context]) -> None:
    """In threads of one process, each with a world of its own, from no index at all."""
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
    """One client for all: its import takes more than a second."""
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
    """`rank(answer, …, query="x")`: the result where the server answers like this."""

    def rank(*given: Any, **args: Any) -> dict[str, Any]:
        class Effect:
            kind = "context"

        Effect.args = {"rerank": True, **args}  # type: ignore[attr-defined]
        server.requests.clear()
        server.answers[:] = given
        return ranking_world.perform(Effect(), context())  # type: ignore[arg-type]

    return rank


def test_a_model_puts_the_best_first(rank: Perform, answers: ModuleType, server: Any) -> None:
    """What it names in its order, then the others in theirs; it sees paths and lines, by one forced tool."""
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
    words = "".join(part["text"] for part in request["messages"][0]["content"])
    assert "<task>\nengine\n</task>" in words
    assert '3. delta.py  |  engine = "delta"' in words
    assert "4. gamma.py" in words
    assert '"""Module' not in words


def test_the_model_is_the_one_that_is_asked_for(
    rank: Perform, answers: ModuleType, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else that of the environment."""
    monkeypatch.setenv("LLC_LLM_MODEL", "claude-sonnet-4-5")
    rank(answers.tool({"ranking": []}), query="engine")
    rank_model = server.requests[0]["model"]
    rank(answers.tool({"ranking": []}), query="engine", model="claude-opus-4-1")
    assert (rank_model, server.requests[0]["model"]) == ("claude-sonnet-4-5", "claude-opus-4-1")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (("tool", {"ranking": [0]}), "the reply breaks the schema"),
        (("tool", {"ranking": [5]}), "the reply breaks the schema"),
        (("tool", {"order": [1]}), "the reply breaks the schema"),
        (("text", "gamma first"), "did not call the tool"),
        (("status", 401), "HTTP 401"),
    ],
)
def test_a_model_that_cannot_be_asked_changes_nothing(
    rank: Perform, answers: ModuleType, answer: tuple[str, Any], says: str
) -> None:
    """The files are there in their order, and the summary says why."""
    result = rank(getattr(answers, answer[0])(answer[1]), query="engine", limit=2)
    assert paths(result) == ["alpha.py", "beta.py"]
    assert "error" not in result
    assert says in result["summary"]


def test_time_that_runs_out_while_a_model_thinks_leaves_the_order(rank: Perform, answers: ModuleType) -> None:
    """The files are found already."""
    result = rank(answers.stall(), query="engine", timeout_s=1)
    assert paths(result) == ["alpha.py", "beta.py", "delta.py", "gamma.py"]
    assert "not ranked by a model: no reply" in result["summary"]


def test_nothing_found_asks_nobody(rank: Perform, answers: ModuleType, server: Any) -> None:
    """There is nothing to rank."""
    assert rank(answers.tool({"ranking": []}), query="zzz")["matches"] == []
    assert server.requests == []


# --- scripted ---------------------------------------------------------------------------------


def scripted(text: str, context: Callable[..., Context], **args: Any) -> dict[str, Any]:
    class Effect:
        kind = "context"

    Effect.args = args  # type: ignore[attr-defined]
    return read_world(text_source(text)).perform(Effect(), context())  # type: ignore[arg-type]


def test_a_script_answers_with_paths_or_matches(context: Callable[..., Context]) -> None:
    """By words of the query; what a rule leaves out has defaults."""
    text = (
        "- {command: deploy, matches: [{path: d.md, score: 3.5}]}\n- {matches: [a.py, b.py], summary: two}\n"
    )
    assert scripted(text, context, query="how to deploy")["matches"] == [{"path": "d.md", "score": 3.5}]
    result = scripted(text, context, query=None)
    assert paths(result) == ["a.py", "b.py"]
    assert (result["summary"], result["duration_ms"]) == ("two", 0)


def test_a_script_may_say_that_it_failed(context: Callable[..., Context]) -> None:
    """With an error, or with time that ran out."""
    failed = scripted("- {kind: context, error: unreadable}", context, query="x")
    assert (failed["matches"], failed["error"]["kind"]) == ([], "unreadable")
    late = scripted("- {kind: context, matches: [], duration_ms: 5000}", context, query="x", timeout_s=1)
    assert (late["timed_out"], late["error"]["kind"]) == ("action", "timeout")


def test_without_a_rule_a_script_has_no_answer(context: Callable[..., Context]) -> None:
    """The complaint names the query."""
    with pytest.raises(NoRule, match=r"no rule answers `context`.*query `deploy`"):
        scripted("- {kind: context, command: other, matches: []}", context, query="deploy")


@pytest.mark.parametrize("matches", ["a.py", "[1]", "[{score: 1}]", "{path: a}"])
def test_matches_that_are_none_are_found_when_a_script_is_read(matches: str) -> None:
    """With their place."""
    with pytest.raises(CompileError) as caught:
        read_world(text_source(f"- {{matches: {matches}}}"))
    assert [found.id for found in caught.value.diagnostics] == ["wrong-type"]


# --- runs and verbs ---------------------------------------------------------------------------


def llc(project: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    env = {**os.environ, "XDG_CACHE_HOME": str(project.parent / "cache"), "ANTHROPIC_API_KEY": ""}
    command = [sys.executable, "-m", "llc", *words]
    return subprocess.run(command, cwd=project, env=env, capture_output=True, check=False)


def value(project: Path, expression: str) -> Any:
    done = llc(project, "run", "--json", "-e", expression)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["value"]


def test_a_program_gets_the_paths(project: Path) -> None:
    """By either name, as a value, several at once; a fault can be caught."""
    assert value(project, '(get_context (query "beta"))') == ["beta.py"]
    assert value(project, '(call system:get_context (query "beta"))') == ["beta.py"]
    found = value(project, '(parallel-map (get_context item) (list "alpha" "beta" "gamma"))')
    assert found == [["alpha.py"], ["beta.py"], ["gamma.py"]]
    assert value(project, '(try (get_context (limit 0)) (catch e (get e "kind")))') == "bad-request"
    assert value(project, "(let ((get_context (lambda (x) x))) (get_context 3))") == 3


def test_a_name_of_any_bytes_goes_through_a_run(project: Path) -> None:
    """Into the program and into the journal as it is; the verbs show it."""
    (project / os.fsdecode(b"raw\xff.txt")).write_text("treasure")
    assert value(project, '(map string-length (get_context (query "treasure")))') == [8]
    (journal,) = project.glob(".loops/.history/*/*.events.jsonl")
    assert rb"raw\udcff.txt" in journal.read_bytes()
    done = llc(project, "context", "treasure", "--json")
    assert os.fsencode(json.loads(done.stdout)["matches"][0]["path"]) == b"raw\xff.txt"
    done = llc(project, "context", "treasure")
    assert done.stdout.endswith(b":1: treasure\n")


def test_what_was_found_is_on_record(project: Path) -> None:
    """The journal of a run has the matches."""
    value(project, '(get_context (query "beta"))')
    (journal,) = project.glob(".loops/.history/*/*.events.jsonl")
    assert b'"path":"beta.py"' in journal.read_bytes().replace(b'": "', b'":"')


def test_the_verbs_say_what_became_of_a_damaged_index(project: Path) -> None:
    """On standard error, or among the notices of the JSON."""
    llc(project, "index")
    path = project / ".loops/.cache/memory.sqlite"
    path.write_bytes(b"damage" * 100)
    done = llc(project, "index", "--json")
    told = json.loads(done.stdout)
    assert (told["files"], told["new"], done.returncode) == (4, 4, 0)
    assert "has been rebuilt" in told["notices"][0]
    path.write_bytes(b"damage" * 100)
    done = llc(project, "context", "beta")
    assert b"has been rebuilt" in done.stderr
    assert done.stdout == b'beta.py:1: """Module beta."""\n'


def test_what_a_file_says_cannot_steer_the_terminal(project: Path) -> None:
    """Neither its name nor its lines."""
    (project / "evil\x1b[31m\n.txt").write_text("treasure \x1b]0;title\x07 here\n")
    done = llc(project, "context", "treasure")
    assert b"\x1b" not in done.stdout
    assert done.stdout.count(b"\n") == 1


def test_bad_words_are_refused(project: Path) -> None:
    """With the nearest that there is."""
    done = llc(project, "context", "x", "--strategy", "contnt")
    assert done.returncode == 2
    assert b"did you mean `content`?" in done.stderr
    assert llc(project, "context").returncode == 2
    assert llc(project, "context", "x", "-n", "0").returncode == 2
    done = llc(project, "context", "zzz")
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"nothing found in 4 files" in done.stderr
    assert b"there is no word" in llc(project, "context", "???").stderr
