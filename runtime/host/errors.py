"""Errors that end a command: mistakes of the user, and calls that the operating system refused.

Owns the exit codes (`spec/cli.md`). A `UserError` is shown as a diagnostic, never as a traceback.
"""

from __future__ import annotations

import os.path

from . import files

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

    def __init__(self, id: str, message: str, help: str | None = None, exit_code: int = EXIT_USAGE) -> None:
        super().__init__(message)
        self.id = id
        self.message = message
        self.help = help
        self.exit_code = exit_code


def refuse_missing_folder(path: str) -> None:
    """Raise UserError if the folder of a file that is to be written does not exist."""
    folder = os.path.dirname(path)
    if folder and not files.isdir(folder):
        raise UserError("unknown-directory", f"there is no directory `{folder}`")


def reason(error: OSError) -> str:
    """The system's reason for an error: `no space left on device`."""
    text = error.strerror or str(error) or type(error).__name__
    return text[:1].lower() + text[1:]
