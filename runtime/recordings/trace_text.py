"""`llc trace`: a point of a run as lines of text.

Owns content and order of the lines; `trace_tui` owns keys and the terminal.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from ...ir.spans import Source, Span
from ..host.screen import printable
from ..journal import agent_text
from ..journal.events import Evaluate
from . import diff_text
from .recording import EffectRequest
from .timeline import Point, Timeline, shown

# Source lines before and after the current one.
_CONTEXT_LINES = 2
_MAX_TEXT_LINES = 40
_MAX_VALUE_CHARACTERS = 400

# A line and its style; see `screen.STYLES`.
Line = tuple[str, str]


def page(point: Point, sources: Mapping[str, Source]) -> list[Line]:
    """The lines of a point: source, notes, effect, outcome and slots."""
    lines: list[Line] = []
    if point.place is not None:
        lines += _source(point.place, sources.get(point.place.path))
    for note in point.notes:
        is_bad = note.kind == Evaluate.name and Evaluate.of(note.fields).verdict != "success"
        lines.append((f"  {diff_text.describe(note)}", "yellow" if is_bad else "dim"))
    lines += _effect(point)
    for asked in point.waiting:
        lines.append((f"waits     effect {asked.seq}  {diff_text.describe(asked)}", "dim"))
    if point.outcome is not None:
        status = point.outcome.get("status")
        lines.append((diff_text.describe(point.outcome), "green" if status == "success" else "red"))
        value = point.outcome.get("value")
        if value is not None:
            lines += _value("value", shown(value), "  ")
    for frame in reversed(point.frames):
        lines.append((f"in {frame.function}, {frame.state}", "bold"))
        for name, value in frame.slots.items():
            lines += _value(name, value, "  ")
    return [(printable(text), style) for text, style in lines]


def head(point: Point, timeline: Timeline) -> str:
    """The title of a point: run, number, effect, iteration and state."""
    words = [timeline.recording.name, f"point {point.number} of {timeline.count - 1}"]
    if point.asked is not None:
        words.append(f"effect {point.asked.seq}")
    if point.items:
        words.append("item " + ".".join(str(item + 1) for item in point.items))
    if point.state is not None:
        words += [f"iteration {point.iteration}", f"state {point.state}"]
    return printable("  ".join(words))


def as_text(point: Point, timeline: Timeline) -> str:
    """A point as plain text, for a pipe or a file."""
    lines = [head(point, timeline), *(text for text, _ in page(point, diff_text.sources_of(timeline.image)))]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _source(place: Span, source: Source | None) -> Iterator[Line]:
    """The source around a position, with its line marked."""
    yield str(place), "dim"
    text = source.text.split("\n") if source is not None and source.text is not None else []
    last = min(len(text), place.line + _CONTEXT_LINES)
    for number in range(max(1, place.line - _CONTEXT_LINES), last + 1):
        is_here = number == place.line
        line = text[number - 1].rstrip("\r").replace("\t", "    ")
        yield f"{'>' if is_here else ' '}{number:>5} | {line}", "bold" if is_here else "dim"


def _effect(point: Point) -> Iterator[Line]:
    asked = point.asked
    if asked is None:
        return
    yield f"effect {asked.seq}  {diff_text.describe(asked)}", "bold"
    for name, packed in asked.args.items():
        value = shown(packed)
        if name != "schema" and not _is_in_description(asked, name, value):
            yield from _value(name, value, "  ")
    for event in point.activity:
        if not agent_text.is_detail(event):
            yield from ((f"  {line}", "dim") for line in agent_text.describe(event))
    if point.result is None:
        yield "no result is recorded", "yellow"
        return
    result = {name: shown(value) for name, value in point.result.items()}
    is_bad = point.is_failure and any(
        result.get(name) for name in ("exit_code", "error", "timed_out", "signal")
    )
    yield f"result    {_summary(result)}", "red" if is_bad else "green"
    for name, value in result.items():
        if value not in ("", None) and name not in ("exit_code", "duration_ms", "elapsed_ms"):
            yield from _value(name, value, "  ")


def _is_in_description(asked: EffectRequest, name: str, value: Any) -> bool:
    """Whether the description of an effect contains an argument already."""
    return name in ("command", "seconds") and str(value) in diff_text.describe(asked)


def _summary(result: dict[str, Any]) -> str:
    words = []
    if "exit_code" in result:
        words.append(f"exit {result['exit_code']}")
    if result.get("error"):
        error = result["error"]
        words.append(f"error {error.get('kind') if isinstance(error, dict) else error}")
    if result.get("timed_out"):
        words.append(f"timed out ({result['timed_out']})")
    if "duration_ms" in result:
        words.append(f"{result['duration_ms']} ms")
    return ", ".join(words) or "done"


def _value(name: str, value: Any, indent: str) -> Iterator[Line]:
    """A named value on one line; a multi-line text below its name."""
    if isinstance(value, str) and "\n" in value.rstrip("\n"):
        lines = value.rstrip("\n").split("\n")
        yield f"{indent}{name}:", ""
        half = _MAX_TEXT_LINES // 2
        if len(lines) > _MAX_TEXT_LINES:
            lines = [*lines[:half], f"… {len(lines) - _MAX_TEXT_LINES} lines …", *lines[-half:]]
        for line in lines:
            yield f"{indent}│ {line}", "dim"
        return
    value = printable(value) if isinstance(value, str) else value
    text = json.dumps(value, ensure_ascii=False, default=str)
    if len(text) > _MAX_VALUE_CHARACTERS:
        text = f"{text[: _MAX_VALUE_CHARACTERS // 2]} … {text[-_MAX_VALUE_CHARACTERS // 2 :]}"
    yield f"{indent}{name} = {text}", ""
