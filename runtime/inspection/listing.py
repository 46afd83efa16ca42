"""`llc list`: the loops of a project, and its unfinished runs (`status`)."""

from __future__ import annotations

import contextlib
from typing import Any

from ...ir.diagnostics import clean
from ...vm.values.text_form import duration_text
from ..host.paths import HISTORY, LOOPS, ROOT
from ..journal.run_history import CRASHED
from ..project.load import compile_options
from ..runs import runs
from ..runs.loop_names import loop_files


def loops() -> list[dict[str, Any]]:
    """The loops of the project: name, file, paradigm, description; `valid` is false if unreadable."""
    rows = []
    results = _last_results()
    for name, path in loop_files().items():
        row: dict[str, Any] = {
            "name": name,
            "file": path,
            "paradigm": None,
            "description": None,
            "last_result": results.get(path),
            "valid": False,
        }
        # Any exception: a bug in llc must not hide the other loops. `llc validate` reports the error.
        with contextlib.suppress(Exception):
            _fill(row, path)
        rows.append(row)
    return rows


def _fill(row: dict[str, Any], path: str) -> None:
    """Add paradigm, description and validity to a row. Raises CompileError."""
    from ...frontend.loop.load import loop_of
    from ...frontend.loop.reader import read_loop
    from ...frontend.source.files import is_flow_path, read_source
    from ..project.compilation import compile_file

    if is_flow_path(path):
        row["paradigm"] = "flow"
        compile_file(path, compile_options())
        row["valid"] = True
        return
    spec, document, found = read_loop(read_source(path))
    if spec is not None:
        loop, _ = loop_of(spec, document)
        row["paradigm"] = "natural" if loop is None else loop.paradigm
        row["description"] = spec.description
        row["valid"] = not any(diagnostic.is_error for diagnostic in found)


def _last_results() -> dict[str, str]:
    """The status of the last finished run of each loop, without scripted runs, by the path of its file."""
    found: dict[str, str] = {}
    for run in runs.runs_in(ROOT, HISTORY):
        start = run.start()
        path = start.get("path")
        if isinstance(path, str) and path not in found and not start.get("script"):
            found[path] = str((run.end() or {}).get("status", CRASHED))
    return found


def as_table(rows: list[dict[str, Any]], running: bool) -> str:
    """Rows in columns, for people."""
    if not rows:
        if running:
            return f"no run is unfinished; {runs.HOW_TO_BEGIN}\n"
        return f"there are no loops in {LOOPS}/; create one as {LOOPS}/NAME.yaml\n"
    columns = (
        ("run", "status", "state", "iteration", "age_ms")
        if running
        else ("name", "paradigm", "last_result", "description")
    )
    lines = [
        ["RUN", "STATUS", "STATE", "ITERATION", "STARTED"]
        if running
        else ["LOOP", "PARADIGM", "LAST RESULT", "DESCRIPTION"]
    ]
    for row in rows:
        cells = [_cell(row[column]) for column in columns]
        if running:
            if row["waits_for"]:
                blocker = row["waits_for"][-1]
                cells[1] += f", waits for {blocker}" if " " in blocker else f" behind {blocker}"
            if row["forked_from"]:
                cells[1] += f" (forked from {row['forked_from']['run']})"
            age = row["age_ms"]
            cells[-1] = "-" if age is None else f"{duration_text(age)} ago"
        if not running and not row["valid"]:
            cells[-1] = "(invalid: see `llc validate`)"
        lines.append(cells)
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    table = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    return "".join(line.rstrip() + "\n" for line in table)


def _cell(value: Any) -> str:
    text = " ".join(clean(str(value)).split()) if value is not None else "-"
    return text if len(text) <= 80 else text[:79] + "…"
