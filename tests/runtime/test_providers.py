"""Model providers: the real `openai` client against a local server, and the model settings of a project."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import llc
from llc.ir.diagnostics import CompileError
from llc.ir.effects import SPENDERS
from llc.runtime.effects.performers import turns_of
from llc.runtime.effects.task import tasks_of
from llc.runtime.effects.world import World
from llc.runtime.host.effect_context import Context
from llc.runtime.project import configuration, models
from llc.runtime.project.models import choose
from llc.runtime.project.providers import PROVIDERS

Do = Callable[..., dict[str, Any]]
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
JSON_FORMAT = {"type": "json", "schema": SCHEMA}


@pytest.fixture(scope="module")
def server(chat: ModuleType) -> Iterator[Any]:
    with chat.ChatServer() as server:
        yield server


@pytest.fixture(scope="module")
def shared(server: Any) -> Iterator[World]:
    """A world for all tests of the module, as the import of the client takes more than a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("OPENAI_API_KEY", raising=False)
        patch.delenv("OPENAI_BASE_URL", raising=False)
        patch.setenv("NO_PROXY", "127.0.0.1")
        patch.setenv("LOCAL_KEY", "a-local-key")
        world = World()
        yield world
        world.close()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Any) -> Path:
    """A project with two configured models on the local server."""
    (tmp_path / ".loops").mkdir()
    (tmp_path / ".loops" / "config.yaml").write_text(
        f"""
models:
  - {{name: local, provider: openai, model: qwen3, base_url: "{server.url}", price: [1, 10]}}
  - {{name: keyed, provider: openai, base_url: "{server.url}", key: LOCAL_KEY}}
tasks: {{model: local}}
"""
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def do(shared: World, server: Any, context: Callable[..., Context], effect: Any, project: Path) -> Do:
    turns_of(shared).turns.clear()
    tasks_of(shared)._settings = None

    def do(*replies: Any, args: dict[str, Any] | None = None, **definition: Any) -> dict[str, Any]:
        server.requests.clear()
        server.headers.clear()
        server.answers[:] = replies
        definition = {"type": "atomic", "instructions": "Do it.", **definition}
        task = {"name": "user:do", "inputs": {}, "definition": definition, **(args or {})}
        return shared.perform(effect("task", **task), context())

    return do


def error(answer: dict[str, Any]) -> dict[str, Any]:
    assert answer["result"]["status"] == "FAILED"
    failure: dict[str, Any] = answer["result"]["notes"]["error"]
    return failure


def test_a_configured_model_performs_a_task(do: Do, chat: ModuleType, server: Any) -> None:
    """The request has the name of the model on its server and streams; the configured price applies."""
    answer = do(chat.text("It is short.", tokens=(1000, 100), cached=400), system="Be kind.")
    assert answer["result"]["content"] == "It is short."
    assert answer["usage"]["usd"] == pytest.approx((600 + 40 + 1000) / 1e6)
    assert answer["usage"]["cache_read_tokens"] == 400
    (sent,) = server.requests
    assert (sent["model"], sent["stream"], sent["max_tokens"]) == ("qwen3", True, 8192)
    assert sent["messages"] == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Do it."},
    ]


def test_the_key_is_that_of_the_configured_variable(
    do: Do, chat: ModuleType, server: Any, shared: World
) -> None:
    """The value of the variable is a secret."""
    settings = configuration.load("")
    assert settings.secrets == ("LOCAL_KEY",)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCAL_KEY", "a-local-key")
        do(chat.text("ok"), model="keyed")
        assert server.headers[0]["authorization"] == "Bearer a-local-key"
        patch.delenv("LOCAL_KEY")
        missing_key = error(do(chat.text("ok"), model="keyed"))
    assert missing_key["message"] == "there is no API key for `keyed`; set LOCAL_KEY"
    assert server.requests == []


def test_a_schema_is_a_forced_tool(do: Do, chat: ModuleType, server: Any) -> None:
    """The reply is validated as with the Messages API."""
    assert do(chat.result({"n": 3}), output_format=JSON_FORMAT)["result"]["parsedContent"] == {"n": 3}
    assert server.requests[0]["tool_choice"] == {"type": "function", "function": {"name": "answer"}}
    assert error(do(chat.result({"n": "x"}), output_format=JSON_FORMAT))["reason"] == "output_format_failure"
    assert do(chat.text('{"n": 1}'), output_format=JSON_FORMAT)["result"]["parsedContent"] == {"n": 1}


