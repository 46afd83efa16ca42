"""A server of OpenAI's chat completions on the loopback interface, for tests with the real client.

It is used like `messages_server`; the answers of that module that concern the connection (`half`, `drop`,
`drip`, `stall`, `body`) work here too.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

from llc_tests_messages_server import EVENT_STREAM, MessagesServer, _Handler

Answer = Callable[[Any, dict[str, Any]], None]


def text(words: str, *, finish: str = "stop", tokens: tuple[int, int] = (120, 30), cached: int = 0) -> Answer:
    """Text, streamed."""
    return _stream(
        [{"content": words[offset : offset + 40]} for offset in range(0, len(words), 40)],
        finish,
        tokens,
        cached,
    )


def result(data: Any, *, name: str = "answer", finish: str = "tool_calls") -> Answer:
    """A call of the tool, streamed."""
    words = json.dumps(data)
    deltas: list[dict[str, Any]] = [_call({"name": name, "arguments": ""}, id="call_1", type="function")]
    deltas += [_call({"arguments": words[offset : offset + 40]}) for offset in range(0, len(words), 40)]
    return _stream(deltas, finish, (120, 30), 0)


def status(code: int, words: str = "") -> Answer:
    """An error of the API."""

    def answer(handler: Any, request: dict[str, Any]) -> None:
        error = {"message": words or f"status {code}", "type": "error", "code": None, "param": None}
        handler.send_json(code, {"error": error}, {"retry-after": "0.01"})

    return answer


def _call(function: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"tool_calls": [{"index": 0, "function": function, **more}]}


def _stream(deltas: list[dict[str, Any]], finish: str, tokens: tuple[int, int], cached: int) -> Answer:
    usage = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1], "total_tokens": sum(tokens)}
    usage |= {"prompt_tokens_details": {"cached_tokens": cached}}  # type: ignore[dict-item]

    def chunks(model: str) -> Iterator[dict[str, Any]]:
        fields = {"id": "chat_1", "object": "chat.completion.chunk", "created": 0, "model": model}
        for delta in [{"role": "assistant", "content": None}, *deltas]:
            yield {**fields, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        yield {**fields, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}
        yield {**fields, "choices": [], "usage": usage}

    def answer(handler: Any, request: dict[str, Any]) -> None:
        lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks(request["model"])]
        handler.send(200, "".join([*lines, "data: [DONE]\n\n"]).encode(), EVENT_STREAM)

    return answer


class ChatServer(MessagesServer):
    """Listens on a free port inside `with`; `url` is the value for `base_url`."""

    def __init__(self) -> None:
        super().__init__()
        self.RequestHandlerClass = _ChatHandler

    @property
    def url(self) -> str:
        return f"{super().url}/v1"


class _ChatHandler(_Handler):
    PATH = "/v1/chat/completions"


sys.modules.setdefault("llc_tests_openai_server", sys.modules[__name__])
