"""The subcommand `fmt`."""

from __future__ import annotations

from typing import Annotated

from ...authoring import format_files
from .. import parameters as cli
from ..output import show, write, write_data


def fmt(
    files: Annotated[
        cli.Texts,
        cli.argument(
            "[FILE]…", "Files, folders, names in .loops/, or - for stdin; by default all of .loops/."
        ),
    ] = None,
    check: Annotated[
        bool, cli.option("--check", "", "Write nothing; exit with 1 if a file would change.")
    ] = False,
    diff: Annotated[bool, cli.option("--diff", "", "Write nothing; print what would change.")] = False,
) -> int:
    """Format S-expression files."""

    is_look = check or diff
    found = [format_files.look(path) for path in format_files.find_files(files or [])]
    errors = [one.error for one in found if one.error is not None]
    for one in found:
        if one.error is not None:
            continue
        if diff:
            write_data(format_files.difference(one))
        elif one.path == format_files.STDIN_PATH:
            write_data("" if is_look else one.result)
        elif one.is_changed:
            if not is_look:
                format_files.replace(one)
            write(f"{'would change' if is_look else 'formatted'} {one.path}\n")
    if errors:
        show(
            [d for error in errors for d in error.diagnostics], [s for error in errors for s in error.sources]
        )
    return format_files.exit_code(found, check)