def test_a_server_without_streaming_is_supported(do: Do, server: Any) -> None:
    """A server may ignore `stream`; a malformed reply is an error."""

    def respond(message: dict[str, Any], finish: str = "stop") -> Callable[..., None]:
        choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", **message}}
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        body = {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "usage": usage}
        return lambda handler, request: handler.send_json(200, {**body, "choices": [choice]})

    answer = do(respond({"content": "It is short."}))
    assert answer["result"]["content"] == "It is short."
    assert answer["usage"]["tokens"] == 15
    call = {"id": "c", "type": "function", "function": {"name": "answer", "arguments": '{"n": 3}'}}
    with_call = respond({"content": None, "tool_calls": [call]}, "tool_calls")
    assert do(with_call, output_format=JSON_FORMAT)["result"]["parsedContent"] == {"n": 3}
    for body in ({}, [], {"choices": 5}, {"choices": [{"message": None}]}):
        broken = error(do(lambda handler, request, body=body: handler.send_json(200, body)))
        assert "the response is not a reply of this API" in broken["message"]


def test_a_server_without_forced_tools_is_asked_to_call_the_tool(
    do: Do, chat: ModuleType, server: Any
) -> None:
    answer = do(
        chat.status(400, "tool_choice is not supported"), chat.result({"n": 1}), output_format=JSON_FORMAT
    )
    assert answer["result"]["parsedContent"] == {"n": 1}
    assert server.requests[1]["tool_choice"] == "auto"


@pytest.mark.parametrize(
    ("code", "kind"),
    [(401, "unauthorized"), (404, "bad-request"), (429, "rate-limited"), (500, "server-error")],
)
def test_errors_have_the_same_kinds_for_all_providers(do: Do, chat: ModuleType, code: int, kind: str) -> None:
    """The errors follow after the client's own retries."""
    failure = error(do(chat.status(code, "so it is")))
    assert failure["details"]["kind"] == kind
    assert failure["message"].startswith(f"HTTP {code}: so it is")


def test_a_broken_or_incomplete_stream_is_an_error(do: Do, chat: ModuleType, answers: ModuleType) -> None:
    assert error(do(answers.half(chat.text("word " * 100))))["details"]["kind"] == "connection"
    start = b'data: {"id": "1", "choices": [{"index": 0, "delta": {"content": "a"}}]}\n\n'
    early = error(do(answers.body(start + b"data: [DONE]\n\n", "text/event-stream")))
    assert early["message"].startswith("the reply is incomplete; check that a server answers at http://")
    nothing = error(do(answers.body(b"data: [DONE]\n\n", "text/event-stream")))
    assert nothing["details"]["kind"] == "invalid-reply"
    assert error(do(answers.body(b"data: {\n\n", "text/event-stream")))["details"]["kind"] == "invalid-reply"


def test_missing_usage_is_unknown(do: Do, answers: ModuleType) -> None:
    """The usage of a complete or partial reply without a report is null; without a reply there is no
    usage.
    """
    choice = b'{"index": 0, "delta": {"content": "a"}, "finish_reason": %s}'
    chunk = b'data: {"id": "1", "choices": [' + choice + b"]}\n\n"
    complete = do(answers.body(chunk % b'"stop"' + b"data: [DONE]\n\n", "text/event-stream"))
    assert (complete["result"]["status"], complete["usage"]) == ("COMPLETE", {"tokens": None, "usd": None})
    partial = do(answers.body(chunk % b"null", "text/event-stream"))
    assert partial["usage"] == {"tokens": None, "usd": None}
    assert "usage" not in do(answers.drop())


def test_a_truncated_text_has_the_status_continuation(do: Do, chat: ModuleType) -> None:
    """The finish reason `length` corresponds to `max_tokens` of the Messages API."""
    assert do(chat.text("Once", finish="length"))["result"]["status"] == "CONTINUATION"


def test_a_slow_reply_is_ended_by_the_timeout(do: Do, answers: ModuleType) -> None:
    assert error(do(answers.drip(), args={"timeout_s": 0.5}))["reason"] == "execution_timeout"


def test_the_error_for_a_missing_client_has_the_install_command(
    do: Do, chat: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models.importlib.util, "find_spec", lambda name: None)
    failure = error(do(chat.text("ok")))
    fix = "in a checkout of llc: pip install '.[openai]'"
    assert failure["message"] == f"`qwen3` needs the `openai` client; {fix}"


