"""Comparison of two runs: their steps, aligned by state and effect, and what is different in each pair."""

from __future__ import annotations

import difflib
import json
from typing import Any

# More pairs of steps than this are not compared: the middle of the runs is aligned by position.
_MOST_PAIRS = 4_000_000
# Fields of a result that differ from run to run.
_VARYING = ("duration_ms", "elapsed_ms", "usage", "session", "time")
_FIELDS = ("verdict", "route")

Row = list[Any]
# Pairs of outputs whose lines are compared, and lines of each.
_MOST_SHOWN = 300
_MOST_LINES = 2_000


def align(one: dict[str, Any], other: dict[str, Any]) -> list[Row]:
    """Rows of two runs: the position in each or None, what is different there or None, and changed lines.

    one, other: what `RunModel.update` gave first.
    """
    before, after = _keys(one), _keys(other)
    start = 0
    while start < min(len(before), len(after)) and before[start] == after[start]:
        start += 1
    end = 0
    while end < min(len(before), len(after)) - start and before[-1 - end] == after[-1 - end]:
        end += 1
    middle = (before[start : len(before) - end], after[start : len(after) - end])
    pairs: list[tuple[int | None, int | None]] = [(at, at) for at in range(start)]
    pairs += [(_moved(a, start), _moved(b, start)) for a, b in _align(*middle)]
    pairs += [(len(before) - at, len(after) - at) for at in range(end, 0, -1)]
    rows: list[Row] = []
    shown = 0
    for a, b in pairs:
        difference = _difference(one, other, a, b)
        rows.append([a, b, difference])
        if a is not None and b is not None and difference is not None and shown < _MOST_SHOWN:
            text = _changed_lines(one, other, a, b)
            if text:
                rows[-1].append(text)
                shown += 1
    return rows


def _moved(at: int | None, by: int) -> int | None:
    return None if at is None else at + by


def _keys(update: dict[str, Any]) -> list[tuple[Any, ...]]:
    """What a step is aligned by."""
    return [(step.get("state"), step.get("kind")) for step in update["steps"]]


def _align(before: list[Any], after: list[Any]) -> list[tuple[int | None, int | None]]:
    if len(before) * len(after) > _MOST_PAIRS:
        pairs: list[tuple[int | None, int | None]] = []
        for at in range(max(len(before), len(after))):
            pairs.append((at if at < len(before) else None, at if at < len(after) else None))
        return pairs
    pairs = []
    for tag, a, b, c, d in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag == "equal":
            pairs += zip(range(a, b), range(c, d), strict=True)
        else:
            pairs += [(at, None) for at in range(a, b)]
            pairs += [(None, at) for at in range(c, d)]
    return pairs


def _difference(one: dict[str, Any], other: dict[str, Any], a: int | None, b: int | None) -> str | None:
    """What is different in a pair, in words; None where it is the same."""
    if a is None or b is None:
        return f"only in {'B' if a is None else 'A'}"
    step, also = one["steps"][a], other["steps"][b]
    if (step.get("state"), step.get("kind")) != (also.get("state"), also.get("kind")):
        return "another step"
    found = []
    if _value(one, step.get("args")) != _value(other, also.get("args")):
        found.append("arguments")
    if _value(one, step.get("result")) != _value(other, also.get("result")):
        found.append("result")
    found += [name for name in _FIELDS if step.get(name) != also.get(name)]
    if a == len(one["steps"]) - 1 and b == len(other["steps"]) - 1:
        found += _ends(one["run"], other["run"])
    return ", ".join(found) or None


def _changed_lines(one: dict[str, Any], other: dict[str, Any], a: int, b: int) -> str:
    """The lines of an output, and of a command, that differ, as a unified diff; "" if none do."""
    found: list[str] = []
    fields = (("args", "command"), ("result", "output"), ("result", "stderr"))
    for holder, name in fields:
        texts = []
        for update, at in ((one, a), (other, b)):
            value = _value(update, update["steps"][at].get(holder))
            text = value.get(name) if isinstance(value, dict) else None
            texts.append(text.splitlines() if isinstance(text, str) else [])
        before, after = texts
        if before != after and max(len(before), len(after)) <= _MOST_LINES:
            found += difflib.unified_diff(before, after, f"A: {name}", f"B: {name}", lineterm="", n=2)
    return "\n".join(found)


def _ends(run: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """What is different of the ends of two runs."""
    same = all(run[name] == other[name] for name in ("status", "error"))
    return [] if same else ["end"]


def _value(update: dict[str, Any], index: int | None) -> Any:
    if index is None:
        return None
    value = json.loads(update["values"][index])
    if not isinstance(value, dict):
        return value
    return {name: field for name, field in value.items() if name not in _VARYING}
