"""Model evaluation (`loops.md`, section 11): the real client against a local server."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from llc.runtime.effects.world import World
from llc.runtime.host.effect_context import Context, Interrupt, Interrupted
from llc.runtime.models.judge import Judge, judge_of
from llc.runtime.project.prices import Prices, load_prices

SCHEMA = {
    "type": "object",
    "properties": {
        "verdict": {"type": "string", "enum": ["success", "failure", "blocked", "partial"]},
        "confidence": {"type": "number", "minimum": 0, "maximum": 1},
        "reason": {"type": "string"},
    },
    "required": ["verdict", "confidence", "reason"],
}
ARGS = {
    "prompt": "Did it work?",
    "output": "all good",
    "schema": SCHEMA,
    "model": "claude-haiku-4-5",
    "max_tokens": 256,
    "timeout_s": 30,
}
Evaluate = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def server(answers: ModuleType) -> Iterator[Any]:
    with answers.MessagesServer() as server:
        yield server


@pytest.fixture(scope="module")
def worker(server: Any) -> Iterator[Judge]:
    """A client for all tests of the module, as its import takes more than a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANTHROPIC_BASE_URL", server.url)
        patch.setenv("ANTHROPIC_API_KEY", "test-key")
        patch.delenv("ANTHROPIC_AUTH_TOKEN", raising=False)
        patch.setenv("NO_PROXY", "127.0.0.1")
        worker = Judge()
    yield worker
    worker.close()


@pytest.fixture
def evaluate(worker: Judge, server: Any, context: Callable[..., Context]) -> Evaluate:
    """`evaluate(reply, …, model="x")`: the result of an evaluation that the server answers with these
    replies.
    """

    def evaluate(*replies: Any, within: dict[str, Any] | None = None, **args: Any) -> dict[str, Any]:
        server.requests.clear()
        server.headers.clear()
        server.answers[:] = replies
        return worker.perform({**ARGS, **args}, context(**(within or {})))

    return evaluate


def error_kind(result: dict[str, Any]) -> str:
    kind: str = result["error"]["kind"]
    return kind


def test_a_server_without_streaming_is_supported(evaluate: Evaluate, server: Any) -> None:
    """A server may ignore `stream`; a malformed reply is an error."""

    def respond(body: Any) -> Callable[..., None]:
        return lambda handler, request: handler.send_json(200, body)

    reply = {"verdict": "failure", "confidence": 0.9, "reason": "no"}
    block = {"type": "tool_use", "id": "t", "name": "evaluate", "input": reply}
    message = {"id": "m", "type": "message", "role": "assistant", "model": "x", "stop_reason": "tool_use"}
    usage = {"input_tokens": 20, "output_tokens": 5}
    result = evaluate(respond({**message, "content": [block], "stop_sequence": None, "usage": usage}))
    assert result["reply"]["verdict"] == "failure"
    assert result["usage"]["tokens"] == 25
    for body in ({}, [], {**message, "content": 5}):
        assert error_kind(evaluate(respond(body))) == "invalid-reply"


# --- the request --------------------------------------------------------------------------------


def test_the_request_is_that_of_the_seed(evaluate: Evaluate, answers: ModuleType, server: Any) -> None:
    """One message with prompt and output, and one tool whose use is forced."""
    evaluate(answers.verdict("success"))
    assert server.requests == [
        {
            "model": "claude-haiku-4-5",
            "max_tokens": 256,
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "text",
                            "text": "Did it work?\n\n<action_output>\nall good\n</action_output>",
                        }
                    ],
                }
            ],
            "tools": [
                {
                    "name": "evaluate",
                    "description": "Provide your evaluation of the action result",
                    "input_schema": SCHEMA,
                }
            ],
            "tool_choice": {"type": "tool", "name": "evaluate"},
            "stream": True,
        }
    ]


def test_the_request_is_sent_by_the_anthropic_package(
    evaluate: Evaluate, answers: ModuleType, server: Any
) -> None:
    evaluate(answers.verdict("success"))
    headers = server.headers[0]
    assert headers["user-agent"].startswith("Anthropic/Python")
    assert "test-key" in (headers.get("x-api-key", "") + headers.get("authorization", ""))


# --- replies ------------------------------------------------------------------------------------


def test_the_verdict_is_in_the_reply(evaluate: Evaluate, answers: ModuleType) -> None:
    """The result has the usage and its cost."""
    result = evaluate(answers.verdict("success", 0.92, "fixed", tokens=(1000, 200)))
    assert result["reply"] == {"verdict": "success", "confidence": 0.92, "reason": "fixed"}
    assert result["usage"].items() >= {"input_tokens": 1000, "output_tokens": 200, "usd": 0.002}.items()
    assert "error" not in result


