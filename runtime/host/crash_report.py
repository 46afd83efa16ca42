"""Crash reports: the traceback of an internal error in a file, and the message for the user.

An internal error is a bug in llc, so the message asks the user to report the bug with the file.
"""

from __future__ import annotations

import sys

from . import files
from .secrets import masked


def keep_report(error: Exception) -> tuple[str, str]:
    """Write the traceback to a temporary file; return the message and the help for the user."""
    import traceback

    lines = traceback.format_exception(error)
    try:
        fd, path = files.mkstemp(prefix="llc-crash-", suffix=".txt")
        with files.open(fd, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(masked(f"{' '.join(sys.argv)}\n\n{''.join(lines)}"))
        where = f"please report it with the file {path}"
    except OSError:
        where = "please report it: " + " | ".join(line.strip() for line in lines[-3:])
    summary = " ".join(traceback.format_exception_only(error)[-1].split())[:300]
    return masked(f"internal error: {summary}"), masked(where)
