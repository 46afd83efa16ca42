"""What a provider of models is: the helper process's side that they share.

A provider is a module with a function `send(client, request, reply, is_forced)` that sends a request and
tells the reply as it comes, and a `main` that serves it with its client (`serve`). A request is plain data:

    model, max_tokens, system    as they are sent
    messages                     [{role: user | assistant, parts: [{text, stable}]}]; a stable part is
                                 the same in the next request, so it is worth caching
    output                       None for text; for JSON {schema, tool, description, limit}: its JSON Schema,
                                 None for any; the tool by which it is given; its limit of tokens, in words
    timeout                      seconds that the whole of it may take, retries included
    base_url, key                where the model is and its key, None for what the client finds itself

The frame is here: clients by address, the use of the tool that is forced where the model lets it be,
what counts as a whole reply, whether its data fit (a pattern of a schema may take for ever, and this
process can be ended), and what went wrong in words.
"""

from __future__ import annotations

import email.utils
import json
import sys
from collections.abc import Callable
from typing import Any

from ..host import clock, threads
from ..host.errors import KindError
from ..ledger.breakers import FURTHEST
from . import structured_output
from .helper_process import MAX_MESSAGE, end_when_alone, serve_in_parts
from .worker_pool import MANY, serve_many

# Appended where a model does not let itself be forced to use the tool.
ASK_FOR_TOOL = "Answer by calling the tool `{name}`."
# Characters of a reply; no model writes as many, so a longer one is a server gone wrong.
MAX_REPLY = 4 << 20
# What a reply has used that came, also in part, from a server that does not say.
UNTOLD = {"tokens": None}
# Seconds of a `retry-after` that a client waits itself, before it asks again.
_CLIENT_WAITS = 60.0
# Words of the 400 by which Anthropic refuses an account that must be paid first.
_NO_CREDIT = "credit balance is too low"
# Stable text shorter than this is not cached by anybody (a thousand tokens).
LEAST_CACHED = 4_000


class Broken(KindError):
    """A reply that is none: what is wrong with it, by a word and in a sentence."""


def is_whole(response: Any) -> bool:
    """Whether a server ignores that the reply was asked for as a stream."""
    return bool(response.headers.get("content-type", "").startswith("application/json"))


def read_whole(model: Any, body: bytes) -> Any:
    """The reply of a server that does not stream, as a pydantic `model`. Raises `Broken`."""
    try:
        return model.model_validate_json(body)
    except ValueError as error:
        raise Broken("invalid-reply", "what came is no reply of this API") from error


class Reply:
    """A reply as it comes. `say` tells parts of it: {"text"}, and {"usage"} as far as it is known.

    is_begun, is_ended: whether its first event came, and its last.
    """

    def __init__(self, say: Callable[[Any], None], seconds: float) -> None:
        self._say = say
        self._end = clock.monotonic() + seconds
        self._text: list[str] = []
        self._data: list[str] = []
        self._size = 0
        self.usage: dict[str, int] | None = None
        self.stop = ""
        self.called = False
        self.is_begun = self.is_ended = False

    def add_text(self, text: str) -> None:
        self._take(text)
        self._text.append(text)

    def add_data(self, text: str) -> None:
        """A part of the tool's input, as JSON."""
        self._take(text)
        self._data.append(text)

    def _take(self, text: str) -> None:
        # The client's time-out is one between two reads.
        if clock.monotonic() > self._end:
            raise Broken("timeout", "the reply took too long")
        self._size += len(text)
        if self._size > MAX_REPLY:
            raise Broken("too-long", f"the reply is longer than {MAX_REPLY:,} characters")
        if text:
            self._say({"text": text})

    def use(self, *, read: int, written: int, cache_read: int = 0, cache_write: int = 0) -> None:
        """What the request has used until now; `read` without what came from the cache or went there."""
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
        """{text, stop, called, data?}; `data` is what the tool was called with, where that is JSON."""
        found: dict[str, Any] = {"text": "".join(self._text), "stop": self.stop, "called": self.called}
        if self.called:
            text = "".join(self._data).strip() or "{}"
            try:
                found["data"] = json.loads(text)
            except (ValueError, RecursionError):
                # Usually truncated at the token limit; the text shows where.
                found["text"] = text
        return found


