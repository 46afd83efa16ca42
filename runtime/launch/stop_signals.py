"""Signal handlers of a run: SIGINT, SIGTERM and SIGHUP.

The first signal requests an orderly stop, so that the run can be resumed. The second one kills the active
actions, the third one ends this process at once. When the terminal is closed (SIGHUP, which may arrive more
than once), actions that can survive this process are left to their keeper.
"""

from __future__ import annotations

from ..host import processes, signals
from ..host.effect_context import Interrupt, Overdue
from ..host.errors import EXIT_HANGUP, EXIT_INTERRUPTED
from . import early_signals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any


# Seconds for which one primitive may continue to compute after the first request.
PRIMITIVE_TIMEOUT_S = 1.0


class SignalHandlers:
    """Handlers that forward the stopping signals to `interrupt`, between `install` and `restore`.

    A SIGHUP or SIGINT that is ignored (nohup, `&` in a script) stays ignored. A background run ignores SIGHUP
    of the terminal from which it was started.
    """

    def __init__(self, interrupt: Interrupt, is_background: bool = False) -> None:
        self._interrupt = interrupt
        self._is_background = is_background
        self._previous: dict[int, Any] = {}
        # Value of `interrupt.computing` at the first request; it is odd during a primitive.
        self._computing = 0

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self._interrupt.count and self._interrupt.computing % 2:
            self._computing = self._interrupt.computing
            signals.setitimer(signals.ITIMER_REAL, PRIMITIVE_TIMEOUT_S)
        if number == signals.SIGHUP:
            if not self._interrupt.count:
                self._interrupt.set(is_hangup=True)
            return
        if self._interrupt.count >= 2:
            processes.exit_now(EXIT_INTERRUPTED)
        self._interrupt.set()

    def _on_timeout(self, number: int, frame: FrameType | None) -> None:
        if self._interrupt.computing == self._computing:
            raise Overdue

    def install(self) -> None:
        self._previous[signals.SIGALRM] = signals.signal(signals.SIGALRM, self._on_timeout)
        for number in early_signals.STOPPING:
            previous = signals.getsignal(number)
            if number != signals.SIGTERM and previous == signals.SIG_IGN:
                continue
            # The early handler reports that nothing was performed, which is wrong after the run.
            self._previous[number] = _exit_interrupted if previous is early_signals.leave else previous
            # The actions of the run would inherit SIG_IGN; they do not inherit a handler.
            is_ignored = self._is_background and number == signals.SIGHUP
            signals.signal(number, (lambda number, frame: None) if is_ignored else self._handle)

    def restore(self) -> None:
        signals.setitimer(signals.ITIMER_REAL, 0)
        signals.signal(signals.SIGALRM, self._previous.pop(signals.SIGALRM))
        # After an interrupted run only its report is left: a further signal ends that too, with the same
        # exit code.
        replacement = _exit_interrupted if self._interrupt.count else None
        if self._interrupt.is_hangup:
            replacement = _exit_hung_up
        for number, previous in self._previous.items():
            signals.signal(number, previous if replacement is None else replacement)


def _exit_hung_up(number: int, frame: FrameType | None) -> None:
    if number != signals.SIGHUP:
        processes.exit_now(EXIT_HANGUP)


def _exit_interrupted(number: int, frame: FrameType | None) -> None:
    processes.exit_now(EXIT_INTERRUPTED)


class StopSignals:
    """Context manager that gives an `Interrupt`, set by the stopping signals unless `is_silent`."""

    def __init__(self, is_silent: bool, is_background: bool = False) -> None:
        self._interrupt = Interrupt()
        self._handlers = None if is_silent else SignalHandlers(self._interrupt, is_background)

    def __enter__(self) -> Interrupt:
        if self._handlers is not None:
            self._handlers.install()
        return self._interrupt

    def __exit__(self, *error: object) -> None:
        if self._handlers is not None:
            self._handlers.restore()
        self._interrupt.close()
