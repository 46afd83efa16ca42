"""Atomic tasks in the real world (`spec/tasks.md`): the real client against a local server."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from llc.ir.results import TaskResult, structure
from llc.runtime.effects.performers import turns_of
from llc.runtime.effects.task import tasks_of
from llc.runtime.effects.world import World
from llc.runtime.host.effect_context import Context, Interrupt, Interrupted

Do = Callable[..., dict[str, Any]]
SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0}, "why": {"type": "string"}},
    "required": ["n"],
}
AS_JSON = {"type": "json", "schema": SCHEMA}


@pytest.fixture(scope="module")
def server(answers: ModuleType) -> Iterator[Any]:
    with answers.MessagesServer() as server:
        yield server


@pytest.fixture(scope="module")
def shared(server: Any) -> Iterator[World]:
    """One world for the module: the import of the client takes more than a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANTHROPIC_BASE_URL", server.url)
        patch.setenv("ANTHROPIC_API_KEY", "test-key")
        patch.delenv("ANTHROPIC_AUTH_TOKEN", raising=False)
        patch.delenv("LLC_LLM_MODEL", raising=False)
        patch.setenv("NO_PROXY", "127.0.0.1")
        world = World()
        tasks_of(world)  # reads the environment
        yield world
        world.close()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def do(shared: World, server: Any, context: Callable[..., Context], effect: Any, project: Path) -> Do:
    """`do(answer, …, inputs={…}, args={…}, instructions=…)`: what the effect gives, for such a task."""
    turns_of(shared).turns.clear()
    tasks_of(shared)._settings = None

    def do(
        *given: Any,
        inputs: dict[str, Any] | None = None,
        within: dict[str, Any] | None = None,
        args: dict[str, Any] | None = None,
        **definition: Any,
    ) -> dict[str, Any]:
        server.requests.clear()
        server.answers[:] = given
        definition = {"type": "atomic", "instructions": "Do it.", **definition}
        asked = {"name": "user:do", "inputs": inputs or {}, "definition": definition, **(args or {})}
        answer = shared.perform(effect("task", **asked), context(**(within or {})))
        structure(TaskResult, answer["result"])  # whatever came of it
        return answer

    return do


def prompt(server: Any, at: int = -1) -> str:
    """The last message of a request, its parts between rules."""
    return "\n---\n".join(part["text"] for part in server.requests[at]["messages"][-1]["content"])


def error(answer: dict[str, Any]) -> dict[str, Any]:
    assert answer["result"]["status"] == "FAILED"
    found: dict[str, Any] = answer["result"]["notes"]["error"]
    return found


# --- templates ------------------------------------------------------------------------------------


def test_inputs_stand_in_instructions_and_system(do: Do, answers: ModuleType, server: Any) -> None:
    """Texts as they are, other values as JSON, fields by their path, null as nothing; one pass."""
    do(
        answers.text("ok"),
        instructions="{{ a }} {{m.k}} {{m.l.1}} {{n}} {{none}}. {{m}}",
        system="Be {{a}}.",
        inputs={"a": "{{n}}", "m": {"k": "v", "l": [1, 2]}, "n": 1.5, "none": None},
    )
    assert prompt(server) == '{{n}} v 2 1.5 . {\n "k": "v",\n "l": [\n  1,\n  2\n ]\n}'
    assert server.requests[0]["system"] == [{"type": "text", "text": "Be {{n}}."}]


def test_a_field_that_is_not_there_fails_before_anything_is_asked(
    do: Do, answers: ModuleType, server: Any
) -> None:
    """`input_validation_failure`, and which fields there are."""
    found = error(do(answers.text("ok"), instructions="{{m.x}}", inputs={"m": {"y": 1}}))
    assert found["reason"] == "input_validation_failure"
    assert found["message"] == "`{{m.x}}`: `m` has no `x`, it has y"
    assert server.requests == []


def test_instructions_that_come_to_nothing_fail(do: Do, answers: ModuleType, server: Any) -> None:
    """A server would refuse them, in words of its own."""
    found = error(do(answers.text("ok"), instructions=" {{x}} ", inputs={"x": ""}))
    assert found["reason"] == "input_validation_failure"
    assert server.requests == []


