"""The subcommand `list`."""

from __future__ import annotations

from ...host.errors import EXIT_OK
from ...inspection import listing, status
from ..output import write, write_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated

    from .. import typer_parameters as shared
    from ..typer_parameters import option


def list_(
    running: Annotated[bool, option("--running", "", "List unfinished runs.")] = False,
    json: shared.Json = False,
) -> int:
    """List the loops of this project, or its unfinished runs."""

    rows = status.unfinished() if running else listing.loops()
    if json:
        write_json(rows)
    else:
        write(listing.as_table(rows, running))
    return EXIT_OK
