"""Reports of internal errors: the traceback in a file, and what to show of it.

An internal error is a bug in llc, so the report asks the user to pass the file on.
"""

from __future__ import annotations

import sys

from . import files
from .secrets import masked


def keep_report(error: Exception) -> tuple[str, str]:
    """Write the traceback to a temporary file; the message and the help to show."""
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
