"""Effects that are performed at once: each in a thread, with a world and an interrupt of its own.

Owns the threads and how what happens in them comes to the one that drives the run: in messages, which
that one takes out when it waits. So the journal, the display and the machine have one owner, and each
kind of effect is performed by the same code as where it is alone. Sleeping takes no thread.
"""

from __future__ import annotations

import contextlib
import os
import queue
import select
import threading
from time import monotonic

from ..effects.world import TICK, Context, Interrupt, Interrupted, milliseconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ...vm.machine import Effect
    from ..effects.world import World

    # The effect's number, what happened, and what belongs to that.
    Message = tuple[int, str, Any]

OUTPUT, PROMPT, PROCESS, DONE, CUT, FAILED = "output", "prompt", "process", "done", "cut", "failed"
# Messages that wait at most: an action that writes faster than it can be shown has to wait.
_ROOM = 256


class _Lane:
    __slots__ = ("interrupt", "is_asking", "thread", "world")

    def __init__(self, world: World) -> None:
        self.world = world
        self.interrupt = Interrupt()
        self.thread: threading.Thread | None = None
        self.is_asking = False  # a person, who may take long


class Lanes:
    """The effects that are performed now. `interrupt` is the run's."""

    def __init__(self, world: World, interrupt: Interrupt) -> None:
        self._world = world
        self._interrupt = interrupt
        self._idle: list[_Lane] = []
        self._busy: dict[int, _Lane] = {}
        self._sleeping: dict[int, tuple[float, Callable[[], dict[str, Any]]]] = {}
        self._messages: queue.Queue[Message] = queue.Queue(_ROOM)
        self._next_tick = monotonic() + TICK
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        os.set_blocking(self._read, False)

    @property
    def busy(self) -> int:
        """How many of them do something; what waits for a person does not."""
        return sum(not lane.is_asking for lane in self._busy.values())

    def __len__(self) -> int:
        """How many effects are performed now."""
        return len(self._busy) + len(self._sleeping)

    # --- beginning ------------------------------------------------------------------------------

    def sleep(self, seq: int, seconds: float, result: Callable[[], dict[str, Any]]) -> None:
        """`result()` is the result of effect `seq`, in so many seconds."""
        self._sleeping[seq] = (monotonic() + seconds, result)

    def start(self, effect: Effect, context: Context) -> None:
        """Perform an effect in a thread; what the context is told comes as messages."""
        lane = self._idle.pop() if self._idle else _Lane(self._world.beside())
        seq = effect.seq
        context.interrupt = lane.interrupt
        context.on_output = lambda stream, text: self._say(seq, OUTPUT, (stream, text))
        context.on_process = lambda pid, begun: self._say(seq, PROCESS, (pid, begun))
        context.on_tick = None
        if context.on_prompt is not None:
            context.on_prompt = lambda text: self._say(seq, PROMPT, text)
        lane.is_asking = effect.kind == "ask"
        self._busy[seq] = lane
        lane.thread = threading.Thread(target=self._perform, args=(lane, effect, context), daemon=True)
        lane.thread.start()

    def _perform(self, lane: _Lane, effect: Effect, context: Context) -> None:
        """In the lane's thread."""
        try:
            result = lane.world.perform(effect, context)
        except Interrupted:
            self._say(effect.seq, CUT, None)
        except BaseException as error:
            self._say(effect.seq, FAILED, error)
        else:
            self._say(effect.seq, DONE, result)

    def _say(self, seq: int, what: str, about: Any) -> None:
        self._messages.put((seq, what, about))
        with contextlib.suppress(BlockingIOError):
            os.write(self._write, b"!")

    # --- waiting --------------------------------------------------------------------------------

    def wait(self, on_tick: Callable[[], object]) -> Message:
        """What happens next. Raises `Interrupted` once a stop was asked for."""
        while True:
            self._interrupt.check()
            if monotonic() >= self._next_tick:
                on_tick()
                self._next_tick = monotonic() + TICK
            message = self._next()
            if message is not None:
                return message
            self._pause(TICK, self._interrupt)

    def end(self) -> list[Message]:
        """End what is performed, and what happened until then; a further request to stop insists."""
        self._sleeping.clear()
        found: list[Message] = []
        while self._busy:
            for lane in self._busy.values():
                while lane.interrupt.count < max(1, self._interrupt.count):
                    lane.interrupt.set()
            message = self._next()
            if message is None:
                self._pause(TICK / 2)
            else:
                found.append(message)
        return found

    def close(self) -> None:
        """End everything at once and let go."""
        self.end()
        for lane in self._idle:
            lane.world.close()
            lane.interrupt.close()
        self._idle.clear()
        os.close(self._read)
        os.close(self._write)

    def _next(self) -> Message | None:
        """A message, or a sleep that is over; None where there is nothing yet."""
        try:
            message = self._messages.get_nowait()
        except queue.Empty:
            now = monotonic()
            for seq, (end, result) in self._sleeping.items():
                if end <= now:
                    del self._sleeping[seq]
                    return seq, DONE, result()
            return None
        seq, what, _ = message
        if what in (DONE, CUT, FAILED):
            lane = self._busy.pop(seq)
            assert lane.thread is not None
            lane.thread.join()
            self._idle.append(lane)
        return message

    def _pause(self, seconds: float, interrupt: Interrupt | None = None) -> None:
        """Wait for a message, a request to stop or the end of a sleep."""
        poller = select.poll()
        poller.register(self._read, select.POLLIN)
        if interrupt is not None:
            poller.register(interrupt, select.POLLIN)
        now = monotonic()
        left = min((end - now for end, _ in self._sleeping.values()), default=seconds)
        poller.poll(milliseconds(max(0.0, min(seconds, left))))
        with contextlib.suppress(BlockingIOError):
            os.read(self._read, 1 << 12)
