"""Pipes, named pipes and waiting for handles."""

from __future__ import annotations

from os import dup, dup2, mkfifo, pipe, set_blocking

from .deferred import load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from select import POLLIN, POLLOUT, poll, select
    from typing import Any
else:

    def __getattr__(name: str) -> Any:
        return load(globals(), _DEFERRED, name)


_DEFERRED = {"select": ("POLLIN", "POLLOUT", "poll", "select")}
