"""Models behind any server that speaks OpenAI's chat completions, by the `openai` client; see `provider`.

The client is an extra of llc: `choice` says how to install it.
"""

from __future__ import annotations

from typing import Any

import openai
from openai.types.chat import ChatCompletion

from . import provider
from .provider import ASK_FOR_TOOL, Reply, is_whole

_STOPS = {"stop": "end", "tool_calls": "end", "function_call": "end", "content_filter": "refusal"}


def main() -> None:
    provider.serve(openai, openai.OpenAI, send)


def send(client: Any, request: dict[str, Any], reply: Reply, is_forced: bool) -> None:
    # OpenAI's own models take the one name of the limit, other servers know the other.
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
        if is_whole(stream.response):
            _take_whole(stream.response.read(), reply)
            return
        for chunk in stream:
            reply.is_begun = True
            if chunk.usage is not None:
                _use(chunk.usage, reply)
            for choice in (chunk.choices or ())[:1]:
                _take(choice.delta, reply)
                if choice.finish_reason:
                    reply.is_ended = True
                    reply.stop = _STOPS.get(choice.finish_reason, choice.finish_reason)


def _take_whole(body: bytes, reply: Reply) -> None:
    """The reply of a server that does not stream."""
    whole = provider.read_whole(ChatCompletion, body)
    reply.is_begun = reply.is_ended = True
    if whole.usage is not None:
        _use(whole.usage, reply)
    for choice in whole.choices[:1]:
        reply.stop = _STOPS.get(choice.finish_reason, choice.finish_reason)
        for call in (choice.message.tool_calls or ())[:1]:
            if call.type == "function":
                reply.called = True
                reply.add_data(call.function.arguments)
        reply.add_text(choice.message.content or "")


def _take(delta: Any, reply: Reply) -> None:
    if delta.content:
        reply.add_text(delta.content)
    for call in delta.tool_calls or ():
        # Only the first call counts: there is one tool and it is asked for once.
        if call.index == 0 and call.function is not None:
            reply.called = True
            reply.add_data(call.function.arguments or "")


def _use(usage: Any, reply: Reply) -> None:
    details = getattr(usage, "prompt_tokens_details", None)
    came, went = (getattr(details, name, None) or 0 for name in ("cached_tokens", "cache_write_tokens"))
    reply.use(
        read=max(0, (usage.prompt_tokens or 0) - came - went),
        written=usage.completion_tokens or 0,
        cache_read=came,
        cache_write=went,
    )


def _messages(request: dict[str, Any]) -> list[dict[str, str]]:
    sent = [{"role": "system", "content": request["system"]}] if request["system"] else []
    for message in request["messages"]:
        text = "\n\n".join(part["text"] for part in message["parts"])
        sent.append({"role": message["role"], "content": text})
    return sent
