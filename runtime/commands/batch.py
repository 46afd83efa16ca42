"""The verb for many runs at once: batch."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import typer

from .. import options
from .plumbing import command, complete_loop, option, values

_TARGETS = typer.Argument(
    help="Loops by name or path, files of jobs (.jsonl), or - for jobs from standard input.",
    metavar="[LOOP|JOBS]…",
    autocompletion=complete_loop,
    show_default=False,
)


@command(
    options.BATCH,
    inspect.Parameter(
        "targets",
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[list[str] | None, _TARGETS],
    ),
    option(bool, "resume", "--resume", help="Go on with the runs that were cut off.", default=False),
    examples=("llc batch lint types tests", "llc batch jobs.jsonl --at-once 50", "llc batch --resume"),
)
def batch(given: dict[str, Any]) -> int:
    from ..execution import batching

    targets, is_resuming = given.pop("targets") or [], given.pop("resume")
    return batching.batch(values(options.BATCH, "", given), targets, is_resuming)
