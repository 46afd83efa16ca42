"""`llc mcp`: the tools of the configured MCP servers, queried now or from the saved listing."""

from __future__ import annotations

import os.path
import sys
from textwrap import wrap
from typing import Any

from ...frontend.tasks.mcp_servers import McpServer, McpTools, listed_tools, listing_path, listing_text
from ...ir.diagnostics import clean, suggest
from ..effects.tools import mcp_client
from ..effects.tools.builtin_tools import ToolError
from ..host.effect_context import Context
from ..host.errors import UserError
from ..host.paths import LOOPS, ROOT, make_private
from ..host.screen import Screen, counted
from ..journal.journal import JournalError, write_file
from ..project import configuration
from ..terminal.tool_listing import as_json
from .stop_signals import StopSignals

_WIDTH = 100


def chosen(names: list[str]) -> list[McpServer]:
    """The servers with these names; all servers if `names` is empty. Raises UserError and CompileError."""
    servers = configuration.load(ROOT).mcp
    for name in names:
        if name not in servers:
            help = suggest(name, servers, "servers are") or "servers are under `mcp` in .loops/config.yaml"
            raise UserError("unknown-server", f"no MCP server is called `{name}`", help)
    return [servers[name] for name in names] if names else list(servers.values())


def refresh(servers: list[McpServer]) -> list[dict[str, Any]]:
    """Query the servers and save their listings; one row for each server, with `error` after a failure.

    A terminal shows which server is queried.
    """
    rows = []
    screen = Screen(sys.stderr)
    with StopSignals(False) as interrupt:
        for server in servers:
            if screen.is_live:
                screen.write(f"\r\x1b[Kquerying {server.name} …")
            context = Context.outside_run("mcp", 0, interrupt)
            row: dict[str, Any] = {"server": server.name, "tools": None, "error": None}
            try:
                tools = mcp_client.listed(server, context)
                path = listing_path(os.path.join(ROOT, LOOPS), server.name)
                make_private(os.path.join(ROOT, LOOPS, ".cache"))
                write_file(path, listing_text(server, tools).encode("utf-8", "replace"))
                usable = listed_tools(server.name, tools)
                row["tools"] = [_row(tool) for tool in usable.values()]
                row["left_out"] = [tool["name"] for tool in tools if tool["name"] not in usable]
            except (ToolError, JournalError) as error:
                row["error"] = error.message
            rows.append(row)
        if screen.is_live:
            screen.write("\r\x1b[K")
    return rows


def saved(servers: list[McpServer]) -> list[dict[str, Any]]:
    """Rows as of `refresh`, from the saved listings; `error` if a server has no listing."""
    tools = McpTools(os.path.join(ROOT, LOOPS))
    rows: list[dict[str, Any]] = []
    signatures = tools.signatures()
    for server in servers:
        own = [_row(tool) for tool in signatures if tool.definition["mcp"]["server"] == server.name]
        error = None
        if not own and not tools.is_listed(server.name):
            message, help = tools.explain_missing(f"mcp:{server.name}.")
            error = f"{message}; {help}" if help else message
        rows.append({"server": server.name, "tools": None if error else own, "error": error})
    return rows


def _row(tool: Any) -> dict[str, Any]:
    (row,) = as_json([tool])
    return {**row, "usage": tool.usage}


def as_text(rows: list[dict[str, Any]]) -> str:
    lines = []
    for row in rows:
        if row["error"] is not None:
            lines.append(f"{row['server']}: {row['error']}")
            continue
        count = len(row["tools"])
        lines.append(f"{row['server']}: {counted(count, 'tool')}")
        for tool in row["tools"]:
            lines += wrap(tool["usage"], _WIDTH - 2, initial_indent="  ", subsequent_indent="    ")
            lines += wrap(tool["description"], _WIDTH, initial_indent="      ", subsequent_indent="      ")
        for name in row.get("left_out", ()):
            lines.append(f"  left out: `{clean(name, 80)}`, a name that no program can call")
    return "".join(line + "\n" for line in lines)
