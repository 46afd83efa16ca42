"""The subcommand `ui`."""

from __future__ import annotations

import contextlib
import sys
from functools import partial
from typing import Annotated

from ...host import files
from ...host.errors import EXIT_OK, UserError
from ...ui import server
from ...ui.project_view import Requests
from .. import parameters as cli
from .. import verbs
from ..output import warn, write


def ui(
    port: Annotated[
        cli.Count,
        cli.option("--port", "N", "The port to listen on (default: a free one).", least=1, most=65535),
    ] = None,
    open_: Annotated[bool, cli.option("--open", "", "Open the page in a browser.")] = False,
    read_only: Annotated[
        bool, cli.option("--read-only", "", "Only show: no answers, and no run is stopped or started.")
    ] = False,
    db: cli.RunsDatabase = None,
) -> int:
    """Show the runs of this project in a browser; Ctrl-C ends it.

    The page shows what is running, answers questions, and stops, resumes and forks runs. It is
    served to this computer only, at an address with a secret token.

    Examples:
        llc ui
        llc ui --open
        llc ui --port 8020
        llc ui --read-only
    """
    entrance = ""

    def ready(address: str) -> None:
        nonlocal entrance
        write(f"{address}\n")
        sys.stdout.flush()
        if open_:
            # The words of a command are visible to other users, so the browser gets the token from a file.
            handle, entrance = files.mkstemp(".html", "llc-ui-")
            with files.open(handle, "w") as file:
                file.write(f'<!doctype html><meta http-equiv="refresh" content="0; url={address}">\n')
            try:
                verbs.load("report.commands:open_page", 2)(entrance)
            except UserError as error:
                warn(f"warning: {error.message}; open the address yourself")

    requests = None
    if db is not None:
        asked = (
            partial(verbs.load(f"database.requests:{name}", 2), db) for name in ("request_stop", "resume")
        )
        requests = Requests(*asked)
    try:
        server.serve(port or 0, ready, requests, read_only)
    finally:
        with contextlib.suppress(OSError):
            files.unlink(entrance)
    return EXIT_OK
