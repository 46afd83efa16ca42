"""The subcommand `stop`."""

from __future__ import annotations

from ...host.errors import EXIT_FAILURE, EXIT_OK, UserError
from ...inspection import stop as stopping
from .. import parameters as cli
from .. import subcommands
from ..output import warn, write, write_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated


def stop(
    target: Annotated[
        cli.Text, cli.argument("[RUN|LOOP]", "A run's id, or a loop's name.", cli.complete_run)
    ] = None,
    all: Annotated[bool, cli.option("--all", "", "Stop all runs of the project, or of the loop.")] = False,
    wait: Annotated[
        float, cli.option("--wait", "SECONDS", "Seconds to wait before the run is killed.", least=0)
    ] = 10.0,
    db: cli.RunsDatabase = None,
    json: cli.Json = False,
) -> int:
    """Stop runs; they can be resumed.

    Examples:
        llc stop fix-types
        llc stop --all --wait 60
    """

    if db is not None:
        if target is None and not all:
            raise UserError("bad-option", "no run or loop is given", "name one, or use --all")
        rows, code = subcommands.load_runtime("database.requests:stop")(db, target, wait, all)
        if json:
            write_json(rows)
        else:
            write("".join(f"{row['run']}: {row['how']}\n" for row in rows) or "nothing is running\n")
        return int(code)
    results = stopping.stop(stopping.select_runs(target, all), wait)
    if json:
        write_json([result.to_json() for result in results])
    elif not results:
        write("nothing is running\n")
    else:
        write("".join(result.as_text() + "\n" for result in results if result.how != "failed"))
    failed = [result for result in results if result.how == "failed"]
    if failed and not json:
        warn("\n".join(result.as_text() for result in failed))
    return EXIT_FAILURE if failed else EXIT_OK
