"""Text and JSON of recorded events, and of the first difference between two runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any

from ...ir.diagnostics import Diagnostic, clean, render
from ...ir.effects import EFFECTS
from ...ir.spans import Source
from ...vm.code.image import Image
from ..host import secrets
from ..host.screen import counted
from ..journal import journal as journals
from ..journal.codec import KIND
from ..journal.events import Evaluate, Log, Route, StateEnter, read_event
from .diff import Comparison, Item
from .recording import EffectRequest, Note, unpacked

# Longer texts and values are shortened.
_MAX_SHOWN_CHARACTERS = 160
_MAX_SHOWN_CHANGES = 8


def describe(item: Item | None) -> str:
    """An event on one line."""
    if item is None:
        return "nothing"
    if isinstance(item, EffectRequest):
        args = shown_map(item.args)
        subject = args.get(EFFECTS[item.kind].subject) if item.kind in EFFECTS else None
        return item.kind + ("" if subject is None else f" {_shown(subject)}")
    if isinstance(item, Note):
        fields = shown_map(item.fields)
        match read_event({KIND: item.kind, **fields}):
            case StateEnter(shown_state=state, iteration=iteration):
                return f"enters `{state}` (iteration {iteration})"
            case Evaluate(shown_state=state, verdict=verdict, type=evaluator):
                return f"verdict `{verdict}` in `{state}` ({evaluator})"
            case Route(from_=before, to=after, verdict=verdict):
                return f"route `{before}` → `{after}`" + (f" ({verdict})" if verdict is not None else "")
            case Log(message=message):
                return f"log {_shown(message)}"
        return f"{item.kind} {_shown(fields)}"
    ended = shown_map(item)
    words = f"ends: {ended.get('status')} ({ended.get('terminated_by')})"
    if ended.get("final_state") is not None:
        words += f" in `{ended['final_state']}`"
    if isinstance(ended.get("error"), dict):
        words += f": {ended['error'].get('message')}"
    return words


def changes(recorded: Item | None, now: Item | None) -> list[tuple[str, Any, Any]]:
    """The differences between two events of one kind: (path, recorded, now); None for a missing value."""
    if recorded is None or now is None or type(recorded) is not type(now):
        return []
    if isinstance(recorded, dict):
        return list(_changes("", recorded, now))
    if recorded.kind != now.kind:  # type: ignore[union-attr]
        return []
    if isinstance(recorded, EffectRequest):
        return list(_changes("", recorded.args, now.args))  # type: ignore[union-attr]
    return list(_changes("", recorded.fields, now.fields))  # type: ignore[union-attr]


def _changes(path: str, then: Any, now: Any) -> Iterator[tuple[str, Any, Any]]:
    stack = [(path, then, now)]
    while stack:
        path, then, now = stack.pop()
        if (
            isinstance(then, dict)
            and isinstance(now, dict)
            and not any(name.startswith("$") for name in (*then, *now))
        ):
            names = [*then, *(name for name in now if name not in then)]
            stack += [
                (f"{path}.{name}" if path else name, then.get(name), now.get(name))
                for name in reversed(names)
            ]
        elif isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
            stack += [(f"{path}[{n}]", then[n], now[n]) for n in reversed(range(len(then)))]
        elif journals.to_json(then) != journals.to_json(now):
            yield path, then, now


def _shown(value: Any) -> str:
    value = shown_value(value)
    if isinstance(value, str):
        first, _, more = value.partition("\n")
        return f"`{_cut(first)}`" + (f" and {_more_lines(more)}" if more.strip() else "")
    return _cut(json.dumps(value, ensure_ascii=False, default=str)) if value is not None else "nothing"


def _first_line(path: str, then: Any, now: Any) -> tuple[str, Any, Any]:
    """Reduce two texts to their first different line, with its number in the path; other values unchanged."""
    if not (isinstance(then, str) and isinstance(now, str)):
        return path, then, now
    if "\n" not in then + now:
        return path, *_around(then, now)
    pairs = zip_longest(then.split("\n"), now.split("\n"))
    number, (old, new) = next((n, pair) for n, pair in enumerate(pairs, 1) if pair[0] != pair[1])
    return f"{path}, line {number}", *_around(old, new)


def _around(then: str | None, now: str | None) -> tuple[str | None, str | None]:
    """Cut the equal beginning of two long lines."""
    if then is None or now is None:
        return then, now
    shorter = min(len(then), len(now))
    same = next((n for n, (a, b) in enumerate(zip(then, now, strict=False)) if a != b), shorter)
    if same <= _MAX_SHOWN_CHARACTERS // 2:
        return then, now
    begin = same - _MAX_SHOWN_CHARACTERS // 4
    return f"… {then[begin:]}", f"… {now[begin:]}"


def _more_lines(text: str) -> str:
    count = len(text.rstrip("\n").split("\n"))
    return counted(count, "more line")


def _cut(text: str) -> str:
    return (
        text
        if len(text) <= _MAX_SHOWN_CHARACTERS
        else text[: _MAX_SHOWN_CHARACTERS // 2] + " … " + text[-_MAX_SHOWN_CHARACTERS // 2 :]
    )


def shown_value(packed: Any) -> Any:
    """A recorded value for output: secrets are hidden, long texts are replaced by their hash."""
    try:
        return unpacked(packed, lambda name, size: f"<{size} bytes, {name[:12]}…>", secrets.hidden)
    except journals.BlobError:
        return "<malformed>"


def shown_map(packed: dict[str, Any]) -> dict[str, Any]:
    """Apply `shown_value` to each field."""
    return {name: shown_value(value) for name, value in packed.items()}


def as_text(comparison: Comparison, sources: Mapping[str, Source], color: bool = False) -> str:
    """The first difference for people, without a final newline."""
    difference = comparison.difference
    if difference is None:
        return ""
    seq = difference.seq
    subject = f"effect {seq}" if seq is not None else f"event {difference.number}"
    message = f"{subject} differs from the recording"
    if difference.endless:
        message = "the program does not end and requests no further effect"
    elif difference.what == "outcome" and difference.now is not None and difference.recorded is not None:
        message = "the end of the run differs from the recording"
    lines = [render(Diagnostic("differs", message, difference.place, "here"), sources, color)]
    lines.append(f"  recorded: {clean(describe(difference.recorded), 2000)}")
    lines.append(f"  now:      {clean(describe(difference.now), 2000)}")
    found = changes(difference.recorded, difference.now)
    for path, then, now in found[:_MAX_SHOWN_CHANGES]:
        where, then, now = _first_line(path, shown_value(then), shown_value(now))
        lines.append(clean(f"    {where}: {_shown(then)} → {_shown(now)}", 2000))
    if len(found) > _MAX_SHOWN_CHANGES:
        lines.append(f"    … {len(found) - _MAX_SHOWN_CHANGES} more")
    same = f"  same up to there: {comparison.same} of {comparison.total} events"
    if difference.state is not None:
        same += f", until `{clean(difference.state)}` in iteration {difference.iteration}"
    lines.append(same)
    return "\n".join(lines)


def as_json(comparison: Comparison) -> dict[str, Any]:
    """The comparison as plain data for `--json`."""
    difference = comparison.difference
    data: dict[str, Any] = {
        "identical": difference is None,
        "complete": comparison.is_ended,
        "same": comparison.same,
        "events": comparison.total,
        "difference": None,
    }
    if difference is not None:
        span = difference.place
        data["difference"] = {
            "what": difference.what,
            "event": difference.number,
            "seq": difference.seq,
            "state": difference.state,
            "iteration": difference.iteration,
            "recorded": item_json(difference.recorded),
            "now": item_json(difference.now),
            "endless": difference.endless,
            "changes": [
                {"path": path, "recorded": shown_value(then), "now": shown_value(now)}
                for path, then, now in changes(difference.recorded, difference.now)
            ],
            "file": span.path if span else None,
            "line": span.line if span else None,
            "column": span.column if span else None,
        }
    return data


def item_json(item: Item | None) -> dict[str, Any] | None:
    """An event as plain data."""
    if isinstance(item, EffectRequest):
        return {"effect": item.kind, "seq": item.seq, "args": shown_value(item.args)}
    if isinstance(item, Note):
        return {"note": item.kind, "fields": shown_value(item.fields)}
    return None if item is None else {"outcome": shown_value(item)}


def sources_of(image: Image) -> dict[str, Source]:
    """The sources of an image, by path."""
    return {source.path: Source(source.path, source.sha256, source.text) for source in image.sources}
