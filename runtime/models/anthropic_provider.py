"""Models of the Messages API, by the `anthropic` client; see `provider`."""

from __future__ import annotations

import json
from typing import Any

import anthropic

from . import provider
from .provider import ASK_FOR_TOOL, LEAST_CACHED, Reply, is_whole

_STOPS = {"end_turn": "end", "stop_sequence": "end", "tool_use": "end", "max_tokens": "length"}


def main() -> None:
    provider.serve(anthropic, anthropic.Anthropic, send)


def send(client: Any, request: dict[str, Any], reply: Reply, is_forced: bool) -> None:
    sent: dict[str, Any] = {
        "model": request["model"],
        "max_tokens": request["max_tokens"],
        "messages": _messages(request),
        "timeout": request["timeout"],
        "stream": True,
    }
    if request["system"]:
        sent["system"] = [_block(request["system"], is_stable=True)]
    tool = request["tool"]
    if tool is not None:
        sent["tools"] = [
            {"name": tool["name"], "description": tool["description"], "input_schema": tool["schema"]}
        ]
        sent["tool_choice"] = {"type": "tool", "name": tool["name"]} if is_forced else {"type": "auto"}
        if not is_forced:
            sent["messages"][-1]["content"].append({"type": "text", "text": ASK_FOR_TOOL.format(**tool)})
    with client.messages.create(**sent) as stream:
        if is_whole(stream.response):
            _take_whole(stream.response.read(), reply, tool)
            return
        for event in stream:
            _take(event, reply, tool)


def _take_whole(body: bytes, reply: Reply, tool: dict[str, Any] | None) -> None:
    """The reply of a server that does not stream."""
    whole = provider.read_whole(anthropic.types.Message, body)
    reply.is_begun = reply.is_ended = True
    _use(whole.usage, reply)
    reply.stop = _STOPS.get(whole.stop_reason or "", whole.stop_reason or "")
    for block in whole.content:
        if block.type == "text":
            reply.add_text(block.text)
        elif block.type == "tool_use" and tool is not None and block.name == tool["name"]:
            reply.called = True
            reply.add_data(json.dumps(block.input))


def _take(event: Any, reply: Reply, tool: dict[str, Any] | None) -> None:
    match event.type:
        case "message_start":
            reply.is_begun = True
            _use(event.message.usage, reply)
        case "content_block_start":
            block = event.content_block
            if block.type == "tool_use" and tool is not None and block.name == tool["name"]:
                reply.called = True
        case "content_block_delta":
            if event.delta.type == "text_delta":
                reply.add_text(event.delta.text)
            elif event.delta.type == "input_json_delta":
                reply.add_data(event.delta.partial_json)
        case "message_delta":
            stop = event.delta.stop_reason
            reply.stop = _STOPS.get(stop, stop or "")
            _use(event.usage, reply)
        case "message_stop":
            reply.is_ended = True


def _use(usage: Any, reply: Reply) -> None:
    """The API reports counts at the beginning, and updated ones at the end."""
    before = reply.usage or {}
    cached = {
        "cache_read": _count(usage, "cache_read_input_tokens", before.get("cache_read_tokens", 0)),
        "cache_write": _count(usage, "cache_creation_input_tokens", before.get("cache_write_tokens", 0)),
    }
    known = before.get("input_tokens", 0) - sum(
        before.get(name, 0) for name in ("cache_read_tokens", "cache_write_tokens")
    )
    reply.use(
        read=_count(usage, "input_tokens", known),
        written=_count(usage, "output_tokens", before.get("output_tokens", 0)),
        **cached,
    )


def _count(usage: Any, name: str, otherwise: int) -> int:
    value = getattr(usage, name, None)
    return value if isinstance(value, int) and value >= 0 else otherwise


def _messages(request: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "role": message["role"],
            "content": [_block(part["text"], is_stable=part["stable"]) for part in message["parts"]],
        }
        for message in request["messages"]
    ]


def _block(text: str, *, is_stable: bool) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "text", "text": text}
    if is_stable and len(text) >= LEAST_CACHED:
        block["cache_control"] = {"type": "ephemeral"}
    return block
