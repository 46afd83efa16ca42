"""The subcommand `report`."""

from __future__ import annotations

import os.path
from typing import Annotated

from ...host.errors import EXIT_OK
from ...report import commands
from .. import parameters as cli
from .. import project_folder
from ..output import write, write_data


def report(
    run: cli.Run,
    other: Annotated[
        cli.Text, cli.argument("OTHER", "A second run, to compare.", cli.complete_any_run)
    ] = None,
    output: Annotated[
        cli.Text, cli.option("--output -o", "FILE", "Write to this file; `-` is stdout.")
    ] = None,
    form: Annotated[
        str,
        cli.option(
            "--format",
            "html|perfetto|json",
            "A page, trace events for ui.perfetto.dev, or the data of the page.",
        ),
    ] = "html",
    no_outputs: Annotated[
        bool,
        cli.option("--no-outputs", "", "Omit outputs, values, commands, and texts of agents and files."),
    ] = False,
    open_: Annotated[bool, cli.option("--open", "", "Open the page in a browser.")] = False,
    db: cli.RunsDatabase = None,
) -> int:
    """Write a report of a run to an HTML file, or compare two runs.

    Examples:
        llc report fix-types
        llc report fix-types --open -o report.html
        llc report fix-types-20240115-103000-4e3f fix-types
        llc report fix-types --format perfetto -o trace.json
    """
    name, data = commands.render(run, other, form, no_outputs)
    if output == "-" or (output is None and form != commands.HTML):
        write_data(data.decode())
        return EXIT_OK
    here = project_folder.start
    path = output or os.path.join(here, name)
    commands.write(path, data)
    write(os.path.relpath(path, here or ".") + "\n")
    if open_:
        commands.open_page(os.path.abspath(path))
    return EXIT_OK
