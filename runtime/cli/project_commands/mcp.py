"""The subcommand `mcp`."""

from __future__ import annotations

from typing import Annotated

from ...host.errors import EXIT_FAILURE, EXIT_OK, UserError
from ...launch import mcp_listing
from .. import parameters as cli
from ..output import write, write_json


def mcp(
    what: Annotated[
        str,
        cli.argument(
            "refresh|list",
            "`refresh` queries the servers and saves their listings; `list` shows the saved listings.",
        ),
    ],
    servers: Annotated[
        cli.Texts, cli.argument("[SERVER]…", "Only these servers of .loops/config.yaml.", cli.complete_server)
    ] = None,
    json: cli.Json = False,
) -> int:
    """List the tools of MCP servers: query the servers, or show the saved listings.

    Examples:
        llc mcp refresh
        llc mcp refresh files
        llc mcp list --json
    """
    if what not in ("refresh", "list"):
        raise UserError("bad-option", f"`llc mcp` has no `{what}`", "refresh or list")
    chosen = mcp_listing.chosen(servers or [])
    is_refresh = what == "refresh"
    rows = mcp_listing.refresh(chosen) if is_refresh else mcp_listing.saved(chosen)
    if json:
        write_json(rows)
    elif not rows:
        write("no MCP servers are configured; add them under `mcp` in .loops/config.yaml\n")
    else:
        write(mcp_listing.as_text(rows))
    has_failed = is_refresh and any(row["error"] is not None for row in rows)
    return EXIT_FAILURE if has_failed else EXIT_OK
