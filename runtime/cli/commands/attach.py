"""The subcommand `attach`."""

from __future__ import annotations

from functools import partial

from ...inspection import attach as attaching
from ...runs.lookup import find_run_folder
from .. import parameters as cli
from .. import subcommands

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated


def attach(
    target: Annotated[str, cli.argument("RUN|LOOP", "A run's id, or a loop's name.", cli.complete_run)],
    stop: Annotated[bool, cli.option("--stop", "", "Ctrl-C stops the run, as in the foreground.")] = False,
    verbose: Annotated[bool, cli.option("--verbose -v", "", "Show more, as in `run --verbose`.")] = False,
    db: cli.RunsDatabase = None,
) -> int:
    """Show the progress of an active run, as in the foreground.

    Examples:
        llc attach fix-types
        llc attach fix-types --stop
    """

    ask = partial(subcommands.load_runtime("database.requests:request_stop"), db) if db is not None else None
    return attaching.attach(find_run_folder(target), stop, verbose, ask)
