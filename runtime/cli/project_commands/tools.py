"""The subcommand `tools`."""

from __future__ import annotations

from typing import Annotated

from ...host.errors import EXIT_OK, EXIT_USAGE
from ...terminal import tool_listing
from .. import parameters as cli
from ..output import show, write, write_json


def tools(
    names: Annotated[
        cli.Texts, cli.argument("[NAME]…", "Tools and tasks to show in full.", cli.complete_tool)
    ] = None,
    json: cli.Json = False,
) -> int:
    """List the tools and tasks that flows can call here."""
    signatures, error = tool_listing.signatures(names or [])
    if json:
        write_json(tool_listing.as_json(signatures))
    else:
        write(tool_listing.as_text(signatures, bool(names)))
    if error is not None:
        show(error.diagnostics, error.sources)
    return EXIT_OK if error is None else EXIT_USAGE
