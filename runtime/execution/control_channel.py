"""Where a process that runs many takes requests to stop one of them.

A pipe with a name in the folder of the running; each run's lock file tells it as `host`. Who wants a run to
stop writes its id there, a line each time: the second insists. A pipe that nobody reads is left of a
process that was killed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time

from ..host.paths import ROOT
from ..runs.runs import make_running_folder

_PREFIX = ".host-"
_MOST = 1 << 16


class Desk:
    """The reading end of the pipe."""

    __slots__ = ("_held", "_read", "_rest", "path")

    def __init__(self, path: str, read: int, held: int) -> None:
        self.path = path
        self._read = read
        self._held = held
        self._rest = b""

    @classmethod
    def open(cls) -> Desk | None:
        """A new one; None where pipes cannot have names."""
        folder = make_running_folder(ROOT)
        _sweep(folder)
        flags = os.O_NONBLOCK | os.O_CLOEXEC
        # Nobody shall find one that is not read yet, and one process may run several batches.
        path = os.path.join(folder, f"{_PREFIX}{os.getpid()}-{time.monotonic_ns():x}")
        new = os.path.join(folder, f".new{_PREFIX}{os.getpid()}-{time.monotonic_ns():x}")
        try:
            os.mkfifo(new, 0o600)
            read = os.open(new, os.O_RDONLY | flags)
            # Without a writer of our own it would be readable for ever after the first one closed it.
            held = os.open(new, os.O_WRONLY | flags)
            os.rename(new, path)
        except OSError:
            return None
        return cls(path, read, held)

    def fileno(self) -> int:
        return self._read

    def requests(self) -> list[str]:
        """The runs that somebody wants to stop, since this was asked last."""
        try:
            data = os.read(self._read, _MOST)
        except BlockingIOError:
            return []
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [line.decode("utf-8", "surrogateescape") for line in lines]

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self.path)
        os.close(self._read)
        os.close(self._held)


def ask(path: str, run_id: str) -> bool:
    """Ask the process at `path` to stop a run; False where it is there no more."""
    try:
        pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ENOENT):
            return False
        raise
    try:
        os.write(pipe, run_id.encode("utf-8", "surrogateescape") + b"\n")
    finally:
        os.close(pipe)
    return True


def _sweep(folder: str) -> None:
    """Remove those of processes that were killed."""
    for name in os.listdir(folder):
        if name.startswith(_PREFIX):
            path = os.path.join(folder, name)
            with contextlib.suppress(OSError):
                try:
                    os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC))
                except OSError as error:
                    if error.errno == errno.ENXIO:
                        os.unlink(path)
