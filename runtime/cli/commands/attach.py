"""The subcommand `attach`."""

from __future__ import annotations

from ...inspection import attach as attaching
from ...runs.lookup import find_run_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated

    from ..typer_parameters import argument, complete_run, option


def attach(
    target: Annotated[str, argument("RUN|LOOP", "A run's id, or a loop's name.", complete_run)],
    stop: Annotated[
        bool, option("--stop", "", "Let Ctrl-C stop the run, as if it had been started here.")
    ] = False,
    verbose: Annotated[bool, option("--verbose -v", "", "Show more, as `run` does.")] = False,
) -> int:
    """Show the progress of an active run, as if it had been started here.

    Examples:
        llc attach fix-types
        llc attach fix-types --stop
    """

    return attaching.attach(find_run_folder(target), stop, verbose)
