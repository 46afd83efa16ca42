"""The subcommand `profile`."""

from __future__ import annotations

import sys

from ...host.errors import EXIT_OK, refuse_missing_folder
from ...host.screen import Screen
from ...inspection import profile_report
from .. import parameters as cli
from ..output import write, write_json


def profile(
    run: cli.Run, db: cli.RunsDatabase = None, json: cli.Json = False, flame: cli.Flame = None
) -> int:
    """Show the time profile of a run.

    Examples:
        llc profile fix-types
        llc profile fix-types --flame fix-types.json
    """

    if flame:
        refuse_missing_folder(flame)
    data = profile_report.of_run(run)
    if flame:
        profile_report.write_flame(data, flame)
    if json:
        write_json(profile_report.as_json(data))
    else:
        write(profile_report.as_text(data, Screen(sys.stdout)))
    return EXIT_OK
