"""Provider for servers with OpenAI's chat completions API, through the `openai` client; see `provider`.

The client is an extra of llc; the error of `project.models.address` explains how to install it.
"""

from __future__ import annotations

from typing import Any

import openai
from openai.types.chat import ChatCompletion

from . import provider
from .provider import ASK_FOR_TOOL, Reply, is_not_streamed

_STOPS = {"stop": "end", "tool_calls": "end", "function_call": "end", "content_filter": "refusal"}


def main() -> None:
    provider.serve(openai, openai.OpenAI, send)


def send(client: Any, request: dict[str, Any], reply: Reply, is_forced: bool) -> None:
    # OpenAI's own API and other servers use different names for the token limit.
    limit = "max_completion_tokens" if request["base_url"] is None else "max_tokens"
    sent: dict[str, Any] = {
        "model": request["model"],
        "messages": _messages(request),
        "timeout": request["timeout"],
        "stream": True,
        "stream_options": {"include_usage": True},
        limit: request["max_tokens"],
    }
    tool = request["tool"]
    if tool is not None:
        function = {"name": tool["name"], "description": tool["description"], "parameters": tool["schema"]}
        sent["tools"] = [{"type": "function", "function": function}]
        named = {"type": "function", "function": {"name": tool["name"]}}
        sent["tool_choice"] = named if is_forced else "auto"
        if not is_forced:
            sent["messages"][-1]["content"] += "\n\n" + ASK_FOR_TOOL.format(**tool)
    with client.chat.completions.create(**sent) as stream:
        if is_not_streamed(stream.response):
            _read_body(stream.response.read(), reply)
            return
        for chunk in stream:
            reply.is_begun = True
            if chunk.usage is not None:
                _report_usage(chunk.usage, reply)
            for choice in (chunk.choices or ())[:1]:
                _add_delta(choice.delta, reply)
                if choice.finish_reason:
                    reply.is_ended = True
                    reply.stop = _STOPS.get(choice.finish_reason, choice.finish_reason)


def _read_body(body: bytes, reply: Reply) -> None:
    """Read the reply of a server that does not stream."""
    completion = provider.read_body(ChatCompletion, body)
    reply.is_begun = reply.is_ended = True
    if completion.usage is not None:
        _report_usage(completion.usage, reply)
    for choice in completion.choices[:1]:
        reply.stop = _STOPS.get(choice.finish_reason, choice.finish_reason)
        for call in (choice.message.tool_calls or ())[:1]:
            if call.type == "function":
                reply.called = True
                reply.add_data(call.function.arguments)
        reply.add_text(choice.message.content or "")


def _add_delta(delta: Any, reply: Reply) -> None:
    if delta.content:
        reply.add_text(delta.content)
    for call in delta.tool_calls or ():
        # Only the first call counts: there is one tool, and the request asks for one call.
        if call.index == 0 and call.function is not None:
            reply.called = True
            reply.add_data(call.function.arguments or "")


def _report_usage(usage: Any, reply: Reply) -> None:
    details = getattr(usage, "prompt_tokens_details", None)
    cached, stored = (getattr(details, name, None) or 0 for name in ("cached_tokens", "cache_write_tokens"))
    reply.report_usage(
        read=max(0, (usage.prompt_tokens or 0) - cached - stored),
        written=usage.completion_tokens or 0,
        cache_read=cached,
        cache_write=stored,
    )


def _messages(request: dict[str, Any]) -> list[dict[str, str]]:
    sent = [{"role": "system", "content": request["system"]}] if request["system"] else []
    for message in request["messages"]:
        text = "\n\n".join(part["text"] for part in message["parts"])
        sent.append({"role": message["role"], "content": text})
    return sent
