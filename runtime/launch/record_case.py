"""`llc run --record`: create a test case from the finished run. Imported only with this option."""

from __future__ import annotations

from ..host.errors import UserError
from ..journal.journal import JournalError
from ..journal.outcome import Outcome
from ..recordings import case_writer, cases, find, make_case
from .command import Command


def refuse_taken(name: str) -> None:
    """Raise UserError if a case with this name exists."""
    make_case.refuse_taken(cases.case_path(name))


def record(command: Command, outcome: Outcome) -> None:
    """Create a test case from the finished run; show the reason if this is impossible."""
    assert command.folder is not None
    if outcome.status == "interrupted":
        command.warn("note: the run was interrupted; no case is recorded")
        return
    try:
        path = cases.case_path(command.values.record or "")
        case, notices = make_case.make(find.RunFiles.of(command.folder), path)
        case_writer.write(case)
    except (UserError, JournalError) as error:
        command.has_output_failed = True
        command.report.show_failure(error)
        return
    for notice in notices:
        command.warn(f"note: {notice}")
    if not command.values.quiet:
        command.warn(f"recorded {case.path}")
