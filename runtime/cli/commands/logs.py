"""The subcommand `logs`."""

from __future__ import annotations

from ...inspection import logs as telling
from ...runs.lookup import find_run_folder
from .. import parameters as cli
from ..output import write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated


def logs(
    target: Annotated[
        str, cli.argument("RUN|LOOP", "A run's id, or a loop's name for its last run.", cli.complete_any_run)
    ],
    follow: Annotated[
        bool, cli.option("--follow -f", "", "Continue with new events until the run ends.")
    ] = False,
    last: Annotated[cli.Count, cli.option("-n", "N", "Only the last N events.", least=0)] = None,
    verbose: Annotated[bool, cli.option("--verbose -v", "", "Show each output in full.")] = False,
    db: cli.RunsDatabase = None,
    json: Annotated[bool, cli.option("--json", "", "Write the events as JSON, one per line.")] = False,
) -> int:
    """Show the events of a run.

    Examples:
        llc logs fix-types
        llc logs fix-types -f -n 20
        llc logs fix-types --json | jq .event
    """

    return telling.show(find_run_folder(target), follow, json, verbose, last, write)
