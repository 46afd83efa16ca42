"""Effect pool: concurrent effects, each in a thread with its own world and interrupt.

Owns the threads and their messages to the driver, which takes them when it waits. Therefore journal, display
and machine are used by one thread only, and the same code performs an effect alone or concurrently. A sleep
needs no thread. A pool belongs to one run, or is shared by many runs.
"""

from __future__ import annotations

import contextlib
import heapq
from itertools import count

from ...ir.effects import EFFECTS
from ...vm.machine.machine import Effect
from ..effects.world import World
from ..host import clock, environment, files, pipes, threads
from ..host.effect_context import TICK, Context, Interrupt, Interrupted, milliseconds
from ..journal.agent_activity import AgentActivity
from ..journal.agent_history import WORK
from ..journal.run_folder import Parking
from ..models.worker_pool import SharedWorkers
from .io_threads import Threads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    # The number of the effect, the kind of the message, and its content.
    Message = tuple[int, str, Any]

OUTPUT, PROMPT, PROCESS, EVENT, AGENT = "output", "prompt", "process", "event", "agent"
DONE, CUT, FAILED = "done", "cut", "failed"
_FINAL = (DONE, CUT, FAILED)
# Limit of pending output messages: an action that writes faster than the driver reads has to wait.
_MAX_PENDING_CHUNKS = 256
# Messages that are taken in succession before queued effects start.
_MAX_DRAINED_MESSAGES = 64
_TICK_SEQ = 0  # effects count from 1
_FOREVER = float("inf")


class _Worker:
    """World and interrupt for one effect at a time; reused by later effects."""

    def __init__(self) -> None:
        self.world: World | None = None
        self.owner: RunEffects | None = None  # the effects of the run that the world belongs to
        self.interrupt = Interrupt()
        self.is_waiting = False  # the effect only waits, for example for a person

    def close(self) -> None:
        if self.world is not None:
            self.world.close()
        self.interrupt.close()


