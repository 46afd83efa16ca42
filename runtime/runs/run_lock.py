"""Lock of a run: the flock of its driver, who holds it, and its release.

A live run holds an flock on its `lock` file. A dead process holds no flock, so reused pids do not matter.
"""

from __future__ import annotations

import errno
import os.path

from ...ir import light_json
from ..host import files, keeper, pipes, processes, threads
from ..host.effect_context import Interrupt
from ..host.errors import Failure, UserError, reason, refuse_transient
from ..host.paths import regular_handle
from ..journal.run_folder import RunFolder
from .runs import make_running_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


# Seconds after which a queued run checks its conflicts again: the holder of the lock on which it sleeps may
# have died, and a later run may have taken the lock over.
RECHECK_S = 5.0

# Errors of flock for a lock that another process holds.
_LOCKED_ERRORS = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)


class Lock:
    """Lock of a live run, released by `close` or by the end of the process."""

    def __init__(self, fd: int, about: dict[str, Any]) -> None:
        self._fd = fd
        self._about = about
        # Actions that have survived the process that started them, by effect id.
        self.kept: dict[str, keeper.Kept] = {}

    def fileno(self) -> int:
        """Return the file descriptor that holds the lock; -1 after its release."""
        return self._fd

    def tell(self, **changes: Any) -> None:
        """Change fields of the lock file; None removes a field. Raises OSError."""
        self._about.update(changes)
        known = {name: value for name, value in self._about.items() if value is not None}
        data = light_json.dumps_ascii(known).encode("utf-8", "surrogateescape") + b"\n"
        # Truncated last: after a crash the file contains the old text, the new text, or invalid JSON.
        files.pwrite(self._fd, data, 0)
        files.ftruncate(self._fd, len(data))

    def close(self) -> None:
        for action in self.kept.values():
            action.close()
        if self._fd >= 0:
            files.close(self._fd)
            self._fd = -1


def is_driven(run: RunFolder) -> bool:
    """Whether a process drives the run or waits in the queue with it. A keeper of actions does not count."""
    if not is_live(run):
        return False
    about = run.about()
    return not about.get("kept") and is_running(about)


def is_running(about: dict[str, Any]) -> bool:
    """Whether the process in the lock file is alive."""
    pid, start_time = about.get("pid"), about.get("start_time")
    return not start_time or (isinstance(pid, int) and processes.is_alive(pid, str(start_time)))


class TableLock:
    """Exclusive lock held while reading and writing the table of run locks."""

    def __init__(self, root: str) -> None:
        self._path = os.path.join(make_running_folder(root), ".lock")
        self._fd = -1

    def __enter__(self) -> None:
        self._fd = open_lock(self._path)
        try:
            _flock(self._fd, files.LOCK_EX)
        except BaseException:
            files.close(self._fd)
            raise

    def __exit__(self, *error: object) -> None:
        files.close(self._fd)


class Release:
    """Notification of the release of a lock file. A thread sleeps in the kernel until the release.

    Such a wait cannot be cancelled: the thread of an abandoned notification remains.
    """

    def __init__(self, path: str, interrupt: Interrupt) -> None:
        self.path = path
        self._interrupt = interrupt
        self._read, write = pipes.pipe()
        threads.Thread(target=_wait_for_release, args=(path, write), daemon=True).start()

    @property
    def is_over(self) -> bool:
        """Whether the lock was released."""
        return bool(pipes.select([self._read], [], [], 0)[0])

    def wait(self) -> None:
        """Wait for the release, at most `RECHECK_S` seconds. Raises Interrupted."""
        self._interrupt.wait(RECHECK_S, wake=self._read)

    def fileno(self) -> int:
        """Return a file descriptor that is readable after the release.

        Callers also check after `RECHECK_S`.
        """
        return self._read

    def close(self) -> None:
        files.close(self._read)


def _wait_for_release(path: str, write: int) -> None:
    """Thread: close `write` when the lock file is released; leave it open if this cannot be determined."""
    try:
        fd = regular_handle(path, files.O_RDONLY)
    except OSError:
        files.close(write)  # the run has ended in the meantime
        return
    try:
        files.flock(fd, files.LOCK_SH)
    except OSError:
        return
    finally:
        files.close(fd)
    files.close(write)


def is_live(run: RunFolder) -> bool:
    """Whether a process holds the run. Raises UserError."""
    try:
        fd = regular_handle(run.lock, files.O_RDONLY)
    except OSError as error:
        refuse_transient(error, run.lock)
        return False
    try:
        return not try_flock(fd, files.LOCK_SH)
    finally:
        files.close(fd)


def open_lock(path: str) -> int:
    try:
        return regular_handle(path, files.O_RDWR | files.O_CREAT)
    except OSError as error:
        raise Failure("cannot-write", f"cannot write {path}: {reason(error)}") from None


def try_flock(fd: int, operation: int) -> bool:
    try:
        files.flock(fd, operation | files.LOCK_NB)
    except OSError as error:
        if error.errno in _LOCKED_ERRORS:
            return False
        raise UserError("no-locks", f"file locks do not work here: {reason(error)}") from None
    return True


def _flock(fd: int, operation: int) -> None:
    try:
        files.flock(fd, operation)
    except OSError as error:
        raise UserError("no-locks", f"file locks do not work here: {reason(error)}") from None
