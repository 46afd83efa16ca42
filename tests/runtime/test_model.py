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
    """One client for the module: its import takes more than a second."""
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
    """`evaluate(answer, …, model="x")`: the result of a call that the server answers like this."""

    def evaluate(*given: Any, within: dict[str, Any] | None = None, **args: Any) -> dict[str, Any]:
        server.requests.clear()
        server.headers.clear()
        server.answers[:] = given
        return worker.perform({**ARGS, **args}, context(**(within or {})))

    return evaluate


def kind_of(result: dict[str, Any]) -> str:
    kind: str = result["error"]["kind"]
    return kind


def test_a_server_that_does_not_stream_is_read(evaluate: Evaluate, server: Any) -> None:
    """A stand-in that ignores `stream`; what is no reply is an error."""

    def whole(body: Any) -> Callable[..., None]:
        return lambda handler, request: handler.send_json(200, body)

    said = {"verdict": "failure", "confidence": 0.9, "reason": "no"}
    block = {"type": "tool_use", "id": "t", "name": "evaluate", "input": said}
    message = {"id": "m", "type": "message", "role": "assistant", "model": "x", "stop_reason": "tool_use"}
    usage = {"input_tokens": 20, "output_tokens": 5}
    result = evaluate(whole({**message, "content": [block], "stop_sequence": None, "usage": usage}))
    assert result["reply"]["verdict"] == "failure"
    assert result["usage"]["tokens"] == 25
    for body in ({}, [], {**message, "content": 5}):
        assert kind_of(evaluate(whole(body))) == "invalid-reply"


# --- the request --------------------------------------------------------------------------------


def test_the_request_is_the_seeds(evaluate: Evaluate, answers: ModuleType, server: Any) -> None:
    """One message with prompt and output, one tool, that tool forced."""
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


def test_it_is_the_real_client(evaluate: Evaluate, answers: ModuleType, server: Any) -> None:
    """The `anthropic` package sends it, with its key."""
    evaluate(answers.verdict("success"))
    headers = server.headers[0]
    assert headers["user-agent"].startswith("Anthropic/Python")
    assert "test-key" in (headers.get("x-api-key", "") + headers.get("authorization", ""))


# --- replies ------------------------------------------------------------------------------------


def test_a_verdict_is_the_reply(evaluate: Evaluate, answers: ModuleType) -> None:
    """With what it used and what that cost."""
    result = evaluate(answers.verdict("success", 0.92, "fixed", tokens=(1000, 200)))
    assert result["reply"] == {"verdict": "success", "confidence": 0.92, "reason": "fixed"}
    assert result["usage"].items() >= {"input_tokens": 1000, "output_tokens": 200, "usd": 0.002}.items()
    assert "error" not in result


def test_low_confidence_is_a_reply_like_any_other(evaluate: Evaluate, answers: ModuleType) -> None:
    """What is too low is for the evaluator to say (`judge_model`)."""
    assert evaluate(answers.verdict("failure", 0.1))["reply"]["confidence"] == 0.1


def test_a_schema_of_the_authors_is_used(evaluate: Evaluate, answers: ModuleType, server: Any) -> None:
    """For the request and for the check."""
    schema = {"type": "object", "properties": {"verdict": {"pattern": "^v[0-9]$"}}, "required": ["verdict"]}
    assert evaluate(answers.tool({"verdict": "v1"}), schema=schema)["reply"] == {"verdict": "v1"}
    assert server.requests[0]["tools"][0]["input_schema"] == schema
    assert kind_of(evaluate(answers.tool({"verdict": "x"}), schema=schema)) == "invalid-reply"


def test_a_model_that_cannot_be_forced_is_asked_to_use_the_tool(
    evaluate: Evaluate, answers: ModuleType, server: Any
) -> None:
    """Models whose thinking cannot be switched off refuse forced tool use; the refusal is remembered."""
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
    """Words, another tool, nothing at all."""
    result = evaluate(answers.text("I think it went well."))
    assert kind_of(result) == "no-tool-call"
    assert result["usage"]["tokens"] == 150
    assert kind_of(evaluate(answers.tool({}, name="other"))) == "no-tool-call"
    assert kind_of(evaluate(answers.message([]))) == "no-tool-call"


