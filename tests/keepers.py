"""Killing a run together with the keeper of its actions, so that what became of an action is not known."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

# What an action does to kill its run and the keeper.
KILL = "read -r _ _ _ driver _ < /proc/$PPID/stat; kill -9 $driver $PPID"


def keeper_of(pid: int) -> int | None:
    """The pid of the keeper of a process that drives runs."""
    command = Path(f"/proc/{pid}/cmdline").read_bytes()
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            if Path(f"/proc/{child}/cmdline").read_bytes() == command:
                return int(child)
    return None


def kill_with_keeper(process: subprocess.Popen[Any] | int) -> None:
    """kill -9 of a run, by its process or its pid, and of the keeper of its actions."""
    pid = process if isinstance(process, int) else process.pid
    os.kill(pid, signal.SIGSTOP)
    keeper = keeper_of(pid)
    if keeper is not None:
        os.kill(keeper, signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    if not isinstance(process, int):
        process.wait(60)
