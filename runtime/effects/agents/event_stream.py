"""Interpreter of event rules: translates the JSON lines of an agent (`project.agent_schema.EventRule`).

Reads text in pieces of any size and reports `AgentActivity` records. Memory is bounded; malformed lines and
unknown events are tolerated, and a line that is not JSON counts as text of the agent. Must not contain:
processes, the result of the effect (`agent`).
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ....ir.light_records import LightRecord
from ...journal.agent_activity import AgentActivity
from ...project.agent_schema import AgentSpec, CostRule, ErrorRule, EventRule, RetryRule, ToolRule, UsageRule

# Maximum length of a line, in characters; a longer line is skipped. A line may contain a tool's whole result.
MAX_LINE = 64 << 20
# Maximum number of characters in lines that are not events; beyond this an agent with events is stopped.
MAX_PLAIN_TEXT = 16 << 20
# Characters of the agent's texts that are kept, for an agent that ends without a result.
_KEPT_TEXT = 1 << 20
# Maximum length of a shown line, of a text in a record, and of a text that a regular expression searches.
_MAX_SHOWN_LINE = 200
_MAX_RECORD_TEXT = 4000
_MAX_SEARCHED = 10_000
# Maximum number of refusals, of running tools, and of items that are read from a list.
_MAX_ITEMS = 1000
_COUNTS = ("input_tokens", "output_tokens", "tokens")


class StreamError(LightRecord):
    """A failure in the stream. kind: one of `ERROR_KINDS`, "" if the stream does not state it."""

    kind: str
    message: str
    status: int | None


class EventStream:
    """The event stream of one agent.

    Args:
        agent: the agent, whose rules apply.
        show: receives text for the user; None to show nothing.
        tell: receives each activity; None to report nothing.
        thread: tokens and cost of the session before this process, for an agent that reports session totals.

    is_stream: whether a rule has matched. is_final: whether the final event was read. turns: number of model
    turns; None if the agent reports none. must_stop: whether the agent should be stopped at once.
    """

    def __init__(
        self,
        agent: AgentSpec,
        show: Callable[[str], object] | None = None,
        tell: Callable[[AgentActivity], object] | None = None,
        thread: Mapping[str, Any] | None = None,
    ) -> None:
        self._rules = [_Rule(rule) for rule in agent.events]
        self._show = show
        self._tell_activity = tell
        self._before = thread or {}
        self._parts: list[str] = []
        self._size = 0
        self._is_skipping = False
        self._plain_text_size = 0
        self._texts: deque[str] = deque()
        self._texts_size = 0
        self._last_text = ""
        self._is_delta = False
        self._tools: dict[str, tuple[str, str]] = {}
        self._messages: dict[str, dict[str, int]] = {}
        self._steps: list[dict[str, int]] = []
        self._process: dict[str, int] | None = None
        self._is_counted = False
        self._costs: dict[str, float | None] = {}
        self._thread: dict[str, int] | None = None
        self._thread_usd: float | None = None
        self._final_text: str | None = None
        self._reported_usage: dict[str, Any] | None = None
        self.counts_turns = any(rule.spec.turn for rule in self._rules)
        self.has_final = any(rule.spec.final is not None for rule in self._rules)
        self.is_stream = False
        self.is_final = False
        self.skipped = 0
        self.turns: int | None = None
        self.session: str | None = None
        self.structured: Any = None
        self.refusals: list[tuple[str, str]] = []
        self.error: StreamError | None = None
        # End of a rate limit in seconds since 1970, from the last event about it.
        self.resets_at: float | None = None
        self.must_stop = False

    # --- lines ------------------------------------------------------------------------------------

    def feed(self, text: str) -> None:
        """Read the next piece of output."""
        *lines, rest = text.split("\n")
        for line in lines:
            self._add(line)
            self.finish()
        self._add(rest)

    def _add(self, part: str) -> None:
        """Add a part of a line."""
        if self._is_skipping or not part:
            return
        self._parts.append(part)
        self._size += len(part)
        if self._size > MAX_LINE:
            self._is_skipping = True
            self._parts.clear()
            self.skipped += 1

    def finish(self) -> None:
        """Process the current line, which is complete."""
        line = "".join(self._parts)
        self._parts.clear()
        self._size = 0
        self._is_skipping = False
        if not line.strip():
            return
        event: Any = None
        if line.lstrip().startswith("{"):
            try:
                event = json.loads(line)
            except (ValueError, RecursionError):
                event = None
        if isinstance(event, dict) and isinstance(event.get("type"), str):
            self.take(event)
        else:
            self._add_text(line)
            self._limit_plain_text(len(line))

    def _limit_plain_text(self, size: int) -> None:
        """Stop an agent with events that writes other lines endlessly, which no idle timeout detects."""
        self._plain_text_size += size
        if self.is_stream and self._plain_text_size > MAX_PLAIN_TEXT and not self.must_stop:
            limit = MAX_PLAIN_TEXT >> 20
            message = f"it wrote more than {limit} MiB of lines that are not events, and was stopped"
            self.error = StreamError("", f"{message}; see `llc logs -v` for its output", None)
            self.must_stop = True

    # --- events -----------------------------------------------------------------------------------

    def take(self, event: dict[str, Any]) -> None:
        """Apply the rules to one event."""
        is_final = False
        error: StreamError | None = None
        was_stopping = self.must_stop
        for rule in self._rules:
            for place in rule.places(event):
                self.is_stream = True
                self._apply(rule.spec, place)
                if rule.spec.error is not None:
                    error = self._merge_error(error, rule.spec.error, place)
                is_final = is_final or rule.spec.final is not None
        if was_stopping:
            pass  # events during the stop do not replace its reason
        elif error is not None:
            self.error = error
            kind = {"name": error.kind, "text": error.message, "status": error.status}
            self._tell("error", **kind)
        elif is_final:
            self.error = None  # the agent has recovered
        self.is_final = self.is_final or is_final

    def _merge_error(self, error: StreamError | None, rule: ErrorRule, place: Any) -> StreamError:
        """Merge the error of a rule into the error of an event, because several rules may match."""
        message = _clip(text_at(place, rule.message) or "")
        status = _integer(_first(place, rule.status))
        self.must_stop = self.must_stop or rule.stop
        if error is None:
            return StreamError(rule.kind or "", message, status)
        return StreamError(error.kind or rule.kind or "", message or error.message, status or error.status)

    def _apply(self, rule: EventRule, place: Any) -> None:
        if (
            rule.session
            and isinstance(session := _first(place, rule.session), str)
            and session != self.session
        ):
            self.session = session
            self._tell("session", id=session)
        if rule.model and isinstance(model := _first(place, rule.model), str):
            self._tell("model", name=model)
        if rule.turn:
            self.turns = (self.turns or 0) + 1
        if rule.text and (text := text_at(place, rule.text)):
            self._add_text(text, rule.delta)
        if rule.tool is not None:
            self._begin_tool(rule.tool, place)
        if rule.tool_end is not None:
            self._end_tool(rule.tool_end, place)
        if rule.files:
            paths = [path for path in values_at(place, rule.files) if isinstance(path, str) and path]
            if paths:
                self._tell("files", files=tuple(paths[:_MAX_ITEMS]))
        if rule.usage is not None:
            self._add_usage(rule.usage, place)
        if rule.cost is not None:
            self._add_cost(rule.cost, place)
        if rule.usage is not None or rule.cost is not None:
            self._report_usage()
        if rule.rate_limit is not None:
            resets = amount(_first(place, rule.rate_limit.resets_at))
            state = _first(place, rule.rate_limit.state)
            self.resets_at = resets if resets is not None else self.resets_at
            self._tell("rate-limit", name=state if isinstance(state, str) else "", resets_at=resets)
        if rule.retry is not None:
            self._retry(rule.retry, place)
        if rule.refusal is not None and len(self.refusals) < _MAX_ITEMS:
            name, target = _tool_of(rule.refusal, place)
            self.refusals.append((name, target))
            self._tell("refusal", name=name, target=target)
        if rule.question is not None:
            name, target = _tool_of(rule.question, place)
            self._tell("question", id=str(_first(place, rule.question.id) or ""), name=name, target=target)
            self._show_line(f"[may it use {name} {target}? answer with `llc answer`]")
        if rule.answer is not None:
            text = text_at(place, rule.answer.text) or ""
            self._tell("answer", id=str(_first(place, rule.answer.id) or ""), text=_clip(text))
        if rule.final is not None:
            text = text_at(place, rule.final.text) if rule.final.text else None
            self._final_text = text
            if rule.final.turns is not None:
                self.turns = _integer(_first(place, rule.final.turns))
            if rule.final.structured is not None:
                self.structured = _first(place, rule.final.structured)
            self._tell("final", text=_clip(self.answer))

    def _begin_tool(self, rule: ToolRule, place: Any) -> None:
        name, target = _tool_of(rule, place)
        id = str(_first(place, rule.id) or "")
        if id and len(self._tools) < _MAX_ITEMS:
            self._tools[id] = name, target
        self._is_delta = False
        self._tell("tool", id=id, name=name, target=target)
        self._show_line(f"[{name} {target}]" if target else f"[{name}]")

    def _end_tool(self, rule: ToolRule, place: Any) -> None:
        id = str(_first(place, rule.id) or "")
        name, target = self._tools.pop(id, ("", ""))
        if not name:
            name, target = _tool_of(rule, place)
        has_failed = bool(rule.failed) and _matches(place, _allowed_values(rule.failed))
        text = _clip(text_at(place, rule.text) or "", is_end=True)
        self._tell("tool-end", id=id, name=name, target=target, text=text, is_error=has_failed)

    def _retry(self, rule: RetryRule, place: Any) -> None:
        delay, attempt = amount(_first(place, rule.delay_ms)), _integer(_first(place, rule.attempt))
        reason = _clip(text_at(place, rule.reason) or "")
        self._show_line(f"[model request repeated{f': {reason}' if reason else ''}]")
        self._tell(
            "retry",
            attempt=attempt,
            delay_s=None if delay is None else delay / 1000,
            status=_integer(_first(place, rule.status)),
            text=reason,
        )

    # --- texts ------------------------------------------------------------------------------------

    def _add_text(self, text: str, is_delta: bool = False) -> None:
        if not text.strip() and not is_delta:
            return
        if is_delta and self._is_delta and self._texts:
            self._texts[-1] += text
            self._last_text = self._texts[-1][-_KEPT_TEXT:]
        else:
            self._texts.append(text)
            self._last_text = text
        self._is_delta = is_delta
        self._texts_size += len(text)
        while self._texts_size > _KEPT_TEXT and len(self._texts) > 1:
            self._texts_size -= len(self._texts.popleft())
        if len(self._texts[0]) > 2 * _KEPT_TEXT:
            self._texts[0] = self._texts[0][-_KEPT_TEXT:]
            self._texts_size = sum(map(len, self._texts))
        self._tell("text", text=text[:_KEPT_TEXT])
        if self._show is not None:
            self._show(text if is_delta or text.endswith("\n") else text + "\n")

    def _show_line(self, text: str) -> None:
        if self._show is not None:
            line = " ".join(text.split())
            if len(line) > _MAX_SHOWN_LINE:
                line = line[: _MAX_SHOWN_LINE - 2] + "…]"
            self._show(line + "\n")

    def _tell(self, kind: str, **fields: Any) -> None:
        if self._tell_activity is not None:
            self._tell_activity(AgentActivity(kind, **fields))

    @property
    def texts(self) -> str:
        """All kept texts of the agent, joined."""
        text = "\n".join(part.rstrip("\n") for part in self._texts)
        return text[-_KEPT_TEXT:] + ("\n" if text else "")

    @property
    def answer(self) -> str:
        """The final answer: the text of the final event, otherwise the last text."""
        return self._last_text if self._final_text is None else self._final_text

    @property
    def has_answer(self) -> bool:
        """Whether the final event states the answer."""
        return self._final_text is not None

    # --- usage ------------------------------------------------------------------------------------

    def _add_usage(self, rule: UsageRule, place: Any) -> None:
        tokens = _tokens(rule, place)
        if rule.scope == "process":
            self._process, self._is_counted = tokens, True
        elif tokens is None:
            return
        elif rule.scope == "thread":
            self._thread = tokens
        elif rule.scope == "message" and rule.key is not None:
            self._messages[str(_first(place, rule.key))] = tokens  # each part of a message repeats it
        else:
            self._steps.append(tokens)

    def _add_cost(self, rule: CostRule, place: Any) -> None:
        usd = amount(_first(place, rule.usd))
        if rule.scope == "thread":
            self._thread_usd = usd
            before = amount(self._before.get("usd")) or 0.0
            self._costs["total"] = None if usd is None else max(0.0, usd - before)
        elif rule.scope == "process":
            self._costs["total"] = usd
        else:
            self._costs["sum"] = None if usd is None else (self._costs.get("sum") or 0.0) + usd

    @property
    def thread(self) -> dict[str, Any] | None:
        """Tokens and cost of the whole session, for an agent that reports session totals; otherwise None."""
        if self._thread is None and self._thread_usd is None:
            return None
        return {**(self._thread or {}), **({"usd": self._thread_usd} if self._thread_usd is not None else {})}

    @property
    def usage(self) -> dict[str, Any]:
        """{usd, input_tokens?, output_tokens?, tokens} of the process; an unknown amount is None."""
        usd = self._costs["total"] if "total" in self._costs else self._costs.get("sum")
        tokens = self._total_tokens()
        if tokens is None:
            return {"usd": usd, "tokens": None}
        counts = tokens["input"], tokens["output"]
        return {"usd": usd, **dict(zip(_COUNTS, (*counts, sum(counts)), strict=True))}

    def _total_tokens(self) -> dict[str, int] | None:
        if self._is_counted:
            return self._process
        if self._thread is not None:
            return {
                name: max(0, count - int(self._before.get(name) or 0)) for name, count in self._thread.items()
            }
        parts = [*self._messages.values(), *self._steps]
        if not parts:
            return None
        return {name: sum(part[name] for part in parts) for name in parts[0]}

    def _report_usage(self) -> None:
        tokens = self._total_tokens()
        usage = {**self.usage, "cached_tokens": tokens["cached"]} if tokens is not None else self.usage
        if usage != self._reported_usage:
            self._reported_usage = usage
            self._tell("usage", usage=usage)


def _tokens(rule: UsageRule, place: Any) -> dict[str, int] | None:
    """Tokens in an event; `input` includes cached tokens. None if the event states no tokens."""
    counts = {
        name: [
            count for value in values_at(place, getattr(rule, name)) if (count := amount(value)) is not None
        ]
        for name in ("input", "cached", "output")
    }
    if not any(counts.values()):
        return None
    tokens = {name: int(sum(values)) for name, values in counts.items()}
    if rule.cached_is == "apart":
        tokens["input"] += tokens["cached"]
    return tokens


def amount(value: Any) -> float | int | None:
    """The value if it is a finite number of at least 0; otherwise None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if 0 <= value < 1e15 else None


