"""What `llc list` shows: the loops of a project, and the runs that have not ended."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from ..ir.diagnostics import CompileError, clean
from . import runs
from .locks import is_live


def loops() -> list[dict[str, Any]]:
    """The loops here: name, file, paradigm and description; `valid` false where one cannot be read."""
    from ..frontend.compile import compile_file, is_flow_path
    from ..frontend.documents import read_source
    from ..frontend.paradigms import to_fsm
    from ..frontend.structure import read_loop

    rows = []
    for name, path in runs.loop_files().items():
        row: dict[str, Any] = {
            "name": name,
            "file": path,
            "paradigm": None,
            "description": None,
            "valid": False,
        }
        if is_flow_path(path):
            row["paradigm"] = "flow"
            with contextlib.suppress(CompileError):
                compile_file(path)
                row["valid"] = True
            rows.append(row)
            continue
        try:
            spec, _, found = read_loop(read_source(path))
        except CompileError:
            spec, found = None, []
        if spec is not None:
            row["paradigm"] = to_fsm(spec).paradigm
            row["description"] = spec.description
            row["valid"] = not any(diagnostic.is_error for diagnostic in found)
        rows.append(row)
    return rows


def unfinished_runs() -> list[dict[str, Any]]:
    """The runs that have not ended, the latest first: run, program, whether it lives, where it is.

    One that was cut off when it had ended and was only to be put away is `ended`.
    """
    rows = []
    for run in runs.runs_in(runs.ROOT):
        alive = is_live(run)
        if not alive and run.is_husk():
            continue
        about = run.about()
        state = _state(run)
        rows.append(
            {
                "run": run.id,
                "program": about.get("program", run.name),
                "status": "running" if alive else "ended" if run.end() else "cut off",
                "pid": about.get("pid") if alive else None,
                "state": state.get("current_state"),
                "iteration": state.get("iteration"),
                "started_at": about.get("started_at"),
            }
        )
    return rows


def _state(run: runs.RunFolder) -> dict[str, Any]:
    """The run's state file; {} where there is none yet or it is damaged."""
    try:
        with open(run.state, "rb") as file:
            found = json.loads(file.read(64 << 20))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def as_table(rows: list[dict[str, Any]], running: bool) -> str:
    """Rows in columns, for people."""
    if not rows:
        return "no run is unfinished\n" if running else f"there are no loops in {runs.LOOPS}/\n"
    columns = (
        ("run", "status", "state", "iteration", "started_at")
        if running
        else ("name", "paradigm", "description")
    )
    lines = []
    for row in rows:
        cells = [_cell(row[column]) for column in columns]
        if not running and not row["valid"]:
            cells[-1] = "(invalid: see `llc validate`)"
        lines.append(cells)
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    table = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    return "".join(line.rstrip() + "\n" for line in table)


def _cell(value: Any) -> str:
    text = " ".join(clean(str(value)).split()) if value is not None else "-"
    return text if len(text) <= 80 else text[:79] + "…"
