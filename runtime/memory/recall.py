"""Memory requests: validation of the fields, update of the index, search, answer.

Used by the effect `context` and the subcommands. A damaged index is rebuilt; if no index can be stored, a
temporary index is built in memory. Both cases are reported as notices.
"""

from __future__ import annotations

import json
import os.path
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from ...ir.diagnostics import nearest
from ..host import clock
from ..host.effect_context import Context
from . import rerank, search
from .ignore import list_files
from .index import FOLDER, Damaged, Index, Unusable, Update, delete_index, index_path
from .search import Match, Source

T = TypeVar("T")

DEFAULT_LIMIT = 10
MAX_MATCHES = 200
# Limit of an answer's paths and snippets, in characters; further matches are omitted.
MAX_ANSWER = 64 << 10

# Weight of each field of a request (a ContextGenerationInput).
WEIGHTS = {
    "query": 1.0,
    "template_description": 0.6,
    "inputs": 0.4,
    "history": 0.25,
    "inherited_context": 0.25,
    "previous_outputs": 0.25,
    "template_type": 0.1,
    "template_subtype": 0.1,
    "template_name": 0.1,
}


class BadRequest(Exception):
    """A field of a request is invalid; the message states the valid values."""


class OutOfTime(Exception):
    """The request exceeded its time limit."""


class Request(NamedTuple):
    """A search request. sources: the words to search for, highest weight first."""

    sources: list[Source]
    strategy: str = "content"
    limit: int = DEFAULT_LIMIT
    rerank: bool = False
    model: str | None = None

    @property
    def words(self) -> str:
        return self.sources[0].text if self.sources else ""


class Answer(NamedTuple):
    """The matches, the update of the index, and notices for the user."""

    matches: list[Match]
    update: Update
    notices: list[str]

    @property
    def summary(self) -> str:
        counts = f"{len(self.matches)} of {self.update.files} files"
        return "; ".join([counts, *self.notices])


def read_request(args: dict[str, Any]) -> Request:
    """Read a request from the arguments of a `context` effect. Raises `BadRequest`."""
    strategy = args.get("matching_strategy") or "content"
    if not isinstance(strategy, str) or strategy not in search.STRATEGIES:
        near = nearest(str(strategy), search.STRATEGIES)
        hint = f"; did you mean `{near}`?" if near else ""
        raise BadRequest(f"`matching_strategy` is `content` or `metadata`, not {_excerpt(strategy)}{hint}")
    limit = args.get("limit")
    if limit is None:
        limit = DEFAULT_LIMIT
    if type(limit) is not int or not 1 <= limit <= MAX_MATCHES:
        raise BadRequest(f"`limit` is a whole number from 1 to {MAX_MATCHES}, not {_excerpt(limit)}")
    fresh = args.get("fresh_context")
    if fresh not in (None, "enabled", "disabled"):
        raise BadRequest(f"`fresh_context` is `enabled` or `disabled`, not {_excerpt(fresh)}")
    model = args.get("model")
    if model is not None and not isinstance(model, str):
        raise BadRequest(f"`model` is a text, not {_excerpt(model)}")
    sources: list[Source] = []
    for name, weight in WEIGHTS.items():
        value = args.get(name)
        if name == "inputs":
            value = _relevant_inputs(value, args.get("context_relevance"))
        text = plain_text(value)
        if text and fresh != "disabled":
            sources.append(Source(text, weight))
    return Request(sources, strategy, limit, bool(args.get("rerank")), model)


def _relevant_inputs(inputs: Any, relevance: Any) -> Any:
    """The inputs that `context_relevance` does not exclude."""
    if relevance is None:
        return inputs
    if not isinstance(relevance, dict):
        raise BadRequest(
            f"`context_relevance` is a map from names to true or false, not {_excerpt(relevance)}"
        )
    if isinstance(inputs, dict):
        return {name: value for name, value in inputs.items() if relevance.get(name, True)}
    if isinstance(inputs, list) and all(isinstance(entry, list) and len(entry) == 2 for entry in inputs):
        # an association list
        return [value for name, value in inputs if not isinstance(name, str) or relevance.get(name, True)]
    return inputs


def plain_text(value: Any) -> str:
    """All texts in a value, one per line; keys of maps are omitted."""
    texts: list[str] = []
    todo = [value]
    while todo:
        item = todo.pop()
        if isinstance(item, str):
            texts.append(item)
        elif isinstance(item, dict):
            todo += reversed(item.values())
        elif isinstance(item, list | tuple):
            todo += reversed(item)
        elif item is not None and not isinstance(item, bool):
            texts.append(str(item))
    return "\n".join(texts)


