"""The subcommand `replay`."""

from __future__ import annotations

import sys
from typing import Annotated

from ...host.errors import EXIT_FAILURE, EXIT_OK
from ...host.screen import Screen
from ...recordings import replay_command
from .. import parameters as cli
from ..output import warn, write, write_json


def replay(
    run: cli.RunOrCase,
    against: Annotated[
        cli.Text,
        cli.option(
            "--against",
            "LOOP",
            "Replay the results with this program; report where it differs.",
            complete=cli.complete_loop,
        ),
    ] = None,
    db: cli.RunsDatabase = None,
    json: cli.Json = False,
) -> int:
    """Replay a recorded run without executing anything; report differences.

    Examples:
        llc replay fix-types
        llc replay fix-types --against edited.yaml
    """
    result = replay_command.replay(run, against)
    if result.left_out:
        warn(f"note: {result.left_out}")
    if json:
        write_json(result.to_json())
    else:
        write(result.as_text(Screen(sys.stdout).color))
    return EXIT_OK if result.is_identical else EXIT_FAILURE