# --- files ----------------------------------------------------------------------------------------


def test_files_reach_the_prompt(do: Do, answers: ModuleType, server: Any, project: Path) -> None:
    """Whole texts; what is binary, missing or a folder is said in its place and in the notes."""
    (project / "a.py").write_text("x = 1\n")
    (project / "b.bin").write_bytes(b"\x00\xff\x00")
    (project / "d").mkdir()
    os.mkfifo(project / "pipe")
    paths = ["a.py", "b.bin", "nope", "d", "pipe", "./a.py"]
    answer = do(answers.text("ok"), args={"files": paths})
    assert prompt(server) == (
        '<files>\n<file path="a.py">\nx = 1\n</file>\n'
        '<file path="b.bin">\n[`b.bin` is binary: 3 bytes]\n</file>\n'
        '<file path="nope">\n[`nope` does not exist]\n</file>\n<file path="d">\n[`d` is a folder]\n</file>\n'
        '<file path="pipe">\n[`pipe` is not a regular file]\n</file>\n</files>\n---\nDo it.'
    )
    assert answer["result"]["notes"]["files"][:2] == [
        {"path": "a.py"},
        {"path": "b.bin", "problem": "is binary: 3 bytes"},
    ]


def test_large_files_are_cut_and_say_so(do: Do, answers: ModuleType, server: Any, project: Path) -> None:
    """One by one and together; a character is not cut in two."""
    (project / ".loops").mkdir()
    (project / ".loops" / "config.yaml").write_text("tasks: {file_bytes: 10, files_bytes: 12}\n")
    (project / "long").write_text("123456789é0")
    (project / "more").write_text("abcdef")
    (project / "last").write_text("abcdef")
    do(answers.text("ok"), args={"files": ["long", "more", "last"]})
    sent = prompt(server)
    assert "\n123456789\n[`long` is truncated: 3 of 12 bytes are left out]\n" in sent
    assert "\nab\n[`more` is truncated: 4 of 6 bytes are left out]\n" in sent
    assert "[`last` left out: the files together have more than 12 bytes]" in sent


def test_files_with_keys_are_not_shown(do: Do, answers: ModuleType, server: Any, project: Path) -> None:
    """By their names, as memory leaves them out; also where a link has another name."""
    (project / ".env").write_text("KEY=hunter2\n")
    (project / "plain.txt").symlink_to(".env")
    do(answers.text("ok"), args={"files": [".env", "plain.txt"]})
    assert "hunter2" not in prompt(server)
    assert "[`.env` is not shown: by its name it holds keys or passwords]" in prompt(server)
    do(answers.text("ok"), args={"files": ["plain.txt"]})
    assert "hunter2" not in prompt(server)


@pytest.mark.parametrize("path", ["../../etc/passwd", "/etc/passwd", "link", "a/../../x", "", "a\0b"])
def test_a_path_out_of_the_project_is_refused(
    do: Do, answers: ModuleType, server: Any, project: Path, path: str
) -> None:
    """By `..`, by its root or by a link: before anything is read or asked."""
    (project / "link").symlink_to("/etc/passwd")
    found = error(do(answers.text("ok"), args={"files": [path]}))
    assert found["reason"] == "input_validation_failure"
    assert server.requests == []


def test_a_template_cannot_name_a_path_out_of_the_project(do: Do, answers: ModuleType, server: Any) -> None:
    """Neither can an input that stands in a path of the task's own."""
    declared = {"source": "literal", "paths": ["src/{{name}}"]}
    given = do(answers.text("ok"), file_paths=declared, inputs={"name": "../../etc/passwd"})
    assert error(given)["message"] == "`src/../../etc/passwd` is outside of the project"
    assert server.requests == []


def test_a_command_names_files(do: Do, answers: ModuleType, server: Any, project: Path) -> None:
    """One in a line, with inputs quoted for the shell; one that fails is `context_retrieval_failure`."""
    (project / "a b;touch x").write_text("inside")
    pieces = ["printf '%s\\n' ", {"of": "name", "quoting": "word"}]
    declared = {"source": "command", "text": "printf {{name}}", "shell": pieces}
    do(answers.text("ok"), file_paths=declared, inputs={"name": "a b;touch x"})
    assert "\ninside\n" in prompt(server)
    assert not (project / "x").exists()
    found = error(do(answers.text("ok"), file_paths={"source": "command", "text": "echo no >&2; exit 3"}))
    assert (found["reason"], found["details"]["exit_code"]) == ("context_retrieval_failure", 3)


