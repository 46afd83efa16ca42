"""The subcommand `list`."""

from __future__ import annotations

from typing import Annotated

from ...host.errors import EXIT_OK
from ...inspection import listing, status
from .. import parameters as cli
from ..output import write, write_json


def list_(
    running: Annotated[bool, cli.option("--running", "", "List unfinished runs.")] = False,
    db: cli.RunsDatabase = None,
    json: cli.Json = False,
) -> int:
    """List the loops of this project, or its unfinished runs."""

    rows = status.unfinished() if running else listing.loops()
    if json:
        write_json(rows)
    else:
        write(listing.as_table(rows, running))
    return EXIT_OK
