"""Re-ranking of matches by a model: one forced tool call through the run's model worker.

The model receives the path and the best line of each file, not its content. The files that it names come
first, in its order; the others follow in their previous order. A failed call leaves the order unchanged and
adds a notice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..host.effect_context import Context
from ..project import models
from .search import Match

_MAX_TOKENS = 1024
_TIMEOUT = 30.0  # seconds
_MAX_QUERY = 8_000  # characters
_PROMPT = """\
Below are files of a project that may help with a task, a number before each, with its path and one of \
its lines. Give the numbers of the files that help most with the task, the most helpful first. Leave out \
files that do not help.

<task>
{query}
</task>"""


def rerank(
    query: str,
    model: str | None,
    limit: int,
    matches: list[Match],
    seconds: float | None,
    context: Context,
    ask: Callable[..., Any],
    notices: list[str],
) -> tuple[list[Match], dict[str, Any] | None]:
    """Rank matches with a model; return the best `limit` matches and the usage of the call.

    Args:
        query: the words of the request.
        model: model name; None for the default model.
        limit: maximum number of matches to return.
        matches: the matches to rank.
        seconds: timeout of the call; None for the default.
        context: context of the effect.
        ask: `Judge.perform` or an equivalent function.
        notices: receives a sentence if the call fails.
    """
    lines = [
        f"{number}. {_clean(match.path)}" + (f"  |  {_clean(match.snippet)}" if match.snippet else "")
        for number, match in enumerate(matches, 1)
    ]
    args = {
        "prompt": _PROMPT.format(query=query[:_MAX_QUERY]),
        "output": "\n".join(lines),
        "schema": _schema(len(matches)),
        "model": model or models.default_model(),
        "max_tokens": _MAX_TOKENS,
        "timeout_s": _TIMEOUT if seconds is None else seconds,
    }
    result = ask(args, context)
    usage = result.get("usage")
    if "error" in result:
        notices.append(f"not ranked by a model: {result['error']['message']}")
        return matches[:limit], usage
    indices = dict.fromkeys(number - 1 for number in result["reply"]["ranking"])
    ranked = [matches[index] for index in indices]
    ranked += [match for index, match in enumerate(matches) if index not in indices]
    return ranked[:limit], usage


def _schema(count: int) -> dict[str, Any]:
    number = {"type": "integer", "minimum": 1, "maximum": count}
    ranking = {"type": "array", "items": number, "description": "Numbers of files, the most helpful first."}
    return {"type": "object", "properties": {"ranking": ranking}, "required": ["ranking"]}


def _clean(text: str) -> str:
    """A text on one line without surrogates, because file names may contain any bytes."""
    return " ".join(text.encode("utf-8", "replace").decode().split())
