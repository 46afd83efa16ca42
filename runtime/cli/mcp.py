"""The verb for MCP servers: mcp."""

from __future__ import annotations

from ..host.errors import EXIT_FAILURE, EXIT_OK, EXIT_USAGE, UserError
from .declare import ANY, JSON, ONE, Argument, command
from .output import write, write_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_WHAT = ("refresh", "list")


def complete_server(incomplete: str) -> list[str]:
    from ..host.paths import ROOT
    from ..project import configuration

    return [name for name in configuration.load(ROOT).mcp if name.startswith(incomplete)]


def complete_what(incomplete: str) -> list[str]:
    return [word for word in _WHAT if word.startswith(incomplete)]


@command(
    (),
    Argument(
        "what",
        ONE,
        "`refresh` asks the servers and keeps what they tell; `list` shows what is known.",
        "refresh|list",
        complete_what,
    ),
    Argument("servers", ANY, "Only these servers of .loops/config.yaml.", "[SERVER]…", complete_server),
    JSON,
    examples=("llc mcp refresh", "llc mcp refresh files", "llc mcp list --json"),
)
def mcp(given: dict[str, Any]) -> int:
    from ..launch import mcp_listing

    if given["what"] not in _WHAT:
        raise UserError(
            "bad-option", f"`llc mcp` does not know `{given['what']}`", "refresh or list", EXIT_USAGE
        )
    servers = mcp_listing.chosen(given["servers"] or [])
    is_asking = given["what"] == "refresh"
    rows = mcp_listing.refresh(servers) if is_asking else mcp_listing.known(servers)
    if given["json"]:
        write_json(rows)
    elif not rows:
        write("no MCP servers are configured; they stand under `mcp` in .loops/config.yaml\n")
    else:
        write(mcp_listing.as_text(rows))
    is_bad = is_asking and any(row["error"] is not None for row in rows)
    return EXIT_FAILURE if is_bad else EXIT_OK
