"""`llc history --metrics`: totals of the finished runs of each loop and of each of its states.

The figures are the totals of `llc history`, grouped by loop, as tables or in the text format of Prometheus.
"""

from __future__ import annotations

from typing import Any

from ...vm.values.text_form import duration_text
from ..host.screen import Screen
from ..journal.exposition import gauge
from ..journal.quantities import usd_text
from .history import exclude_scripted, totals
from .tables import columns

# Metric name, help text, key of the total, divisor.
_LOOP_METRICS = (
    ("llc_loop_duration_seconds", "Active time of finished runs.", "duration_ms", 1000),
    ("llc_loop_iterations", "Iterations of finished runs.", "iterations", 1),
    ("llc_loop_steps", "States that finished runs entered.", "steps", 1),
    ("llc_loop_calls", "Calls of models and agents.", "calls", 1),
    ("llc_loop_cost_usd", "Known cost of models and agents.", "usd", 1),
    ("llc_loop_tokens", "Known tokens of models and agents.", "tokens", 1),
)
_STATE_METRICS = (
    ("llc_state_entries", "How often a state was entered.", "entered", 1),
    ("llc_state_duration_seconds", "Time in a state.", "duration_ms", 1000),
    ("llc_state_effects", "Actions and calls of a state.", "effects", 1),
    ("llc_state_effect_seconds", "Time of actions and calls of a state.", "effect_ms", 1000),
    ("llc_state_errors", "Actions and calls that could not be performed.", "errors", 1),
    ("llc_state_cost_usd", "Known cost of models and agents of a state.", "usd", 1),
    ("llc_state_tokens", "Known tokens of models and agents of a state.", "tokens", 1),
)


def by_loop(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The totals of the runs of each loop, by loop name. rows: facts of runs."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(str(row["program"]), []).append(row)
    return {name: _totals(exclude_scripted(groups[name])) for name in sorted(groups)}


def _totals(rows: list[dict[str, Any]]) -> dict[str, Any]:
    keys = ("duration_ms", "iterations", "steps")
    return {**totals(rows), **{key: sum(row[key] or 0 for row in rows) for key in keys}}


def as_prometheus(rows: list[dict[str, Any]]) -> str:
    """The metrics in the text format of Prometheus."""
    loops = by_loop(rows)
    states = [
        ({"loop": loop, "state": state}, figures)
        for loop, found in loops.items()
        for state, figures in found["states"].items()
    ]
    runs = [
        ({"loop": loop, "status": status}, count)
        for loop, found in loops.items()
        for status, count in found["statuses"].items()
    ]
    verdicts = [
        ({**labels, "verdict": verdict}, count)
        for labels, figures in states
        for verdict, count in figures["verdicts"].items()
    ]
    text = gauge("llc_loop_runs", "Finished runs by status.", runs)
    for name, help, key, divisor in _LOOP_METRICS:
        text += gauge(
            name, help, [({"loop": loop}, _number(found[key], divisor)) for loop, found in loops.items()]
        )
    for name, help, key, divisor in _STATE_METRICS:
        text += gauge(name, help, [(labels, _number(figures[key], divisor)) for labels, figures in states])
    return text + gauge("llc_state_verdicts", "Verdicts of a state.", verdicts)


def _number(value: float, divisor: int) -> float:
    return value if divisor == 1 else value / divisor


def as_text(rows: list[dict[str, Any]], screen: Screen) -> str:
    """Two tables for people: the loops, and their states."""
    loops = by_loop(rows)
    if not loops:
        return "no run has ended yet\n"
    table = [["LOOP", "RUNS", "TIME", "ITERATIONS", "STEPS", "CALLS", "USD", "TOKENS", "STATUS"]]
    states = [["LOOP", "STATE", "ENTERED", "TIME", "ACTIONS", "ACTION TIME", "ERRORS", "USD", "VERDICTS"]]
    for loop, found in loops.items():
        table.append(
            [
                *(loop, str(sum(found["statuses"].values())), duration_text(found["duration_ms"])),
                *(str(found["iterations"]), str(found["steps"]), str(found["calls"])),
                *(usd_text(found["usd"], found["unpriced"] > 0), f"{found['tokens']:,}"),
                _counts(found["statuses"]),
            ]
        )
        for state, figures in found["states"].items():
            states.append(
                [
                    *(loop, state, str(figures["entered"]), duration_text(figures["duration_ms"])),
                    *(str(figures["effects"]), duration_text(figures["effect_ms"])),
                    *(str(figures["errors"]), usd_text(figures["usd"]), _counts(figures["verdicts"])),
                ]
            )
    return columns(table, screen, ("TOKENS", "STEPS")) + "\n" + columns(states, screen, ("ACTIONS", "USD"))


def _counts(found: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(found.items())) or "-"