def test_low_confidence_is_not_an_error(evaluate: Evaluate, answers: ModuleType) -> None:
    """The evaluator (`judge_model`) compares it with the minimum."""
    assert evaluate(answers.verdict("failure", 0.1))["reply"]["confidence"] == 0.1


def test_a_schema_of_the_loop_is_used(evaluate: Evaluate, answers: ModuleType, server: Any) -> None:
    """It is sent in the request and validates the reply."""
    schema = {"type": "object", "properties": {"verdict": {"pattern": "^v[0-9]$"}}, "required": ["verdict"]}
    assert evaluate(answers.tool({"verdict": "v1"}), schema=schema)["reply"] == {"verdict": "v1"}
    assert server.requests[0]["tools"][0]["input_schema"] == schema
    assert error_kind(evaluate(answers.tool({"verdict": "x"}), schema=schema)) == "invalid-reply"


def test_a_model_without_forced_tools_is_asked_to_call_the_tool(
    evaluate: Evaluate, answers: ModuleType, server: Any
) -> None:
    """Models whose thinking cannot be disabled refuse forced tool use; the refusal is remembered."""
    answer = answers.refuse_forced(answers.verdict("success"))
    assert evaluate(answer, model="claude-sonnet-5-5")["reply"]["verdict"] == "success"
    first, second = server.requests
    assert first["tool_choice"]["type"] == "tool"
    assert second["tool_choice"]["type"] == "auto"
    assert second["messages"][0]["content"][-1]["text"] == "Answer by calling the tool `evaluate`."
    assert evaluate(answer, model="claude-sonnet-5-5")["reply"]["verdict"] == "success"
    assert len(server.requests) == 1


# --- errors -------------------------------------------------------------------------------------


def test_a_reply_without_the_tool_call_is_an_error(evaluate: Evaluate, answers: ModuleType) -> None:
    """Text, a call of another tool or an empty reply."""
    result = evaluate(answers.text("I think it went well."))
    assert error_kind(result) == "no-tool-call"
    assert result["usage"]["tokens"] == 150
    assert error_kind(evaluate(answers.tool({}, name="other"))) == "no-tool-call"
    assert error_kind(evaluate(answers.message([]))) == "no-tool-call"


def test_a_reply_without_a_verdict_is_cannot_judge(evaluate: Evaluate, answers: ModuleType) -> None:
    """Only if the schema has that verdict, because the state routes it."""
    schema = {"type": "object", "properties": {"verdict": {"enum": ["success", "cannot_judge"]}}}
    reply = evaluate(answers.text("I cannot see it."), schema=schema)["reply"]
    assert (reply["verdict"], "did not call" in reply["reason"]) == ("cannot_judge", True)
    assert evaluate(answers.tool({"verdict": "success"}), schema=schema)["reply"]["verdict"] == "success"
    for other_schema in (
        {"type": "object"},
        {"properties": {"verdict": True}},
        {"properties": {"verdict": {"enum": 5}}},
    ):
        assert error_kind(evaluate(answers.text("no"), schema=other_schema)) == "no-tool-call"


def test_a_reply_that_violates_the_schema_is_an_error(evaluate: Evaluate, answers: ModuleType) -> None:
    """The message has the field and the reason; the usage counts."""
    result = evaluate(answers.verdict("perhaps"))
    assert result["error"] == {
        "kind": "invalid-reply",
        "message": "the reply breaks the schema at `verdict`: "
        "'perhaps' is not one of ['success', 'failure', 'blocked', 'partial']",
    }
    assert result["usage"]["tokens"] == 150
    assert "confidence" in evaluate(answers.verdict("success", 1.5))["error"]["message"]
    assert error_kind(evaluate(answers.tool({"verdict": "success"}))) == "invalid-reply"
    assert error_kind(evaluate(answers.tool("text"))) == "invalid-reply"


def test_a_truncated_reply_names_the_option_max_tokens(evaluate: Evaluate, answers: ModuleType) -> None:
    for answer in (answers.tool({}, stop_reason="max_tokens"), answers.text("", stop_reason="max_tokens")):
        assert "truncated at `llm.max_tokens` (256)" in evaluate(answer)["error"]["message"]


def test_429_is_retried(evaluate: Evaluate, answers: ModuleType, server: Any) -> None:
    """The client's own retries, as soon as `retry-after` allows."""
    slow_down = answers.status(429, "slow down", retry_after=0.05)
    assert evaluate(slow_down, slow_down, answers.verdict("success"))["reply"]["verdict"] == "success"
    assert len(server.requests) == 3


