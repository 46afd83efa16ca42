"""The subcommand `history`."""

from __future__ import annotations

import sys

from ...host.errors import EXIT_OK
from ...host.screen import Screen
from ...inspection import history as past
from ..output import write, write_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated

    from .. import typer_parameters as shared
    from ..typer_parameters import Text, argument, complete_any_run, option


def history(
    target: Annotated[
        Text,
        argument(
            "[RUN|LOOP]", "A loop's name, or a run's id; by default all finished runs.", complete_any_run
        ),
    ] = None,
    count: Annotated[int, option("-n", "N", "Only the last N runs.", least=1)] = 20,
    json: shared.Json = False,
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
