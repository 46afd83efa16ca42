"""Comparison of two runs: alignment of their steps by state and effect, and the differences of each pair."""

from __future__ import annotations

import difflib
import json
from typing import Any

# Above this number of possible pairs, the differing part of the runs is aligned by position only.
_MAX_PAIRS = 4_000_000
# Fields of a result that differ in every run.
_VARYING = ("duration_ms", "elapsed_ms", "usage", "session", "time")
_FIELDS = ("verdict", "route")

Row = list[Any]
# Limits of the line differences: rows with a difference, and lines of a compared text.
_MAX_LINE_DIFFS = 300
_MAX_DIFF_LINES = 2_000


def align(first: dict[str, Any], second: dict[str, Any]) -> list[Row]:
    """Rows of the comparison: position in each run or None, description of the difference or None, and,
    if there is one, a unified diff of the outputs.

    first, second: the first result of `RunModel.update` of each run.
    """
    before, after = _keys(first), _keys(second)
    start = 0
    while start < min(len(before), len(after)) and before[start] == after[start]:
        start += 1
    end = 0
    while end < min(len(before), len(after)) - start and before[-1 - end] == after[-1 - end]:
        end += 1
    middle = (before[start : len(before) - end], after[start : len(after) - end])
    pairs: list[tuple[int | None, int | None]] = [(at, at) for at in range(start)]
    pairs += [(_shift(a, start), _shift(b, start)) for a, b in _align(*middle)]
    pairs += [(len(before) - at, len(after) - at) for at in range(end, 0, -1)]
    rows: list[Row] = []
    count = 0
    for a, b in pairs:
        difference = _difference(first, second, a, b)
        rows.append([a, b, difference])
        if a is not None and b is not None and difference is not None and count < _MAX_LINE_DIFFS:
            text = _line_diff(first, second, a, b)
            if text:
                rows[-1].append(text)
                count += 1
    return rows


def _shift(at: int | None, by: int) -> int | None:
    return None if at is None else at + by


def _keys(update: dict[str, Any]) -> list[tuple[Any, ...]]:
    """The keys by which steps are aligned."""
    return [(step.get("state"), step.get("kind")) for step in update["steps"]]


def _align(before: list[Any], after: list[Any]) -> list[tuple[int | None, int | None]]:
    if len(before) * len(after) > _MAX_PAIRS:
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


def _difference(first: dict[str, Any], second: dict[str, Any], a: int | None, b: int | None) -> str | None:
    """Description of the differences of a pair; None if the steps are equal."""
    if a is None or b is None:
        return f"only in {'B' if a is None else 'A'}"
    step, other = first["steps"][a], second["steps"][b]
    if (step.get("state"), step.get("kind")) != (other.get("state"), other.get("kind")):
        return "another step"
    differences = []
    if _value(first, step.get("args")) != _value(second, other.get("args")):
        differences.append("arguments")
    if _value(first, step.get("result")) != _value(second, other.get("result")):
        differences.append("result")
    differences += [name for name in _FIELDS if step.get(name) != other.get(name)]
    if a == len(first["steps"]) - 1 and b == len(second["steps"]) - 1:
        is_same_end = all(first["run"][name] == second["run"][name] for name in ("status", "error"))
        differences += [] if is_same_end else ["end"]
    return ", ".join(differences) or None


def _line_diff(first: dict[str, Any], second: dict[str, Any], a: int, b: int) -> str:
    """Unified diff of the commands and outputs of two steps; '' if they are equal."""
    lines: list[str] = []
    fields = (("args", "command"), ("result", "output"), ("result", "stderr"))
    for holder, name in fields:
        texts = []
        for update, at in ((first, a), (second, b)):
            value = _value(update, update["steps"][at].get(holder))
            text = value.get(name) if isinstance(value, dict) else None
            texts.append(text.splitlines() if isinstance(text, str) else [])
        before, after = texts
        if before != after and max(len(before), len(after)) <= _MAX_DIFF_LINES:
            lines += difflib.unified_diff(before, after, f"A: {name}", f"B: {name}", lineterm="", n=2)
    return "\n".join(lines)


def _value(update: dict[str, Any], index: int | None) -> Any:
    """A value without its varying fields."""
    if index is None:
        return None
    value = json.loads(update["values"][index])
    if not isinstance(value, dict):
        return value
    return {name: field for name, field in value.items() if name not in _VARYING}