# --- rules ------------------------------------------------------------------------------------


class _Rule:
    """A rule with compiled conditions."""

    def __init__(self, spec: EventRule) -> None:
        self.spec = spec
        self._match = _allowed_values(spec.match)
        self._where = _allowed_values(spec.where)
        self._each = spec.each
        self._like = [(path, re.compile(text)) for path, text in spec.like.items()]

    def places(self, event: dict[str, Any]) -> Iterable[Any]:
        """The objects to which the rule applies: the event, or items in it."""
        if not _matches(event, self._match):
            return
        places: Iterable[Any] = (event,)
        if self._each is not None:
            items = _first(event, self._each)
            places = items[:_MAX_ITEMS] if isinstance(items, list) else ()
        for place in places:
            if _matches(place, self._where) and all(
                any(
                    isinstance(value, str) and pattern.search(value[:_MAX_SEARCHED])
                    for value in _values(place, path)
                )
                for path, pattern in self._like
            ):
                yield place


def _allowed_values(match: Mapping[str, Any]) -> list[tuple[str, frozenset[str]]]:
    """The paths of a condition with their allowed values."""
    return [
        (path, frozenset(value if isinstance(value, tuple | list) else (value,)))
        for path, value in match.items()
    ]


def _matches(place: Any, conditions: list[tuple[str, frozenset[str]]]) -> bool:
    return all(
        any(_as_text(value) in allowed for value in _values(place, path)) for path, allowed in conditions
    )


