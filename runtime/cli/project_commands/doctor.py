"""The subcommand `doctor`."""

from __future__ import annotations

import sys
from typing import Annotated

from ...host.errors import EXIT_FAILURE, EXIT_OK
from ...host.screen import Screen
from ...launch import doctor as examination
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
    """Check what loops need: agents, logins, keys, programs. Nothing is run or paid for.

    Examples:
        llc doctor
        llc doctor fix-types --json
    """

    found = examination.checks(loops or [])
    if json:
        write_json(examination.as_json(found))
    else:
        write(examination.as_text(found, Screen(sys.stdout)))
    return EXIT_FAILURE if examination.has_failed(found) else EXIT_OK