def test_openais_own_models_need_a_key(do: Do, chat: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a configured address or key."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    failure = error(do(chat.text("ok"), model="gpt-5"))
    assert failure["message"] == "there is no API key for `gpt-5`; set OPENAI_API_KEY"


def test_a_configured_model_evaluates(
    shared: World, server: Any, chat: ModuleType, context: Callable[..., Context], effect: Any, project: Path
) -> None:
    """`evaluate` of loops uses the same name and price."""
    schema = {"type": "object", "properties": {"verdict": {"type": "string"}}, "required": ["verdict"]}
    args = {"prompt": "Good?", "output": "yes", "schema": schema, "model": "local", "max_tokens": 256}
    server.requests.clear()
    server.answers[:] = [chat.result({"verdict": "success"}), chat.text("yes"), chat.result({"verdict": 1})]
    result = shared.perform(effect("evaluate", **args), context())
    assert result["reply"] == {"verdict": "success"}
    assert result["usage"]["usd"] == pytest.approx((120 + 300) / 1e6)
    assert "<action_output>\nyes\n</action_output>" in server.requests[0]["messages"][0]["content"]
    kinds = [shared.perform(effect("evaluate", **args), context())["error"]["kind"] for _ in range(2)]
    assert kinds == ["no-tool-call", "invalid-reply"]


@pytest.mark.parametrize("name", PROVIDERS)
def test_a_provider_is_complete(name: str) -> None:
    """It has a module with the functions that `models.provider` uses, prices, and an extra if needed."""
    row = PROVIDERS[name]
    folder = Path(llc.__file__).parent
    text = (folder / "runtime" / "models" / f"{row.module}.py").read_text("utf-8")
    assert "\ndef main() -> None:" in text
    assert "\ndef send(client: Any, request: dict[str, Any], reply: Reply, is_forced: bool) -> None:" in text
    assert f"\nimport {row.package}\n" in text
    assert json.loads((folder / "stdlib" / "prices.json").read_text("utf-8"))[name]["models"]
    extras = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert not row.extra or any(row.package in requirement for requirement in extras[row.extra])


def test_every_provider_has_a_row() -> None:
    """Modules and prices of providers belong to rows of `project/providers.py`."""
    folder = Path(llc.__file__).parent
    modules = {path.stem for path in (folder / "runtime" / "models").glob("*_provider.py")}
    assert modules == {row.module for row in PROVIDERS.values()}, "add a row to runtime/project/providers.py"
    prices = json.loads((folder / "stdlib" / "prices.json").read_text("utf-8"))
    assert prices.keys() - {"unit"} == PROVIDERS.keys(), "add a row to runtime/project/providers.py"


def test_every_kind_that_spends_has_a_choice_of_model() -> None:
    """A budget needs the model before the request."""
    assert set(models.CHOICES) == SPENDERS


def test_the_model_name_selects_the_provider() -> None:
    """By its prefix, by an explicit provider, or by default."""
    assert choose("claude-opus-5", {}).provider == "anthropic"
    assert choose("gpt-5", {}).provider == "openai"
    assert choose("openai/claude-like", {}) == models.Model("claude-like", "openai")
    assert choose("something", {}).provider == "anthropic"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("models: {a: b}", "`models` should be a list"),
        ("models: [{provider: openai}]", "a model needs `name`"),
        ("models: [{name: a, provider: opena}]", "`provider` cannot be `opena`"),
        ("models: [{name: a, key: 'sk-123'}]", "`key` should be the name of an environment variable"),
        ("models: [{name: a, price: 5}]", "`price` should be a list of two numbers"),
        ("models: [{name: a}, {name: a}]", "the model `a` is given twice"),
        ("tasks: {runner: robot}", "`runner` cannot be `robot`"),
        ("tasks: {timeout: 0}", "`timeout` should be more than 0"),
        ("tasks: {max_tokens: -1}", "`max_tokens` should be at least 1"),
        ("tasks: {agent: {a: b}}", "`agent` should be a name of `agents`, or a list"),
        ("tasks: {agent: codx}\nagents: {codex: {argv: [codex]}}", "no agent is called `codx`"),
        ("tasks: {modle: x}", "`tasks` has no key `modle`"),
        ("budget: {usd: -1}", "`usd` should be at least 0"),
        ("budget: {calls: 1.5}", "`calls` should be a whole number"),
    ],
)
def test_mistakes_in_the_configuration_are_reported(tmp_path: Path, text: str, expected: str) -> None:
    """The diagnostic has a span."""
    (tmp_path / ".loops").mkdir()
    (tmp_path / ".loops" / "config.yaml").write_text(text)
    with pytest.raises(CompileError) as caught:
        configuration.load(str(tmp_path))
    (finding,) = caught.value.diagnostics
    assert expected in finding.message
    assert finding.span is not None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("dialect: little-loops", "`dialect` belongs to a loop, in its own file"),
        ("agent: codex", "`agent` belongs to a loop, in its own file; for all tasks: `tasks: {agent: …}`"),
        ("tasks: {budget: {usd: 1}}", "`budget` belongs to the top level of the file"),
        ("timeout: 5", "`timeout` belongs to a loop, in its own file; for all tasks: `tasks: {timeout: …}`"),
        ("keep: {runs: 100, size: 2GB}", "write it as `history: {keep: …}`"),
        ("older_than: 7d", "write it as `history: {older_than: …}`"),
        ("size: 2GB", "write it as `history: {keep: {size: …}}`"),
        ("usd: 5", "write it as `budget: {usd: …}`"),
        ("agnets: {}", "did you mean `agents`?"),
    ],
)
def test_the_help_for_a_misplaced_key_names_its_place(tmp_path: Path, text: str, expected: str) -> None:
    """A key of a loop is not reported as a misspelt key of the configuration."""
    (tmp_path / ".loops").mkdir()
    (tmp_path / ".loops" / "config.yaml").write_text(text)
    with pytest.raises(CompileError) as caught:
        configuration.load(str(tmp_path))
    assert [finding.help for finding in caught.value.diagnostics] == [expected]
