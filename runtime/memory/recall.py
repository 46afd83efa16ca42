"""Requests to memory, from fields to answer, for the effect `context` and the subcommands.

Updates the index and searches it. A damaged index is rebuilt; if none can be stored, a temporary one is
built in memory. Both are reported as notices.
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
from .index import FOLDER, Damaged, Index, Unusable, Update, index_path, throw_away
from .search import Match, Source

T = TypeVar("T")

DEFAULT_LIMIT = 10
MOST_MATCHES = 200
# Limit of an answer's paths and snippets, in characters; further matches are left out.
MOST_ANSWER = 64 << 10

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
    """A field of a request is invalid; the text states what it must be."""


class OutOfTime(Exception):
    """The request exceeded its time limit."""


class Request(NamedTuple):
    """A search request. sources: the words, highest weight first."""

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
        found = f"{len(self.matches)} of {self.update.files} files"
        return "; ".join([found, *self.notices])


def read_request(args: dict[str, Any]) -> Request:
    """A request from the arguments of the effect. Raises `BadRequest`."""
    strategy = args.get("matching_strategy") or "content"
    if not isinstance(strategy, str) or strategy not in search.STRATEGIES:
        near = nearest(str(strategy), search.STRATEGIES)
        hint = f"; did you mean `{near}`?" if near else ""
        raise BadRequest(f"`matching_strategy` is `content` or `metadata`, not {_shown(strategy)}{hint}")
    limit = args.get("limit")
    if limit is None:
        limit = DEFAULT_LIMIT
    if type(limit) is not int or not 1 <= limit <= MOST_MATCHES:
        raise BadRequest(f"`limit` is a whole number from 1 to {MOST_MATCHES}, not {_shown(limit)}")
    fresh = args.get("fresh_context")
    if fresh not in (None, "enabled", "disabled"):
        raise BadRequest(f"`fresh_context` is `enabled` or `disabled`, not {_shown(fresh)}")
    model = args.get("model")
    if model is not None and not isinstance(model, str):
        raise BadRequest(f"`model` is a text, not {_shown(model)}")
    sources: list[Source] = []
    for name, weight in WEIGHTS.items():
        value = args.get(name)
        if name == "inputs":
            value = _relevant(value, args.get("context_relevance"))
        text = plain_text(value)
        if text and fresh != "disabled":
            sources.append(Source(text, weight))
    return Request(sources, strategy, limit, bool(args.get("rerank")), model)


def _relevant(inputs: Any, relevance: Any) -> Any:
    """The inputs without those that `context_relevance` excludes."""
    if relevance is None:
        return inputs
    if not isinstance(relevance, dict):
        raise BadRequest(f"`context_relevance` is a map from names to true or false, not {_shown(relevance)}")
    if isinstance(inputs, dict):
        return {name: value for name, value in inputs.items() if relevance.get(name, True)}
    if isinstance(inputs, list) and all(isinstance(entry, list) and len(entry) == 2 for entry in inputs):
        # an association list
        return [value for name, value in inputs if not isinstance(name, str) or relevance.get(name, True)]
    return inputs


def plain_text(value: Any) -> str:
    """All texts in a value, one per line, without keys of maps."""
    found: list[str] = []
    todo = [value]
    while todo:
        item = todo.pop()
        if isinstance(item, str):
            found.append(item)
        elif isinstance(item, dict):
            todo += reversed(item.values())
        elif isinstance(item, list | tuple):
            todo += reversed(item)
        elif item is not None and not isinstance(item, bool):
            found.append(str(item))
    return "\n".join(found)


def _shown(value: Any) -> str:
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
    """The result of `use` on the index. notices: gets a sentence if it was damaged or cannot be stored.

    fresh: delete the index first. Raises `Unusable` if SQLite cannot build any index.
    """
    try:
        path = index_path(root)
        if fresh:
            throw_away(path, check)
        try:
            with Index(root, check, path) as index:
                return use(index)
        except Damaged as damage:
            notices.append(f"the index was damaged ({damage}) and has been made again")
            throw_away(path, check)
        with Index(root, check, path) as index:
            return use(index)
    except (Damaged, Unusable) as why:
        notices.append(f"the index cannot be kept in {search_place(root)} ({why})")
    try:
        with Index(root, check, None) as index:
            return use(index)
    except (Damaged, Unusable) as why:
        raise Unusable(f"no index can be made: {why}") from None


def search_place(root: str) -> str:
    """The folder of the index, for messages."""
    return os.path.join(root, FOLDER)


def recall(
    root: str,
    request: Request,
    check: Callable[[], object],
    on_file: Callable[[int, int], object] | None = None,
) -> Answer:
    """Search the project's files as they are now. Raises what `check` raises, OSError and `Unusable`."""
    notices: list[str] = []
    listing = list_files(root, check)
    limit = request.limit if not request.rerank else min(MOST_MATCHES, max(3 * request.limit, 20))

    def use(index: Index) -> tuple[Update, list[Match]]:
        update = index.update(listing, on_file)
        return update, search.find(index, root, request.sources, request.strategy, limit)

    update, matches = with_index(root, check, notices, use)
    return Answer(_bounded(matches, notices), update, notices)


def _bounded(matches: list[Match], notices: list[str]) -> list[Match]:
    """The matches that fit into an answer."""
    room = MOST_ANSWER
    for count, match in enumerate(matches):
        room -= len(match.path) + len(match.snippet or "")
        if room < 0:
            notices.append(f"{len(matches) - count} more were found than an answer holds")
            return matches[:count]
    return matches


def perform(args: dict[str, Any], context: Context, rank: Callable[..., Any]) -> dict[str, Any]:
    """The effect `context`: `matches`, or `error`. rank: as `World.model.perform`, for re-ranking."""
    began = clock.monotonic()
    seconds, limited_by = context.limit(args, own="action")
    end = None if seconds is None else began + seconds
    looked = began

    def check() -> None:
        nonlocal looked
        context.interrupt.check()
        now = clock.monotonic()
        if end is not None and now >= end:
            raise OutOfTime
        if context.on_tick is not None and now - looked > 0.1:
            looked = now
            context.on_tick()

    result: dict[str, Any] = {"matches": []}
    try:
        check()
        request = read_request(args)
        answer = recall("", request, check)
        matches, notices = answer.matches, answer.notices
        if request.rerank and matches:
            left = None if end is None else end - clock.monotonic()
            matches, usage = rerank.rerank(
                request.words, request.model, request.limit, matches, left, context, rank, notices
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
    result["duration_ms"] = round((clock.monotonic() - began) * 1000)
    result["elapsed_ms"] = context.elapsed_ms()
    return result
