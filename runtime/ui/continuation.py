"""Runs that the page continues: `llc resume` and `llc fork` in the background, as processes of their own.

A run in the background begins as a copy of the process that starts it, which a process with threads must
not make of itself. So the server starts the program, as a person would, and reads what it says.
"""

from __future__ import annotations

import json
import sys
from typing import Any, cast

from ...ir.diagnostics import DiagnosticId
from ..host import processes
from ..host.errors import Failure, UserError


def resume(run: str) -> dict[str, Any]:
    """Resume a run; returns once it runs. Raises UserError where it cannot be resumed."""
    return _begin("resume", run)


def fork(run: str, at: int) -> dict[str, Any]:
    """Fork a run before an effect; returns once the new run runs. Raises UserError where it cannot be."""
    return _begin("fork", run, "--at", str(at))


def _begin(*words: str) -> dict[str, Any]:
    """What the program says of the run that it has begun: `run` and `pid`."""
    # `-P`: a folder of the project that is named `llc` is not this program.
    command = [sys.executable, "-P", "-m", __package__.partition(".")[0], *words, "--background", "--json"]
    try:
        process = processes.Popen(
            command,
            stdin=processes.DEVNULL,
            stdout=processes.PIPE,
            stderr=processes.DEVNULL,
            start_new_session=True,  # Ctrl-C at the terminal ends the server, and no run
        )
    except OSError as error:
        raise Failure("not-started", f"{sys.executable} could not be started: {error.strerror}") from None
    output, _ = process.communicate()
    lines = output.splitlines() or [b""]
    try:
        said = json.loads(lines[-1])
    except ValueError:
        said = {}
    match said:
        case {"pid": int(), "run": str()} if process.returncode == 0:
            return {"run": said["run"], "pid": said["pid"]}
        case {"error": {"kind": str(kind), "message": str(message), "help": str() | None as help}}:
            raise UserError(cast(DiagnosticId, kind), message, help)
    raise Failure("not-started", f"`llc {words[0]}` ended with {process.returncode} before the run began")
