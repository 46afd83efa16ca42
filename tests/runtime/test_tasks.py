"""Atomic tasks (`spec/tasks.md`): the real client against a local server."""

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
JSON_FORMAT = {"type": "json", "schema": SCHEMA}


@pytest.fixture(scope="module")
def server(answers: ModuleType) -> Iterator[Any]:
    with answers.MessagesServer() as server:
        yield server


@pytest.fixture(scope="module")
def shared(server: Any) -> Iterator[World]:
    """A world for all tests of the module, as the import of the client takes more than a second."""
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
    """`do(answer, …, inputs={…}, args={…}, instructions=…)`: perform a task effect; returns its result."""
    turns_of(shared).turns.clear()
    tasks_of(shared)._settings = None

    def do(
        *replies: Any,
        inputs: dict[str, Any] | None = None,
        within: dict[str, Any] | None = None,
        args: dict[str, Any] | None = None,
        **definition: Any,
    ) -> dict[str, Any]:
        server.requests.clear()
        server.answers[:] = replies
        definition = {"type": "atomic", "instructions": "Do it.", **definition}
        task = {"name": "user:do", "inputs": inputs or {}, "definition": definition, **(args or {})}
        answer = shared.perform(effect("task", **task), context(**(within or {})))
        structure(TaskResult, answer["result"])  # every result, failed ones too, fits the schema
        return answer

    return do


def prompt(server: Any, at: int = -1) -> str:
    """The content of the last message of a request, its parts separated by `---`."""
    return "\n---\n".join(part["text"] for part in server.requests[at]["messages"][-1]["content"])


def error(answer: dict[str, Any]) -> dict[str, Any]:
    assert answer["result"]["status"] == "FAILED"
    notes: dict[str, Any] = answer["result"]["notes"]
    failure: dict[str, Any] = notes["error"]
    return failure


# --- templates ------------------------------------------------------------------------------------


def test_inputs_are_inserted_in_instructions_and_system_prompt(
    do: Do, answers: ModuleType, server: Any
) -> None:
    """Strings are inserted verbatim, other values as JSON, null as nothing; inserted text is not expanded
    again.
    """
    do(
        answers.text("ok"),
        instructions="{{ a }} {{m.k}} {{m.l.1}} {{n}} {{none}}. {{m}}",
        system="Be {{a}}.",
        inputs={"a": "{{n}}", "m": {"k": "v", "l": [1, 2]}, "n": 1.5, "none": None},
    )
    assert prompt(server) == '{{n}} v 2 1.5 . {\n "k": "v",\n "l": [\n  1,\n  2\n ]\n}'
    assert server.requests[0]["system"] == [{"type": "text", "text": "Be {{n}}."}]


def test_a_missing_field_fails_before_the_request(do: Do, answers: ModuleType, server: Any) -> None:
    """The message lists the fields that exist."""
    failure = error(do(answers.text("ok"), instructions="{{m.x}}", inputs={"m": {"y": 1}}))
    assert failure["reason"] == "input_validation_failure"
    assert failure["message"] == "`{{m.x}}`: `m` has no `x`, it has y"
    assert server.requests == []


def test_empty_instructions_fail_before_the_request(do: Do, answers: ModuleType, server: Any) -> None:
    failure = error(do(answers.text("ok"), instructions=" {{x}} ", inputs={"x": ""}))
    assert failure["reason"] == "input_validation_failure"
    assert server.requests == []


# --- files ----------------------------------------------------------------------------------------


def test_files_are_in_the_prompt(do: Do, answers: ModuleType, server: Any, project: Path) -> None:
    """Texts are complete; a note in the prompt and in the result replaces a binary or missing file or a
    folder.
    """
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


def test_large_files_are_truncated_with_a_note(
    do: Do, answers: ModuleType, server: Any, project: Path
) -> None:
    """Limits hold for each file and for all files together; no character is split."""
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


def test_files_with_credentials_are_not_in_the_prompt(
    do: Do, answers: ModuleType, server: Any, project: Path
) -> None:
    """The file name decides, as in memory; the target of a link counts."""
    (project / ".env").write_text("KEY=hunter2\n")
    (project / "plain.txt").symlink_to(".env")
    do(answers.text("ok"), args={"files": [".env", "plain.txt"]})
    assert "hunter2" not in prompt(server)
    assert "[`.env` is not shown: by its name it holds keys or passwords]" in prompt(server)
    do(answers.text("ok"), args={"files": ["plain.txt"]})
    assert "hunter2" not in prompt(server)


