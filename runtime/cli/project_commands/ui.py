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
from .. import subcommands
from ..output import warn, write


def ui(
    port: Annotated[
        cli.Count,
        cli.option("--port", "N", "The port to listen on (default: a free one).", least=1, most=65535),
    ] = None,
    open_: Annotated[bool, cli.option("--open", "", "Open the page in a browser.")] = False,
    read_only: Annotated[
        bool, cli.option("--read-only", "", "Only show runs: refuse answers, stops, resumes and forks.")
    ] = False,
    db: cli.RunsDatabase = None,
) -> int:
    """Show the runs of this project in a browser; Ctrl-C ends the server.

    The page shows runs, answers questions, and stops, resumes and forks runs. Only this computer can
    open it, at an address with a secret token.

    Examples:
        llc ui
        llc ui --open
        llc ui --port 8020
        llc ui --read-only
    """
    redirect_file = ""

    def on_ready(address: str) -> None:
        nonlocal redirect_file
        write(f"{address}\n")
        sys.stdout.flush()
        if open_:
            # Other users can see the arguments of a process, so the browser reads the token from a file.
            handle, redirect_file = files.mkstemp(".html", "llc-ui-")
            with files.open(handle, "w") as file:
                file.write(f'<!doctype html><meta http-equiv="refresh" content="0; url={address}">\n')
            try:
                subcommands.load_runtime("report.commands:open_page")(redirect_file)
            except UserError as error:
                warn(f"warning: {error.message}; open the address in a browser")

    requests = None
    if db is not None:
        functions = (
            partial(subcommands.load_runtime(f"database.requests:{name}"), db)
            for name in ("request_stop", "resume")
        )
        requests = Requests(*functions)
    try:
        server.serve(port or 0, on_ready, requests, read_only)
    finally:
        with contextlib.suppress(OSError):
            files.unlink(redirect_file)
    return EXIT_OK