def test_errors_of_a_provider_suggest_a_fix(evaluate: Evaluate, answers: ModuleType, server: Any) -> None:
    """The message names the rejected key or the address without a server."""
    message = evaluate(answers.status(401, "invalid x-api-key"))["error"]["message"]
    assert message == f"HTTP 401: invalid x-api-key; check the key in ANTHROPIC_API_KEY, for {server.url}"
    message = evaluate(*[answers.drop()] * 3)["error"]["message"]
    assert message.endswith(f"; check that a server answers at {server.url}")
    message = evaluate(answers.status(404, "no such model"), model="claude-nope")["error"]["message"]
    assert (
        message
        == f"HTTP 404: no such model; check the model's name, claude-nope, and the address, {server.url}"
    )
    message = evaluate(*[answers.status(529, "overloaded", retry_after=0.01)] * 3)["error"]["message"]
    assert message == f"HTTP 529: overloaded; {server.url} has a problem: try again later"


def test_a_refused_connection_names_the_address(
    answers: ModuleType, context: Callable[..., Context], monkeypatch: pytest.MonkeyPatch
) -> None:
    with answers.MessagesServer() as closed:
        pass
    message = evaluate_at(closed.url, context, monkeypatch)["error"]["message"]
    assert "refused" in message
    assert message.endswith(f"; check that a server answers at {closed.url}")


def evaluate_at(url: str, context: Callable[..., Context], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The result of one evaluation by the server at an address."""
    monkeypatch.setenv("ANTHROPIC_BASE_URL", url)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    judge = Judge()
    try:
        return judge.perform(ARGS, context())
    finally:
        judge.close()


def test_https_to_a_server_without_tls_is_reported(
    answers: ModuleType, context: Callable[..., Context], monkeypatch: pytest.MonkeyPatch
) -> None:
    with answers.MessagesServer() as server:
        url = server.url.replace("http:", "https:")
        message = evaluate_at(url, context, monkeypatch)["error"]["message"]
    assert message.endswith(f"; check whether the server answers by http or by https at {url}")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_an_untrusted_certificate_is_reported_with_a_fix(
    answers: ModuleType, context: Callable[..., Context], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The message names the variable with trusted certificates; once it is set, the evaluation succeeds."""
    key, certificate = str(tmp_path / "key.pem"), str(tmp_path / "certificate.pem")
    subject = ("-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2")
    command = (
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-keyout",
        key,
        "-out",
        certificate,
    )
    subprocess.run([*command, *subject], check=True, capture_output=True)
    with answers.MessagesServer() as server:
        server.then(answers.verdict("success", 0.9))
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate, key)
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        url = server.url.replace("http:", "https:")
        message = evaluate_at(url, context, monkeypatch)["error"]["message"]
        assert message.endswith(f"; check {url}; SSL_CERT_FILE names the certificates to trust")
        monkeypatch.setenv("SSL_CERT_FILE", certificate)
        assert "error" not in evaluate_at(url, context, monkeypatch)


def test_persistent_429_is_an_error(evaluate: Evaluate, answers: ModuleType, server: Any) -> None:
    """The error follows after the client's own number of retries."""
    result = evaluate(answers.status(429, "slow down", retry_after=0.01))
    message = "HTTP 429: slow down; wait, or let fewer calls run at once"
    assert result["error"] == {"kind": "rate-limited", "message": message}
    assert len(server.requests) == 3


def test_a_retry_after_beyond_the_timeout_is_a_timeout(evaluate: Evaluate, answers: ModuleType) -> None:
    """`llm.timeout` bounds the whole call, its retries included."""
    result = evaluate(answers.status(429, retry_after=50), timeout_s=0.3)
    assert (error_kind(result), result["timed_out"]) == ("timeout", "action")


def test_an_exhausted_quota_is_an_error_at_once(evaluate: Evaluate, answers: ModuleType, server: Any) -> None:
    """The client does not sleep longer than the call may take; a run waits for the quota
    (`test_quota.py`).
    """
    result = evaluate(answers.status(429, "used up", retry_after=600))
    assert result["error"].pop("resets_at") > 0
    message = "HTTP 429: used up; wait until it is renewed, or raise the limit of the account"
    assert result["error"] == {"kind": "quota", "message": message}
    assert len(server.requests) == 1