def test_memory_finds_files(do: Do, answers: ModuleType, server: Any, project: Path) -> None:
    """By a description of the task's own, or for the task itself with `fresh_context`."""
    (project / "billing.md").write_text("How invoices are numbered and sent.\n")
    (project / "other.md").write_text("Nothing of that kind.\n")
    do(answers.text("ok"), file_paths={"source": "description", "text": "invoices"})
    assert '<file path="billing.md">' in prompt(server)
    assert "other.md" not in prompt(server)
    fresh = {"context_management": {"fresh_context": "enabled"}, "description": "Explains {{topic}}"}
    do(answers.text("ok"), inputs={"topic": "invoices"}, **fresh)
    assert '<file path="billing.md">' in prompt(server)
    do(
        answers.text("ok"),
        inputs={"topic": "invoices"},
        **fresh,
        args={"context": {"fresh_context": "disabled"}},
    )
    assert "billing" not in prompt(server)


# --- what tasks said before -----------------------------------------------------------------------


def test_a_conversation_goes_on(do: Do, answers: ModuleType, server: Any) -> None:
    """Earlier instructions and outputs, as many as asked for; not those that are not to be recorded."""
    do(answers.text("one"), instructions="first")
    do(answers.text("two"), instructions="second")
    do(
        answers.text("secret"),
        instructions="third",
        args={"history_config": {"record_in_session_history": False}},
    )
    do(answers.text("ok"), history_config={"history_turns_to_include": 1})
    assert [(sent["role"], sent["content"][0]["text"]) for sent in server.requests[0]["messages"]] == [
        ("user", "second"),
        ("assistant", "two"),
        ("user", "Do it."),
    ]
    do(answers.text("ok"), history_config={"use_session_history": True})
    assert len(server.requests[0]["messages"]) == 7


def test_outputs_accumulate(do: Do, answers: ModuleType, server: Any, project: Path) -> None:
    """Whole, or only which tasks there were; and the files of the task before."""
    (project / "a").write_text("A\n")
    do(answers.text("the first output"), args={"files": ["a"]})
    do(answers.text("ok"), context_management={"accumulate_data": True, "inherit_context": "full"})
    sent = prompt(server)
    assert '<output task="user:do" status="COMPLETE">\nthe first output\n</output>' in sent
    assert '<file path="a">\nA\n</file>' in sent
    notes_only = {"accumulate_data": True, "accumulation_format": "notes_only"}
    do(answers.text("ok"), context_management=notes_only)
    assert "the first output" not in prompt(server)
    assert "files: a" in prompt(server)


def test_what_was_said_survives_a_checkpoint_and_a_replay(
    do: Do, shared: World, answers: ModuleType, effect: Any
) -> None:
    """A world that observes results, or is restored, knows the same."""
    answer = do(answers.text("one"), instructions="first")
    replayed = World()
    replayed.observe(effect("task", name="user:do", inputs={}), answer)
    restored = World()
    assert restored.restore(shared.save())
    assert turns_of(replayed).turns == turns_of(restored).turns == turns_of(shared).turns != []
    assert not restored.restore([{"task": 1}])
    assert World().save() is None


# --- outputs --------------------------------------------------------------------------------------


def test_a_schema_forces_the_tool(do: Do, answers: ModuleType, server: Any) -> None:
    """The data of its call are the parsed content, as JSON the content."""
    result = do(answers.result({"n": 3}), output_format=AS_JSON)["result"]
    assert (result["parsedContent"], result["content"]) == ({"n": 3}, '{"n": 3}')
    (sent,) = server.requests
    assert sent["tool_choice"] == {"type": "tool", "name": "answer"}
    assert sent["tools"][0]["input_schema"] == SCHEMA