@pytest.mark.parametrize("path", ["../../etc/passwd", "/etc/passwd", "link", "a/../../x", "", "a\0b"])
def test_a_path_outside_the_project_is_refused(
    do: Do, answers: ModuleType, server: Any, project: Path, path: str
) -> None:
    """Paths with `..`, absolute paths and links are refused before the file is read or a request is sent."""
    (project / "link").symlink_to("/etc/passwd")
    failure = error(do(answers.text("ok"), args={"files": [path]}))
    assert failure["reason"] == "input_validation_failure"
    assert server.requests == []


def test_a_template_cannot_name_a_path_outside_the_project(do: Do, answers: ModuleType, server: Any) -> None:
    """An input that is inserted in a path of the task is checked too."""
    declared = {"source": "literal", "paths": ["src/{{name}}"]}
    result = do(answers.text("ok"), file_paths=declared, inputs={"name": "../../etc/passwd"})
    assert error(result)["message"] == "`src/../../etc/passwd` is outside of the project"
    assert server.requests == []


def test_a_command_names_files(do: Do, answers: ModuleType, server: Any, project: Path) -> None:
    """Each line of the output is a path; inputs are quoted for the shell; failure is
    `context_retrieval_failure`.
    """
    (project / "a b;touch x").write_text("inside")
    pieces = ["printf '%s\\n' ", {"of": "name", "quoting": "word"}]
    declared = {"source": "command", "text": "printf {{name}}", "shell": pieces}
    do(answers.text("ok"), file_paths=declared, inputs={"name": "a b;touch x"})
    assert "\ninside\n" in prompt(server)
    assert not (project / "x").exists()
    failure = error(do(answers.text("ok"), file_paths={"source": "command", "text": "echo no >&2; exit 3"}))
    assert (failure["reason"], failure["details"]["exit_code"]) == ("context_retrieval_failure", 3)


def test_memory_finds_files(do: Do, answers: ModuleType, server: Any, project: Path) -> None:
    """The query is the description of `file_paths`, or with `fresh_context` that of the task."""
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


# --- earlier tasks of the run --------------------------------------------------------------------


def test_history_contains_earlier_turns(do: Do, answers: ModuleType, server: Any) -> None:
    """Turns are limited by `history_turns_to_include`; unrecorded turns are left out."""
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
    """Outputs are complete or, with `notes_only`, reduced to notes; files of the previous task are
    inherited.
    """
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


def test_history_survives_a_checkpoint_and_a_replay(
    do: Do, shared: World, answers: ModuleType, effect: Any
) -> None:
    """A world that observes recorded results, or is restored, has the same turns."""
    answer = do(answers.text("one"), instructions="first")
    replayed = World()
    replayed.observe(effect("task", name="user:do", inputs={}), answer)
    restored = World()
    assert restored.restore(shared.save())
    assert turns_of(replayed).turns == turns_of(restored).turns == turns_of(shared).turns != []
    assert not restored.restore([{"task": 1}])
    assert World().save() is None


# --- outputs --------------------------------------------------------------------------------------


def test_a_schema_forces_the_tool_call(do: Do, answers: ModuleType, server: Any) -> None:
    """The arguments of the call are `parsedContent`, and as JSON `content`."""
    result = do(answers.result({"n": 3}), output_format=JSON_FORMAT)["result"]
    assert (result["parsedContent"], result["content"]) == ({"n": 3}, '{"n": 3}')
    (sent,) = server.requests
    assert sent["tool_choice"] == {"type": "tool", "name": "answer"}
    assert sent["tools"][0]["input_schema"] == SCHEMA


def test_a_schema_of_another_type_is_wrapped_in_an_object(do: Do, answers: ModuleType, server: Any) -> None:
    """The result of the task is the value in the object."""
    schema = {"type": "array", "items": {"type": "string"}}
    result = do(answers.result({"value": ["a"]}), output_format={"type": "json", "schema": schema})["result"]
    assert result["parsedContent"] == ["a"]
    assert server.requests[0]["tools"][0]["input_schema"]["properties"] == {"value": schema}


@pytest.mark.parametrize(
    "reply",
    [
        '{"n": 3}',
        '```json\n{"n": 3}\n```',
        'I looked:\n```sh\nls\n```\nSo this is it.\n```json\n{"n": 3}\n```\nDone.',
        '```\n{"n": 3, "why": "```\\n"}\n```',
    ],
)
def test_a_text_reply_with_json_is_accepted(do: Do, answers: ModuleType, reply: str) -> None:
    """The JSON may be in the last code fence or without a fence."""
    assert do(answers.text(reply), output_format=JSON_FORMAT)["result"]["parsedContent"]["n"] == 3