@pytest.mark.parametrize("code", [500, 503, 529])
def test_5xx_is_a_server_error(evaluate: Evaluate, answers: ModuleType, server: Any, code: int) -> None:
    """The error follows after the client's retries."""
    result = evaluate(answers.status(code, "overloaded", retry_after=0.01))
    assert result["error"]["kind"] == "server-error"
    assert result["error"]["message"].startswith(f"HTTP {code}: overloaded; ")
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("code", "kind"), [(400, "bad-request"), (404, "bad-request"), (401, "unauthorized")]
)
def test_4xx_is_an_error_at_once(
    evaluate: Evaluate, answers: ModuleType, server: Any, code: int, kind: str
) -> None:
    """An unknown model or a wrong key is not retried."""
    result = evaluate(answers.status(code, "no such model"))
    assert result["error"]["kind"] == kind
    assert result["error"]["message"].partition(";")[0] == f"HTTP {code}: no such model"
    assert len(server.requests) == 1


def test_a_server_that_does_not_reply_is_a_timeout(evaluate: Evaluate, answers: ModuleType) -> None:
    """`llm.timeout` ends the call; the next call succeeds."""
    result = evaluate(answers.stall(), timeout_s=0.3)
    assert (error_kind(result), result["timed_out"]) == ("timeout", "action")
    assert evaluate(answers.verdict("success"))["reply"]["verdict"] == "success"


def test_a_slow_reply_is_a_timeout(evaluate: Evaluate, answers: ModuleType) -> None:
    """Each read is short, but the call takes too long."""
    result = evaluate(answers.drip(), timeout_s=0.3)
    assert (error_kind(result), result["timed_out"]) == ("timeout", "action")


def test_the_loops_deadline_ends_a_call(evaluate: Evaluate, answers: ModuleType) -> None:
    """`timed_out` names the loop."""
    at = {"elapsed_ms": lambda: 700}
    result = evaluate(answers.stall(), within=at, deadline_ms=1000)
    assert (error_kind(result), result["timed_out"]) == ("timeout", "loop")


def test_no_call_is_made_after_the_loops_deadline(
    evaluate: Evaluate, answers: ModuleType, server: Any
) -> None:
    result = evaluate(answers.verdict("success"), within={"elapsed_ms": lambda: 1000}, deadline_ms=1000)
    assert (error_kind(result), result["timed_out"]) == ("timeout", "loop")
    assert server.requests == []


@pytest.mark.parametrize(
    "body",
    [b'{"id": "msg_1", "content": [', b"[1]", b"{}", b"null", b'{"content": [1, {"type": "tool_use"}]}', b""],
)
def test_a_malformed_body_is_an_error(evaluate: Evaluate, answers: ModuleType, body: bytes) -> None:
    """The body is truncated JSON, JSON of another shape, or empty."""
    assert error_kind(evaluate(answers.body(body))) == "invalid-reply"


def test_an_html_page_is_an_error(evaluate: Evaluate, answers: ModuleType) -> None:
    """A proxy may answer with such a page."""
    assert error_kind(evaluate(answers.body(b"<html>Log in</html>", "text/html"))) == "invalid-reply"


def test_a_dropped_connection_is_retried(evaluate: Evaluate, answers: ModuleType, server: Any) -> None:
    """Only if no part of the reply has arrived: a reply that broke off was billed."""
    assert evaluate(answers.drop(), answers.verdict("partial"))["reply"]["verdict"] == "partial"
    assert len(server.requests) == 2
    assert error_kind(evaluate(answers.half(answers.verdict("success")))) == "connection"
    assert len(server.requests) == 1


def test_persistent_connection_loss_is_an_error(evaluate: Evaluate, answers: ModuleType) -> None:
    """The message contains the cause."""
    error = evaluate(answers.drop())["error"]
    assert error["kind"] == "connection"
    assert "reset" in error["message"] or "disconnect" in error["message"]


@pytest.mark.parametrize("schema", [{"type": "bogus"}, {"$ref": "http://127.0.0.1:9/schema"}, {"pattern": 3}])
def test_an_invalid_schema_is_an_error(
    evaluate: Evaluate, answers: ModuleType, schema: dict[str, Any]
) -> None:
    """A reference to another host is not fetched."""
    assert error_kind(evaluate(answers.verdict("success"), schema={"properties": {"verdict": schema}})) == (
        "invalid-reply"
    )


def test_an_interrupt_ends_a_call_at_once(
    evaluate: Evaluate, answers: ModuleType, interrupt: Interrupt, worker: Judge
) -> None:
    threading.Timer(0.3, interrupt.set).start()
    with pytest.raises(Interrupted):
        evaluate(answers.stall())


# --- without a server ---------------------------------------------------------------------------


