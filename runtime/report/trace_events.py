"""Trace events of a run in the JSON format of Chrome, for `ui.perfetto.dev` and `chrome://tracing`.

Effects are complete events (`X`) on one thread for each lane of the timeline; states are complete events on
another thread. Verdicts and marks are instant events (`i`), costs and tokens are counters (`C`), names are
metadata (`M`). Times are microseconds since the start of the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_PID = 1
# Thread of the states; lane `n` has thread `n + 1`.
_STATES = 0


def trace_events(update: dict[str, Any]) -> dict[str, Any]:
    """The contents of a trace file. update: the first result of `RunModel.update`."""
    about = update["run"]
    end = max(
        [0, *(at for step in update["steps"] if (at := step.get("end", step.get("start"))) is not None)]
    )
    end = max([end, *(mark["at"] for mark in about["marks"] if mark["at"] is not None)])
    events = [
        *_names(update),
        *_states(update["steps"], end),
        *_effects(update, end),
        *_counters(update["steps"]),
    ]
    for mark in about["marks"]:
        if mark["at"] is not None:
            events.append(_event("i", mark["text"], mark["at"], _STATES, s="p"))
    # Metadata first, then by time, so that a streaming reader needs no sorting.
    events.sort(key=lambda event: (event["ph"] != "M", event["ts"], -event.get("dur", 0)))
    kept = ("id", "program", "path", "hash", "llc", "status", "sentence", "started", "ended")
    return {
        "displayTimeUnit": "ms",
        "otherData": {name: about[name] for name in kept if about[name] is not None},
        "traceEvents": events,
    }


def _event(phase: str, name: str, ms: float, thread: int, **more: Any) -> dict[str, Any]:
    return {"ph": phase, "name": name, "ts": ms * 1000, "pid": _PID, "tid": thread, **more}


def _names(update: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield _event("M", "process_name", 0, _STATES, args={"name": update["run"]["id"]})
    for number, name in enumerate(("states", *update["lanes"]), _STATES):
        yield _event("M", "thread_name", 0, number, args={"name": name})
        yield _event("M", "thread_sort_index", 0, number, args={"sort_index": number})


def _states(steps: list[dict[str, Any]], end: int) -> Iterator[dict[str, Any]]:
    """One event for each interval in one state and iteration."""
    current: tuple[int, str, int] | None = None
    for step in [*(step for step in steps if "start" in step), {"start": end}]:
        place = (step.get("state", ""), step.get("iteration", 0))
        if current is not None and current[1:] != place:
            start, state, iteration = current
            if state:
                length = (step["start"] - start) * 1000
                args = {"iteration": iteration}
                yield _event("X", state, start, _STATES, dur=length, cat="state", args=args)
            current = None
        current = current or (step["start"], *place)


def _effects(update: dict[str, Any], end: int) -> Iterator[dict[str, Any]]:
    for step in (*update["steps"], *update["pending"]):
        if "start" not in step:
            continue
        thread = step.get("lane", 0) + 1
        names = (
            "seq",
            "state",
            "iteration",
            "failed",
            "verdict",
            "route",
            "usd",
            "tokens",
            "model",
            "session",
            "tools",
        )
        args = {name: step[name] for name in names if name in step}
        length = (step.get("end", end) - step["start"]) * 1000
        name = step.get("subject") or step.get("kind", "effect")
        yield _event(
            "X", name, step["start"], thread, dur=max(length, 0), cat=step.get("kind", "effect"), args=args
        )
        if "verdict" in step and "end" in step:
            yield _event("i", step["verdict"], step["end"], thread, s="t", cat="verdict")


def _counters(steps: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    totals = {"usd": 0.0, "tokens": 0}
    for step in steps:
        for unit in totals:
            if step.get(unit):
                totals[unit] += step[unit]
                yield _event("C", unit, step["end"], _STATES, args={unit: round(totals[unit], 9)})
