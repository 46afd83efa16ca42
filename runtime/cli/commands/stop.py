"""The subcommand `stop`."""

from __future__ import annotations

from ...host.errors import EXIT_FAILURE, EXIT_OK
from ...inspection import stop as stopping
from .. import parameters as shared
from ..output import warn, write, write_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated

    import typer


def stop(
    target: Annotated[
        str | None,
        typer.Argument(
            help="A run's id, or a loop's name.", metavar="[RUN|LOOP]", autocompletion=shared.complete_run
        ),
    ] = None,
    all: Annotated[bool, typer.Option("--all", help="Stop all runs here, or of the loop.")] = False,
    wait: Annotated[
        float,
        typer.Option("--wait", metavar="SECONDS", min=0, help="Seconds to wait before the run is killed."),
    ] = 10.0,
    json: shared.Json = False,
) -> int:
    """Stop runs; they can be resumed.

    Examples:
        llc stop fix-types
        llc stop --all --wait 60
    """

    results = stopping.stop(stopping.chosen(target, all), wait)
    if json:
        write_json([one.to_json() for one in results])
    elif not results:
        write("nothing is running\n")
    else:
        write("".join(one.as_text() + "\n" for one in results if one.how != "failed"))
    failed = [one for one in results if one.how == "failed"]
    if failed and not json:
        warn("\n".join(one.as_text() for one in failed))
    return EXIT_FAILURE if failed else EXIT_OK
