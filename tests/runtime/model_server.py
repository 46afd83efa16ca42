"""A server of the model APIs of four agents on the loopback interface.

    with ModelServer() as server:
        server.then(Shell("touch fixed"), Say("Done."))

Each model request takes the next step in any API: Messages, Responses, chat completions or Gemini; the last
step answers all further requests. `server.requests` has the bodies. Internal requests of an agent (for a
title or for routing) offer no tools and are answered without taking a step.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Say(NamedTuple):
    """The model answers with text."""

    text: str


class Shell(NamedTuple):
    """The model uses the agent's shell."""

    command: str


class Write(NamedTuple):
    """The model uses the agent's tool that creates a file."""

    path: str
    text: str


class Fail(NamedTuple):
    """The API refuses the request with an HTTP status."""

    status: int
    message: str = ""
    retry_after: int | None = None


class Hang(NamedTuple):
    """The API does not answer."""


# Ids of messages and tool uses; an agent treats two uses with the same id as one.
_IDS = itertools.count(1)
Step = Say | Shell | Write | Fail | Hang
_SHELLS = ("Bash", "bash", "exec_command", "shell_command", "shell", "run_shell_command")
_WRITERS = ("Write", "write", "write_file")


class ModelServer(ThreadingHTTPServer):
    """Listens on a free port inside `with`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[dict[str, Any]] = []
        self.stopping = threading.Event()
        self._steps: list[Step] = []
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def then(self, *steps: Step) -> None:
        """Set the steps for the next model requests."""
        self._steps += steps

    def take(self, request: dict[str, Any]) -> Step:
        with self._lock:
            self.requests.append(request)
            return self._steps.pop(0) if len(self._steps) > 1 else self._steps[0]

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore agents that disconnect; some tests do that on purpose."""

    def __enter__(self) -> ModelServer:
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stopping.set()
        self.shutdown()
        self.server_close()


def tool_names(request: dict[str, Any]) -> list[str]:
    """Names of the tools that a request offers, in any API."""
    names: list[str] = []
    for tool in request.get("tools") or ():
        entries = tool.get("functionDeclarations") or [tool.get("function") or tool]
        names += [entry.get("name") or entry.get("type", "") for entry in entries]
    return names


