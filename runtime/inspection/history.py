"""`llc history`: the finished runs with totals.

The facts of a run come from its `RunHistory`. A finished run does not change, so its facts are cached in
`summary.json` in its folder. They are computed again only if the cache does not match the journal.
"""

from __future__ import annotations

import contextlib
import json
import os.path
from typing import Any

from ...vm.values.text_form import duration_text
from ..host import files
from ..host.errors import UserError
from ..host.paths import HISTORY, ROOT, open_regular
from ..host.screen import Screen, counted
from ..journal.events import RunEnd, RunStart
from ..journal.journal import JournalError, write_file
from ..journal.quantities import amount_text, moment_text, usd_text
from ..journal.run_folder import RunFolder
from ..journal.run_history import CRASHED
from ..journal.totals import StateHistory
from ..runs import runs
from ..runs.follower import load_history
from ..runs.lookup import find_run_folder, is_run_of
from ..runs.runs import runs_in
from .tables import columns

CACHE_FORMAT = 7
CACHE_FILE = "summary.json"
# Number of runs that are listed by default.
DEFAULT_COUNT = 20
# Columns to omit, in this order, if the terminal is too narrow.
_OPTIONAL_COLUMNS = ("FORKED FROM", "CALLS", "TOKENS", "STARTED (local time)", "ITERATIONS")


def facts(run: RunFolder) -> dict[str, Any] | None:
    """The facts of a finished run; None if its journal cannot be read."""
    try:
        size = files.stat(run.journal).st_size
    except OSError:
        return None
    path = os.path.join(run.path, CACHE_FILE)
    cached = _cached(path, size)
    if cached is not None:
        return cached
    try:
        found = _facts(run)
    except UserError:
        return None
    with contextlib.suppress(JournalError):
        data = json.dumps({"format": CACHE_FORMAT, "journal_size": size, **found}).encode()
        write_file(path, data, durable=False, mode=0o600)
    return found


def _cached(path: str, size: int) -> dict[str, Any] | None:
    try:
        with open_regular(path) as file:
            found = json.loads(file.read(16 << 20))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or (found.pop("format", 0), found.pop("journal_size", -1)) != (
        CACHE_FORMAT,
        size,
    ):
        return None
    return found if found.keys() >= {"run", "status", "states"} else None


def _facts(run: RunFolder) -> dict[str, Any]:
    history = load_history(run)
    start, end = history.start or RunStart.of({}), history.end
    own = history.own or history  # the part that a fork shares with its parent counts for the parent only
    used = own.used
    error = end.error if end else None
    return {
        "run": run.id,
        "program": start.program or run.name,
        "path": start.path,
        "status": history.status if end else CRASHED,
        "terminated_by": end.terminated_by if end else None,
        "final_state": end.final_state if end else None,
        "forked_from": start.parent,
        "scripted": start.script not in (None, ""),
        "started_at": history.started_at,
        "ended_at": end.ts if end else None,
        "duration_ms": history.active_ms() - history.shared_ms,
        "iterations": history.iteration if end is None else end.iterations,
        "steps": history.steps if end is None else end.steps,
        "resumed": history.resumed,
        "usd": round(used.usd, 9),
        "tokens": used.tokens,
        "calls": used.calls,
        "unpriced": used.unpriced,
        "budget": start.budget or {},
        "verdicts": own.verdicts,
        "states": {name: state.to_json() for name, state in own.states.items()},
        "error": str(error.get("kind")) if error else None,
    }


def summarize(target: str | None, count: int | None) -> dict[str, Any]:
    """The latest finished runs with totals.

    target: a run or a loop; None for all. count: the maximum number of runs; None for no limit. Raises
    UserError.
    """
    found = list(runs_in(ROOT, HISTORY))
    if target is not None:
        found = [run for run in found if run.id == target or is_run_of(run, target)]
        if not found:
            run = find_run_folder(target)  # by its folder; raises with suggestions if there is none
            found = [run] if isinstance(run.last_event(), RunEnd) else []
    rows: list[dict[str, Any]] = []
    for run in found:
        if len(rows) == count:
            break
        row = facts(run)
        if row is not None:
            rows.append(row)
    return {"runs": rows, "total": len(found), **totals(exclude_scripted(rows))}


