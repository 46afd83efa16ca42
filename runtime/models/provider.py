"""Server side of a model provider, in its helper process; shared by all providers.

A provider is a module with a function `send(client, request, reply, is_forced)`, which sends a request and
streams its reply, and a function `main`, which serves requests with its client (`serve`). A request is plain
data:

    model, max_tokens, system    passed to the API unchanged
    messages                     [{role: user | assistant, parts: [{text, stable}]}]; a stable part is
                                 the same in the next request, so it is worth caching
    output                       None for text; for JSON {schema, tool, description, limit}: JSON Schema (None
                                 for any JSON), name and description of the tool, token limit in words
    timeout                      seconds for the request, retries included
    base_url, key                address and key of the model; None for the client's defaults

Owns: the clients by address, forced tool use where the model permits it, the checks that a reply is complete
and conforms to its schema, and the error messages. The schema is checked here because a pattern in it may
take unbounded time, and this process can be killed.
"""

from __future__ import annotations

import email.utils
import json
import sys
from collections.abc import Callable
from typing import Any

from ..host import clock, threads
from ..host.errors import KindError
from ..ledger.breakers import MAX_RESET_S
from . import structured_output
from .helper_process import MAX_MESSAGE, exit_when_orphaned, serve_in_parts
from .worker_pool import CONCURRENT_ARGUMENT, serve_concurrently

# Appended to the prompt of a model for which tool use cannot be forced.
ASK_FOR_TOOL = "Answer by calling the tool `{name}`."
# Characters of a reply. No model writes more, so a longer reply means a faulty server.
MAX_REPLY = 4 << 20
# Usage of a complete or partial reply from a server that does not report usage.
UNKNOWN_USAGE = {"tokens": None}
# Longest `retry-after`, in seconds, that a client waits itself before it retries.
_MAX_CLIENT_WAIT = 60.0
# Part of the message of the 400 with which Anthropic refuses an account without credit.
_NO_CREDIT = "credit balance is too low"
# No provider caches stable text of fewer characters (about a thousand tokens).
MIN_CACHED_CHARACTERS = 4_000


class Broken(KindError):
    """A reply is invalid, incomplete or late."""


def is_not_streamed(response: Any) -> bool:
    """Whether a server has ignored the request for a stream."""
    return bool(response.headers.get("content-type", "").startswith("application/json"))


def read_body(model: Any, body: bytes) -> Any:
    """The reply of a server that does not stream, as a pydantic `model`. Raises `Broken`."""
    try:
        return model.model_validate_json(body)
    except ValueError as error:
        raise Broken("invalid-reply", "the response is not a reply of this API") from error


class Reply:
    """A reply while it is received. say: receives its parts, {"text"} and, as soon as known, {"usage"}.

    is_begun, is_ended: whether the first and the last event of the reply were received.
    """

    def __init__(self, say: Callable[[Any], None], seconds: float) -> None:
        self._say = say
        self._deadline = clock.monotonic() + seconds
        self._text: list[str] = []
        self._data: list[str] = []
        self._size = 0
        self.usage: dict[str, int] | None = None
        self.stop = ""
        self.called = False
        self.is_begun = self.is_ended = False

    def add_text(self, text: str) -> None:
        self._receive(text)
        self._text.append(text)

    def add_data(self, text: str) -> None:
        """Add a part of the tool's input, as JSON."""
        self._receive(text)
        self._data.append(text)

    def _receive(self, text: str) -> None:
        # The client's own timeout applies only between two reads.
        if clock.monotonic() > self._deadline:
            raise Broken("timeout", "the reply took too long")
        self._size += len(text)
        if self._size > MAX_REPLY:
            raise Broken("too-long", f"the reply is longer than {MAX_REPLY:,} characters")
        if text:
            self._say({"text": text})

    def report_usage(self, *, read: int, written: int, cache_read: int = 0, cache_write: int = 0) -> None:
        """Set the usage of the request so far, in tokens. read: input tokens without those of the cache."""
        total = read + cache_read + cache_write
        self.usage = {
            "input_tokens": total,
            "output_tokens": written,
            "tokens": total + written,
            "cache_read_tokens": cache_read,
            "cache_write_tokens": cache_write,
        }
        self._say({"usage": self.usage})

    def result(self) -> dict[str, Any]:
        """{text, stop, called, data?}; `data` is the input of the called tool, if it is valid JSON."""
        result: dict[str, Any] = {"text": "".join(self._text), "stop": self.stop, "called": self.called}
        if self.called:
            text = "".join(self._data).strip() or "{}"
            try:
                result["data"] = json.loads(text)
            except (ValueError, RecursionError):
                # Usually truncated at the token limit; the text shows where.
                result["text"] = text
        return result


# send(client, request, reply, is_forced); is_forced: whether to force the use of the tool.
Send = Callable[[Any, dict[str, Any], Reply, bool], None]


def serve(package: Any, connect: Callable[..., Any], send: Send) -> None:
    """Answer requests until the pipe closes.

    package: the client package, which defines the exceptions. connect: the client class.
    """
    provider = Provider(package, connect, send)
    if CONCURRENT_ARGUMENT in sys.argv:
        serve_concurrently(provider.answer)
    else:
        exit_when_orphaned()
        serve_in_parts(provider.answer)