# send(client, request, reply, is_forced): whether the use of the tool is forced.
Send = Callable[[Any, dict[str, Any], Reply, bool], None]


def serve(package: Any, connect: Callable[..., Any], send: Send) -> None:
    """Answer requests. package: the client's, which has the exceptions of its kind. connect: its class."""
    provider = Provider(package, connect, send)
    if MANY in sys.argv:
        serve_many(provider.answer)
    else:
        end_when_alone()
        serve_in_parts(provider.answer)


class Provider:
    """Answers requests, one by one or several at once."""

    def __init__(self, package: Any, connect: Callable[..., Any], send: Send) -> None:
        self._package = package
        self._connect = connect
        self._send = send
        self._clients: dict[tuple[str | None, str | None], Any] = {}
        # To make one takes as long as several calls, and many may want the first.
        self._making = threads.Lock()
        # Models that refused forced tool use: thinking that cannot be switched off excludes it.
        self._unforced: set[str] = set()

    def answer(self, request: dict[str, Any], say: Callable[[Any], None]) -> dict[str, Any]:
        """What `Reply.result` gives, or {"error": {kind, message}}; either with `usage` if it is known.

        Where JSON is asked for also `value`, or `problem`: why there is none that fits.
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
        except Exception as error:  # whatever a broken body makes a client raise
            kind, message = explain(error, self._package, request["timeout"])
            result = {"error": {"kind": kind, "message": message[:MAX_MESSAGE]}}
            if kind in ("rate-limited", "bad-request"):
                result["error"] |= quota_of(error)
        if reply.usage is not None:
            result["usage"] = reply.usage
        elif reply.is_begun:
            result["usage"] = dict(UNTOLD)
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
            raise Broken("invalid-reply", "what came is no reply of this API")
        if not reply.is_ended:
            raise Broken("connection", "the reply broke off")

    def _client(self, request: dict[str, Any]) -> Any:
        address = request["base_url"], request["key"]
        with self._making:
            client = self._clients.get(address)
            if client is None:
                given = {"base_url": request["base_url"], "api_key": request["key"]}
                http = self._package.DefaultHttpxClient(event_hooks={"response": [_end_long_wait]})
                known = {name: value for name, value in given.items() if value is not None}
                client = self._connect(http_client=http, **known)
                self._clients[address] = client
            return client


def explain(error: Exception, package: Any, seconds: float) -> tuple[str, str]:
    """A word for what went wrong, and a sentence. The clients' exceptions have the same names."""
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
    """`kind` and `resets_at` of a refusal when the quota is used up for longer than a client waits itself.

    error: of status 429, or 400, by which Anthropic's API refuses an account without credit.
    resets_at: seconds since 1970, absent where it is not stated; such an account has no money left.
    """
    if error.status_code == 400:
        return {"kind": "quota"} if _NO_CREDIT in str(error).lower() else {}
    seconds = _wait_of(error.response)
    if _CLIENT_WAITS < seconds <= FURTHEST:
        return {"kind": "quota", "resets_at": round(clock.time() + seconds, 3)}
    return {"kind": "quota"} if getattr(error, "code", None) == "insufficient_quota" else {}


def _wait_of(response: Any) -> float:
    """The seconds that a response asks its client to wait; 0 where it does not."""
    text = response.headers.get("retry-after", "")
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return email.utils.parsedate_to_datetime(text).timestamp() - clock.time()
    except (ValueError, OverflowError):
        return 0.0


def _end_long_wait(response: Any) -> None:
    """Let the client report a response at once for which it would sleep longer than a call may take."""
    if _wait_of(response) > _CLIENT_WAITS:
        response.headers["x-should-retry"] = "false"


def _reason(error: Any) -> str:
    """What the API says about an error, without the wrapping the client adds."""
    body = error.body
    if isinstance(body, dict):
        inner = body.get("error")
        text = inner.get("message") if isinstance(inner, dict) else body.get("message")
        if isinstance(text, str):
            return text
    return str(error.message)


def _chain(error: BaseException) -> str:
    """An exception's text with that of its cause, which often says more."""
    text = str(error) or type(error).__name__
    if error.__cause__ is not None and text == "Connection error.":
        return str(error.__cause__)
    if error.__cause__ is not None and str(error.__cause__) not in text:
        text += f" ({error.__cause__})"
    return text
