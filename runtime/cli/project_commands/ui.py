"""The subcommand `ui`."""

from __future__ import annotations

import sys
from functools import partial
from typing import Annotated

from ...host.errors import EXIT_OK
from ...ui import server
from .. import parameters as cli
from .. import verbs
from ..output import write


def ui(
    port: Annotated[
        cli.Count,
        cli.option("--port", "N", "The port to listen on (default: a free one).", least=1, most=65535),
    ] = None,
    db: cli.RunsDatabase = None,
) -> int:
    """Show the runs of this project in a browser; Ctrl-C ends it.

    The page shows what is running, answers questions and stops runs. It is served to this
    computer only, at an address with a secret token.

    Examples:
        llc ui
        llc ui --port 8020
    """

    def ready(address: str) -> None:
        write(f"{address}\n")
        sys.stdout.flush()

    stop = partial(verbs.load("database.requests:ask_to_stop", 2), db) if db is not None else None
    server.serve(port or 0, ready, stop)
    return EXIT_OK
