"""The subcommand `stop`."""

from __future__ import annotations

from ...host.errors import EXIT_FAILURE, EXIT_OK, UserError
from ...inspection import stop as stopping
from .. import parameters as cli
from .. import verbs
from ..output import warn, write, write_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated


def stop(
    target: Annotated[
        cli.Text, cli.argument("[RUN|LOOP]", "A run's id, or a loop's name.", cli.complete_run)
    ] = None,
    all: Annotated[bool, cli.option("--all", "", "Stop all runs here, or of the loop.")] = False,
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
        told, code = verbs.load("database.requests:stop", 2)(db, target, wait, all)
        if json:
            write_json(told)
        else:
            write("".join(f"{one['run']}: {one['how']}\n" for one in told) or "nothing is running\n")
        return int(code)
    results = stopping.stop(stopping.select_runs(target, all), wait)
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
