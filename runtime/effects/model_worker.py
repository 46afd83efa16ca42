"""The helper process of model evaluation: the `anthropic` client and the check of its replies.

The request is the seed's: one user message, one tool, that tool forced. Replies are validated with
the `jsonschema` package, because a schema is the author's and may use all of JSON Schema: a subset
of our own would let through what it does not know.
"""

from __future__ import annotations

from typing import Any

import anthropic
import jsonschema  # type: ignore[import-untyped, unused-ignore]
import referencing

from .worker import serve

TOOL = "evaluate"
MAX_MESSAGE = 500
# Appended to the prompt for a model that does not let itself be forced to use a tool.
ASK_FOR_TOOL = f"\n\nAnswer by calling the tool `{TOOL}`."

# Models that refused forced tool use: extended thinking that cannot be switched off excludes it.
_unforced: set[str] = set()
_client: anthropic.Anthropic | None = None


def main() -> None:
    serve(answer)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """{"reply", "usage"} or {"error", "usage"?} for one evaluation."""
    try:
        try:
            message = _call(request, forced=request["model"] not in _unforced)
        except anthropic.BadRequestError as error:
            if "tool_choice" not in str(error) or request["model"] in _unforced:
                raise
            message = _call(request, forced=False)
            _unforced.add(request["model"])
        return _judged(message, request)
    except anthropic.APIStatusError as error:
        return _error(_status_kind(error.status_code), f"HTTP {error.status_code}: {_reason(error)}")
    except anthropic.APITimeoutError:
        return _error("timeout", f"no reply within {request['timeout']:g} s")
    except anthropic.APIConnectionError as error:
        return _error("connection", _chain(error))
    except anthropic.AnthropicError as error:
        return _error("client", _chain(error))
    except TypeError as error:
        if "authentication" in str(error):
            return _error("missing-key", "there is no API key; set ANTHROPIC_API_KEY")
        return _error("invalid-reply", _chain(error))
    except Exception as error:  # whatever a broken body makes the client raise
        return _error("invalid-reply", f"the reply could not be read: {_chain(error)}")


def _call(request: dict[str, Any], *, forced: bool) -> anthropic.types.Message:
    global _client
    if _client is None:
        _client = anthropic.Anthropic()
    content = f"{request['prompt']}\n\n<action_output>\n{request['output']}\n</action_output>"
    tool: anthropic.types.ToolParam = {
        "name": TOOL,
        "description": "Provide your evaluation of the action result",
        "input_schema": request["schema"],
    }
    return _client.messages.create(
        model=request["model"],
        max_tokens=request["max_tokens"],
        messages=[{"role": "user", "content": content if forced else content + ASK_FOR_TOOL}],
        tools=[tool],
        tool_choice={"type": "tool", "name": TOOL} if forced else {"type": "auto"},
        timeout=request["timeout"],
    )


def _judged(message: Any, request: dict[str, Any]) -> dict[str, Any]:
    """The reply in a message of the API, held against the schema."""
    if not isinstance(message, anthropic.types.Message) or not isinstance(message.content, list):
        return _error("invalid-reply", "the reply is not a message of the Messages API")
    result: dict[str, Any] = {}
    usage = message.usage
    if usage is not None:
        read = sum(
            getattr(usage, name, None) or 0
            for name in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        )
        written = usage.output_tokens or 0
        result["usage"] = {"input_tokens": read, "output_tokens": written, "tokens": read + written}
    for block in message.content:
        if block.type == "tool_use" and block.name == TOOL:
            problem = _problem(block.input, request["schema"])
            if problem is None:
                result["reply"] = block.input
            else:
                problem += _cut(message, request)
                result["error"] = {"kind": "invalid-reply", "message": problem}
            return result
    reason = f"the model did not call the tool `{TOOL}` (stop reason `{message.stop_reason}`)"
    result["error"] = {"kind": "no-tool-call", "message": reason + _cut(message, request)}
    return result


def _cut(message: anthropic.types.Message, request: dict[str, Any]) -> str:
    if message.stop_reason != "max_tokens":
        return ""
    return f"; it was cut off at `llm.max_tokens` ({request['max_tokens']})"


def _problem(reply: object, schema: dict[str, Any]) -> str | None:
    """Why a reply breaks the schema, None where it does not."""
    validator = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        # A registry of our own: a `$ref` to the web must not be fetched.
        errors = validator(schema, registry=referencing.Registry()).iter_errors(reply)
        error = jsonschema.exceptions.best_match(errors)
    except Exception as error:  # an invalid schema: whatever it makes the validator raise
        return f"the schema cannot be used: {_chain(error)}"
    if error is None:
        return None
    place = ".".join(str(part) for part in error.absolute_path)
    text = f"the reply breaks the schema{f' at `{place}`' if place else ''}: {error.message}"
    return text[:MAX_MESSAGE]


def _status_kind(status: int) -> str:
    if status == 429:
        return "rate-limited"
    if status in (401, 403):
        return "unauthorized"
    if status == 408:
        return "timeout"
    return "server-error" if status >= 500 else "bad-request"


def _reason(error: anthropic.APIStatusError) -> str:
    """What the API says about an error, without the wrapping the client adds."""
    body = error.body
    if isinstance(body, dict) and isinstance(body.get("error"), dict):
        text = body["error"].get("message")
        if isinstance(text, str):
            return text[:MAX_MESSAGE]
    return error.message[:MAX_MESSAGE]


def _chain(error: BaseException) -> str:
    """An exception's text with that of its cause, which often says more."""
    text = str(error) or type(error).__name__
    if error.__cause__ is not None and str(error.__cause__) not in text:
        text += f" ({error.__cause__})"
    return text[:MAX_MESSAGE]


def _error(kind: str, message: str) -> dict[str, Any]:
    return {"error": {"kind": kind, "message": message}}