class EffectPool:
    """Threads and timers of one run, or of many. at_once: limit of concurrently working effects."""

    def __init__(self, at_once: int) -> None:
        self.at_once = at_once
        self.working = 0
        # Runs that wait for a free slot, in order of arrival.
        self.waiting_for_slot: dict[RunEffects, None] = {}
        # Model clients for runs without shared ones: starting a client takes longer than most calls.
        self._models = SharedWorkers(dict(environment.environb))
        self._idle: list[_Worker] = []
        self._threads = Threads()
        self._messages: threads.SimpleQueue[tuple[RunEffects, Message]] = threads.SimpleQueue()
        self._chunk_slots = threads.Semaphore(_MAX_PENDING_CHUNKS)
        self._timers: list[tuple[float, int, RunEffects, int, Callable[[], dict[str, Any]] | None]] = []
        self._number = count()
        self._read, self._write = pipes.pipe()
        pipes.set_blocking(self._write, False)
        pipes.set_blocking(self._read, False)
        # Held while the pipe is written to or closed, because a closed descriptor can be reused for another
        # file.
        self._pipe_lock = threads.Lock()
        # Whether a message has arrived since the last wait, and whether the driver sleeps.
        self._is_woken = self._sleeps = False

    def do(self, work: Callable[[], object]) -> None:
        """Execute work in a thread."""
        self._threads.do(work)

    def send(self, effects: RunEffects, message: Message) -> None:
        """Send a message to the driver. Called in threads."""
        if message[1] in (OUTPUT, AGENT):
            self._chunk_slots.acquire()
        self._messages.put((effects, message))
        self.wake()

    def wake(self) -> None:
        """Wake the waiting driver. Called in threads."""
        self._is_woken = True
        if self._sleeps:
            with self._pipe_lock, contextlib.suppress(BlockingIOError):
                if self._write >= 0:
                    files.write(self._write, b"!")

    def at(
        self, when: float, effects: RunEffects, seq: int, result: Callable[[], dict[str, Any]] | None
    ) -> int:
        """Add a timer; returns its number.

        when: in monotonic time. result: makes the result of effect `seq` at that time; None for a tick.
        """
        number = next(self._number)
        heapq.heappush(self._timers, (when, number, effects, seq, result))
        return number

    def next(self) -> tuple[RunEffects, Message] | None:
        """The next message or finished sleep; None if there is none. Also calls due ticks."""
        timers = self._timers
        while timers and timers[0][0] <= clock.monotonic():
            when, number, effects, seq, result = heapq.heappop(timers)
            if result is None:
                effects.tick(when)
            elif effects.end_sleep(seq, number):
                return effects, (seq, DONE, result())
        try:
            effects, message = self._messages.get_nowait()
        except threads.Empty:
            return None
        if message[1] in (OUTPUT, AGENT):
            self._chunk_slots.release()
        elif message[1] in _FINAL:
            worker = effects.release_worker(message[0])
            if len(self._idle) < self.at_once:
                self._idle.append(worker)
            else:  # effects that only wait are not limited, so there may be many workers
                worker.close()
        return effects, message

    def pause(self, seconds: float, *descriptors: int) -> None:
        """Wait for a message, a timer or one of the descriptors, with a timeout in seconds.

        Returns at once if a message has arrived since the last call.
        """
        self._sleeps = True
        if not self._is_woken:
            self._sleep(seconds, descriptors)
        self._sleeps = self._is_woken = False

    def _sleep(self, seconds: float, descriptors: tuple[int, ...]) -> None:
        poller = pipes.poll()
        for descriptor in (self._read, *descriptors):
            poller.register(descriptor, pipes.POLLIN)
        if self._timers:
            seconds = min(seconds, self._timers[0][0] - clock.monotonic())
        poller.poll(None if seconds == _FOREVER else milliseconds(max(0.0, seconds)))
        with contextlib.suppress(BlockingIOError):
            files.read(self._read, 1 << 12)

    def worker(self, effects: RunEffects) -> _Worker:
        """A free worker, preferably of the same run."""
        idle = self._idle
        for index in range(len(idle) - 1, -1, -1):
            if idle[index].owner is effects:
                return idle.pop(index)
        return idle.pop() if idle else _Worker()

    def with_models(self, world: World) -> World:
        """Give a forked world the shared model clients."""
        if getattr(world, "workers", self._models) is None:
            world.workers = self._models
        return world

    def forget(self, effects: RunEffects) -> None:
        """Remove a run that has ended; its workers remain for other runs."""
        self.waiting_for_slot.pop(effects, None)
        for worker in self._idle:
            if worker.owner is effects and worker.world is not None:
                worker.owner = None
                worker.world.end_run()

    def close(self) -> None:
        self._threads.dismiss()
        for worker in self._idle:
            worker.close()
        self._idle.clear()
        self._models.close()
        with self._pipe_lock:  # a finishing thread may still call `wake`
            files.close(self._read)
            files.close(self._write)
            self._write = -1


