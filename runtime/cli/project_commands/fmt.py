"""The subcommand `fmt`."""

from __future__ import annotations

from typing import Annotated

from ...authoring import formatted_files
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
    diff: Annotated[bool, cli.option("--diff", "", "Write nothing; print the changes.")] = False,
) -> int:
    """Format S-expression files."""

    is_dry_run = check or diff
    results = [formatted_files.format_file(path) for path in formatted_files.find_files(files or [])]
    errors = [file.error for file in results if file.error is not None]
    for file in results:
        if file.error is not None:
            continue
        if diff:
            write_data(formatted_files.difference(file))
        elif file.path == formatted_files.STDIN_PATH:
            write_data("" if is_dry_run else file.result)
        elif file.is_changed:
            if not is_dry_run:
                formatted_files.replace(file)
            write(f"{'would change' if is_dry_run else 'formatted'} {file.path}\n")
    if errors:
        show(
            [d for error in errors for d in error.diagnostics], [s for error in errors for s in error.sources]
        )
    return formatted_files.exit_code(results, check)
