"""Control channel: requests to stop single runs of a process that drives many runs.

The channel is a named pipe in the folder of running runs; the lock file of each run names it as `host`. A
request is a line with the id of a run; a second request for the same run kills its actions. A pipe without a
reader was left by a killed process.
"""

from __future__ import annotations

import contextlib
import errno
import os.path

from ..host import clock, files, pipes, processes
from ..host.paths import ROOT
from ..runs.runs import make_running_folder

_PREFIX = ".host-"
_MAX_READ_BYTES = 1 << 16


class ControlChannel:
    """The receiving end of the control channel."""

    def __init__(self, path: str, read: int, held: int) -> None:
        self.path = path
        self._read = read
        self._held = held
        self._rest = b""

    @classmethod
    def open(cls) -> ControlChannel | None:
        """Create a channel; None if named pipes are unsupported."""
        folder = make_running_folder(ROOT)
        _sweep(folder)
        flags = files.O_NONBLOCK
        # Created under another name, so that the pipe has a reader when it is visible. The time is part of
        # the name because one process may run several batches.
        path = os.path.join(folder, f"{_PREFIX}{processes.getpid()}-{clock.monotonic_ns():x}")
        new = os.path.join(folder, f".new{_PREFIX}{processes.getpid()}-{clock.monotonic_ns():x}")
        try:
            pipes.mkfifo(new, 0o600)
            read = files.open_handle(new, files.O_RDONLY | flags)
            # An own writer prevents that the pipe is readable (at end of file) after the first sender closed
            # it.
            held = files.open_handle(new, files.O_WRONLY | flags)
            files.rename(new, path)
        except OSError:
            return None
        return cls(path, read, held)

    def fileno(self) -> int:
        return self._read

    def requests(self) -> list[str]:
        """The ids of runs to stop, from the requests since the last call."""
        try:
            data = files.read(self._read, _MAX_READ_BYTES)
        except BlockingIOError:
            return []
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [line.decode("utf-8", "surrogateescape") for line in lines]

    def close(self) -> None:
        with contextlib.suppress(OSError):
            files.unlink(self.path)
        files.close(self._read)
        files.close(self._held)


def ask(path: str, run_id: str) -> bool:
    """Ask the process at `path` to stop a run; False if it has ended."""
    try:
        pipe = files.open_handle(path, files.O_WRONLY | files.O_NONBLOCK)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ENOENT):
            return False
        raise
    try:
        files.write(pipe, run_id.encode("utf-8", "surrogateescape") + b"\n")
    finally:
        files.close(pipe)
    return True


def _sweep(folder: str) -> None:
    """Remove the pipes of killed processes."""
    for name in files.listdir(folder):
        if name.startswith(_PREFIX):
            path = os.path.join(folder, name)
            with contextlib.suppress(OSError):
                try:
                    files.close(files.open_handle(path, files.O_WRONLY | files.O_NONBLOCK))
                except OSError as error:
                    if error.errno == errno.ENXIO:
                        files.unlink(path)
