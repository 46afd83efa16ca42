"""Pipes, named pipes, listening sockets, and waiting for handles."""

from __future__ import annotations

from os import dup, dup2, mkfifo, pipe, set_blocking

from . import load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from select import POLLIN, POLLOUT, poll, select
    from socket import create_server, socket
    from typing import Any
else:

    def __getattr__(name: str) -> Any:
        return load(globals(), _DEFERRED, name)


_DEFERRED = {"select": ("POLLIN", "POLLOUT", "poll", "select"), "socket": ("create_server",)}


def listen(port: int) -> socket:
    """Create a socket that listens on the loopback interface. port: 0 for any free port. Raises OSError."""
    create = load(globals(), _DEFERRED, "create_server")
    listener: socket = create(("127.0.0.1", port), backlog=512)
    return listener
