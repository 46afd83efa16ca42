"""Background runs: a child process in its own session, which survives the terminal.

Until the run is recorded, the child stays attached to the caller's terminal. The command therefore reports
start-up errors before it returns, with the same messages and exit codes as in the foreground. Then the child
detaches: it starts a session, reads standard input from /dev/null, writes its output to a log file and closes
all inherited descriptors. It confirms this to the caller through a pipe.
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
    """Detaches the child from the caller: `prepare` does the steps that can fail, `leave` the others.

    pipe: descriptor for the confirmation to the caller.
    """

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._log = -1

    def prepare(self, folder: RunFolder) -> None:
        """Open the log file. Raises UserError."""
        try:
            flags = files.O_WRONLY | files.O_CREAT | files.O_APPEND
            self._log = regular_handle(folder.log, flags)
        except OSError as error:
            raise Failure("cannot-write", f"cannot write {folder.log}: {reason(error)}") from None

    def leave(self, folder: RunFolder) -> None:
        """Detach from the caller's terminal, streams and files, and confirm this through the pipe."""
        flush_standard_streams()
        with contextlib.suppress(OSError):  # this process already leads a session
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
            if getattr(sys, name) is None:  # the process was started without this stream
                setattr(sys, name, files.open(descriptor, "w", encoding="utf-8", closefd=False))
        message = json.dumps({"run": folder.id, "pid": processes.getpid(), "log": folder.log})
        with contextlib.suppress(OSError):  # the caller was killed; the run continues
            files.write(self._pipe, message.encode("utf-8", "surrogateescape") + b"\n")
        files.close(self._pipe)


def start(values: Values, execute: Callable[[Detachment], int]) -> int:
    """Call `execute` in a child process; return the exit code, in both processes.

    The caller returns 0 once the run is recorded, else the exit code of the child. Raises UserError if a
    signal ended the child before.
    """
    flush_standard_streams()
    _fill_standard_descriptors()
    read, write = pipes.pipe()
    child = processes.fork()
    if child == 0:
        files.close(read)
        return execute(Detachment(write))
    files.close(write)

    def forward(number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(OSError):
            processes.kill(child, number)

    # The child handles requests to stop. Ctrl-C and the hang-up of the terminal reach it directly.
    handlers: dict[int, Any] = {
        signals.SIGINT: signals.SIG_IGN,
        signals.SIGHUP: signals.SIG_IGN,
        signals.SIGTERM: forward,
    }
    previous = {number: signals.signal(number, handler) for number, handler in handlers.items()}
    try:
        with files.open(read, "rb") as pipe:
            message = pipe.readline()
        if message.endswith(b"\n"):
            return _report_start(values, json.loads(message))
        _, status = processes.waitpid(child, 0)
    finally:
        for number, handler in previous.items():
            signals.signal(number, handler)
    code = processes.waitstatus_to_exitcode(status)
    if code < 0:
        raise Failure(
            "not-started",
            f"{signals.Signals(-code).name} ended the process of the run before the run started",
            "nothing was performed",
        )
    return code


def _report_start(values: Values, facts: dict[str, object]) -> int:
    """Write the run id to standard output and a hint to standard error; return the exit code."""
    screen = Screen(sys.stdout)
    text = json.dumps(facts, ensure_ascii=False) if values.json else str(facts["run"])
    screen.deliver(screen.encode(text + "\n"))
    if not (values.json or values.quiet):
        hint = f"running in the background (pid {facts['pid']}); to watch it: llc attach {facts['run']}\n"
        Screen(sys.stderr).write(hint)
    return EXIT_OK


def _fill_standard_descriptors() -> None:
    """Open /dev/null for each closed standard descriptor, so that no other file gets its number."""
    for descriptor in (0, 1, 2):
        try:
            files.fstat(descriptor)
        except OSError:
            # `open` returns the lowest free number, which is this one.
            files.set_inheritable(files.open_handle(files.devnull, files.O_RDWR), True)


def _inherited() -> list[int]:
    """Inherited open descriptors other than the standard streams."""
    try:
        candidates = [int(name) for name in files.listdir("/dev/fd")]
    except OSError:
        candidates = list(range(3, 256))
    inherited = []
    for descriptor in candidates:
        with contextlib.suppress(OSError):  # the descriptor of the listing itself is closed again
            # Descriptors that this process opened are close-on-exec; inherited ones are not.
            if descriptor > 2 and files.get_inheritable(descriptor):
                inherited.append(descriptor)
    return inherited