@pytest.fixture
def evaluate_in_new_world(
    monkeypatch: pytest.MonkeyPatch, context: Callable[..., Context], tmp_path: Any, effect: Any
) -> Iterator[Evaluate]:
    """`evaluate_in_new_world(model="x")`: an evaluation in a new world, without provider variables in the
    environment.
    """
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_PROFILE", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    worlds = []

    def evaluate(within: dict[str, Any] | None = None, **args: Any) -> dict[str, Any]:
        worlds.append(World())
        return worlds[-1].perform(effect("evaluate", **{**ARGS, **args}), context(**(within or {})))

    yield evaluate
    for world in worlds:
        world.close()


def test_a_missing_key_is_an_error_that_names_the_variable(evaluate_in_new_world: Evaluate) -> None:
    assert evaluate_in_new_world()["error"] == {
        "kind": "missing-key",
        "message": "there is no API key for `claude-haiku-4-5`; set ANTHROPIC_API_KEY",
    }


def test_an_unreachable_server_is_a_connection_error(
    evaluate_in_new_world: Evaluate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error follows after the client's retries."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")
    assert error_kind(evaluate_in_new_world()) == "connection"


def test_the_start_of_the_client_does_not_count_for_the_timeout(
    evaluate_in_new_world: Evaluate, messages_server: Any, answers: ModuleType
) -> None:
    """A timeout shorter than the import does not fail the first call."""
    messages_server.then(answers.verdict("success"))
    assert evaluate_in_new_world(timeout_s=1.0)["reply"]["verdict"] == "success"


def test_the_loops_deadline_ends_the_start_of_the_client(evaluate_in_new_world: Evaluate) -> None:
    result = evaluate_in_new_world({"elapsed_ms": lambda: 990}, deadline_ms=1000)
    assert (error_kind(result), result["timed_out"]) == ("timeout", "loop")


def test_the_client_starts_while_the_agent_runs(
    context: Callable[..., Context], effect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program with both effects does not wait for the import after the agent."""
    monkeypatch.setenv("LLC_AGENT", "true")
    world = World(frozenset(("agent", "evaluate")))
    world.perform(effect("agent", command="/x"), context())
    assert judge_of(world).client._workers["anthropic"]._pid
    world.close()
    world = World(frozenset(("agent",)))
    world.perform(effect("agent", command="/x"), context())
    assert not world.has("judge")
    world.close()


def test_prices_of_dated_and_unknown_model_names() -> None:
    """`usd` is null for a model that is not in `stdlib/prices.json`."""
    prices = Prices()
    usage = {"input_tokens": 50_000, "output_tokens": 0}
    assert prices.cost("claude-haiku-4-5", {**usage, "output_tokens": 50_000}) == 0.3
    assert prices.cost("claude-haiku-4-5-20251001", usage) == 0.05
    assert prices.cost("gpt-4.1-2025-04-14", usage) == 0.1
    assert prices.cost("mystery", usage) is None
    assert prices.cost("mystery", usage, (0, 0)) == 0
    assert prices.cost("mystery", {**usage, "cache_read_tokens": 50_000}, (1, 5)) == 0.005


def test_a_cache_and_a_long_prompt_have_their_own_price() -> None:
    """The price is that of the model's row, else the provider's; a long prompt raises the price of the
    whole call.
    """
    prices = Prices()
    cached = {"input_tokens": 100, "output_tokens": 0, "cache_read_tokens": 50, "cache_write_tokens": 50}
    assert prices.cost("claude-haiku-4-5", cached) == pytest.approx(67.5 / 1e6)
    assert prices.cost("claude-opus-5-5", cached) == pytest.approx(4 * (2.5 + 62.5) / 1e6)
    short, long = ({"input_tokens": count, "output_tokens": 1000} for count in (100_000, 100_001))
    assert prices.cost("claude-haiku-5-5", short) == pytest.approx(0.0105)
    assert prices.cost("claude-haiku-5-5", long) == pytest.approx(0.0525005)
    # Cached tokens count towards the limit, and their factor applies to the input price of a long prompt.
    assert prices.cost("claude-haiku-5-5", {**long, "cache_read_tokens": 90_000}) == pytest.approx(
        (10_001 + 90_000 * 0.1) * 0.5 / 1e6 + 0.0025
    )


def test_prices_are_plausible() -> None:
    """Output costs no less than input, a cache read less than input, a long prompt more."""
    for row in load_prices().values():
        assert 0 < row["input"] <= row["output"]
        assert row["cache_read"] < 1 <= row["cache_write"]
        if "long" in row:
            assert row["long"]["above"] > 0
            assert row["long"]["input"] > row["input"]
            assert row["long"]["output"] > row["output"]
