"""The subcommand `graph`."""

from __future__ import annotations

import sys
from typing import Annotated

from ...graph import commands, text_forms
from ...host.errors import EXIT_OK
from ...host.screen import Screen
from .. import parameters as cli
from ..output import write, write_data


def graph(
    target: Annotated[
        str,
        cli.argument("LOOP|RUN", "A loop's name or path, or a run's id or folder.", cli.complete_loop_or_run),
    ],
    output: Annotated[
        cli.Text, cli.option("--output -o", "FILE", "Write .svg, .html, .png, .mmd, .dot or .json.")
    ] = None,
    level: Annotated[
        cli.Text,
        cli.option(
            "--level",
            "loop|functions|ir",
            "States of a loop, functions of a flow, or states of the compiled program.",
        ),
    ] = None,
    run: Annotated[
        cli.Text,
        cli.option("--run", "RUN", "Show visits, time and cost of this run, or of a loop's last run."),
    ] = None,
    all_edges: Annotated[bool, cli.option("--all-edges", "", "Draw all routes as lines.")] = False,
    db: cli.RunsDatabase = None,
    json: cli.Json = False,
) -> int:
    """Show the states and routes of a loop as a diagram or a picture.

    Examples:
        llc graph fix-types
        llc graph fix-types -o fix-types.svg
        llc graph fix-types --run fix-types
    """

    data = commands.graph_of(target, run, level, all_edges)
    if output is not None:
        commands.write(data, output)
    elif json:
        write_data(text_forms.as_json(data))
    else:
        write(commands.shown(data, Screen(sys.stdout)))
    return EXIT_OK
