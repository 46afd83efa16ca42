"""Effect pool: concurrent effects, each in a thread with a world and an interrupt of its own.

Owns the threads and their messages to the driver, which takes them when it waits. Journal, display and
machine therefore have one owner, and each kind of effect is performed by the same code as alone. Sleeping
takes no thread. A pool has the threads of one run, or those that many runs share.
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

    # The effect's number, what happened, and what belongs to that.
    Message = tuple[int, str, Any]

OUTPUT, PROMPT, PROCESS, EVENT, AGENT = "output", "prompt", "process", "event", "agent"
DONE, CUT, FAILED = "done", "cut", "failed"
_LAST = (DONE, CUT, FAILED)
# Parts of output that wait at most: an action that writes faster than it can be shown has to wait.
_ROOM = 256
# Messages that are taken without a wait before what is queued begins.
_MOST_DRAINED = 64
_TICK_SEQ = 0  # effects count from 1
_FOREVER = float("inf")


class _Worker:
    """World and interrupt for one effect at a time, reused by the next one."""

    def __init__(self) -> None:
        self.world: World | None = None
        self.owner: RunEffects | None = None  # whose world it is
        self.interrupt = Interrupt()
        self.is_asking = False  # a person, who may take long

    def close(self) -> None:
        if self.world is not None:
            self.world.close()
        self.interrupt.close()


class EffectPool:
    """Threads and timers of one run, or of many. at_once: limit of concurrently active effects."""

    def __init__(self, at_once: int) -> None:
        self.at_once = at_once
        self.working = 0
        # Those that have more to begin, in the order in which they came for room.
        self.hungry: dict[RunEffects, None] = {}
        # Model clients for runs that share none with others: to start one takes longer than most calls.
        self._models = SharedWorkers(dict(environment.environb))
        self._idle: list[_Worker] = []
        self._threads = Threads()
        self._messages: threads.SimpleQueue[tuple[RunEffects, Message]] = threads.SimpleQueue()
        self._room = threads.Semaphore(_ROOM)
        self._timers: list[tuple[float, int, RunEffects, int, Callable[[], dict[str, Any]] | None]] = []
        self._number = count()
        self._read, self._write = pipes.pipe()
        pipes.set_blocking(self._write, False)
        pipes.set_blocking(self._read, False)
        # Held while the pipe is written to or closed: its number could be that of another file by then.
        self._pipe_lock = threads.Lock()
        # Whether the waiting driver must look again, and whether it sleeps.
        self._is_woken = self._sleeps = False

    def do(self, work: Callable[[], object]) -> None:
        """Do it in a thread."""
        self._threads.do(work)

    def say(self, effects: RunEffects, message: Message) -> None:
        """In a thread: tell what happened."""
        if message[1] in (OUTPUT, AGENT):
            self._room.acquire()
        self._messages.put((effects, message))
        self.wake()

    def wake(self) -> None:
        """In a thread: wake the waiting driver."""
        self._is_woken = True
        if self._sleeps:
            with self._pipe_lock, contextlib.suppress(BlockingIOError):
                if self._write >= 0:
                    files.write(self._write, b"!")

    def at(
        self, when: float, effects: RunEffects, seq: int, result: Callable[[], dict[str, Any]] | None
    ) -> int:
        """`result()` is the result of effect `seq` at that time; a number for that."""
        number = next(self._number)
        heapq.heappush(self._timers, (when, number, effects, seq, result))
        return number

    def next(self) -> tuple[RunEffects, Message] | None:
        """What happened next, if something did: a message, or a sleep that is over. Gives ticks meanwhile."""
        timers = self._timers
        while timers and timers[0][0] <= clock.monotonic():
            when, number, effects, seq, result = heapq.heappop(timers)
            if result is None:
                effects.tick(when)
            elif effects.is_over(seq, number):
                return effects, (seq, DONE, result())
        try:
            effects, message = self._messages.get_nowait()
        except threads.Empty:
            return None
        if message[1] in (OUTPUT, AGENT):
            self._room.release()
        elif message[1] in _LAST:
            worker = effects.leave(message[0])
            if len(self._idle) < self.at_once:
                self._idle.append(worker)
            else:  # people were asked, who may be many
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
        """One that is free, of the same run if there is one."""
        idle = self._idle
        for index in range(len(idle) - 1, -1, -1):
            if idle[index].owner is effects:
                return idle.pop(index)
        return idle.pop() if idle else _Worker()

    def with_models(self, world: World) -> World:
        """A world for one of several effects, which share their model clients."""
        if getattr(world, "workers", self._models) is None:
            world.workers = self._models
        return world

    def forget(self, effects: RunEffects) -> None:
        """A run has ended: drop what belongs to it, keep what the next one can use."""
        self.hungry.pop(effects, None)
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
        with self._pipe_lock:  # a thread may be about to tell of its end, which has been taken already
            files.close(self._read)
            files.close(self._write)
            self._write = -1


class RunEffects:
    """The effects of one run that are performed now, in `pool`; without one in a pool of its own.

    interrupt: the run's. on_tick: is called now and then while it waits, and says after how many seconds
    it wants to be called again.
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
        # When waits of sleeps, questions and for quotas began and when they end at the latest, by effect.
        self._waits: dict[int, tuple[float, float]] = {}
        # Of effects that may wait for a quota: accounts, seconds of earlier waits, and which have worked.
        self._accounts: dict[int, str] = {}
        self._rested: dict[int, float] = {}
        self._worked: set[int] = set()
        self.parking: Parking | None = None
        self._tick_at = _FOREVER
        self._taken = 0
        self._is_ending = False
        self._drained = 0
        self.tick_within(TICK)

    @property
    def room(self) -> int:
        """How many effects more may begin to do something; what waits for a person does not."""
        pool = self._pool
        if pool.hungry and next(iter(pool.hungry)) is not self:
            return 0
        return pool.at_once - pool.working

    @property
    def busy(self) -> int:
        """How many are performed in threads."""
        return len(self._busy)

    @property
    def is_acting(self) -> bool:
        """Whether an effect is performed that does not only wait, for a person or a quota."""
        return bool(self._busy.keys() - self._waits.keys())

    def __len__(self) -> int:
        """How many effects are performed now."""
        return len(self._busy) + len(self._sleeping)

    # --- beginning ------------------------------------------------------------------------------

    def sleep(self, seq: int, seconds: float, result: Callable[[], dict[str, Any]]) -> None:
        """Schedule `result()` as the result of effect `seq`."""
        now = clock.monotonic()
        self._sleeping[seq] = self._pool.at(now + seconds, self, seq, result)
        self._waits[seq] = (now, now + seconds)

    def take_room(self) -> None:
        """An effect that does something is begun, and will start when it is on record."""
        self._pool.working += 1
        self._taken += 1

    def start(self, effect: Effect, context: Context) -> None:
        """Perform an effect in a thread; calls on its context arrive as messages."""
        pool, seq = self._pool, effect.seq
        worker = pool.worker(self)
        if worker.owner is not self:
            world = pool.with_models(self._world.beside())
            if worker.world is not None:
                world.take_over(worker.world)
            worker.world, worker.owner = world, self
        context.interrupt = worker.interrupt
        context.on_output = lambda stream, text: pool.say(self, (seq, OUTPUT, (stream, text)))
        context.on_process = lambda pid, begun: pool.say(self, (seq, PROCESS, (pid, begun)))
        context.on_event = lambda event: pool.say(self, (seq, EVENT, event))
        context.on_agent = lambda activity: pool.say(self, (seq, AGENT, activity))
        context.on_tick = None
        if context.on_prompt is not None:
            context.on_prompt = lambda text: pool.say(self, (seq, PROMPT, text))
        worker.is_asking = EFFECTS[effect.kind].is_idle
        self._taken -= not worker.is_asking
        if worker.is_asking:
            now = clock.monotonic()
            limit, _ = context.limit(effect.args, own="action")
            self._waits[seq] = (now, now + (_FOREVER if limit is None else limit))
        self._busy[seq] = worker
        pool.do(lambda: self._perform(worker, effect, context))

    def _perform(self, worker: _Worker, effect: Effect, context: Context) -> None:
        """In the worker's thread."""
        assert worker.world is not None
        try:
            result = worker.world.perform(effect, context)
        except Interrupted:
            self._pool.say(self, (effect.seq, CUT, None))
        except BaseException as error:
            self._pool.say(self, (effect.seq, FAILED, error))
        else:
            self._pool.say(self, (effect.seq, DONE, result))

    def acted(self, effect: Effect, activity: AgentActivity, longest_s: float | None) -> None:
        """What an agent has done; from `quota-wait` on the effect waits, until anything else happens.

        longest_s: for how long it may wait; None for any time. A wait that would lose work when the effect
        is performed again is not counted as one: that of a tool or task after it has done something.
        """
        seq, now = effect.seq, clock.monotonic()
        if activity.kind == "quota-wait":
            if effect.kind == "agent" or (effect.kind != "tool" and seq not in self._worked):
                left = max(0.0, (activity.resets_at or 0.0) - clock.time())
                begun = self._waits.get(seq, (now - self._rested.get(seq, 0.0), 0.0))[0]
                self._waits[seq] = begun, now + min(left, _FOREVER if longest_s is None else longest_s)
                self._accounts[seq] = activity.name
            return
        if activity.kind in WORK:
            self._worked.add(seq)
        if self._accounts.pop(seq, None) is not None:
            self._rested[seq] = now - self._waits.pop(seq)[0]
            self.parking = None

    def park(self, least_s: float) -> bool:
        """Whether the run only waits, for so long already and from now on; `parking` tells how."""
        performed = {*self._busy, *self._sleeping}
        is_waiting = bool(performed) and performed == self._waits.keys() and min(performed) > _TICK_SEQ
        if not is_waiting or self._taken or self in self._pool.hungry or self._is_ending:
            return False
        now = clock.monotonic()
        left = min(end for _, end in self._waits.values()) - now
        if left < least_s or any(now - begun < least_s for begun, _ in self._waits.values()):
            return False
        waited = {seq: now - begun for seq, (begun, _) in self._waits.items()}
        accounts = tuple(sorted(set(self._accounts.values())))
        self.parking = Parking(waited, None if left == _FOREVER else left, accounts)
        return True

    def want_room(self, is_wanted: bool) -> None:
        """Whether there is more to begin once there is room."""
        if is_wanted:
            self._pool.hungry.setdefault(self)
        else:
            self._pool.hungry.pop(self, None)

    # --- what happens ---------------------------------------------------------------------------

    def leave(self, seq: int) -> _Worker:
        """An effect in a thread is over: its worker."""
        worker = self._busy.pop(seq)
        for about in (self._waits, self._accounts, self._rested):
            about.pop(seq, None)
        self._worked.discard(seq)
        self._pool.working -= not worker.is_asking
        if worker.interrupt.count:
            worker.interrupt.close()
            worker.interrupt = Interrupt()
        return worker

    def is_over(self, seq: int, number: int) -> bool:
        """Whether the sleep whose time has come is still one."""
        if self._sleeping.get(seq) != number:
            return False
        del self._sleeping[seq]
        self._waits.pop(seq, None)
        return True

    def tick(self, when: float) -> None:
        """A tick's time has come, unless another one was wanted since."""
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
        """A message that has arrived already, in a pool of its own.

        None also after `_MOST_DRAINED` of them, so that other effects can start.
        """
        self._interrupt.check()
        self._drained += 1
        found = self._pool.next() if self._drained <= _MOST_DRAINED else None
        if found is None:
            self._drained = 0
        return None if found is None else found[1]

    def wait(self) -> Message | None:
        """What happens next, where nothing else is waited for. Raises `Interrupted` on a request to stop."""
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
        """End what is performed; whether something still is.

        To be called again until nothing is: a further request to stop insists.
        """
        self._is_ending = True
        self._sleeping.clear()
        self._pool.hungry.pop(self, None)
        for worker in self._busy.values():
            while worker.interrupt.count < max(1, self._interrupt.count):
                worker.interrupt.set(self._interrupt.is_hangup)
        return bool(self._busy)

    def close(self) -> None:
        """Let go, once everything has been ended."""
        self._tick_at = _FOREVER
        self._pool.working -= self._taken
        self._taken = 0
        self._pool.forget(self)
        if self._is_own:
            self._pool.close()
