"""The subcommand `diff`."""

from __future__ import annotations

from typing import Annotated

from ...host.errors import EXIT_OK, UserError
from ...inspection import file_changes
from ...runs.lookup import find_run_folder
from .. import parameters as cli
from ..output import write_json


def diff(
    target: Annotated[
        cli.Text,
        cli.argument(
            "[RUN|LOOP]",
            "A run's id or folder, or a loop's name for its last run; default: the last run.",
            cli.complete_any_run,
        ),
    ] = None,
    step: Annotated[
        cli.Text,
        cli.argument("[STEP]", "Only this step: an effect's number, iN or a state.", cli.complete_step),
    ] = None,
    stat: Annotated[bool, cli.option("--stat", "", "Only the number of changed lines per file.")] = False,
    name_only: Annotated[bool, cli.option("--name-only", "", "Only the names of changed files.")] = False,
    db: cli.RunsDatabase = None,
    json: cli.Json = False,
) -> int:
    """Show the files that a run changed.

    Examples:
        llc diff
        llc diff fix-types --stat
        llc diff fix-types fix
        llc diff fix-types 12 | git apply -R
    """
    if stat + name_only + json > 1:
        raise UserError("bad-option", "--stat, --name-only and --json exclude each other")
    run = file_changes.last_run() if target is None else find_run_folder(target)
    changes = file_changes.Changes(run, step)
    try:
        if json:
            write_json(changes.to_json())
            return EXIT_OK
        return file_changes.show(changes, "stat" if stat else "names" if name_only else "patch")
    finally:
        changes.close()