def exclude_scripted(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The runs that totals include. Scripted runs executed nothing and count only if all are scripted."""
    return [row for row in rows if not row["scripted"]] or rows


def totals(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Totals of runs. rows: their facts."""
    statuses: dict[str, int] = {}
    states: dict[str, StateHistory] = {}
    for row in rows:
        statuses[row["status"]] = statuses.get(row["status"], 0) + 1
        for name, of_state in row["states"].items():
            states.setdefault(name, StateHistory()).add(of_state)
    count = len(rows)
    return {
        "statuses": statuses,
        "success_rate": round(statuses.get("success", 0) / count, 4) if count else None,
        "average_duration_ms": round(sum(row["duration_ms"] for row in rows) / count) if count else None,
        "usd": round(sum(row["usd"] for row in rows), 9),
        "tokens": sum(row["tokens"] for row in rows),
        "calls": sum(row["calls"] for row in rows),
        "unpriced": sum(row["unpriced"] for row in rows),
        "states": {name: state.to_json() for name, state in states.items()},
    }


# --- for people -------------------------------------------------------------------------------


def as_text(found: dict[str, Any], target: str | None, screen: Screen) -> str:
    """The runs as a table, their totals, and the states if all runs have the same program."""
    rows = found["runs"]
    if not rows:
        subject = f"no run of `{target}`" if target is not None else "no run"
        return f"{subject} has ended yet; {runs.HOW_TO_BEGIN}, or see `llc list --running`\n"
    has_cost = any(row["usd"] or row["tokens"] or row["calls"] for row in rows)
    head = ["RUN", "STARTED (local time)", "DURATION", "STATUS", "ITERATIONS"]
    has_fork = any(row["forked_from"] for row in rows)
    table = [head + (["CALLS", "USD", "TOKENS"] if has_cost else []) + (["FORKED FROM"] if has_fork else [])]
    for row in rows:
        status = row["status"]
        if status == "limit":
            status = str(row["terminated_by"])
        elif status == "success" and row["terminated_by"] == "max_iterations":
            status = "success (max_iterations)"
        if row["scripted"]:
            status += " (scripted)"
        cells = [
            row["run"],
            moment_text(row["started_at"]),
            duration_text(row["duration_ms"]),
            status,
            str(row["iterations"]),
        ]
        spent = [str(row["calls"]), usd_text(row["usd"], row["unpriced"] > 0), f"{row['tokens']:,}"]
        parent = [row["forked_from"]["run"] if row["forked_from"] else "-"]
        table.append(cells + (spent if has_cost else []) + (parent if has_fork else []))
    text = columns(table, screen, _OPTIONAL_COLUMNS)
    text += "\n" + _summary_line(found, has_cost) + "\n"
    if len({row["program"] for row in rows}) == 1 and found["states"]:
        text += "\n" + columns(_states(found["states"]), screen)
    return text


def _summary_line(found: dict[str, Any], has_cost: bool) -> str:
    count = len(exclude_scripted(found["runs"]))
    scripted = len(found["runs"]) - count
    parts = ", ".join(f"{number} {status}" for status, number in sorted(found["statuses"].items()))
    text = f"{counted(count, 'run')}: {parts} ({found['success_rate']:.0%} success)"
    text += f", {duration_text(found['average_duration_ms'])} on average"
    if has_cost:
        money = amount_text("usd", found["usd"], is_least=found["unpriced"] > 0)
        text += f", {money} and {amount_text('tokens', found['tokens'])} in all"
        text += f", in {amount_text('calls', found['calls'])}"
    if scripted:
        text += f"; {scripted} scripted not counted"
    earlier = found["total"] - len(found["runs"])
    if earlier > 0:
        text += f"; {earlier} earlier not shown (-n)"
    return text


def _states(states: dict[str, dict[str, Any]]) -> list[list[str]]:
    has_cost = any(state["usd"] or state["tokens"] for state in states.values())
    head = ["STATE", "RUNS", "TIME", "AVG", "VERDICTS"]
    rows = [[*head[:4], *(["USD", "TOKENS"] if has_cost else []), head[4]]]
    for name, state in states.items():
        visits = state["entered"]
        verdicts = ", ".join(f"{verdict} {count}" for verdict, count in sorted(state["verdicts"].items()))
        rows.append(
            [
                name,
                str(visits),
                duration_text(state["duration_ms"]),
                duration_text(state["duration_ms"] // visits if visits else 0),
                *([usd_text(state["usd"]), f"{state['tokens']:,}"] if has_cost else []),
                verdicts or "-",
            ]
        )
    return rows