def test_a_schema_that_is_no_object_is_wrapped(do: Do, answers: ModuleType, server: Any) -> None:
    """A tool takes an object; the value in it is what the task gives."""
    schema = {"type": "array", "items": {"type": "string"}}
    result = do(answers.result({"value": ["a"]}), output_format={"type": "json", "schema": schema})["result"]
    assert result["parsedContent"] == ["a"]
    assert server.requests[0]["tools"][0]["input_schema"]["properties"] == {"value": schema}


@pytest.mark.parametrize(
    "words",
    [
        '{"n": 3}',
        '```json\n{"n": 3}\n```',
        'I looked:\n```sh\nls\n```\nSo this is it.\n```json\n{"n": 3}\n```\nDone.',
        '```\n{"n": 3, "why": "```\\n"}\n```',
    ],
)
def test_words_that_are_json_will_do(do: Do, answers: ModuleType, words: str) -> None:
    """From a model that did not call the tool, in its last fence or without one."""
    assert do(answers.text(words), output_format=AS_JSON)["result"]["parsedContent"]["n"] == 3


@pytest.mark.parametrize("words", ["```json\n", "\n```", "``````", "a\n```json\n{", "```\n```\n```"])
def test_fences_without_json_are_told(do: Do, answers: ModuleType, words: str) -> None:
    """As words that are none."""
    assert "is not JSON" in error(do(answers.text(words), output_format=AS_JSON))["message"]


def test_json_without_a_schema_is_asked_for_in_words(do: Do, answers: ModuleType, server: Any) -> None:
    """And null is a value."""
    assert do(answers.text("null"), output_format={"type": "json"})["result"]["parsedContent"] is None
    assert "tools" not in server.requests[0]
    assert "JSON only" in prompt(server)


def test_output_that_breaks_its_schema_fails(do: Do, answers: ModuleType, server: Any) -> None:
    """With what is wrong and what was said; there is no second call."""
    answer = do(answers.result({"n": -1}), output_format=AS_JSON)
    found = error(answer)
    assert found["reason"] == "output_format_failure"
    assert "breaks the schema at `n`" in found["message"]
    assert found["details"]["content"] == '{"n": -1}'
    assert answer["usage"]["tokens"] == 150
    assert len(server.requests) == 1


def test_one_attempt_at_repair_on_request(do: Do, answers: ModuleType, server: Any) -> None:
    """The model is told what is wrong; both calls are paid for."""
    repair = {**AS_JSON, "repair": True}
    answer = do(answers.text("three?"), answers.result({"n": 3}), output_format=repair)
    assert answer["result"]["parsedContent"] == {"n": 3}
    assert answer["result"]["notes"]["repaired"].startswith("the reply is not JSON")
    assert answer["usage"]["tokens"] == 300
    assert "the reply is not JSON" in prompt(server)
    assert error(do(answers.text("no"), output_format=repair))["reason"] == "output_format_failure"
    assert len(server.requests) == 2


def test_a_pattern_that_takes_for_ever_ends_in_time(do: Do, answers: ModuleType) -> None:
    """A reply is held against its schema where it can be ended."""
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}
    answer = do(
        answers.result({"a": "a" * 40 + "b"}),
        output_format={"type": "json", "schema": schema},
        args={"timeout_s": 1.5},
    )
    assert error(answer)["reason"] == "execution_timeout"


def test_half_a_json_says_where_it_was_cut(do: Do, answers: ModuleType) -> None:
    """At the limit of tokens, as words or as a tool's input."""
    found = error(do(answers.text('{"n": ', stop_reason="max_tokens"), output_format=AS_JSON))
    assert "truncated at `max_tokens` of `tasks` (8192)" in found["message"]


def test_a_text_that_was_cut_off_is_a_continuation(do: Do, answers: ModuleType) -> None:
    """Its status says that there would be more."""
    assert do(answers.text("Once", stop_reason="max_tokens"))["result"]["status"] == "CONTINUATION"


def test_criteria_are_told_and_given_back(do: Do, answers: ModuleType, server: Any) -> None:
    """In the prompt and in the result, also in one that failed."""
    result = do(answers.text("ok"), criteria="Fair to {{who}}.", inputs={"who": "all"})["result"]
    assert result["criteria"] == "Fair to all."
    assert "judged by this: Fair to all." in prompt(server)
    assert do(answers.status(400), criteria="Fair.")["result"]["criteria"] == "Fair."


