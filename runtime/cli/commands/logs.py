"""The subcommand `logs`."""

from __future__ import annotations

from ...inspection import logs as telling
from ...runs.lookup import find_run_folder
from ..output import write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated

    from ..typer_parameters import Count, argument, complete_any_run, option


def logs(
    target: Annotated[
        str, argument("RUN|LOOP", "A run's id, or a loop's name for its last run.", complete_any_run)
    ],
    follow: Annotated[
        bool, option("--follow -f", "", "Continue with new events until the run ends.")
    ] = False,
    last: Annotated[Count, option("-n", "N", "Only the last N events.", least=0)] = None,
    verbose: Annotated[bool, option("--verbose -v", "", "Show the whole of each output.")] = False,
    json: Annotated[bool, option("--json", "", "Write the events as JSON, one per line.")] = False,
) -> int:
    """Show the events of a run.

    Examples:
        llc logs fix-types
        llc logs fix-types -f -n 20
        llc logs fix-types --json | jq .event
    """

    return telling.show(find_run_folder(target), follow, json, verbose, last, write)
