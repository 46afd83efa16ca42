"""The subcommand `import`."""

from __future__ import annotations

import sys
from typing import Annotated

from ...authoring import import_files
from ...authoring.format_files import difference
from ...host.errors import UserError
from ...host.screen import Screen
from .. import parameters as cli
from ..output import write_data, write_json


def import_(
    files: Annotated[
        cli.Texts, cli.argument("FILE…", "Loops of little-loops, their libraries, or folders of them.")
    ],
    output: Annotated[
        cli.Text, cli.option("--output -o", "DIR", "Write the files to this folder, which has none of them.")
    ] = None,
    in_place: Annotated[bool, cli.option("--in-place -i", "", "Replace the files.")] = False,
    check: Annotated[
        bool, cli.option("--check", "", "Write nothing; exit with 1 if a file would change.")
    ] = False,
    diff: Annotated[bool, cli.option("--diff", "", "Write nothing; print what would change.")] = False,
    json: cli.Json = False,
) -> int:
    """Rewrite loops of little-loops into llc's own spelling."""

    if output is not None and in_place:
        raise UserError("usage", "--output and --in-place exclude each other", "use one of them")
    found = import_files.look(files or [])
    is_look = check or diff or not (output is not None or in_place)
    if is_look and len(found) > 1 and not (check or diff or json):
        raise UserError("usage", "several files cannot go to standard output", "add -o DIR or --in-place")
    if not is_look:
        import_files.write_all(found, output)
    if json:
        write_json(import_files.as_json(found))
        return import_files.exit_code(found, check)
    if diff:
        write_data("".join(difference(one) for one in found if not one.is_refused))
    elif is_look and not check:
        write_data("".join(one.result for one in found if not one.is_refused))
    screen = Screen(sys.stderr)
    verb = "would change" if is_look else "rewritten"
    screen.write(import_files.as_text(found, verb, screen.color))
    return import_files.exit_code(found, check)
