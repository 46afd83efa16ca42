"""The subcommand `diff`."""

from __future__ import annotations

from ...host.errors import EXIT_OK, UserError
from ...inspection import file_changes
from ...runs.lookup import find_run_folder
from ..output import write_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated

    from .. import typer_parameters as shared
    from ..typer_parameters import Text, argument, complete_any_run, complete_step, option


def diff(
    target: Annotated[
        Text,
        argument(
            "[RUN|LOOP]",
            "A run's id or folder, or a loop's name for its last run; absent: the last run.",
            complete_any_run,
        ),
    ] = None,
    step: Annotated[
        Text, argument("[STEP]", "Only this step: an effect's number, iN or a state.", complete_step)
    ] = None,
    stat: Annotated[bool, option("--stat", "", "Only the number of changed lines per file.")] = False,
    name_only: Annotated[bool, option("--name-only", "", "Only the names of changed files.")] = False,
    json: shared.Json = False,
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
