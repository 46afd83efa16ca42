"""The subcommand `graph`."""

from __future__ import annotations

import sys

from ...graph import commands, text_forms
from ...host.errors import EXIT_OK
from ...host.screen import Screen
from .. import parameters as shared
from ..output import write, write_data

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated

    import typer


def graph(
    target: Annotated[
        str,
        typer.Argument(
            help="A loop's name or path, or a run's id or folder.",
            metavar="LOOP|RUN",
            autocompletion=shared.complete_loop_or_run,
        ),
    ],
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write .svg, .html, .png, .mmd, .dot or .json."),
    ] = None,
    level: Annotated[
        str | None,
        typer.Option(
            "--level",
            metavar="loop|functions|ir",
            help="States of a loop, functions of a flow, or states of the compiled program.",
        ),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(
            "--run", metavar="RUN", help="Show visits, time and cost of this run, or of a loop's last run."
        ),
    ] = None,
    all_edges: Annotated[
        bool, typer.Option("--all-edges", help="Draw all routes as lines; fold nothing.")
    ] = False,
    json: shared.Json = False,
) -> int:
    """Show the states and routes of a loop, as a diagram or a picture.

    Examples:
        llc graph fix-types
        llc graph fix-types -o fix-types.svg
        llc graph fix-types --run fix-types
    """

    found = commands.graph_of(target, run, level, all_edges)
    if output is not None:
        commands.write(found, output)
    elif json:
        write_data(text_forms.as_json(found))
    else:
        write(commands.shown(found, Screen(sys.stdout)))
    return EXIT_OK
