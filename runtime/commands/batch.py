"""The verb for many runs at once: batch."""

from __future__ import annotations

from .. import options
from ..options import FLAG, Option, values
from .declaring import ANY, Argument, command, complete_loop

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
    from ..execution import batching

    targets, is_resuming = given.pop("targets") or [], given.pop("resume")
    return batching.batch(values(options.BATCH, "", given), targets, is_resuming)
