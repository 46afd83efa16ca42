"""The subcommand `history`."""

from __future__ import annotations

import sys

from ...host.errors import EXIT_OK
from ...host.screen import Screen
from ...inspection import history as past
from .. import parameters as cli
from ..output import write, write_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated


def history(
    target: Annotated[
        cli.Text,
        cli.argument(
            "[RUN|LOOP]", "A loop's name, or a run's id; by default all finished runs.", cli.complete_any_run
        ),
    ] = None,
    count: Annotated[int, cli.option("-n", "N", "Only the last N runs.", least=1)] = 20,
    db: cli.RunsDatabase = None,
    json: cli.Json = False,
) -> int:
    """Show finished runs with totals.

    Examples:
        llc history
        llc history fix-types -n 100
        llc history fix-types --json
    """

    told = past.look(target, count)
    if json:
        write_json(told)
    else:
        write(past.as_text(told, target, Screen(sys.stdout)))
    return EXIT_OK
