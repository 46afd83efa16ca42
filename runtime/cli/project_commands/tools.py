"""The subcommand `tools`."""

from __future__ import annotations

from ...host.errors import EXIT_OK, EXIT_USAGE
from ...terminal import tool_listing
from ..output import show, write, write_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated

    from .. import typer_parameters as shared
    from ..typer_parameters import Texts, argument, complete_tool


def tools(
    names: Annotated[Texts, argument("[NAME]…", "Tools and tasks to show in full.", complete_tool)] = None,
    json: shared.Json = False,
) -> int:
    """List the tools and tasks that flows can call here."""
    found, broken = tool_listing.signatures(names or [])
    if json:
        write_json(tool_listing.as_json(found))
    else:
        write(tool_listing.as_text(found, bool(names)))
    if broken is not None:
        show(broken.diagnostics, broken.sources)
    return EXIT_OK if broken is None else EXIT_USAGE