def test_a_reply_without_a_verdict_cannot_judge(evaluate: Evaluate, answers: ModuleType) -> None:
    """Where the schema has that verdict, because the state routes it."""
    schema = {"type": "object", "properties": {"verdict": {"enum": ["success", "cannot_judge"]}}}
    reply = evaluate(answers.text("I cannot see it."), schema=schema)["reply"]
    assert (reply["verdict"], "did not call" in reply["reason"]) == ("cannot_judge", True)
    assert evaluate(answers.tool({"verdict": "success"}), schema=schema)["reply"]["verdict"] == "success"
    for odd in (
        {"type": "object"},
        {"properties": {"verdict": True}},
        {"properties": {"verdict": {"enum": 5}}},
    ):
        assert kind_of(evaluate(answers.text("no"), schema=odd)) == "no-tool-call"


def test_a_reply_that_breaks_the_schema_is_an_error(evaluate: Evaluate, answers: ModuleType) -> None:
    """That says where and why; what it used is counted all the same."""
    result = evaluate(answers.verdict("perhaps"))
    assert result["error"] == {
        "kind": "invalid-reply",
        "message": "the reply breaks the schema at `verdict`: "
        "'perhaps' is not one of ['success', 'failure', 'blocked', 'partial']",
    }
    assert result["usage"]["tokens"] == 150
    assert "confidence" in evaluate(answers.verdict("success", 1.5))["error"]["message"]
    assert kind_of(evaluate(answers.tool({"verdict": "success"}))) == "invalid-reply"
    assert kind_of(evaluate(answers.tool("text"))) == "invalid-reply"


def test_a_reply_cut_off_at_max_tokens_says_so(evaluate: Evaluate, answers: ModuleType) -> None:
    """So that somebody raises `llm.max_tokens`."""
    for answer in (answers.tool({}, stop_reason="max_tokens"), answers.text("", stop_reason="max_tokens")):
        assert "truncated at `llm.max_tokens` (256)" in evaluate(answer)["error"]["message"]


def test_429_is_tried_again(evaluate: Evaluate, answers: ModuleType, server: Any) -> None:
    """The client's own retries, as soon as `retry-after` allows."""
    slow_down = answers.status(429, "slow down", retry_after=0.05)
    assert evaluate(slow_down, slow_down, answers.verdict("success"))["reply"]["verdict"] == "success"
    assert len(server.requests) == 3


def test_errors_of_a_provider_state_a_remedy(evaluate: Evaluate, answers: ModuleType, server: Any) -> None:
    """Which key was refused and where; at which address no server answers."""
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
    """Nothing listens there any more."""
    with answers.MessagesServer() as gone:
        pass
    message = judged_at(gone.url, context, monkeypatch)["error"]["message"]
    assert "refused" in message
    assert message.endswith(f"; check that a server answers at {gone.url}")


