"""The subcommand `index`."""

from __future__ import annotations

from typing import Annotated

from ...host.errors import EXIT_OK
from ...host.paths import ROOT
from ...memory import report
from .. import parameters as cli
from ..output import warn, write, write_json


def index(
    rebuild: Annotated[bool, cli.option("--rebuild", "", "Delete the index and build it again.")] = False,
    json: cli.Json = False,
) -> int:
    """Update the index of the project's files.

    Examples:
        llc index
        llc index --rebuild
    """
    update, listing, notices = report.update_index(ROOT, rebuild)
    if json:
        write_json(report.index_json(ROOT, update, listing, notices))
    else:
        for notice in notices:
            warn(notice)
        write(report.index_text(update))
    return EXIT_OK
