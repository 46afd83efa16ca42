"""Provider for Anthropic's Messages API, through the `anthropic` client; see `provider`."""

from __future__ import annotations

import json
from typing import Any

import anthropic

from . import provider
from .provider import ASK_FOR_TOOL, MIN_CACHED_CHARACTERS, Reply, is_not_streamed

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
        if is_not_streamed(stream.response):
            _read_body(stream.response.read(), reply, tool)
            return
        for event in stream:
            _add_event(event, reply, tool)


def _read_body(body: bytes, reply: Reply, tool: dict[str, Any] | None) -> None:
    """Read the reply of a server that does not stream."""
    message = provider.read_body(anthropic.types.Message, body)
    reply.is_begun = reply.is_ended = True
    _report_usage(message.usage, reply)
    reply.stop = _STOPS.get(message.stop_reason or "", message.stop_reason or "")
    for block in message.content:
        if block.type == "text":
            reply.add_text(block.text)
        elif block.type == "tool_use" and tool is not None and block.name == tool["name"]:
            reply.called = True
            reply.add_data(json.dumps(block.input))


def _add_event(event: Any, reply: Reply, tool: dict[str, Any] | None) -> None:
    match event.type:
        case "message_start":
            reply.is_begun = True
            _report_usage(event.message.usage, reply)
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
            _report_usage(event.usage, reply)
        case "message_stop":
            reply.is_ended = True


def _report_usage(usage: Any, reply: Reply) -> None:
    """Update the usage of a reply; the API reports counts at the start and updated counts at the end."""
    before = reply.usage or {}
    cached = {
        "cache_read": _count(usage, "cache_read_input_tokens", before.get("cache_read_tokens", 0)),
        "cache_write": _count(usage, "cache_creation_input_tokens", before.get("cache_write_tokens", 0)),
    }
    uncached = before.get("input_tokens", 0) - sum(
        before.get(name, 0) for name in ("cache_read_tokens", "cache_write_tokens")
    )
    reply.report_usage(
        read=_count(usage, "input_tokens", uncached),
        written=_count(usage, "output_tokens", before.get("output_tokens", 0)),
        **cached,
    )


def _count(usage: Any, name: str, default: int) -> int:
    value = getattr(usage, name, None)
    return value if isinstance(value, int) and value >= 0 else default


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
    if is_stable and len(text) >= MIN_CACHED_CHARACTERS:
        block["cache_control"] = {"type": "ephemeral"}
    return block