def _as_text(value: Any) -> str | None:
    """A scalar in the notation of a rule; None for other values."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else None


def _values(place: Any, path: str) -> list[Any]:
    """The values at a path; a path with `[*]` may have several."""
    values = [place]
    for key in path.split("."):
        name, is_list = (key[:-3], True) if key.endswith("[*]") else (key, False)
        if name:
            values = [value[name] for value in values if isinstance(value, dict) and name in value]
        if is_list:
            values = [item for value in values if isinstance(value, list) for item in value[:_MAX_ITEMS]]
    return values


def values_at(place: Any, paths: Any) -> list[Any]:
    """The values at one or several paths."""
    return [
        value for path in ((paths,) if isinstance(paths, str) else paths) for value in _values(place, path)
    ]


def _first(place: Any, path: str | None) -> Any:
    found = _values(place, path) if path else ()
    return found[0] if found else None


def text_at(place: Any, paths: Any) -> str | None:
    """The first non-empty text at one or several paths."""
    found = values_at(place, paths) if paths else ()
    return next((value for value in found if isinstance(value, str) and value), None)


def _tool_of(rule: ToolRule, place: Any) -> tuple[str, str]:
    """The name and the target of a tool."""
    name = _first(place, rule.name)
    target = " ".join((text_at(place, rule.target) or "").split())
    return (name if isinstance(name, str) and name else rule.as_name or "a tool"), _clip(target)


def _integer(value: Any) -> int | None:
    found = amount(value)
    return None if found is None else int(found)


def _clip(text: str, is_end: bool = False) -> str:
    """Truncate a text for a record. is_end: keep the end instead of the start."""
    if len(text) <= _MAX_RECORD_TEXT:
        return text
    return "…" + text[-_MAX_RECORD_TEXT:] if is_end else text[:_MAX_RECORD_TEXT] + "…"
