"""The subcommand `status`."""

from __future__ import annotations

import sys

from ...host.errors import EXIT_OK, UserError
from ...host.screen import Screen
from ...inspection import status as look
from ...runs.follower import damage_notes
from ...runs.runs import HOW_TO_BEGIN
from .. import parameters as cli
from ..output import write, write_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated


def status(
    target: Annotated[
        cli.Text,
        cli.argument(
            "[RUN|LOOP]",
            "A run's id, or a loop's name; by default all unfinished runs.",
            cli.complete_any_run,
        ),
    ] = None,
    watch: Annotated[bool, cli.option("--watch -w", "", "Update until the run ends.")] = False,
    db: cli.RunsDatabase = None,
    json: cli.Json = False,
) -> int:
    """Show the state and progress of a run.

    Examples:
        llc status
        llc status fix-types --watch
        llc status fix-types --json
    """

    runs = look.select_runs(target)
    if watch and len(runs) == 1:
        return look.watch(runs[0], json, write)
    if watch and runs:
        raise UserError(
            "several-runs", f"--watch shows only one run, and there are {len(runs)}", "name one of them"
        )
    rows = [look.of(run) for run in runs]
    if json:
        write_json(rows[0] if target is not None and len(rows) == 1 else rows)
    elif not rows:
        write(f"no run is unfinished; {HOW_TO_BEGIN}, and see `llc history` for those that ended\n")
    else:
        screen = Screen(sys.stdout)
        width = screen.width - 1 if screen.is_live else 200
        write("\n".join(look.as_text(row, screen, width) for row in rows))
    for run in runs:
        Screen(sys.stderr).write(damage_notes(run.journal))
    return EXIT_OK
