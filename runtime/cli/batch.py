"""The verb for many runs at once: batch."""

from __future__ import annotations

from ..project import options
from ..project.options import FLAG, Option, values
from .declare import ANY, Argument, command, complete_loop

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


@command(
    options.BATCH,
    Argument(
        "targets",
        ANY,
        "Loops by name or path, files of jobs (.jsonl), or - for jobs from standard input.",
        "[LOOP|JOBS]…",
        complete_loop,
    ),
    Option("resume", "--resume", FLAG, "Go on with the runs that were cut off."),
    examples=("llc batch lint types tests", "llc batch jobs.jsonl --at-once 50", "llc batch --resume"),
)
def batch(given: dict[str, Any]) -> int:
    from ..launch import batch_command

    targets, is_resuming = given.pop("targets") or [], given.pop("resume")
    return batch_command.batch(values(options.BATCH, "", given), targets, is_resuming)
