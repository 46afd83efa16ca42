"""Errors that end a command: user errors and failed system calls.

Owns the exit codes (`spec/cli.md`). A `UserError` is reported as a diagnostic, never as a traceback.
"""

from __future__ import annotations

import os.path

from . import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

    from llc.ir.diagnostics import DiagnosticId

EXIT_OK = 0
EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_LIMIT = 3
EXIT_INTERNAL = 70
EXIT_HANGUP = 129
EXIT_INTERRUPTED = 130
EXIT_PIPE = 141


class UserError(Exception):
    """Error with a diagnostic: a kebab-case `id`, a short lower-case `message`, and `help`: what to do."""

    exit_code = EXIT_USAGE

    def __init__(self, id: DiagnosticId, message: str, help: str | None = None) -> None:
        super().__init__(message)
        self.id = id
        self.message = message
        self.help = help


class Failure(UserError):
    """Failure of a valid request."""

    exit_code = EXIT_FAILURE


class KindError(Exception):
    """Internal error that the caller reports. kind: category in one word; message: a sentence."""

    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        self.message = message
        super().__init__(kind, message)


def refuse_missing_folder(path: str) -> None:
    """Raise UserError if the folder of an output file does not exist."""
    folder = os.path.dirname(path)
    if folder and not files.isdir(folder):
        raise UserError("unknown-directory", f"there is no directory `{folder}`")


def refuse_transient(error: OSError, path: str) -> None:
    """Raise Failure for an error that is independent of the file at `path`, such as too many open files."""
    if error.errno in files.TRANSIENT:
        raise Failure("cannot-read", f"cannot read {path}: {reason(error)}") from None


def reason(error: OSError) -> str:
    """Return the system's reason for an error, such as `no space left on device`."""
    text = error.strerror or str(error) or type(error).__name__
    return text[:1].lower() + text[1:]


# --- texts of errors ----------------------------------------------------------------------------


def _diagnostics() -> ModuleType:
    # Imported here, because diagnostics import attrs, which only an error needs.
    from ...ir import diagnostics

    return diagnostics


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate that is most similar to `name`, or None."""
    candidate: str | None = _diagnostics().nearest(name, candidates)
    return candidate


def suggest(name: str, candidates: Iterable[str], what: str = "known names") -> str | None:
    """Return the help for an unknown name: the nearest candidate, or else a bounded list of all."""
    help: str | None = _diagnostics().suggest(name, candidates, what)
    return help


def clean(text: str, limit: int = 1000) -> str:
    """Remove control characters from untrusted text and limit its length."""
    cleaned: str = _diagnostics().clean(text, limit)
    return cleaned
