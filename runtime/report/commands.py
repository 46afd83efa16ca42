"""`llc report`: the report of one or two runs in the requested format."""

from __future__ import annotations

from typing import Any

from ...ir.diagnostics import suggest
from ..host import environment, processes
from ..host.errors import Failure, UserError, refuse_missing_folder
from ..journal.codec import strict_json
from ..journal.journal import JournalError, write_file
from ..recordings.find import RunFiles, find_run
from . import comparison, page
from .model import RunModel, as_data
from .trace_events import trace_events

HTML, PERFETTO, JSON = "html", "perfetto", "json"
FORMATS = (HTML, PERFETTO, JSON)
# Programs that open a file with the application configured for its type.
_OPENERS = ("xdg-open", "open")


def render(target: str, other: str | None, format: str, is_bare: bool) -> tuple[str, bytes]:
    """Proposed file name and content of a report. Raises UserError and JournalError.

    target, other: runs by id or loop name; other: None for a report of one run. format: one of `FORMATS`.
    is_bare: omit outputs, texts of agents and file differences.
    """
    if format not in FORMATS:
        raise UserError("bad-option", f"--format cannot be `{format}`", suggest(format, FORMATS, "formats"))
    runs = [find_run(name) for name in (target, other) if name is not None]
    if format == PERFETTO and len(runs) > 1:
        raise UserError("bad-option", "--format perfetto supports only one run", "omit the second run")
    updates = [_update(run, is_bare, format != PERFETTO) for run in runs]
    name = "-and-".join(run.name for run in runs)
    if format == PERFETTO:
        return f"{name}.json", strict_json(trace_events(updates[0])) + b"\n"
    if format == JSON:
        return f"{name}.json", strict_json(list(map(as_data, updates))) + b"\n"
    rows = comparison.align(*updates) if len(updates) > 1 else None
    return f"{name}.html", page.render(updates, rows)


def _update(run: RunFiles, is_bare: bool, with_graph: bool = True) -> dict[str, Any]:
    """All data of a run."""
    with RunModel(run, is_bare, with_graph) as model:
        return model.update(is_last=True)


def write(path: str, data: bytes) -> None:
    """Write a report to a file. Raises UserError."""
    refuse_missing_folder(path)
    try:
        write_file(path, data, durable=False)
    except JournalError as error:
        raise Failure("cannot-write", error.message) from None


def open_page(address: str) -> None:
    """Open a file or a URL in the user's browser. Raises UserError if that is impossible."""
    browser = environment.environ.get("BROWSER", "").split(":")[0]
    program = browser or next((name for name in _OPENERS if environment.which(name)), None)
    help = f"open this address in a browser: {address}"
    if program is None:
        raise Failure("cannot-open", "no program that opens a page is installed", help)
    try:
        processes.Popen(
            [program, address],
            stdin=processes.DEVNULL,
            stdout=processes.DEVNULL,
            stderr=processes.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        raise Failure("cannot-open", f"{program} could not be started: {error.strerror}", help) from None
