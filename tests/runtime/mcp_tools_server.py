"""A real MCP server over stdio, for tests: `python mcp_tools_server.py [FILE]`; writes its pid to FILE."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from mcp.server import MCPServer

server = MCPServer("tools")
state = {"count": 0}


@server.tool()
def add(x: int, y: int) -> int:
    """The sum of two
    whole numbers."""
    return x + y


@server.tool()
def greet(name: str, greeting: str = "Hello") -> str:
    """Greet somebody."""
    return f"{greeting}, {name}!"


@server.tool()
def look(what: str) -> dict[str, Any]:
    """A map."""
    return {"what": what, "found": [1, 2.5, None, True], "env": os.environ.get("TOKEN"), "cwd": os.getcwd()}


@server.tool()
def count() -> int:
    """How often it was called."""
    state["count"] += 1
    return state["count"]


@server.tool()
def fail(message: str) -> str:
    """Go wrong."""
    raise ValueError(message)


@server.tool()
def wait(seconds: float) -> str:
    """Take long."""
    time.sleep(seconds)
    return "waited"


@server.tool()
def crash() -> str:
    """End the server."""
    sys.stderr.write("out of cheese\n")
    sys.stderr.flush()
    os._exit(3)


@server.tool()
def garbage() -> str:
    """Write what is no message."""
    os.write(1, b"this is no JSON\n" + b'{"jsonrpc": "2.0", "result": 5}\n')
    return "after garbage"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        with open(sys.argv[1], "a", encoding="ascii") as file:
            file.write(f"{os.getpid()}\n")
    server.run()
