"""Signal handlers for the time before a run has started.

Nothing has been performed, so the process exits at once, with the exit code and the JSON object of an
interrupted run. `stop_signals` replaces these handlers. They do not raise an exception, because an exception
in the middle of an import would print a traceback.
"""

from __future__ import annotations

import sys

from ..host import files, processes, signals
from ..host.errors import EXIT_INTERRUPTED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

STOPPING = (signals.SIGINT, signals.SIGTERM, signals.SIGHUP)

MESSAGE = "interrupted; nothing was performed"
# The result of `Outcome.to_json`, written out because the module of `Outcome` may be half imported.
_JSON_OUTCOME = (
    b'{"run": null, "program": null, "status": "interrupted", "terminated_by": "interrupt", '
    b'"final_state": null, "iterations": 0, "steps": 0, "value": null, "error": {"kind": "interrupt", '
    b'"message": "interrupted", "span": null, "help": null}, "duration_ms": 0}\n'
)


def leave(number: int, frame: FrameType | None) -> None:
    """Signal handler: report the interrupt and exit."""
    try:
        files.write(2, MESSAGE.encode() + b"\n")
        if "--json" in sys.argv and "batch" not in sys.argv[:2]:  # `batch` writes an object per started run
            files.write(1, _JSON_OUTCOME)
    except OSError:
        pass  # no reader
    processes.exit_now(EXIT_INTERRUPTED)


def install() -> None:
    """Install the handlers, except for signals that are ignored or have another handler."""
    for number in STOPPING:
        if signals.getsignal(number) in (signals.SIG_DFL, signals.default_int_handler):
            signals.signal(number, leave)