class Provider:
    """Answers requests, one at a time or concurrently."""

    def __init__(self, package: Any, connect: Callable[..., Any], send: Send) -> None:
        self._package = package
        self._connect = connect
        self._send = send
        self._clients: dict[tuple[str | None, str | None], Any] = {}
        # Creating a client takes as long as several calls, and many threads may need the first client.
        self._clients_lock = threads.Lock()
        # Models that refused forced tool use: thinking that cannot be switched off excludes it.
        self._unforced: set[str] = set()

    def answer(self, request: dict[str, Any], say: Callable[[Any], None]) -> dict[str, Any]:
        """`Reply.result()`, or {"error": {kind, message}}; both with `usage` if it is known.

        If the request asks for JSON, the result also has `value`, or `problem`: why no value conforms.
        """
        output = request["output"]
        request["tool"] = structured_output.tool(output)
        reply = Reply(say, request["timeout"])
        result: dict[str, Any]
        try:
            self._complete(request, reply)
            result = reply.result()
            if output is not None:
                result |= structured_output.read(result, output["schema"], output["limit"])
        except Exception as error:  # an invalid body can make a client raise any exception
            kind, message = explain(error, self._package, request["timeout"])
            result = {"error": {"kind": kind, "message": message[:MAX_MESSAGE]}}
            if kind in ("rate-limited", "bad-request"):
                result["error"] |= quota_of(error)
        if reply.usage is not None:
            result["usage"] = reply.usage
        elif reply.is_begun:
            result["usage"] = dict(UNKNOWN_USAGE)
        return result

    def _complete(self, request: dict[str, Any], reply: Reply) -> None:
        model, client = request["model"], self._client(request)
        is_forced = request["tool"] is not None and model not in self._unforced
        try:
            self._send(client, request, reply, is_forced)
        except self._package.BadRequestError as error:
            if not is_forced or "tool_choice" not in str(error):
                raise
            self._unforced.add(model)
            self._send(client, request, reply, False)
        if not reply.is_begun:
            raise Broken("invalid-reply", "the response is not a reply of this API")
        if not reply.is_ended:
            raise Broken("connection", "the reply is incomplete")

    def _client(self, request: dict[str, Any]) -> Any:
        address = request["base_url"], request["key"]
        with self._clients_lock:
            client = self._clients.get(address)
            if client is None:
                options = {"base_url": request["base_url"], "api_key": request["key"]}
                http = self._package.DefaultHttpxClient(event_hooks={"response": [_prevent_long_wait]})
                options = {name: value for name, value in options.items() if value is not None}
                client = self._connect(http_client=http, **options)
                self._clients[address] = client
            return client


def explain(error: Exception, package: Any, seconds: float) -> tuple[str, str]:
    """Kind and message of an error. The exceptions of both client packages have the same names."""
    if isinstance(error, Broken):
        return error.kind, error.message
    if isinstance(error, package.APIStatusError):
        return status_kind(error.status_code), f"HTTP {error.status_code}: {_reason(error)}"
    if isinstance(error, package.APITimeoutError) or type(error).__name__.endswith("Timeout"):
        return "timeout", f"no reply within {round(seconds, 1):g} s"
    if isinstance(error, package.APIConnectionError) or type(error).__module__.startswith("httpx"):
        return "connection", f"the connection broke: {_chain(error)}"
    if isinstance(error, package.APIError):
        return "server-error", _reason(error)
    text = _chain(error)
    if "api_key" in text or "authentication" in text:
        return "missing-key", "there is no API key"
    return "invalid-reply", f"the reply could not be read: {text}"


def status_kind(status: int) -> str:
    if status == 429:
        return "rate-limited"
    if status in (401, 403):
        return "unauthorized"
    if status == 408:
        return "timeout"
    return "server-error" if status >= 500 else "bad-request"


def quota_of(error: Any) -> dict[str, Any]:
    """`kind` and `resets_at` of an error if the quota is used up; {} if not, or if the client waits itself.

    error: status 429, or 400, with which Anthropic's API refuses an account without credit. `resets_at` is in
    seconds since 1970; it is absent if the API does not state it, because the account has no credit.
    """
    if error.status_code == 400:
        return {"kind": "quota"} if _NO_CREDIT in str(error).lower() else {}
    seconds = _wait_of(error.response)
    if _MAX_CLIENT_WAIT < seconds <= MAX_RESET_S:
        return {"kind": "quota", "resets_at": round(clock.time() + seconds, 3)}
    return {"kind": "quota"} if getattr(error, "code", None) == "insufficient_quota" else {}


def _wait_of(response: Any) -> float:
    """The `retry-after` of a response in seconds; 0 if it has none."""
    text = response.headers.get("retry-after", "")
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return email.utils.parsedate_to_datetime(text).timestamp() - clock.time()
    except (ValueError, OverflowError):
        return 0.0


def _prevent_long_wait(response: Any) -> None:
    """Make the client report a response at once if its retry would wait longer than a call may take."""
    if _wait_of(response) > _MAX_CLIENT_WAIT:
        response.headers["x-should-retry"] = "false"


def _reason(error: Any) -> str:
    """The API's own message for an error, without the text that the client adds."""
    body = error.body
    if isinstance(body, dict):
        inner = body.get("error")
        text = inner.get("message") if isinstance(inner, dict) else body.get("message")
        if isinstance(text, str):
            return text
    return str(error.message)


def _chain(error: BaseException) -> str:
    """The text of an exception and of its cause, which is often more specific."""
    text = str(error) or type(error).__name__
    if error.__cause__ is not None and text == "Connection error.":
        return str(error.__cause__)
    if error.__cause__ is not None and str(error.__cause__) not in text:
        text += f" ({error.__cause__})"
    return text