def call_of(step: Step, names: list[str]) -> tuple[str, Any] | None:
    """The tool and the arguments of a step, for an agent with these tools."""
    if isinstance(step, Shell):
        name = next(name for name in _SHELLS if name in names)
        if name == "exec_command":
            return name, {"cmd": step.command}
        if name == "shell":
            return name, {"command": ["bash", "-c", step.command]}
        return name, {"command": step.command, "description": "as asked"}
    if isinstance(step, Write):
        writer = next((name for name in _WRITERS if name in names), None)
        if writer is not None:
            return writer, {"filePath" if writer == "write" else "file_path": step.path, "content": step.text}
        patch = f"*** Begin Patch\n*** Add File: {step.path}\n+{step.text}\n*** End Patch\n"
        return "apply_patch", patch
    return None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: ModelServer

    def do_GET(self) -> None:
        self._send(404, b"{}", "application/json")

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"] or 0)) or b"{}")
        path = self.path.partition("?")[0]
        kind = next((kind for end, kind in _APIS.items() if path.endswith(end)), None)
        if kind is None:
            self._send(404, b"{}", "application/json")
            return
        names = tool_names(request)
        # A request without tools is an internal request of the agent.
        step = self.server.take(request) if names else Say("{}")
        if isinstance(step, Hang):
            self.server.stopping.wait(60)
        elif isinstance(step, Fail):
            error = {
                "message": step.message or f"status {step.status}",
                "type": _ERRORS.get(step.status, "api_error"),
            }
            body = {"type": "error", "error": {**error, "code": step.status, "status": "FAILED"}}
            extra = {} if step.retry_after is None else {"retry-after": str(step.retry_after)}
            self._send(step.status, json.dumps(body).encode(), "application/json", extra)
        else:
            text = step.text if isinstance(step, Say) else "I use a tool."
            is_stream = bool(request.get("stream")) or path.endswith(":streamGenerateContent")
            events = list(kind(request.get("model", "m"), text, call_of(step, names), is_stream))
            if is_stream:
                self._send(200, b"".join(map(_event, events)), "text/event-stream")
            else:
                self._send(200, json.dumps(events[-1]).encode(), "application/json")

    def _send(self, code: int, data: bytes, kind: str, extra: dict[str, str] | None = None) -> None:
        self.send_response(code)
        headers = {"content-type": kind, "content-length": str(len(data)), **(extra or {})}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing; tests read `requests`."""


_ERRORS = {401: "authentication_error", 429: "rate_limit_error", 529: "overloaded_error"}


def _event(data: dict[str, Any] | str) -> bytes:
    if isinstance(data, str):
        return f"data: {data}\n\n".encode()
    name = f"event: {data['type']}\n" if isinstance(data.get("type"), str) else ""
    return f"{name}data: {json.dumps(data)}\n\n".encode()


Call = tuple[str, Any] | None


def _messages(model: str, text: str, call: Call, is_stream: bool) -> Iterator[dict[str, Any]]:
    """The Messages API: 1,200 tokens in, 300 from the cache, 40 out."""
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text}]
    if call is not None:
        blocks.append({"type": "tool_use", "id": f"toolu_{next(_IDS)}", "name": call[0], "input": call[1]})
    used = {"input_tokens": 1200, "cache_read_input_tokens": 300, "output_tokens": 40}
    complete_message = {
        "id": f"msg_{next(_IDS)}", "type": "message", "role": "assistant", "model": model, "content": blocks,
        "stop_reason": "end_turn" if call is None else "tool_use", "stop_sequence": None, "usage": used,
    }  # fmt: skip
    if is_stream:
        yield {"type": "message_start", "message": {**complete_message, "content": [], "stop_reason": None}}
        for index, block in enumerate(blocks):
            key = "text" if block["type"] == "text" else "input"
            content = block[key] if key == "text" else json.dumps(block[key])
            kind, field = ("text_delta", "text") if key == "text" else ("input_json_delta", "partial_json")
            empty = {**block, key: "" if key == "text" else {}}
            yield {"type": "content_block_start", "index": index, "content_block": empty}
            yield {"type": "content_block_delta", "index": index, "delta": {"type": kind, field: content}}
            yield {"type": "content_block_stop", "index": index}
        stop = {"stop_reason": complete_message["stop_reason"], "stop_sequence": None}
        yield {"type": "message_delta", "delta": stop, "usage": used}
        yield {"type": "message_stop"}
    else:
        yield complete_message


def _responses(model: str, text: str, call: Call, is_stream: bool) -> Iterator[dict[str, Any]]:
    """The Responses API: 1,500 tokens in, 300 of them from the cache, 40 out."""
    output_text = {"type": "output_text", "text": text, "annotations": []}
    items: list[dict[str, Any]] = [
        {
            "type": "message",
            "id": f"msg_{next(_IDS)}",
            "role": "assistant",
            "status": "completed",
            "content": [output_text],
        }
    ]
    if call is not None and isinstance(call[1], str):
        items.append(
            {
                "type": "custom_tool_call",
                "id": f"ct_{next(_IDS)}",
                "call_id": f"call_{next(_IDS)}",
                "name": call[0],
                "input": call[1],
            }
        )
    elif call is not None:
        arguments = json.dumps(call[1])
        items.append(
            {
                "type": "function_call",
                "id": f"fc_{next(_IDS)}",
                "call_id": f"call_{next(_IDS)}",
                "name": call[0],
                "arguments": arguments,
            }
        )
    usage = {
        "input_tokens": 1500, "input_tokens_details": {"cached_tokens": 300}, "output_tokens": 40,
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 1540,
    }  # fmt: skip
    response = {
        "id": f"resp_{next(_IDS)}",
        "object": "response",
        "status": "completed",
        "model": model,
        "output": items,
        "usage": usage,
    }
    yield {
        "type": "response.created",
        "response": {**response, "status": "in_progress", "output": [], "usage": None},
    }
    for index, item in enumerate(items):
        yield {"type": "response.output_item.added", "output_index": index, "item": item}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": "response.completed", "response": response}


def _chat(model: str, text: str, call: Call, is_stream: bool) -> Iterator[dict[str, Any] | str]:
    """Chat completions: 1,500 tokens in, 300 of them from the cache, 40 out."""
    usage = {
        "prompt_tokens": 1500, "completion_tokens": 40, "total_tokens": 1540,
        "prompt_tokens_details": {"cached_tokens": 300},
    }  # fmt: skip
    base = {"id": "chat_1", "created": 1, "model": model, "object": "chat.completion.chunk"}
    calls = []
    if call is not None:
        function = {"name": call[0], "arguments": json.dumps(call[1])}
        calls = [{"index": 0, "id": f"call_{next(_IDS)}", "type": "function", "function": function}]
    finish_reason = "tool_calls" if calls else "stop"
    if is_stream:
        first = {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})}
        yield {**base, "choices": [{"index": 0, "delta": first, "finish_reason": None}]}
        yield {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": finish_reason}]}
        yield {**base, "choices": [], "usage": usage}
        yield "[DONE]"
    else:
        answer = {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})}
        yield {
            **base,
            "object": "chat.completion",
            "choices": [{"index": 0, "message": answer, "finish_reason": finish_reason}],
            "usage": usage,
        }


def _gemini(model: str, text: str, call: Call, is_stream: bool) -> Iterator[dict[str, Any]]:
    """The Gemini API: 1,500 tokens in, 300 of them from the cache, 40 out."""
    parts: list[dict[str, Any]] = [{"text": text}]
    if call is not None:
        parts.append({"functionCall": {"name": call[0], "args": call[1]}})
    usage = {
        "promptTokenCount": 1500, "candidatesTokenCount": 40, "totalTokenCount": 1540,
        "cachedContentTokenCount": 300,
    }  # fmt: skip
    content = {"role": "model", "parts": parts}
    yield {"candidates": [{"content": content, "finishReason": "STOP", "index": 0}], "usageMetadata": usage}


_APIS = {
    "/v1/messages": _messages,
    "/v1/responses": _responses,
    "/v1/chat/completions": _chat,
    ":streamGenerateContent": _gemini,
    ":generateContent": _gemini,
}