# --- the call -------------------------------------------------------------------------------------


def test_the_stable_prefix_is_cached(do: Do, answers: ModuleType, server: Any, project: Path) -> None:
    """System and files, where they are long enough to be; what was read from the cache costs less."""
    (project / "a").write_text("x" * 5000)
    cached = {"cache_read_input_tokens": 1000, "cache_creation_input_tokens": 2000}
    answer = do(answers.text("ok", tokens=(100, 10), cached=cached), system="y" * 5000, args={"files": ["a"]})
    (sent,) = server.requests
    assert sent["system"][0]["cache_control"] == {"type": "ephemeral"}
    files, instructions = sent["messages"][0]["content"]
    assert files["cache_control"] == {"type": "ephemeral"}
    assert "cache_control" not in instructions
    assert answer["usage"] == {
        "input_tokens": 3100,
        "output_tokens": 10,
        "tokens": 3110,
        "cache_read_tokens": 1000,
        "cache_write_tokens": 2000,
        "usd": pytest.approx((100 + 100 + 2500 + 50) / 1e6),
    }


def test_what_a_model_says_is_shown_as_it_comes(
    do: Do, answers: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In parts, without secrets, also where a secret lies across two."""
    from llc.runtime.host import secrets

    monkeypatch.setattr(secrets, "known", secrets.Secrets({"MY_TOKEN": "hunter2-hunter2"}))
    shown: list[str] = []
    words = "a" * 35 + "hunter2-hunter2" + "b" * 35
    answer = do(answers.text(words), within={"on_output": lambda stream, text: shown.append(text)})
    assert len(shown) > 1
    assert "".join(shown) == "a" * 35 + "***" + "b" * 35 + "\n"
    assert answer["result"]["content"] == words


def test_a_secret_does_not_reach_a_prompt(
    do: Do, answers: ModuleType, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model can do its work without."""
    from llc.runtime.host import secrets

    monkeypatch.setattr(secrets, "known", secrets.Secrets({"MY_TOKEN": "hunter2-hunter2"}))
    do(answers.text("ok"), instructions="{{x}}", inputs={"x": "it is hunter2-hunter2"})
    assert prompt(server) == "it is ***"


def test_the_models_own_name_comes_before_the_projects(
    do: Do, answers: ModuleType, server: Any, project: Path
) -> None:
    """Task, then `.loops/config.yaml`, then the default."""
    do(answers.text("ok"))
    assert server.requests[0]["model"] == "claude-haiku-4-5"
    (project / ".loops").mkdir()
    (project / ".loops" / "config.yaml").write_text("tasks: {model: claude-opus-5, max_tokens: 77}\n")
    do(answers.text("ok"))  # settings are those with which the first task began
    assert server.requests[0]["model"] == "claude-haiku-4-5"
    do(answers.text("ok"), model="claude-sonnet-5")
    assert server.requests[0]["model"] == "claude-sonnet-5"


def test_the_projects_model(do: Do, answers: ModuleType, server: Any, project: Path) -> None:
    """From its configuration, with a limit of tokens."""
    (project / ".loops").mkdir()
    (project / ".loops" / "config.yaml").write_text("tasks: {model: claude-opus-5, max_tokens: 77}\n")
    do(answers.text("ok"))
    assert (server.requests[0]["model"], server.requests[0]["max_tokens"]) == ("claude-opus-5", 77)


@pytest.mark.parametrize(
    ("code", "kind"), [(400, "bad-request"), (401, "unauthorized"), (404, "bad-request")]
)
def test_an_error_of_the_api_fails_the_task(do: Do, answers: ModuleType, code: int, kind: str) -> None:
    """With the API's own words."""
    found = error(do(answers.status(code, "it says so")))
    assert (found["reason"], found["details"]["kind"]) == ("subtask_failure", kind)
    assert found["message"].startswith(f"HTTP {code}: it says so")


@pytest.mark.parametrize(
    ("code", "kind"), [(429, "rate-limited"), (500, "server-error"), (529, "server-error")]
)
def test_the_client_tries_again(do: Do, answers: ModuleType, server: Any, code: int, kind: str) -> None:
    """After 429 and 5xx; what goes on for ever fails the task."""
    busy = answers.status(code, "busy", retry_after=0.01)
    assert do(busy, answers.text("ok"))["result"]["status"] == "COMPLETE"
    assert len(server.requests) == 2
    assert error(do(busy))["details"]["kind"] == kind


def test_a_connection_that_breaks_in_the_middle(do: Do, answers: ModuleType, server: Any) -> None:
    """Fails the task; what is known of its usage is told, and it is not asked again."""
    answer = do(answers.half(answers.text("word " * 100)))
    assert error(answer)["details"]["kind"] == "connection"
    assert answer["usage"]["input_tokens"] == 120
    assert len(server.requests) == 1


def test_a_stream_that_ends_early(do: Do, answers: ModuleType) -> None:
    """Whole as HTTP goes, without the event that ends it."""
    begun = next(
        answers.events({"content": [], "usage": {"input_tokens": 5}, "stop_reason": None, "type": "message"})
    )
    cut = answers.body(answers.event(begun), "text/event-stream")
    assert error(do(cut))["message"].startswith(
        "the reply is incomplete; check that a server answers at http://"
    )


@pytest.mark.parametrize("data", [b"data: {\n\n", b'event: message_start\ndata: {"type"\n\n', b"<html>", b""])
def test_what_is_no_stream_is_an_error(do: Do, answers: ModuleType, data: bytes) -> None:
    """Half a JSON among it."""
    assert error(do(answers.body(data, "text/event-stream")))["details"]["kind"] == "invalid-reply"


def test_an_error_in_the_stream(do: Do, answers: ModuleType) -> None:
    """As the API sends one when it is overloaded."""
    event = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    found = error(do(answers.body(answers.event(event), "text/event-stream")))
    assert "Overloaded" in found["message"]


def test_ten_megabytes_are_too_much(do: Do, answers: ModuleType) -> None:
    """The reply is refused in the middle; memory does not fill."""
    found = error(do(answers.text("x" * 10_000_000)))
    assert found["details"]["kind"] == "too-long"


def test_a_slow_drip_ends_in_time(do: Do, answers: ModuleType) -> None:
    """No read takes long, the whole of it does: `execution_timeout`."""
    answer = do(answers.drip(), args={"timeout_s": 0.5})
    assert error(answer)["reason"] == "execution_timeout"
    assert answer["timed_out"] == "action"


def test_the_time_of_the_run_counts(do: Do, answers: ModuleType) -> None:
    """A deadline that has passed: nothing is asked, and the effect says whose time it was."""
    answer = do(answers.text("ok"), args={"deadline_ms": 0})
    assert answer["timed_out"] == "loop"
    assert error(answer)["reason"] == "execution_timeout"


def test_ctrl_c_ends_a_call_at_once(do: Do, answers: ModuleType, server: Any, interrupt: Interrupt) -> None:
    """Wherever it hangs; the next task has a new client."""
    do(answers.text("ok"))
    timer = threading.Timer(0.3, interrupt.set)
    timer.start()
    with pytest.raises(Interrupted):
        do(answers.stall())
    timer.join()


def test_a_refusal_is_a_failure(do: Do, answers: ModuleType) -> None:
    """Not a text."""
    assert error(do(answers.text("", stop_reason="refusal")))["details"]["kind"] == "refusal"


def test_a_model_that_cannot_be_forced_is_asked(do: Do, answers: ModuleType, server: Any) -> None:
    """Once refused, the tool is asked for in words."""
    answer = do(
        answers.refuse_forced(answers.result({"n": 1})), output_format=AS_JSON, model="claude-fable-5"
    )
    assert answer["result"]["parsedContent"] == {"n": 1}
    assert "calling the tool" in prompt(server)


# --- agents ---------------------------------------------------------------------------------------


def test_an_agent_program_does_a_task(do: Do, project: Path, server: Any) -> None:
    """It is given the prompt with the files' names; its report is the output and the usage."""
    agent = project / "agent"
    agent.write_text(
        "#!/bin/sh\nprintf '%s' \"$2\" > asked\n"
        """echo '{"type": "result", "result": "{\\"n\\": 4}", "total_cost_usd": 0.5, """
        """"usage": {"input_tokens": 9}}'\n"""
    )
    agent.chmod(0o755)
    (project / "a").write_text("A")
    (project / ".loops").mkdir()
    (project / ".loops" / "config.yaml").write_text("tasks: {runner: agent, agent: [./agent, -p]}\n")
    answer = do(output_format=AS_JSON, args={"files": ["a"]})
    assert answer["result"]["parsedContent"] == {"n": 4}
    assert answer["usage"]["usd"] == 0.5
    asked = (project / "asked").read_text()
    assert asked.startswith("Look at these files:\n- a\n\nDo it.\n\nAnswer with JSON only")
    agent.write_text("#!/bin/sh\necho broken >&2; exit 3\n")
    found = error(do())
    assert (found["details"]["exit_code"], server.requests) == (3, [])
    assert "broken" in found["message"]


def test_an_agent_that_hands_over_is_a_continuation(do: Do, project: Path) -> None:
    """One that the project knows by name; what it hands on is in the notes."""
    agent = project / "agent"
    agent.write_text("#!/bin/sh\necho half\necho 'CONTEXT_HANDOFF: the other half'\n")
    agent.chmod(0o755)
    (project / ".loops").mkdir()
    (project / ".loops" / "config.yaml").write_text(
        "agents: {own: {argv: [./agent, '{prompt}'], output: text}}\ntasks: {agent: own}\n"
    )
    result = do(runner="agent")["result"]
    assert (result["status"], result["notes"]["handoff"]) == ("CONTINUATION", "the other half")


REPAIRED = """\
#!/bin/sh
printf '%s|' "$@" >> asked; cat >> asked; echo >> asked
case "$*" in
*--resume*) result='{\\"n\\": 4}' usd=0.25 ;;
*) result=four usd=0.5 ;;
esac
printf '{"type": "result", "result": "%s", "session_id": "s-1", "total_cost_usd": %s}\\n' "$result" $usd
"""
AGENTS = {
    "claude": "tasks: {agent: [./claude, -p]}\n",
    "own": "agents: {own: {argv: [./claude, -p], resume: [./claude, --resume, '{session}', '{prompt}']}}\n"
    "tasks: {agent: own}\n",
}


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_repairs_in_its_session(do: Do, project: Path, name: str) -> None:
    """On request, once, where it told its session and can go on with one; both calls are paid for."""
    agent = project / "claude"
    agent.write_text(REPAIRED)
    agent.chmod(0o755)
    (project / ".loops").mkdir()
    (project / ".loops" / "config.yaml").write_text(AGENTS[name])
    answer = do(runner="agent", output_format={**AS_JSON, "repair": True})
    assert answer["result"]["parsedContent"] == {"n": 4}
    assert answer["result"]["notes"]["session"] == "s-1"
    assert answer["result"]["notes"]["repaired"].startswith("the reply is not JSON")
    assert answer["usage"]["usd"] == 0.75
    asked = (project / "asked").read_text()
    again = asked.splitlines()[-1]
    assert asked.startswith("-p|Do it.")
    assert again.startswith("--resume|s-1|")
    assert "That cannot be used: the reply is not JSON" in again


@pytest.mark.parametrize("config", ["tasks: {agent: [./other]}\n", AGENTS["claude"]])
def test_an_agent_without_a_session_is_asked_once(do: Do, project: Path, config: str) -> None:
    """One that cannot go on with a session, and one that tells none."""
    for name in ("other", "claude"):
        (project / name).write_text("#!/bin/sh\necho >> asked\necho four\n")
        (project / name).chmod(0o755)
    (project / ".loops").mkdir()
    (project / ".loops" / "config.yaml").write_text(config)
    answer = do(runner="agent", output_format={**AS_JSON, "repair": True})
    assert error(answer)["reason"] == "output_format_failure"
    assert len((project / "asked").read_text().splitlines()) == 1


def test_a_missing_agent_is_named(do: Do, project: Path) -> None:
    """As for slash commands."""
    (project / ".loops").mkdir()
    (project / ".loops" / "config.yaml").write_text("tasks: {agent: [no-such-agent]}\n")
    assert "no-such-agent" in error(do(runner="agent"))["message"]
