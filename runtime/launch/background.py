"""A run in the background: a process in a session of its own that outlives the terminal.

Until its run is on record that process is an ordinary child on the caller's terminal: whatever keeps
the run from starting is said there, in the words and with the exit code of a run in the foreground.
Then it leaves: its own session, nothing for standard input, a log file for the rest, and of what it
inherited nothing stays open. The caller hears over a pipe that this is done.
"""

from __future__ import annotations

import contextlib
import json
import sys

from ..host import files, pipes, processes, signals
from ..host.errors import EXIT_OK, Failure, reason
from ..host.paths import regular_handle
from ..host.screen import Screen, flush_standard_streams
from ..journal.run_folder import RunFolder
from ..project.options import Values

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any


class Detachment:
    """The run's side: `prepare` what may fail, then `leave` the caller."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._log = -1

    def prepare(self, folder: RunFolder) -> None:
        """Open the log. Raises UserError."""
        try:
            flags = files.O_WRONLY | files.O_CREAT | files.O_APPEND
            self._log = regular_handle(folder.log, flags)
        except OSError as error:
            raise Failure("cannot-write", f"cannot write {folder.log}: {reason(error)}") from None

    def leave(self, folder: RunFolder) -> None:
        """Go on without the caller's terminal, streams and files, and tell it so."""
        flush_standard_streams()
        with contextlib.suppress(OSError):  # we lead a session already
            processes.setsid()
        null = files.open_handle(files.devnull, files.O_RDONLY)
        pipes.dup2(null, 0)
        pipes.dup2(self._log, 1)
        pipes.dup2(self._log, 2)
        for descriptor in (null, self._log, *_inherited()):
            with contextlib.suppress(OSError):
                files.close(descriptor)
        self._log = -1
        for name, descriptor in (("stdout", 1), ("stderr", 2)):
            if getattr(sys, name) is None:  # we were started without
                setattr(sys, name, files.open(descriptor, "w", encoding="utf-8", closefd=False))
        told = json.dumps({"run": folder.id, "pid": processes.getpid(), "log": folder.log})
        with contextlib.suppress(OSError):  # the caller was killed; the run continues
            files.write(self._pipe, told.encode("utf-8", "surrogateescape") + b"\n")
        files.close(self._pipe)


def start(values: Values, go: Callable[[Detachment], int]) -> int:
    """Let `go` happen in a process of its own; the exit code, in both processes.

    In the caller that is 0 once the run is on record, or whatever the run could not begin with.
    """
    flush_standard_streams()
    _fill_standard_descriptors()
    read, write = pipes.pipe()
    child = processes.fork()
    if child == 0:
        files.close(read)
        return go(Detachment(write))
    files.close(write)

    def pass_on(number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(OSError):
            processes.kill(child, number)

    # What comes of a request to stop the child decides, which Ctrl-C and the end of the terminal reach too.
    handlers: dict[int, Any] = {
        signals.SIGINT: signals.SIG_IGN,
        signals.SIGHUP: signals.SIG_IGN,
        signals.SIGTERM: pass_on,
    }
    before = {number: signals.signal(number, handler) for number, handler in handlers.items()}
    try:
        with files.open(read, "rb") as pipe:
            told = pipe.readline()
        if told.endswith(b"\n"):
            return _tell(values, json.loads(told))
        _, status = processes.waitpid(child, 0)
    finally:
        for number, handler in before.items():
            signals.signal(number, handler)
    code = processes.waitstatus_to_exitcode(status)
    if code < 0:
        raise Failure(
            "not-started",
            f"the run's process was ended by {signals.Signals(-code).name} before it began",
            "nothing was performed",
        )
    return code


def _tell(values: Values, facts: dict[str, object]) -> int:
    """Say what was started: the id alone to stdout, what can be done with it to stderr."""
    screen = Screen(sys.stdout)
    text = json.dumps(facts, ensure_ascii=False) if values.json else str(facts["run"])
    screen.deliver(screen.encode(text + "\n"))
    if not (values.json or values.quiet):
        hint = f"running in the background (pid {facts['pid']}); look at it with: llc attach {facts['run']}\n"
        Screen(sys.stderr).write(hint)
    return EXIT_OK


def _fill_standard_descriptors() -> None:
    """Open those of 0, 1 and 2 that are closed: what is opened next must not get their places."""
    for descriptor in (0, 1, 2):
        try:
            files.fstat(descriptor)
        except OSError:
            # It becomes the lowest number that is free, which is this one.
            files.set_inheritable(files.open_handle(files.devnull, files.O_RDWR), True)


def _inherited() -> list[int]:
    """The open descriptors beyond the standard streams that we were started with."""
    try:
        open_ones = [int(name) for name in files.listdir("/dev/fd")]
    except OSError:
        open_ones = list(range(3, 256))
    found = []
    for descriptor in open_ones:
        with contextlib.suppress(OSError):  # the one by which we looked is closed by now
            # What we opened ourselves is closed in whatever we start; what we got was not.
            if descriptor > 2 and files.get_inheritable(descriptor):
                found.append(descriptor)
    return found
