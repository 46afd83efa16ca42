"""The subcommand `logs`."""

from __future__ import annotations

from ...inspection import logs as telling
from ...runs.lookup import find_run_folder
from .. import parameters as shared
from ..output import write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated

    import typer


def logs(
    target: Annotated[
        str,
        typer.Argument(
            help="A run's id, or a loop's name for its last run.",
            metavar="RUN|LOOP",
            autocompletion=shared.complete_any_run,
        ),
    ],
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Continue with new events until the run ends.")
    ] = False,
    last: Annotated[
        int | None, typer.Option("-n", metavar="N", min=0, help="Only the last N events.")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the whole of each output.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Write the events as JSON, one per line.")] = False,
) -> int:
    """Show the events of a run.

    Examples:
        llc logs fix-types
        llc logs fix-types -f -n 20
        llc logs fix-types --json | jq .event
    """

    return telling.show(find_run_folder(target), follow, json, verbose, last, write)
