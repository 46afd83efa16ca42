"""Kill a run together with the keeper of its actions, so that the result of an action is in doubt."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from fork_server import Process

# Shell commands with which an action kills its run and the keeper. The keeper is killed first, so that its
# locks are free when the run has ended; it remains a zombie until then, since its parent, the run, is
# suspended. One thread of the run handles SIGSTOP and suspends the others; without the wait for them, they
# could notice the death of the keeper.
KILL = (
    "read -r _ _ _ driver _ < /proc/$PPID/stat; kill -STOP $driver; "
    "for task in /proc/$driver/task/*/stat; do "
    "while read -r _ _ state _ 2>/dev/null < $task && [ $state != T ]; do :; done; done; kill -9 $PPID; "
    "while read -r _ _ state _ < /proc/$PPID/stat && [ $state != Z ]; do :; done; kill -9 $driver"
)


def keeper_of(pid: int) -> int | None:
    """The pid of the keeper of a process that drives runs; None without a keeper."""
    command = Path(f"/proc/{pid}/cmdline").read_bytes()
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            for child in (task / "children").read_text().split():
                if Path(f"/proc/{child}/cmdline").read_bytes() == command:
                    return int(child)
    return None


def is_ended(pid: int) -> bool:
    """Whether a process has ended and released its locks; its parent may not have waited for it yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def wait_suspended(pid: int) -> None:
    """Wait until all threads of a process are suspended after SIGSTOP: one thread takes the signal and
    suspends the others.
    """
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            while (task / "stat").read_text().rpartition(")")[2].split()[0] not in "TZX":
                time.sleep(0.001)


def kill_with_keeper(process: subprocess.Popen[Any] | Process | int) -> None:
    """kill -9 a run, given by its process or its pid, and the keeper of its actions."""
    pid = process if isinstance(process, int) else process.pid
    os.kill(pid, signal.SIGSTOP)
    wait_suspended(pid)
    keeper = keeper_of(pid)
    if keeper is not None:
        os.kill(keeper, signal.SIGKILL)
        while not is_ended(keeper):
            time.sleep(0.001)
    os.kill(pid, signal.SIGKILL)
    if not isinstance(process, int):
        process.wait(60)
