"""What Ctrl-C and its kin do to a run: the first asks it to stop, so that it can be resumed.

The second insists: what runs is killed at once. A third ends this process on the spot.
"""

from __future__ import annotations

import os
import signal

from .errors import EXIT_INTERRUPTED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

    from .world import Interrupt

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Signals:
    """Between `take` and `give_back` the stopping signals go to `interrupt`.

    A SIGHUP that is ignored (nohup) stays ignored.
    """

    __slots__ = ("_before", "_interrupt")

    def __init__(self, interrupt: Interrupt) -> None:
        self._interrupt = interrupt
        self._before: dict[int, Any] = {}

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._interrupt.count >= 2:
            os._exit(EXIT_INTERRUPTED)
        self._interrupt.set()

    def take(self) -> None:
        for number in _STOPPING:
            before = signal.getsignal(number)
            if number == signal.SIGHUP and before == signal.SIG_IGN:
                continue
            self._before[number] = before
            signal.signal(number, self._handle)

    def give_back(self) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
