"""What the runs that have ended tell together: `llc history`.

Each run's facts come from its journal; an ended run does not change, so they are kept beside it in
`summary.json` and read again only where that does not fit the journal.
"""

from __future__ import annotations

import contextlib
import json
import os.path
from typing import Any

from ...vm.primitives.handlers import duration
from ..host import files
from ..host.errors import UserError
from ..host.paths import HISTORY, ROOT
from ..host.screen import Screen, fit, printable
from ..journal import summary
from ..journal.journal import JournalError, write_file
from ..journal.run_folder import RunFolder, begun_at, forked_from
from ..journal.summary import StateSummary
from ..runs import runs
from ..runs.lookup import find_run_folder, is_run_of
from ..runs.runs import runs_in

FORMAT = 4
FILE = "summary.json"


def facts(run: RunFolder) -> dict[str, Any] | None:
    """One ended run; None where its journal cannot be read."""
    try:
        size = files.stat(run.journal).st_size
    except OSError:
        return None
    path = os.path.join(run.path, FILE)
    kept = _kept(path, size)
    if kept is not None:
        return kept
    try:
        told = _facts(run)
    except UserError:
        return None
    with contextlib.suppress(JournalError):
        data = json.dumps({"format": FORMAT, "journal_size": size, **told}).encode()
        write_file(path, data, durable=False, mode=0o600)
    return told


def _kept(path: str, size: int) -> dict[str, Any] | None:
    try:
        with files.open(path, "rb") as file:
            found = json.loads(file.read(16 << 20))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or (found.pop("format", 0), found.pop("journal_size", -1)) != (
        FORMAT,
        size,
    ):
        return None
    return found if found.keys() >= {"run", "status", "states"} else None


def _facts(run: RunFolder) -> dict[str, Any]:
    told = summary.of(run)
    start, end = told.start, told.end or {}
    error = end.get("error")
    verdicts: dict[str, int] = {}
    for state in told.states.values():
        for verdict, count in state.verdicts.items():
            verdicts[verdict] = verdicts.get(verdict, 0) + count
    return {
        "run": run.id,
        "program": str(start.get("program", run.name)),
        "path": start.get("path"),
        "status": str(end.get("status", "cut off")),
        "terminated_by": end.get("terminated_by"),
        "final_state": end.get("final_state"),
        "forked_from": forked_from(start),
        "started_at": begun_at(start),
        "ended_at": end.get("ts"),
        "duration_ms": told.elapsed_ms(),
        "iterations": end.get("iterations", told.iteration),
        "steps": end.get("steps", told.steps),
        "resumed": told.resumed,
        "usd": round(told.usd, 9),
        "tokens": told.tokens,
        "calls": told.calls,
        "unpriced": told.unpriced,
        "budget": start.get("budget") or {},
        "verdicts": verdicts,
        "states": {name: state.to_json() for name, state in told.states.items()},
        "error": str(error.get("kind")) if isinstance(error, dict) else None,
    }


def look(target: str | None, count: int) -> dict[str, Any]:
    """The latest `count` ended runs, of a loop or of all; and what they come to. Raises UserError."""
    found = list(runs_in(ROOT, HISTORY))
    if target is not None:
        found = [run for run in found if run.id == target or is_run_of(run, target)]
        if not found:
            find_run_folder(target)  # says what there is to name instead
    told: list[dict[str, Any]] = []
    for run in found:
        if len(told) == count:
            break
        row = facts(run)
        if row is not None:
            told.append(row)
    return {"runs": told, "total": len(found), **together(told)}


def together(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What some runs come to."""
    statuses: dict[str, int] = {}
    states: dict[str, StateSummary] = {}
    for row in rows:
        statuses[row["status"]] = statuses.get(row["status"], 0) + 1
        for name, told in row["states"].items():
            states.setdefault(name, StateSummary()).add(told)
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


def as_text(told: dict[str, Any], target: str | None, screen: Screen) -> str:
    """The runs as a table, what they come to, and their states where they are of one program."""
    rows = told["runs"]
    if not rows:
        what = f"no run of `{target}`" if target is not None else "no run"
        return f"{what} has ended yet; {runs.HOW_TO_BEGIN}, or see `llc list --running`\n"
    has_cost = any(row["usd"] or row["tokens"] or row["calls"] for row in rows)
    head = ["RUN", "BEGUN (UTC)", "DURATION", "STATUS", "ITERATIONS"]
    has_fork = any(row["forked_from"] for row in rows)
    table = [head + (["CALLS", "USD", "TOKENS"] if has_cost else []) + (["FORKED FROM"] if has_fork else [])]
    for row in rows:
        status = row["status"]
        if status == "limit":
            status = str(row["terminated_by"])
        cells = [
            row["run"],
            str(row["started_at"]).replace("T", " ")[:19],
            duration(row["duration_ms"]),
            status,
            str(row["iterations"]),
        ]
        spent = [str(row["calls"]), _money(row), f"{row['tokens']:,}"]
        parent = [row["forked_from"]["run"] if row["forked_from"] else "-"]
        table.append(cells + (spent if has_cost else []) + (parent if has_fork else []))
    text = columns(table, screen)
    text += "\n" + _sentence(told, has_cost) + "\n"
    if len({row["program"] for row in rows}) == 1 and told["states"]:
        text += "\n" + columns(_states(told["states"]), screen)
    return text


def _money(told: dict[str, Any]) -> str:
    """What calls have cost; at least that, where nobody knows it of some."""
    return f"{told['usd']:.4f}" + ("+" if told["unpriced"] else "")


def _sentence(told: dict[str, Any], has_cost: bool) -> str:
    count = len(told["runs"])
    parts = ", ".join(f"{number} {status}" for status, number in sorted(told["statuses"].items()))
    text = f"{count} run{'' if count == 1 else 's'}: {parts} ({told['success_rate']:.0%} success)"
    text += f", {duration(told['average_duration_ms'])} on average"
    if has_cost:
        text += f", {_money(told)} USD and {told['tokens']:,} tokens in all"
        text += f", in {told['calls']} call{'' if told['calls'] == 1 else 's'}"
    if told["total"] > count:
        text += f"; {told['total'] - count} earlier not shown (-n)"
    return text


def _states(states: dict[str, dict[str, Any]]) -> list[list[str]]:
    has_cost = any(state["usd"] or state["tokens"] for state in states.values())
    head = ["STATE", "ENTERED", "TIME", "EACH", "VERDICTS"]
    rows = [[*head[:4], *(["USD", "TOKENS"] if has_cost else []), head[4]]]
    for name, state in states.items():
        entered = state["entered"]
        verdicts = ", ".join(f"{verdict} {count}" for verdict, count in sorted(state["verdicts"].items()))
        rows.append(
            [
                name,
                str(entered),
                duration(state["duration_ms"]),
                duration(state["duration_ms"] // entered if entered else 0),
                *([f"{state['usd']:.4f}", f"{state['tokens']:,}"] if has_cost else []),
                verdicts or "-",
            ]
        )
    return rows


def columns(rows: list[list[str]], screen: Screen) -> str:
    """Rows in columns, the first one their heads."""
    cells = [[fit(printable(" ".join(cell.split())), 60) for cell in row] for row in rows]
    widths = [max(len(row[index]) for row in cells) for index in range(len(cells[0]))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]
    return "".join(
        (screen.paint(line, "dim") if number == 0 else line) + "\n" for number, line in enumerate(lines)
    )
