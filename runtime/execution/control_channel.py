"""Control channel: requests to stop single runs of a process that drives many.

A pipe with a name in the folder of the running; each run's lock file tells it as `host`. Who wants a run to
stop writes its id there, one line per request; a second request kills its actions. A pipe without a reader
was left by a killed process.
"""

from __future__ import annotations

import contextlib
import errno
import os.path

from ..host import clock, files, pipes, processes
from ..host.paths import ROOT
from ..runs.runs import make_running_folder

_PREFIX = ".host-"
_MOST = 1 << 16


class ControlChannel:
    """The reading end of the pipe."""

    def __init__(self, path: str, read: int, held: int) -> None:
        self.path = path
        self._read = read
        self._held = held
        self._rest = b""

    @classmethod
    def open(cls) -> ControlChannel | None:
        """Create a channel; None where named pipes are unsupported."""
        folder = make_running_folder(ROOT)
        _sweep(folder)
        flags = files.O_NONBLOCK
        # Created under another name: a reader exists once it is found. One process may run several batches.
        path = os.path.join(folder, f"{_PREFIX}{processes.getpid()}-{clock.monotonic_ns():x}")
        new = os.path.join(folder, f".new{_PREFIX}{processes.getpid()}-{clock.monotonic_ns():x}")
        try:
            pipes.mkfifo(new, 0o600)
            read = files.open_handle(new, files.O_RDONLY | flags)
            # Without a writer of our own it would be readable for ever after the first one closed it.
            held = files.open_handle(new, files.O_WRONLY | flags)
            files.rename(new, path)
        except OSError:
            return None
        return cls(path, read, held)

    def fileno(self) -> int:
        return self._read

    def requests(self) -> list[str]:
        """Ids of the runs to stop, requested since the last call."""
        try:
            data = files.read(self._read, _MOST)
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