@pytest.mark.parametrize("reply", ["```json\n", "\n```", "``````", "a\n```json\n{", "```\n```\n```"])
def test_fences_without_json_are_reported(do: Do, answers: ModuleType, reply: str) -> None:
    assert "is not JSON" in error(do(answers.text(reply), output_format=JSON_FORMAT))["message"]


def test_json_without_a_schema_is_requested_in_the_prompt(do: Do, answers: ModuleType, server: Any) -> None:
    """`null` is an accepted value."""
    assert do(answers.text("null"), output_format={"type": "json"})["result"]["parsedContent"] is None
    assert "tools" not in server.requests[0]
    assert "JSON only" in prompt(server)


def test_output_that_violates_its_schema_fails(do: Do, answers: ModuleType, server: Any) -> None:
    """The error has the violation and the reply; there is no second request."""
    answer = do(answers.result({"n": -1}), output_format=JSON_FORMAT)
    failure = error(answer)
    assert failure["reason"] == "output_format_failure"
    assert "breaks the schema at `n`" in failure["message"]
    assert failure["details"]["content"] == '{"n": -1}'
    assert answer["usage"]["tokens"] == 150
    assert len(server.requests) == 1


def test_a_requested_repair_is_tried_once(do: Do, answers: ModuleType, server: Any) -> None:
    """The second request states the problem; the usage of both requests counts."""
    repair = {**JSON_FORMAT, "repair": True}
    answer = do(answers.text("three?"), answers.result({"n": 3}), output_format=repair)
    assert answer["result"]["parsedContent"] == {"n": 3}
    assert answer["result"]["notes"]["repaired"].startswith("the reply is not JSON")
    assert answer["usage"]["tokens"] == 300
    assert "the reply is not JSON" in prompt(server)
    assert error(do(answers.text("no"), output_format=repair))["reason"] == "output_format_failure"
    assert len(server.requests) == 2


def test_a_pattern_of_exponential_time_is_ended_by_the_timeout(do: Do, answers: ModuleType) -> None:
    """A reply is validated in a process that can be ended."""
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}
    answer = do(
        answers.result({"a": "a" * 40 + "b"}),
        output_format={"type": "json", "schema": schema},
        args={"timeout_s": 1.5},
    )
    assert error(answer)["reason"] == "execution_timeout"


def test_truncated_json_reports_the_token_limit(do: Do, answers: ModuleType) -> None:
    failure = error(do(answers.text('{"n": ', stop_reason="max_tokens"), output_format=JSON_FORMAT))
    assert "truncated at `max_tokens` of `tasks` (8192)" in failure["message"]


def test_a_truncated_text_has_the_status_continuation(do: Do, answers: ModuleType) -> None:
    assert do(answers.text("Once", stop_reason="max_tokens"))["result"]["status"] == "CONTINUATION"


def test_criteria_are_in_the_prompt_and_in_the_result(do: Do, answers: ModuleType, server: Any) -> None:
    """A failed result has them too."""
    result = do(answers.text("ok"), criteria="Fair to {{who}}.", inputs={"who": "all"})["result"]
    assert result["criteria"] == "Fair to all."
    assert "judged by this: Fair to all." in prompt(server)
    assert do(answers.status(400), criteria="Fair.")["result"]["criteria"] == "Fair."


# --- the request ----------------------------------------------------------------------------------


def test_the_prefix_of_the_prompt_is_cached(do: Do, answers: ModuleType, server: Any, project: Path) -> None:
    """A long system prompt and long files are marked for the cache; cached tokens cost less."""
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


