"""Failures of a command: the exit code and the report of each kind of exception.

Owns the conversion of exceptions to exit codes (`spec/cli.md`, Exit codes). Imported only after a failure.
Must not contain output; `report` and `runtime/cli` write it.
"""

from __future__ import annotations

from errno import EIO, EMFILE, ENFILE, ENOSPC

from ...ir.diagnostics import CompileError, Diagnostic, FaultKind, in_order, render_all, to_json
from ...ir.spans import Source, Span
from ...vm.code.image import Image
from ..host.effect_context import Interrupted
from ..host.errors import (
    EXIT_FAILURE,
    EXIT_HANGUP,
    EXIT_INTERNAL,
    EXIT_INTERRUPTED,
    EXIT_PIPE,
    EXIT_USAGE,
    Failure,
    UserError,
    reason,
)
from ..host.screen import counted
from ..journal.journal import JournalError
from ..journal.outcome import Outcome, headline
from ..journal.run_folder import RunFolder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


_DESCRIPTORS_HELP = "raise the limit, for example with `ulimit -n 4096`, or end other programs"


def exit_code(error: BaseException) -> int:
    """Exit code of a command that ended with this exception."""
    match error:
        case KeyboardInterrupt() | Interrupted():
            return EXIT_INTERRUPTED
        case UserError():
            return error.exit_code
        case CompileError():
            return EXIT_USAGE
        case JournalError():
            return EXIT_FAILURE
        case BrokenPipeError():
            return EXIT_PIPE
        case _ if _is_of_stream(error) and error.args[:1] == (
            EIO,
        ):  # OSError, termios.error: terminal closed
            return EXIT_HANGUP
        case _ if _is_disk_full(error) or _is_out_of_handles(error):
            return EXIT_FAILURE
        case _:
            return EXIT_INTERNAL


def is_internal(error: BaseException) -> bool:
    """Return whether the exception is a defect of llc, caused neither by the user nor by the system."""
    expected = (KeyboardInterrupt, Interrupted, UserError, JournalError, CompileError)
    return not isinstance(error, expected) and not _is_out_of_handles(error)


def _is_of_stream(error: BaseException) -> bool:
    """Return whether the error belongs to a standard stream; an error of a file has the file's name."""
    return getattr(error, "filename", None) is None


def _is_disk_full(error: BaseException) -> bool:
    return isinstance(error, OSError) and _is_of_stream(error) and error.errno == ENOSPC


def _is_out_of_handles(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in (EMFILE, ENFILE)


def diagnostics(error: BaseException) -> tuple[Sequence[Diagnostic], Sequence[Source]]:
    """The diagnostics to show for an exception, with their sources; none for an interrupt or a defect."""
    match error:
        case UserError():
            return [Diagnostic(error.id, error.message, help=error.help)], ()
        case JournalError():
            return [Diagnostic(error.id, error.message)], ()
        case CompileError():
            return error.diagnostics, error.sources
        case OSError() if _is_disk_full(error):
            return [Diagnostic("cannot-write", f"cannot write to standard output: {reason(error)}")], ()
        case OSError() if _is_out_of_handles(error):
            return [
                Diagnostic(
                    "too-few-descriptors", f"llc cannot open a file: {reason(error)}", help=_DESCRIPTORS_HELP
                )
            ], ()
        case _:
            return (), ()


def as_text(error: BaseException, color: bool) -> str:
    """The diagnostics of an exception as text; '' if it has none."""
    findings, sources = diagnostics(error)
    return render_all(findings, sources, color) + "\n" if findings else ""


def fault_text(outcome: Outcome, image: Image | None, color: bool) -> str:
    """The error of a run as text, with its position in the source and its backtrace."""
    error = outcome.error or {}
    span = Span(*outcome.place) if outcome.place else None
    sources = [Source(source.path, source.sha256, source.text) for source in (image.sources if image else ())]
    kind, (message, help) = FaultKind(str(error.get("kind"))), headline(error)
    text = render_all([Diagnostic(kind, message, span, "here" if span else "", help)], sources, color)
    trace = error.get("backtrace") or []
    return "\n".join([text, *(f"  {line}" for line in trace if len(trace) > 1), ""])


def of_run(error: BaseException, folder: RunFolder | None) -> BaseException:
    """The exception as a failure of a run. For a journal error, the help says how to resume the run."""
    if not isinstance(error, JournalError):
        return error
    help = None
    if folder is not None:
        help = f"recorded results are not lost; fix the cause, then: llc resume {folder.id}"
    return Failure("journal", error.message, help)


def as_error(error: BaseException, target: str) -> dict[str, Any]:
    """The `error` object of an `Outcome` for a run that this exception ended.

    target: the name or path of the program, for an invalid program without a source.
    """
    help: str | None = None
    more: dict[str, Any] = {}
    match error:
        case KeyboardInterrupt() | Interrupted():
            kind, message = "interrupt", "interrupted"
        case UserError():
            kind, message, help = error.id, error.message, error.help
        case JournalError():
            kind, message = error.id, error.message
        case CompileError():
            count = sum(diagnostic.is_error for diagnostic in error.diagnostics)
            place = error.sources[0].path if error.sources else target
            kind, message = "invalid-loop", f"{counted(count, 'error')} in {place}"
            more["diagnostics"] = [to_json(diagnostic) for diagnostic in in_order(error.diagnostics)]
        case OSError() if _is_out_of_handles(error):
            kind, message = "too-few-descriptors", f"llc cannot open a file: {reason(error)}"
            help = _DESCRIPTORS_HELP
        case _:
            kind, message = "internal", "internal error"
    return {"kind": kind, "message": message, "span": None, "help": help, **more}
