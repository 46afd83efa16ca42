"""Errors that end a command: mistakes of the user, and calls that the operating system refused.

Owns the exit codes (`spec/cli.md`). A `UserError` is shown as a diagnostic, never as a traceback.
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
    """A diagnostic: a short lower-case `message`, an `id` in kebab-case, and in `help` what to do."""

    exit_code = EXIT_USAGE

    def __init__(self, id: DiagnosticId, message: str, help: str | None = None) -> None:
        super().__init__(message)
        self.id = id
        self.message = message
        self.help = help


class Failure(UserError):
    """A request that is understood and cannot be met."""

    exit_code = EXIT_FAILURE


class KindError(Exception):
    """An error of a part of llc, which its caller reports: a word for what it is, and a sentence."""

    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        self.message = message
        super().__init__(kind, message)


def refuse_missing_folder(path: str) -> None:
    """Raise UserError if the folder of a file that is to be written does not exist."""
    folder = os.path.dirname(path)
    if folder and not files.isdir(folder):
        raise UserError("unknown-directory", f"there is no directory `{folder}`")


def refuse_transient(error: OSError, path: str) -> None:
    """Raise Failure for an error that says nothing of what is at `path`, such as too many open files."""
    if error.errno in files.TRANSIENT:
        raise Failure("cannot-read", f"cannot read {path}: {reason(error)}") from None


def reason(error: OSError) -> str:
    """The system's reason for an error: `no space left on device`."""
    text = error.strerror or str(error) or type(error).__name__
    return text[:1].lower() + text[1:]


# --- texts of errors ----------------------------------------------------------------------------


def _diagnostics() -> ModuleType:
    # Diagnostics load attrs, which only an error needs.
    from ...ir import diagnostics

    return diagnostics


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate that was most likely meant by `name`, or None."""
    found: str | None = _diagnostics().nearest(name, candidates)
    return found


def suggest(name: str, candidates: Iterable[str], what: str = "known names") -> str | None:
    """The help line for an unknown name: the nearest candidate, else a bounded list of all."""
    found: str | None = _diagnostics().suggest(name, candidates, what)
    return found


def clean(text: str, limit: int = 1000) -> str:
    """Text of unknown origin without control characters, of limited length."""
    found: str = _diagnostics().clean(text, limit)
    return found
