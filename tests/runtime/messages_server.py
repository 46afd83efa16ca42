"""A server of the Messages API on the loopback interface, for tests with the real client.

    with MessagesServer() as server:
        server.then(verdict("success", 0.9), status(429, retry_after=0.1), ...)
        ... ANTHROPIC_BASE_URL=server.url ...

Each request takes the next answer; the last one answers all further requests. `server.requests` has the
bodies of the requests, `server.headers` their headers. Tests use the fixture `messages_server`, which also
sets the environment.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[["_Handler", dict[str, Any]], None]


def message(
    content: list[dict[str, Any]],
    *,
    stop_reason: str = "tool_use",
    tokens: tuple[int, int] = (120, 30),
    cached: dict[str, int] | None = None,
) -> Answer:
    """A message of the API with the given content blocks; streamed if the request asks for a stream."""

    def answer(handler: _Handler, request: dict[str, Any]) -> None:
        complete_message = {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": request.get("model", ""),
            "content": content,
            "stop_reason": stop_reason,
            "stop_sequence": None,
            "usage": {"input_tokens": tokens[0], "output_tokens": tokens[1], **(cached or {})},
        }
        if request.get("stream"):
            handler.send(200, b"".join(map(event, events(complete_message))), EVENT_STREAM)
        else:
            handler.send_json(200, complete_message)

    return answer


EVENT_STREAM = {"content-type": "text/event-stream"}


def event(data: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return f"event: {data['type']}\ndata: {json.dumps(data)}\n\n".encode()


def events(complete_message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The events of a streamed message: texts and inputs in chunks of 40 characters."""
    first = {
        **complete_message,
        "content": [],
        "stop_reason": None,
        "usage": {**complete_message["usage"], "output_tokens": 1},
    }
    yield {"type": "message_start", "message": first}
    for index, block in enumerate(complete_message["content"]):
        if block["type"] == "tool_use":
            name, key, text = "input_json_delta", "partial_json", json.dumps(block["input"])
            empty = {**block, "input": {}}
        else:
            name, key, text = "text_delta", "text", block["text"]
            empty = {**block, "text": ""}
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        size = 40 if len(text) < 1 << 16 else 1 << 16
        for offset in range(0, len(text), size):
            delta = {"type": name, key: text[offset : offset + size]}
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    output_usage = {"output_tokens": complete_message["usage"]["output_tokens"]}
    yield {
        "type": "message_delta",
        "delta": {"stop_reason": complete_message["stop_reason"], "stop_sequence": None},
        "usage": output_usage,
    }
    yield {"type": "message_stop"}


def tool(
    input: Any, *, name: str = "evaluate", stop_reason: str = "tool_use", tokens: tuple[int, int] = (120, 30)
) -> Answer:
    """A call of a tool with any input."""
    block = {"type": "tool_use", "id": "toolu_1", "name": name, "input": input}
    return message([block], stop_reason=stop_reason, tokens=tokens)


def verdict(
    verdict: str, confidence: float = 0.9, reason: str = "because", *, tokens: tuple[int, int] = (120, 30)
) -> Answer:
    """A reply with the seed's default schema."""
    return tool({"verdict": verdict, "confidence": confidence, "reason": reason}, tokens=tokens)


def text(words: str, *, stop_reason: str = "end_turn", **options: Any) -> Answer:
    """Text instead of a tool call."""
    return message([{"type": "text", "text": words}], stop_reason=stop_reason, **options)


def result(data: Any, **options: Any) -> Answer:
    """The reply to a task with a schema."""
    return tool(data, name="answer", **options)


def status(code: int, words: str = "", *, retry_after: float | None = None) -> Answer:
    """An error of the API."""
    kinds = {400: "invalid_request_error", 401: "authentication_error", 429: "rate_limit_error"}

    def answer(handler: _Handler, request: dict[str, Any]) -> None:
        headers = {} if retry_after is None else {"retry-after": str(retry_after)}
        error = {"type": kinds.get(code, "api_error"), "message": words or f"status {code}"}
        handler.send_json(code, {"type": "error", "error": error}, headers)

    return answer


def refuse_forced(otherwise: Answer) -> Answer:
    """A model that cannot be forced to use a tool: status 400 if it is forced, else `otherwise`."""

    def answer(handler: _Handler, request: dict[str, Any]) -> None:
        if request["tool_choice"]["type"] == "tool":
            status(400, "tool_choice: forced tool use is not supported")(handler, request)
        else:
            otherwise(handler, request)

    return answer


def body(data: bytes, content_type: str = "application/json") -> Answer:
    """Any bytes with status 200."""

    def answer(handler: _Handler, request: dict[str, Any]) -> None:
        handler.send(200, data, {"content-type": content_type})

    return answer


def half(answer: Answer) -> Answer:
    """The first half of an answer's body, then the connection ends."""

    def halved(handler: _Handler, request: dict[str, Any]) -> None:
        handler.is_cut = True
        answer(handler, request)

    return halved


def drop() -> Answer:
    """No answer: the connection is reset."""

    def answer(handler: _Handler, request: dict[str, Any]) -> None:
        # A linger time of zero makes close() send RST.
        handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        handler.close_connection = True
        handler.connection.close()

    return answer


def drip(seconds: float = 0.02) -> Answer:
    """A body that arrives byte by byte and never ends, so that no single read takes long."""

    def answer(handler: _Handler, request: dict[str, Any]) -> None:
        handler.send_response(200)
        handler.send_header("content-type", "application/json")
        handler.send_header("content-length", "1000000")
        handler.end_headers()
        while not handler.server.stopping.wait(seconds):
            handler.wfile.write(b" ")
            handler.wfile.flush()

    return answer


def stall() -> Answer:
    """No answer at all, while the connection stays open."""

    def answer(handler: _Handler, request: dict[str, Any]) -> None:
        handler.server.stopping.wait(60)

    return answer


class MessagesServer(ThreadingHTTPServer):
    """Listens on a free port inside `with`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.stopping = threading.Event()
        self.answers: list[Answer] = []
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def then(self, *answers: Answer) -> None:
        """Set the answers to the next requests."""
        self.answers += answers

    def take(self, headers: dict[str, str], request: dict[str, Any]) -> Answer:
        with self._lock:
            self.headers.append(headers)
            self.requests.append(request)
            return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that disconnect; some tests do that on purpose."""

    def __enter__(self) -> MessagesServer:
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stopping.set()
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: MessagesServer
    PATH = "/v1/messages"
    is_cut = False

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        headers = {name.lower(): value for name, value in self.headers.items()}
        if self.path.partition("?")[0] != self.PATH:
            self.send(404, b"{}", {"content-type": "application/json"})
            return
        self.server.take(headers, request)(self, request)

    def send_json(self, code: int, value: Any, headers: dict[str, str] | None = None) -> None:
        self.send(code, json.dumps(value).encode(), {"content-type": "application/json", **(headers or {})})

    def send(self, code: int, data: bytes, headers: dict[str, str]) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if self.is_cut:
            self.close_connection = True
            data = data[: len(data) // 2]
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing; tests read `requests`."""