def _excerpt(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else text[:79] + "…"


# --- answering --------------------------------------------------------------------------------


def with_index(
    root: str,
    check: Callable[[], object],
    notices: list[str],
    use: Callable[[Index], T],
    *,
    fresh: bool = False,
) -> T:
    """Open the index and return the result of `use`. Raises `Unusable` if SQLite cannot build any index.

    Args:
        root: folder of the project.
        check: called often; may raise to stop.
        notices: receives a sentence if the index was damaged or cannot be stored.
        use: function of the open index; called again if the index is damaged.
        fresh: delete the index first.
    """
    try:
        path = index_path(root)
        if fresh:
            delete_index(path, check)
        try:
            with Index(root, check, path) as index:
                return use(index)
        except Damaged as damage:
            notices.append(f"the index was damaged ({damage}) and has been rebuilt")
            delete_index(path, check)
        with Index(root, check, path) as index:
            return use(index)
    except (Damaged, Unusable) as error:
        notices.append(f"the index cannot be stored in {index_folder(root)} ({error})")
    try:
        with Index(root, check, None) as index:
            return use(index)
    except (Damaged, Unusable) as error:
        raise Unusable(f"no index can be built: {error}") from None


def index_folder(root: str) -> str:
    """The folder of the index."""
    return os.path.join(root, FOLDER)


def recall(
    root: str,
    request: Request,
    check: Callable[[], object],
    on_file: Callable[[int, int], object] | None = None,
) -> Answer:
    """Update the index and search the project's files. Raises the exceptions of `check`, OSError, `Unusable`.

    on_file: called with (done, total) after each indexed file.
    """
    notices: list[str] = []
    listing = list_files(root, check)
    limit = request.limit if not request.rerank else min(MAX_MATCHES, max(3 * request.limit, 20))

    def use(index: Index) -> tuple[Update, list[Match]]:
        update = index.update(listing, on_file)
        return update, search.find(index, root, request.sources, request.strategy, limit)

    update, matches = with_index(root, check, notices, use)
    return Answer(_bounded(matches, notices), update, notices)


def _bounded(matches: list[Match], notices: list[str]) -> list[Match]:
    """The matches that fit into an answer."""
    remaining = MAX_ANSWER
    for count, match in enumerate(matches):
        remaining -= len(match.path) + len(match.snippet or "")
        if remaining < 0:
            notices.append(f"{len(matches) - count} more were found than an answer holds")
            return matches[:count]
    return matches


def perform(args: dict[str, Any], context: Context, rank: Callable[..., Any]) -> dict[str, Any]:
    """Perform a `context` effect: {"matches", "summary", …}, with `error` on failure.

    rank: `Judge.perform`, for re-ranking.
    """
    started_at = clock.monotonic()
    seconds, limited_by = context.limit(args, own="action")
    deadline = None if seconds is None else started_at + seconds
    ticked_at = started_at

    def check() -> None:
        nonlocal ticked_at
        context.interrupt.check()
        now = clock.monotonic()
        if deadline is not None and now >= deadline:
            raise OutOfTime
        if context.on_tick is not None and now - ticked_at > 0.1:
            ticked_at = now
            context.on_tick()

    result: dict[str, Any] = {"matches": []}
    try:
        check()
        request = read_request(args)
        answer = recall("", request, check)
        matches, notices = answer.matches, answer.notices
        if request.rerank and matches:
            remaining = None if deadline is None else deadline - clock.monotonic()
            matches, usage = rerank.rerank(
                request.words, request.model, request.limit, matches, remaining, context, rank, notices
            )
            if usage is not None:
                result["usage"] = usage
        answer = answer._replace(matches=matches)
        result["matches"] = [search.as_map(match) for match in matches]
        result["summary"] = answer.summary
        for notice in notices:
            if context.on_output is not None:
                context.on_output("stderr", f"{notice}\n")
    except OutOfTime:
        result["timed_out"] = limited_by
        result["error"] = {"kind": "timeout", "message": f"no answer within {seconds or 0:g} s"}
    except BadRequest as error:
        result["error"] = {"kind": "bad-request", "message": str(error)}
    except Unusable as error:
        result["error"] = {"kind": "no-index", "message": str(error)}
    except OSError as error:
        message = f"the project's files cannot be listed: {error.strerror or error}"
        result["error"] = {"kind": "unreadable", "message": message}
    result["duration_ms"] = round((clock.monotonic() - started_at) * 1000)
    result["elapsed_ms"] = context.elapsed_ms()
    return result