class RunEffects:
    """The running effects of one run.

    Args:
        world: the world of the run, which is forked for each worker.
        interrupt: the interrupt of the run.
        on_tick: called while the run waits; returns the seconds until its next call.
        pool: the shared pool; None to create one for this run.
        jobs: limit of concurrent effects in an own pool.
    """

    def __init__(
        self,
        world: World,
        interrupt: Interrupt,
        on_tick: Callable[[], float],
        pool: EffectPool | None,
        jobs: int,
    ) -> None:
        self._world = world
        self._interrupt = interrupt
        self._on_tick = on_tick
        self._pool = pool or EffectPool(jobs)
        self._is_own = pool is None
        self._busy: dict[int, _Worker] = {}
        self._sleeping: dict[int, int] = {}
        # Start and latest end of each wait (a sleep, a question, or for a quota), by effect.
        self._waits: dict[int, tuple[float, float]] = {}
        # For effects that may wait for a quota: the account, the seconds of earlier waits, and the effects
        # that have worked already.
        self._accounts: dict[int, str] = {}
        self._waited_before: dict[int, float] = {}
        self._worked: set[int] = set()
        self.parking: Parking | None = None
        self._tick_at = _FOREVER
        # Slots that are reserved for effects that have not started.
        self._reserved = 0
        self._is_ending = False
        self._drained = 0
        self.tick_within(TICK)

    @property
    def free_slots(self) -> int:
        """How many more working effects may start; effects that only wait need no slot."""
        pool = self._pool
        if pool.waiting_for_slot and next(iter(pool.waiting_for_slot)) is not self:
            return 0
        return pool.at_once - pool.working

    @property
    def busy(self) -> int:
        """The number of effects in threads."""
        return len(self._busy)

    @property
    def is_acting(self) -> bool:
        """Whether an effect works, instead of waiting for a person or a quota."""
        return bool(self._busy.keys() - self._waits.keys())

    def __len__(self) -> int:
        """The number of running effects."""
        return len(self._busy) + len(self._sleeping)

    # --- start ----------------------------------------------------------------------------------

    def sleep(self, seq: int, seconds: float, result: Callable[[], dict[str, Any]]) -> None:
        """Schedule `result()` as the result of effect `seq`."""
        now = clock.monotonic()
        self._sleeping[seq] = self._pool.at(now + seconds, self, seq, result)
        self._waits[seq] = (now, now + seconds)

    def reserve_slot(self) -> None:
        """Reserve a slot for an effect that starts when its record is on disk."""
        self._pool.working += 1
        self._reserved += 1

    def start(self, effect: Effect, context: Context) -> None:
        """Perform an effect in a thread; calls of its context's callbacks arrive as messages."""
        pool, seq = self._pool, effect.seq
        worker = pool.worker(self)
        if worker.owner is not self:
            world = pool.with_models(self._world.beside())
            if worker.world is not None:
                world.take_over(worker.world)
            worker.world, worker.owner = world, self
        context.interrupt = worker.interrupt
        context.on_output = lambda stream, text: pool.send(self, (seq, OUTPUT, (stream, text)))
        context.on_process = lambda pid, start_time: pool.send(self, (seq, PROCESS, (pid, start_time)))
        context.on_event = lambda event: pool.send(self, (seq, EVENT, event))
        context.on_agent = lambda activity: pool.send(self, (seq, AGENT, activity))
        context.on_tick = None
        if context.on_prompt is not None:
            context.on_prompt = lambda text: pool.send(self, (seq, PROMPT, text))
        worker.is_waiting = EFFECTS[effect.kind].is_idle
        self._reserved -= not worker.is_waiting
        if worker.is_waiting:
            now = clock.monotonic()
            limit, _ = context.limit(effect.args, own="action")
            self._waits[seq] = (now, now + (_FOREVER if limit is None else limit))
        self._busy[seq] = worker
        pool.do(lambda: self._perform(worker, effect, context))

    def _perform(self, worker: _Worker, effect: Effect, context: Context) -> None:
        """Perform an effect. Runs in the worker's thread."""
        assert worker.world is not None
        try:
            result = worker.world.perform(effect, context)
        except Interrupted:
            self._pool.send(self, (effect.seq, CUT, None))
        except BaseException as error:
            self._pool.send(self, (effect.seq, FAILED, error))
        else:
            self._pool.send(self, (effect.seq, DONE, result))

    def track_activity(self, effect: Effect, activity: AgentActivity, longest_s: float | None) -> None:
        """Track the waits of an agent: from `quota-wait` to its next activity, the effect waits.

        longest_s: the maximum wait; None for no limit. A tool or task that has worked already does not count
        as waiting, because its work would be lost if the effect were performed again.
        """
        seq, now = effect.seq, clock.monotonic()
        if activity.kind == "quota-wait":
            if effect.kind == "agent" or (effect.kind != "tool" and seq not in self._worked):
                left = max(0.0, (activity.resets_at or 0.0) - clock.time())
                started_at = self._waits.get(seq, (now - self._waited_before.get(seq, 0.0), 0.0))[0]
                self._waits[seq] = started_at, now + min(left, _FOREVER if longest_s is None else longest_s)
                self._accounts[seq] = activity.name
            return
        if activity.kind in WORK:
            self._worked.add(seq)
        if self._accounts.pop(seq, None) is not None:
            self._waited_before[seq] = now - self._waits.pop(seq)[0]
            self.parking = None

    def park(self, least_s: float) -> bool:
        """Whether the run can be parked: all effects have waited `least_s` seconds, and will wait as long.

        If so, sets `parking`.
        """
        performed = {*self._busy, *self._sleeping}
        is_waiting = bool(performed) and performed == self._waits.keys() and min(performed) > _TICK_SEQ
        if not is_waiting or self._reserved or self in self._pool.waiting_for_slot or self._is_ending:
            return False
        now = clock.monotonic()
        left = min(end for _, end in self._waits.values()) - now
        if left < least_s or any(now - started_at < least_s for started_at, _ in self._waits.values()):
            return False
        waited = {seq: now - started_at for seq, (started_at, _) in self._waits.items()}
        accounts = tuple(sorted(set(self._accounts.values())))
        self.parking = Parking(waited, None if left == _FOREVER else left, accounts)
        return True

    def wait_for_slot(self, needs_slot: bool) -> None:
        """Enter or leave the queue of runs that wait for a free slot."""
        if needs_slot:
            self._pool.waiting_for_slot.setdefault(self)
        else:
            self._pool.waiting_for_slot.pop(self, None)

    # --- events ---------------------------------------------------------------------------------

    def release_worker(self, seq: int) -> _Worker:
        """Remove a finished effect; returns its worker."""
        worker = self._busy.pop(seq)
        for facts in (self._waits, self._accounts, self._waited_before):
            facts.pop(seq, None)
        self._worked.discard(seq)
        self._pool.working -= not worker.is_waiting
        if worker.interrupt.count:
            worker.interrupt.close()
            worker.interrupt = Interrupt()
        return worker

    def end_sleep(self, seq: int, number: int) -> bool:
        """End a sleep whose timer is due; False if the sleep was cancelled."""
        if self._sleeping.get(seq) != number:
            return False
        del self._sleeping[seq]
        self._waits.pop(seq, None)
        return True

    def tick(self, when: float) -> None:
        """Handle a due tick, unless an earlier one has replaced it."""
        if when == self._tick_at:
            self._tick_at = _FOREVER
            self.tick_within(self._on_tick())

    def tick_within(self, seconds: float) -> None:
        """Call `on_tick` within this number of seconds."""
        when = clock.monotonic() + seconds
        if when < self._tick_at:
            self._tick_at = when
            self._pool.at(when, self, _TICK_SEQ, None)

    # --- waiting --------------------------------------------------------------------------------

    def ready(self) -> Message | None:
        """The next message that has arrived already; for a pool of its own.

        Returns None if there is none, and after `_MAX_DRAINED_MESSAGES`, so that queued effects can start.
        """
        self._interrupt.check()
        self._drained += 1
        found = self._pool.next() if self._drained <= _MAX_DRAINED_MESSAGES else None
        if found is None:
            self._drained = 0
        return None if found is None else found[1]

    def wait(self) -> Message | None:
        """Wait for the next message; for a pool of its own. Raises `Interrupted` on a request to stop."""
        pool = self._pool
        if self._is_ending:
            found = pool.next()
            if found is None:
                pool.pause(TICK / 2)
                found = pool.next()
            return None if found is None else found[1]
        while True:
            self._interrupt.check()
            found = pool.next()
            if found is not None:
                return found[1]
            pool.pause(_FOREVER, self._interrupt.fileno())

    def end(self) -> bool:
        """Interrupt all running effects; returns whether some are still running.

        Must be called again until it returns False: it passes on further requests to stop.
        """
        self._is_ending = True
        self._sleeping.clear()
        self._pool.waiting_for_slot.pop(self, None)
        for worker in self._busy.values():
            while worker.interrupt.count < max(1, self._interrupt.count):
                worker.interrupt.set(self._interrupt.is_hangup)
        return bool(self._busy)

    def close(self) -> None:
        """Release the pool, after all effects have ended."""
        self._tick_at = _FOREVER
        self._pool.working -= self._reserved
        self._reserved = 0
        self._pool.forget(self)
        if self._is_own:
            self._pool.close()
