"""Resume and fork from the page: starts `llc resume` and `llc fork` in the background, as separate processes.

A background run starts with a fork of the process, which is unsafe in a process with threads. The server
therefore executes the program and reads its JSON output.
"""

from __future__ import annotations

import json
import sys
from typing import Any, cast

from ...ir.diagnostics import DiagnosticId
from ..host import processes
from ..host.errors import Failure, UserError


def resume(run: str) -> dict[str, Any]:
    """Resume a run; return its id and pid when it is running. Raises UserError."""
    return _start("resume", run)


def fork(run: str, at: int) -> dict[str, Any]:
    """Fork a run before effect `at`; return id and pid of the new run when it runs. Raises UserError."""
    return _start("fork", run, "--at", str(at))


def _start(*words: str) -> dict[str, Any]:
    """Execute `llc` with these words; return `run` and `pid` of the run that it has started."""
    # `-P`: do not import a folder `llc` of the project instead of this package.
    command = [sys.executable, "-P", "-m", __package__.partition(".")[0], *words, "--background", "--json"]
    try:
        process = processes.Popen(
            command,
            stdin=processes.DEVNULL,
            stdout=processes.PIPE,
            stderr=processes.DEVNULL,
            start_new_session=True,  # Ctrl-C at the terminal must end only the server
        )
    except OSError as error:
        raise Failure("not-started", f"{sys.executable} could not be started: {error.strerror}") from None
    output, _ = process.communicate()
    lines = output.splitlines() or [b""]
    try:
        result = json.loads(lines[-1])
    except ValueError:
        result = {}
    match result:
        case {"pid": int(), "run": str()} if process.returncode == 0:
            return {"run": result["run"], "pid": result["pid"]}
        case {"error": {"kind": str(kind), "message": str(message), "help": str() | None as help}}:
            raise UserError(cast(DiagnosticId, kind), message, help)
    raise Failure("not-started", f"`llc {words[0]}` exited with {process.returncode} before the run started")
