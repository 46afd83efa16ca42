"""The subcommand `trace`."""

from __future__ import annotations

import sys
from typing import Annotated

from ...host.errors import EXIT_OK, UserError
from ...host.screen import Screen
from ...journal.codec import json_text
from ...recordings import replay_command, trace_text
from ...recordings.recording import bounded
from ...recordings.timeline import Timeline
from .. import parameters as cli
from ..output import warn, write


def trace(
    run: cli.RunOrCase,
    at: Annotated[
        cli.Text, cli.option("--at", "N", "Only this point: an effect's number, iN or a state.")
    ] = None,
    db: cli.RunsDatabase = None,
    json: cli.Json = False,
) -> int:
    """Step through a run, forwards and backwards.

    Examples:
        llc trace fix-types
        llc trace fix-types --at 12
        llc trace fix-types --json | jq .state
    """
    timeline = replay_command.load_around(run, at) if at is not None else None
    recording, image = replay_command.load(run) if timeline is None else (timeline.recording, timeline.image)
    if recording.left_out:
        warn(f"note: {recording.left_out}")
    with bounded(recording.about):
        timeline = timeline or Timeline(recording, image)
        number = None
        if at is not None:
            number = timeline.find_place(at)
            if number is None:
                raise UserError(
                    "no-such-point",
                    f"there is no effect, iteration or state `{at}` in {recording.name}",
                    f"it has {len(recording.asked_at)} effects; `i3` is the third iteration",
                )
        is_live = Screen(sys.stdout).is_live and sys.stdin is not None and sys.stdin.isatty()
        if json or number is not None or not is_live:
            for point in (timeline.at(number),) if number is not None else timeline:
                if json:
                    write(json_text(point.to_json()) + "\n")
                else:
                    write(trace_text.as_text(point, timeline) + "\n" * (number is None))
        else:
            from ...recordings.trace_tui import TraceView

            TraceView(timeline).run()
    return EXIT_OK
