"""The subcommand `doctor`."""

from __future__ import annotations

import sys
from typing import Annotated

from ...host.errors import EXIT_FAILURE, EXIT_OK
from ...host.screen import Screen
from ...launch import doctor as checks
from .. import parameters as cli
from ..output import write, write_json


def doctor(
    loops: Annotated[
        cli.Texts,
        cli.argument(
            "[LOOP]…",
            "Loops by name or path; by default the installation and all loops of .loops/.",
            cli.complete_loop,
        ),
    ] = None,
    json: cli.Json = False,
) -> int:
    """Check the agents, logins, keys and programs that loops need; run nothing.

    Examples:
        llc doctor
        llc doctor fix-types --json
    """

    groups = checks.checks(loops or [])
    if json:
        write_json(checks.as_json(groups))
    else:
        write(checks.as_text(groups, Screen(sys.stdout)))
    return EXIT_FAILURE if checks.has_failed(groups) else EXIT_OK
