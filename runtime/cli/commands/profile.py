"""The subcommand `profile`."""

from __future__ import annotations

import sys

from ...host.errors import EXIT_OK, refuse_missing_folder
from ...host.screen import Screen
from ...inspection import profile_report
from ..output import write, write_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .. import typer_parameters as shared


def profile(run: shared.Run, json: shared.Json = False, flame: shared.Flame = None) -> int:
    """Show the time profile of a run.

    Examples:
        llc profile fix-types
        llc profile fix-types --flame fix-types.json
    """

    if flame:
        refuse_missing_folder(flame)
    found = profile_report.of_run(run)
    if flame:
        profile_report.write_flame(found, flame)
    if json:
        write_json(profile_report.as_json(found))
    else:
        write(profile_report.as_text(found, Screen(sys.stdout)))
    return EXIT_OK
