"""Re-ranking of matches by a model: one forced tool call through the run's model worker.

The model sees the path and the best line of each file, never its content. The files that it names come
first, in its order; the others follow in their old order, so none is lost. A failed call leaves the order
unchanged and adds a notice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..host.effect_context import Context
from ..project import models
from .search import Match

_TOKENS = 1024
_SECONDS = 30.0
_LONGEST_QUERY = 8_000
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
    """The best `limit` matches for a query as `model` ranks them, and the usage of that call.

    model: None for the default. seconds: limit of the call, None for the usual one. ask: as `Judge.perform`.
    notices: gets a sentence where the call failed.
    """
    listed = [
        f"{number}. {_clean(match.path)}" + (f"  |  {_clean(match.snippet)}" if match.snippet else "")
        for number, match in enumerate(matches, 1)
    ]
    asked = {
        "prompt": _PROMPT.format(query=query[:_LONGEST_QUERY]),
        "output": "\n".join(listed),
        "schema": _schema(len(matches)),
        "model": model or models.default_model(),
        "max_tokens": _TOKENS,
        "timeout_s": _SECONDS if seconds is None else seconds,
    }
    result = ask(asked, context)
    usage = result.get("usage")
    if "error" in result:
        notices.append(f"not ranked by a model: {result['error']['message']}")
        return matches[:limit], usage
    named = dict.fromkeys(number - 1 for number in result["reply"]["ranking"])
    ranked = [matches[number] for number in named]
    ranked += [match for number, match in enumerate(matches) if number not in named]
    return ranked[:limit], usage


def _schema(count: int) -> dict[str, Any]:
    number = {"type": "integer", "minimum": 1, "maximum": count}
    ranking = {"type": "array", "items": number, "description": "Numbers of files, the most helpful first."}
    return {"type": "object", "properties": {"ranking": ranking}, "required": ["ranking"]}


def _clean(text: str) -> str:
    """A text on one line, fit for JSON: names of files may hold anything."""
    return " ".join(text.encode("utf-8", "replace").decode().split())
