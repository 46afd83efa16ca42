"""What Ctrl-C and its kin do to a run: the first asks it to stop, so that it can be resumed.

The second insists: what runs is killed at once. A third ends this process on the spot. When the terminal is
closed, what can survive this process is left to its keeper; a terminal may tell that more than once.
"""

from __future__ import annotations

import contextlib

from ..host import processes, signals
from ..host.effect_context import Interrupt, Overdue
from ..host.errors import EXIT_HANGUP, EXIT_INTERRUPTED
from . import early_signals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType
    from typing import Any


# Seconds that a machine may compute on after the first request, in one primitive.
PATIENCE_S = 1.0


class Signals:
    """Between `take` and `give_back` the stopping signals go to `interrupt`.

    A SIGHUP or SIGINT that is ignored (nohup, `&` in a script) stays ignored. A run in the background
    does not end with the terminal it came from.
    """

    def __init__(self, interrupt: Interrupt, is_background: bool = False) -> None:
        self._interrupt = interrupt
        self._is_background = is_background
        self._before: dict[int, Any] = {}
        self._computing = 0

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self._interrupt.count and self._interrupt.computing % 2:
            self._computing = self._interrupt.computing
            signals.setitimer(signals.ITIMER_REAL, PATIENCE_S)
        if number == signals.SIGHUP:
            if not self._interrupt.count:
                self._interrupt.set(is_hangup=True)
            return
        if self._interrupt.count >= 2:
            processes.exit_now(EXIT_INTERRUPTED)
        self._interrupt.set()

    def _give_up(self, number: int, frame: FrameType | None) -> None:
        if self._interrupt.computing == self._computing:
            raise Overdue

    def take(self) -> None:
        self._before[signals.SIGALRM] = signals.signal(signals.SIGALRM, self._give_up)
        for number in early_signals.STOPPING:
            before = signals.getsignal(number)
            if number != signals.SIGTERM and before == signals.SIG_IGN:
                continue
            # When the run is over it has begun.
            self._before[number] = _leave if before is early_signals.leave else before
            # What is ignored would be so in the run's actions too; what is handled is not.
            is_hangup = self._is_background and number == signals.SIGHUP
            signals.signal(number, (lambda number, frame: None) if is_hangup else self._handle)

    def give_back(self) -> None:
        signals.setitimer(signals.ITIMER_REAL, 0)
        signals.signal(signals.SIGALRM, self._before.pop(signals.SIGALRM))
        # Of an interrupted run nothing is left to do but to say so: one more signal ends that too, and
        # the exit code stays what it was.
        asked = _leave if self._interrupt.count else None
        if self._interrupt.is_hangup:
            asked = _leave_hung_up
        for number, before in self._before.items():
            signals.signal(number, before if asked is None else asked)


def _leave_hung_up(number: int, frame: FrameType | None) -> None:
    if number != signals.SIGHUP:
        processes.exit_now(EXIT_HANGUP)


def _leave(number: int, frame: FrameType | None) -> None:
    processes.exit_now(EXIT_INTERRUPTED)


@contextlib.contextmanager
def ctrl_c(interrupt: Interrupt) -> Iterator[None]:
    """Where Ctrl-C would raise KeyboardInterrupt, anywhere in the code: the first two go to `interrupt`."""

    def handle(number: int, frame: FrameType | None) -> None:
        if interrupt.count >= 2:
            signals.default_int_handler(number, frame)
        interrupt.set()

    is_python = signals.getsignal(signals.SIGINT) is signals.default_int_handler
    try:
        if is_python:
            signals.signal(signals.SIGINT, handle)
    except ValueError:  # not the main thread, where no KeyboardInterrupt is raised
        is_python = False
    try:
        yield
    finally:
        if is_python:
            signals.signal(signals.SIGINT, signals.default_int_handler)


class StopSignals:
    """A context in which a request to stop can be made: by the stopping signals, unless `is_silent`."""

    def __init__(self, is_silent: bool, is_background: bool = False) -> None:
        self._interrupt = Interrupt()
        self._signals = None if is_silent else Signals(self._interrupt, is_background)

    def __enter__(self) -> Interrupt:
        if self._signals is not None:
            self._signals.take()
        return self._interrupt

    def __exit__(self, *error: object) -> None:
        if self._signals is not None:
            self._signals.give_back()
        self._interrupt.close()