def test_a_reply_is_shown_while_it_arrives(
    do: Do, answers: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Secrets are masked, even if a secret is split across two parts."""
    from llc.runtime.host import secrets

    monkeypatch.setattr(secrets, "known", secrets.Secrets({"MY_TOKEN": "hunter2-hunter2"}))
    shown: list[str] = []
    reply = "a" * 35 + "hunter2-hunter2" + "b" * 35
    answer = do(answers.text(reply), within={"on_output": lambda stream, text: shown.append(text)})
    assert len(shown) > 1
    assert "".join(shown) == "a" * 35 + "***" + "b" * 35 + "\n"
    assert answer["result"]["content"] == reply


def test_secrets_are_masked_in_a_prompt(
    do: Do, answers: ModuleType, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from llc.runtime.host import secrets

    monkeypatch.setattr(secrets, "known", secrets.Secrets({"MY_TOKEN": "hunter2-hunter2"}))
    do(answers.text("ok"), instructions="{{x}}", inputs={"x": "it is hunter2-hunter2"})
    assert prompt(server) == "it is ***"


def test_the_model_of_the_task_overrides_the_configuration(
    do: Do, answers: ModuleType, server: Any, project: Path
) -> None:
    """The configuration is read when the first task starts."""
    do(answers.text("ok"))
    assert server.requests[0]["model"] == "claude-haiku-4-5"
    (project / ".loops").mkdir()
    (project / ".loops" / "config.yaml").write_text("tasks: {model: claude-opus-5, max_tokens: 77}\n")
    do(answers.text("ok"))  # the configuration was read by the first task
    assert server.requests[0]["model"] == "claude-haiku-4-5"
    do(answers.text("ok"), model="claude-sonnet-5")
    assert server.requests[0]["model"] == "claude-sonnet-5"


def test_the_configuration_sets_model_and_token_limit(
    do: Do, answers: ModuleType, server: Any, project: Path
) -> None:
    (project / ".loops").mkdir()
    (project / ".loops" / "config.yaml").write_text("tasks: {model: claude-opus-5, max_tokens: 77}\n")
    do(answers.text("ok"))
    assert (server.requests[0]["model"], server.requests[0]["max_tokens"]) == ("claude-opus-5", 77)


@pytest.mark.parametrize(
    ("code", "kind"), [(400, "bad-request"), (401, "unauthorized"), (404, "bad-request")]
)
def test_an_error_of_the_api_fails_the_task(do: Do, answers: ModuleType, code: int, kind: str) -> None:
    """The message is that of the API."""
    failure = error(do(answers.status(code, "it says so")))
    assert (failure["reason"], failure["details"]["kind"]) == ("subtask_failure", kind)
    assert failure["message"].startswith(f"HTTP {code}: it says so")


@pytest.mark.parametrize(
    ("code", "kind"), [(429, "rate-limited"), (500, "server-error"), (529, "server-error")]
)
def test_the_client_retries(do: Do, answers: ModuleType, server: Any, code: int, kind: str) -> None:
    """It retries after 429 and 5xx; a persistent error fails the task."""
    busy = answers.status(code, "busy", retry_after=0.01)
    assert do(busy, answers.text("ok"))["result"]["status"] == "COMPLETE"
    assert len(server.requests) == 2
    assert error(do(busy))["details"]["kind"] == kind


def test_a_broken_connection_fails_the_task(do: Do, answers: ModuleType, server: Any) -> None:
    """The known usage is reported, and the request is not repeated."""
    answer = do(answers.half(answers.text("word " * 100)))
    assert error(answer)["details"]["kind"] == "connection"
    assert answer["usage"]["input_tokens"] == 120
    assert len(server.requests) == 1


def test_a_stream_without_its_last_event_fails_the_task(do: Do, answers: ModuleType) -> None:
    """The HTTP response is complete, but the final event is missing."""
    message_start = next(
        answers.events({"content": [], "usage": {"input_tokens": 5}, "stop_reason": None, "type": "message"})
    )
    cut = answers.body(answers.event(message_start), "text/event-stream")
    assert error(do(cut))["message"].startswith(
        "the reply is incomplete; check that a server answers at http://"
    )


@pytest.mark.parametrize("data", [b"data: {\n\n", b'event: message_start\ndata: {"type"\n\n', b"<html>", b""])
def test_malformed_stream_is_an_error(do: Do, answers: ModuleType, data: bytes) -> None:
    assert error(do(answers.body(data, "text/event-stream")))["details"]["kind"] == "invalid-reply"


def test_an_error_event_in_the_stream_fails_the_task(do: Do, answers: ModuleType) -> None:
    """The API sends such an event when it is overloaded."""
    event = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    failure = error(do(answers.body(answers.event(event), "text/event-stream")))
    assert "Overloaded" in failure["message"]


def test_a_reply_of_ten_megabytes_is_refused(do: Do, answers: ModuleType) -> None:
    """The reply is refused while it arrives, so memory is bounded."""
    failure = error(do(answers.text("x" * 10_000_000)))
    assert failure["details"]["kind"] == "too-long"


def test_a_slow_reply_is_ended_by_the_timeout(do: Do, answers: ModuleType) -> None:
    """Each read is short, but the complete reply takes too long: `execution_timeout`."""
    answer = do(answers.drip(), args={"timeout_s": 0.5})
    assert error(answer)["reason"] == "execution_timeout"
    assert answer["timed_out"] == "action"


def test_the_deadline_of_the_run_ends_a_task(do: Do, answers: ModuleType) -> None:
    """After the deadline no request is sent, and `timed_out` names the loop."""
    answer = do(answers.text("ok"), args={"deadline_ms": 0})
    assert answer["timed_out"] == "loop"
    assert error(answer)["reason"] == "execution_timeout"


def test_an_interrupt_ends_a_request_at_once(
    do: Do, answers: ModuleType, server: Any, interrupt: Interrupt
) -> None:
    do(answers.text("ok"))
    timer = threading.Timer(0.3, interrupt.set)
    timer.start()
    with pytest.raises(Interrupted):
        do(answers.stall())
    timer.join()


def test_a_refusal_is_a_failure(do: Do, answers: ModuleType) -> None:
    assert error(do(answers.text("", stop_reason="refusal")))["details"]["kind"] == "refusal"


def test_a_model_without_forced_tools_is_asked_to_call_the_tool(
    do: Do, answers: ModuleType, server: Any
) -> None:
    """After the API refused the forced tool call, the prompt asks for the call."""
    answer = do(
        answers.refuse_forced(answers.result({"n": 1})), output_format=JSON_FORMAT, model="claude-fable-5"
    )
    assert answer["result"]["parsedContent"] == {"n": 1}
    assert "calling the tool" in prompt(server)


# --- agents ---------------------------------------------------------------------------------------


def test_an_agent_performs_a_task(do: Do, project: Path, server: Any) -> None:
    """The prompt contains the names of the files; the report has the output and the usage."""
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
    answer = do(output_format=JSON_FORMAT, args={"files": ["a"]})
    assert answer["result"]["parsedContent"] == {"n": 4}
    assert answer["usage"]["usd"] == 0.5
    received = (project / "asked").read_text()
    assert received.startswith("Look at these files:\n- a\n\nDo it.\n\nAnswer with JSON only")
    agent.write_text("#!/bin/sh\necho broken >&2; exit 3\n")
    failure = error(do())
    assert (failure["details"]["exit_code"], server.requests) == (3, [])
    assert "broken" in failure["message"]


def test_a_handoff_of_an_agent_is_a_continuation(do: Do, project: Path) -> None:
    """The notes contain the text of the handoff; the agent is one of the configuration."""
    agent = project / "agent"
    agent.write_text("#!/bin/sh\necho half\necho 'CONTEXT_HANDOFF: the other half'\n")
    agent.chmod(0o755)
    (project / ".loops").mkdir()
    (project / ".loops" / "config.yaml").write_text(
        "agents: {own: {argv: [./agent, '{prompt}'], output: text}}\ntasks: {agent: own}\n"
    )
    result = do(runner="agent")["result"]
    assert (result["status"], result["notes"]["handoff"]) == ("CONTINUATION", "the other half")


RESUMABLE_AGENT = """\
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
def test_an_agent_repairs_its_reply_in_its_session(do: Do, project: Path, name: str) -> None:
    """On request and once, if the agent reports a session and can resume it; the usage of both calls
    counts.
    """
    agent = project / "claude"
    agent.write_text(RESUMABLE_AGENT)
    agent.chmod(0o755)
    (project / ".loops").mkdir()
    (project / ".loops" / "config.yaml").write_text(AGENTS[name])
    answer = do(runner="agent", output_format={**JSON_FORMAT, "repair": True})
    assert answer["result"]["parsedContent"] == {"n": 4}
    assert answer["result"]["notes"]["session"] == "s-1"
    assert answer["result"]["notes"]["repaired"].startswith("the reply is not JSON")
    assert answer["usage"]["usd"] == 0.75
    calls = (project / "asked").read_text()
    repair = calls.splitlines()[-1]
    assert calls.startswith("-p|Do it.")
    assert repair.startswith("--resume|s-1|")
    assert "That cannot be used: the reply is not JSON" in repair


@pytest.mark.parametrize("config", ["tasks: {agent: [./other]}\n", AGENTS["claude"]])
def test_an_agent_without_a_session_is_called_once(do: Do, project: Path, config: str) -> None:
    """One agent cannot resume sessions, the other reports none."""
    for name in ("other", "claude"):
        (project / name).write_text("#!/bin/sh\necho >> asked\necho four\n")
        (project / name).chmod(0o755)
    (project / ".loops").mkdir()
    (project / ".loops" / "config.yaml").write_text(config)
    answer = do(runner="agent", output_format={**JSON_FORMAT, "repair": True})
    assert error(answer)["reason"] == "output_format_failure"
    assert len((project / "asked").read_text().splitlines()) == 1


def test_a_missing_agent_is_named(do: Do, project: Path) -> None:
    (project / ".loops").mkdir()
    (project / ".loops" / "config.yaml").write_text("tasks: {agent: [no-such-agent]}\n")
    assert "no-such-agent" in error(do(runner="agent"))["message"]