def judged_at(url: str, context: Callable[..., Context], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The result of one evaluation by the server at an address."""
    monkeypatch.setenv("ANTHROPIC_BASE_URL", url)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    judge = Judge()
    try:
        return judge.perform(ARGS, context())
    finally:
        judge.close()


def test_https_to_a_server_without_tls_says_so(
    answers: ModuleType, context: Callable[..., Context], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address is right but for its scheme."""
    with answers.MessagesServer() as server:
        url = server.url.replace("http:", "https:")
        message = judged_at(url, context, monkeypatch)["error"]["message"]
    assert message.endswith(f"; check whether the server answers by http or by https at {url}")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_a_certificate_that_is_not_trusted_has_a_remedy(
    answers: ModuleType, context: Callable[..., Context], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It names the variable that makes it trusted, and with this variable the model answers."""
    key, certificate = str(tmp_path / "key.pem"), str(tmp_path / "certificate.pem")
    subject = ("-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2")
    made = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate)
    subprocess.run([*made, *subject], check=True, capture_output=True)
    with answers.MessagesServer() as server:
        server.then(answers.verdict("success", 0.9))
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate, key)
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        url = server.url.replace("http:", "https:")
        message = judged_at(url, context, monkeypatch)["error"]["message"]
        assert message.endswith(f"; check {url}; SSL_CERT_FILE names the certificates to trust")
        monkeypatch.setenv("SSL_CERT_FILE", certificate)
        assert "error" not in judged_at(url, context, monkeypatch)


def test_429_without_end_is_an_error(evaluate: Evaluate, answers: ModuleType, server: Any) -> None:
    """After the client's own number of retries."""
    result = evaluate(answers.status(429, "slow down", retry_after=0.01))
    message = "HTTP 429: slow down; wait, or let fewer calls run at once"
    assert result["error"] == {"kind": "rate-limited", "message": message}
    assert len(server.requests) == 3


def test_a_retry_after_beyond_the_timeout_is_a_timeout(evaluate: Evaluate, answers: ModuleType) -> None:
    """`llm.timeout` bounds the whole call, its retries included."""
    result = evaluate(answers.status(429, retry_after=50), timeout_s=0.3)
    assert (kind_of(result), result["timed_out"]) == ("timeout", "action")


def test_a_quota_is_stated_at_once(evaluate: Evaluate, answers: ModuleType, server: Any) -> None:
    """A client does not sleep for longer than a call may take; with a run it waits (`test_quota.py`)."""
    result = evaluate(answers.status(429, "used up", retry_after=600))
    assert result["error"].pop("resets_at") > 0
    message = "HTTP 429: used up; wait until it is renewed, or raise the limit of the account"
    assert result["error"] == {"kind": "quota", "message": message}
    assert len(server.requests) == 1


@pytest.mark.parametrize("code", [500, 503, 529])
def test_5xx_is_a_server_error(evaluate: Evaluate, answers: ModuleType, server: Any, code: int) -> None:
    """After retries."""
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
    """An unknown model, a wrong key: trying again would not help."""
    result = evaluate(answers.status(code, "no such model"))
    assert result["error"]["kind"] == kind
    assert result["error"]["message"].partition(";")[0] == f"HTTP {code}: no such model"
    assert len(server.requests) == 1


def test_a_server_that_says_nothing_is_a_timeout(evaluate: Evaluate, answers: ModuleType) -> None:
    """`llm.timeout`; the call that was cut off leaves nothing behind that spoils the next."""
    result = evaluate(answers.stall(), timeout_s=0.3)
    assert (kind_of(result), result["timed_out"]) == ("timeout", "action")
    assert evaluate(answers.verdict("success"))["reply"]["verdict"] == "success"


def test_a_server_that_drips_is_a_timeout(evaluate: Evaluate, answers: ModuleType) -> None:
    """No single read takes long, the call does."""
    result = evaluate(answers.drip(), timeout_s=0.3)
    assert (kind_of(result), result["timed_out"]) == ("timeout", "action")


def test_the_loops_deadline_ends_a_call(evaluate: Evaluate, answers: ModuleType) -> None:
    """And is named as what ended it."""
    at = {"elapsed_ms": lambda: 700}
    result = evaluate(answers.stall(), within=at, deadline_ms=1000)
    assert (kind_of(result), result["timed_out"]) == ("timeout", "loop")


def test_no_call_is_made_after_the_loops_deadline(
    evaluate: Evaluate, answers: ModuleType, server: Any
) -> None:
    """There is no time left."""
    result = evaluate(answers.verdict("success"), within={"elapsed_ms": lambda: 1000}, deadline_ms=1000)
    assert (kind_of(result), result["timed_out"]) == ("timeout", "loop")
    assert server.requests == []


@pytest.mark.parametrize(
    "body",
    [b'{"id": "msg_1", "content": [', b"[1]", b"{}", b"null", b'{"content": [1, {"type": "tool_use"}]}', b""],
)
def test_a_body_that_is_no_message_is_an_error(evaluate: Evaluate, answers: ModuleType, body: bytes) -> None:
    """Half a JSON, another JSON, no JSON."""
    assert kind_of(evaluate(answers.body(body))) == "invalid-reply"


def test_a_page_instead_of_a_message_is_an_error(evaluate: Evaluate, answers: ModuleType) -> None:
    """What a proxy puts in the way."""
    assert kind_of(evaluate(answers.body(b"<html>Log in</html>", "text/html"))) == "invalid-reply"


def test_a_dropped_connection_is_tried_again(evaluate: Evaluate, answers: ModuleType, server: Any) -> None:
    """Where nothing has come yet: a reply that broke off was paid for."""
    assert evaluate(answers.drop(), answers.verdict("partial"))["reply"]["verdict"] == "partial"
    assert len(server.requests) == 2
    assert kind_of(evaluate(answers.half(answers.verdict("success")))) == "connection"
    assert len(server.requests) == 1


def test_connections_that_always_drop_are_an_error(evaluate: Evaluate, answers: ModuleType) -> None:
    """With the cause in the message."""
    error = evaluate(answers.drop())["error"]
    assert error["kind"] == "connection"
    assert "reset" in error["message"] or "disconnect" in error["message"]


@pytest.mark.parametrize("schema", [{"type": "bogus"}, {"$ref": "http://127.0.0.1:9/schema"}, {"pattern": 3}])
def test_a_schema_that_cannot_be_used_is_an_error(
    evaluate: Evaluate, answers: ModuleType, schema: dict[str, Any]
) -> None:
    """And a reference to the web is not fetched."""
    assert kind_of(evaluate(answers.verdict("success"), schema={"properties": {"verdict": schema}})) == (
        "invalid-reply"
    )


def test_an_interrupt_ends_a_call(
    evaluate: Evaluate, answers: ModuleType, interrupt: Interrupt, worker: Judge
) -> None:
    """At once, wherever the client is."""
    threading.Timer(0.3, interrupt.set).start()
    with pytest.raises(Interrupted):
        evaluate(answers.stall())


# --- without a server ---------------------------------------------------------------------------


@pytest.fixture
def fresh(
    monkeypatch: pytest.MonkeyPatch, context: Callable[..., Context], tmp_path: Any, effect: Any
) -> Iterator[Evaluate]:
    """A call in a world of its own, with nothing in the environment."""
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


def test_a_missing_key_is_an_error_that_says_what_to_set(fresh: Evaluate) -> None:
    """No request is made."""
    assert fresh()["error"] == {
        "kind": "missing-key",
        "message": "there is no API key for `claude-haiku-4-5`; set ANTHROPIC_API_KEY",
    }


def test_a_server_that_cannot_be_reached_is_a_connection_error(
    fresh: Evaluate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the client's retries."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")
    assert kind_of(fresh()) == "connection"


def test_the_time_the_client_takes_to_start_is_not_the_calls(
    fresh: Evaluate, messages_server: Any, answers: ModuleType
) -> None:
    """A time-out shorter than the import does not fail the first call."""
    messages_server.then(answers.verdict("success"))
    assert fresh(timeout_s=0.5)["reply"]["verdict"] == "success"


def test_a_loop_whose_time_is_over_does_not_wait_for_the_client(fresh: Evaluate) -> None:
    """The loop's deadline holds while the client is still starting."""
    result = fresh({"elapsed_ms": lambda: 990}, deadline_ms=1000)
    assert (kind_of(result), result["timed_out"]) == ("timeout", "loop")


def test_the_client_starts_while_the_agent_works(
    context: Callable[..., Context], effect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a program that asks for both, so that nobody waits for the import afterwards."""
    monkeypatch.setenv("LLC_AGENT", "true")
    world = World(frozenset(("agent", "evaluate")))
    world.perform(effect("agent", command="/x"), context())
    assert judge_of(world).client._workers["anthropic"]._pid
    world.close()
    world = World(frozenset(("agent",)))
    world.perform(effect("agent", command="/x"), context())
    assert not world.has("judge")
    world.close()


def test_prices_are_known_for_dated_names_and_unknown_for_strangers() -> None:
    """`usd` is null for a model that is not in `stdlib/prices.json`, never a guess."""
    prices = Prices()
    used = {"input_tokens": 50_000, "output_tokens": 0}
    assert prices.cost("claude-haiku-4-5", {**used, "output_tokens": 50_000}) == 0.3
    assert prices.cost("claude-haiku-4-5-20251001", used) == 0.05
    assert prices.cost("gpt-4.1-2025-04-14", used) == 0.1
    assert prices.cost("mystery", used) is None
    assert prices.cost("mystery", used, (0, 0)) == 0
    assert prices.cost("mystery", {**used, "cache_read_tokens": 50_000}, (1, 5)) == 0.005


def test_a_cache_and_a_long_prompt_have_their_own_price() -> None:
    """As the model's row says, else the provider's; a long prompt makes all of the call dearer."""
    prices = Prices()
    cached = {"input_tokens": 100, "output_tokens": 0, "cache_read_tokens": 50, "cache_write_tokens": 50}
    assert prices.cost("claude-haiku-4-5", cached) == pytest.approx(67.5 / 1e6)
    assert prices.cost("claude-opus-5-5", cached) == pytest.approx(4 * (2.5 + 62.5) / 1e6)
    short, long = ({"input_tokens": count, "output_tokens": 1000} for count in (100_000, 100_001))
    assert prices.cost("claude-haiku-5-5", short) == pytest.approx(0.0105)
    assert prices.cost("claude-haiku-5-5", long) == pytest.approx(0.0525005)


def test_every_price_is_one() -> None:
    """Output costs no less than input, a cache less than input, a long prompt more."""
    for row in load_prices().values():
        assert 0 < row["input"] <= row["output"]
        assert row["cache_read"] < 1 <= row["cache_write"]
        if "long" in row:
            assert row["long"]["above"] > 0
            assert row["long"]["input"] > row["input"]
            assert row["long"]["output"] > row["output"]
