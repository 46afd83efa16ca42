"""The subcommand `import`."""

from __future__ import annotations

import sys
from typing import Annotated

from ...authoring import imported_files
from ...authoring.formatted_files import difference
from ...host.errors import UserError
from ...host.screen import Screen
from .. import parameters as cli
from ..output import write_data, write_json


def import_(
    files: Annotated[
        cli.Texts, cli.argument("FILE…", "Loops of little-loops, their libraries, or folders of them.")
    ],
    output: Annotated[
        cli.Text, cli.option("--output -o", "DIR", "Write the files to this folder; replace no file in it.")
    ] = None,
    in_place: Annotated[bool, cli.option("--in-place -i", "", "Replace the files.")] = False,
    check: Annotated[
        bool, cli.option("--check", "", "Write nothing; exit with 1 if a file would change.")
    ] = False,
    diff: Annotated[bool, cli.option("--diff", "", "Write nothing; print the changes.")] = False,
    json: cli.Json = False,
) -> int:
    """Convert loops of little-loops to the keys of llc."""

    if output is not None and in_place:
        raise UserError("usage", "--output and --in-place exclude each other", "use one of them")
    results = imported_files.convert_all(files or [])
    is_dry_run = check or diff or not (output is not None or in_place)
    if is_dry_run and len(results) > 1 and not (check or diff or json):
        raise UserError(
            "usage", "several files cannot be written to standard output", "add -o DIR or --in-place"
        )
    if not is_dry_run:
        imported_files.write_all(results, output)
    if json:
        write_json(imported_files.as_json(results))
        return imported_files.exit_code(results, check)
    if diff:
        write_data("".join(difference(file) for file in results if not file.is_refused))
    elif is_dry_run and not check:
        write_data("".join(file.result for file in results if not file.is_refused))
    screen = Screen(sys.stderr)
    verb = "would change" if is_dry_run else "rewritten"
    screen.write(imported_files.as_text(results, verb, screen.color))
    return imported_files.exit_code(results, check)
