"""What a command says of its run in the end, beside the value that it gave: what went wrong, at its place
in the source; where the time went; the test case that was recorded.

Owns which accident is told how, and with which exit code.
"""

from __future__ import annotations

import json
import sys

from ...ir.diagnostics import CompileError, Diagnostic, in_order, render_all, to_json
from ...ir.spans import Source, Span
from ..cli import early_signals
from ..host import clock
from ..host.context import Interrupted
from ..host.errors import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_USAGE, UserError
from ..host.screen import Screen
from ..journal.journal import JournalError
from ..journal.outcome import Outcome

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from .command import Command


# --- runs that did not come to an end, or did not begin -------------------------------------------


def refuse(command: Command, error: BaseException) -> int:
    """Show what the user or the system did wrong, and answer with it; the exit code.

    What we did wrong is raised again.
    """
    if isinstance(error, RecursionError):
        raise error
    outcome = of_error(command, error)
    match error:
        case KeyboardInterrupt() | Interrupted():
            if command.driver is None:
                command.warn(early_signals.SAID)
        case UserError():
            show_error(command, error)
        case JournalError():
            show_error(command, UserError("journal", error.message, _journal_help(command), EXIT_FAILURE))
        case CompileError():
            show(command, error.diagnostics, error.sources)
    code = command.answer(outcome, _exit_code(error))
    if is_ours(error):
        raise error
    return code


def _exit_code(error: BaseException) -> int:
    match error:
        case KeyboardInterrupt() | Interrupted():
            return EXIT_INTERRUPTED
        case UserError():
            return error.exit_code
        case CompileError():
            return EXIT_USAGE
        case _:
            return EXIT_FAILURE


def is_ours(error: BaseException) -> bool:
    """Whether it is neither the user's fault nor the system's."""
    return not isinstance(error, KeyboardInterrupt | Interrupted | UserError | JournalError | CompileError)


def of_error(command: Command, error: BaseException) -> Outcome:
    """The outcome of a run that could not begin, or not go on."""
    match error:
        case KeyboardInterrupt() | Interrupted():
            return _not_ended(command, "interrupt", "interrupted", status="interrupted")
        case UserError():
            return _not_ended(command, error.id, error.message, error.help)
        case JournalError():
            return _not_ended(command, "journal", error.message, _journal_help(command))
        case CompileError():
            count = sum(diagnostic.is_error for diagnostic in error.diagnostics)
            place = error.sources[0].path if error.sources else command.values.target or "the expression"
            message = f"{count} error{'' if count == 1 else 's'} in {place}"
            outcome = _not_ended(command, "invalid-loop", message)
            assert outcome.error is not None
            outcome.error["diagnostics"] = [to_json(one) for one in in_order(error.diagnostics)]
            return outcome
        case _:
            return _not_ended(command, "internal", "internal error")


def _not_ended(
    command: Command, kind: str, message: str, help: str | None = None, status: str = "error"
) -> Outcome:
    if command.driver is not None:
        outcome = command.driver.outcome(status)
    else:
        program = command.image.name if command.image is not None else None
        outcome = Outcome(command.folder.id if command.folder else None, program, "loop", status)
        outcome.duration_ms = int((clock.monotonic() - command.begun) * 1000)
    outcome.terminated_by = "interrupt" if status == "interrupted" else "error"
    outcome.error = {"kind": kind, "message": message, "span": None, "help": help}
    return outcome


def _journal_help(command: Command) -> str | None:
    """What to do where a journal cannot be written."""
    if command.folder is None:
        return None
    return f"nothing recorded is lost; when that is mended: llc resume {command.folder.id}"


def usage_answer(message: str) -> None:
    """The one JSON object for words that cannot be read as a command."""
    ended = Outcome(None, None, "loop", "error")
    ended.terminated_by = "error"
    ended.error = {"kind": "usage", "message": message, "span": None}
    text = json.dumps(ended.to_json(), ensure_ascii=False)
    Screen(sys.stdout).deliver((text + "\n").encode("utf-8", "replace"))


# --- what is shown ------------------------------------------------------------------------------


def show(command: Command, diagnostics: Iterable[Diagnostic], sources: Iterable[Source] = ()) -> None:
    command.errors.write(render_all(diagnostics, sources, command.errors.color) + "\n")


def show_error(command: Command, error: UserError) -> None:
    show(command, [Diagnostic(error.id, error.message, help=error.help)])


def show_fault(command: Command, outcome: Outcome) -> None:
    """The error a run ended with, at its place in the source."""
    error = outcome.error or {}
    span = Span(*outcome.place) if outcome.place else None
    found = command.image.sources if command.image else ()
    sources = [Source(source.path, source.sha256, source.text) for source in found]
    diagnostic = Diagnostic(
        str(error.get("kind")),
        str(error.get("message")),
        span,
        label="here" if span else "",
        help=error.get("help"),
    )
    show(command, [diagnostic], sources)
    trace = error.get("backtrace") or []
    if len(trace) > 1:
        command.errors.write("".join(f"  {line}\n" for line in trace))


def say_where_time_went(command: Command) -> None:
    """The profile of what was driven, shown and written as asked for; with `--verbose`, the tier."""
    values, folder = command.values, command.folder
    if values.verbose and command.machine is not None:
        from ..execution import tier_choice

        command.warn(f"note: {tier_choice.told(command.machine, command.tier)}")
    if not (values.profile or values.flame) or folder is None:
        return
    from ..inspection import profile_report

    meter = command.meter
    profile = meter.profile if meter else profile_report.of_record(folder.id, folder.journal)
    if values.profile:
        command.warn(profile_report.as_text(profile, command.errors).rstrip("\n"))
        command.profile = profile_report.as_json(profile)
    if values.flame:
        profile_report.write_flame(profile, values.flame)


def record(command: Command, ended: Outcome) -> None:
    """Make a test case of the run, which has ended; that it could not be made is shown."""
    from ..journal import recording
    from ..recordings import case_writer, cases, make_case

    assert command.folder is not None
    if ended.status == "interrupted":
        command.warn("note: the run was interrupted, so no case is recorded")
        return
    try:
        path = cases.case_path(command.values.record)
        case, notices = make_case.make(recording.RunFiles.of(command.folder), path)
        case_writer.write(case)
    except (UserError, JournalError) as error:
        command.is_unrecorded = True
        shown = error if isinstance(error, UserError) else UserError(error.id, error.message)
        show_error(command, shown)
        return
    for notice in notices:
        command.warn(f"note: {notice}")
    if not command.values.quiet:
        command.warn(f"recorded {case.path}")
