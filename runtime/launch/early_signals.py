"""Signal handlers before a run has started: nothing was performed, so the process exits at once.

They are active until `stop_signals` takes over, and exit with the code and the JSON object of an
interrupted run.
An exception would not do: it could be raised in the middle of an import and leave a traceback.
"""

from __future__ import annotations

import sys

from ..host import files, processes, signals
from ..host.errors import EXIT_INTERRUPTED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

STOPPING = (signals.SIGINT, signals.SIGTERM, signals.SIGHUP)

SAID = "interrupted; nothing was performed"
# As `Outcome.to_json`, which cannot be asked: it may just be imported.
_ANSWER = (
    b'{"run": null, "program": null, "status": "interrupted", "terminated_by": "interrupt", '
    b'"final_state": null, "iterations": 0, "steps": 0, "value": null, "error": {"kind": "interrupt", '
    b'"message": "interrupted", "span": null, "help": null}, "duration_ms": 0}\n'
)


def leave(number: int, frame: FrameType | None) -> None:
    """The handler."""
    try:
        files.write(2, SAID.encode() + b"\n")
        if "--json" in sys.argv and "batch" not in sys.argv[:2]:  # that answers for each run that began
            files.write(1, _ANSWER)
    except OSError:
        pass  # no reader
    processes.exit_now(EXIT_INTERRUPTED)


def take() -> None:
    """End so from now on, but for signals that are ignored or handled already."""
    for number in STOPPING:
        if signals.getsignal(number) in (signals.SIG_DFL, signals.default_int_handler):
            signals.signal(number, leave)
