"""Scheduler: many runs in one process, driven concurrently by one loop.

Owns whose turn it is. Each run is a generator that yields what it waits for (`host.coroutines`). Threads and
timers are shared (`effect_pool`), so a waiting run takes neither time nor a thread. The caller (`batch`)
decides which runs there are and when another one starts.
"""

from __future__ import annotations

import contextlib
from collections import deque

from ...vm.code.image import Image
from ..host import clock, environment, files, pipes, processes
from ..host.coroutines import Apart, Steps
from ..host.effect_context import Interrupt
from ..journal.outcome import Outcome
from ..journal.run_folder import RunFolder
from ..models.worker_pool import SharedWorkers
from ..project.limits import Bounds
from ..runs.locks import LOOK_AGAIN, Release
from .control_channel import ControlChannel
from .effect_pool import DONE, EffectPool, RunEffects
from .io_threads import Threads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Protocol

    from .effect_pool import Message

    class Command(Protocol):
        """What the scheduler reads of the command that drives a run; all of it changes while it does."""

        bounds: Bounds
        folder: RunFolder | None
        queued: RunFolder | None


# What runs do apart, which is waiting for a disk: it writes several things at once in the time of one.
_IO_THREADS = 4
# Messages that are taken before others have a turn.
_PORTION = 64
_MOST_PROGRAMS = 256


class ScheduledRun:
    """A run among many: what it does, and how it is asked to stop; `about` is whatever its giver likes."""

    def __init__(self, command: Command, about: Any) -> None:
        self.command = command
        self.about = about
        self.interrupt = Interrupt(is_polled=True)
        self.steps: Steps[Outcome]
        self.effects: RunEffects | None = None
        # Whether something is done for it apart, and what has happened since.
        self.is_apart = False
        self.backlog: list[Message] = []
        # In a queue: the lock that it waits for, and the time of its next check.
        self.release: tuple[Release, float] | None = None

    @property
    def run_id(self) -> str | None:
        folder = self.command.folder or self.command.queued
        return None if folder is None else folder.id


class IOThreads:
    """A few threads for what runs do apart; `wake()` tells that something is done."""

    def __init__(self, wake: Callable[[], object]) -> None:
        self._wake = wake
        self._threads = Threads(_IO_THREADS)
        self.done: deque[tuple[ScheduledRun, object, Exception | None]] = deque()
        self.close = self._threads.close

    def do(self, run: ScheduledRun, action: Callable[[], object]) -> None:
        self._threads.do(lambda: self._do(run, action))

    def _do(self, run: ScheduledRun, action: Callable[[], object]) -> None:
        """In a thread."""
        came, trouble = None, None
        try:
            came = action()
        except Exception as error:
            trouble = error
        self.done.append((run, came, trouble))
        self._wake()


class Scheduler:
    """Runs that go on side by side.

    at_once: how many of their effects do something at the same time. interrupt: asks all to stop; looked
    after here, as the requests of others to stop one of them are. begin(): begins another run, by `add`, if
    there is one that can begin; False where there is none now. ended(run, outcome): one is over, by
    itself or by an exception.
    """

    def __init__(
        self,
        at_once: int,
        width: int,
        interrupt: Interrupt,
        begin: Callable[[], bool],
        ended: Callable[[ScheduledRun, Outcome | BaseException], object],
    ) -> None:
        self.pool = EffectPool(at_once)
        self.models = SharedWorkers(dict(environment.environb))
        # The runs of this process: which of them may go on side by side is known without looking at files.
        self.ours: set[str] = set()
        self._width = width
        self._interrupt = interrupt
        self._heeded = 0
        self._threads = IOThreads(self.pool.wake)
        self._begin = begin
        self._ended = ended
        self._channel = ControlChannel.open()
        self._runs: dict[ScheduledRun, None] = {}
        self._of: dict[RunEffects, ScheduledRun] = {}
        self._ready: deque[ScheduledRun] = deque()
        # Those that begin, and have not come to anything that takes long.
        self._fresh: dict[ScheduledRun, None] = {}
        # Those in the queue for paths that others work on.
        self._queued: dict[ScheduledRun, None] = {}
        pipes.set_blocking(interrupt.fileno(), False)
        self._bounds: Any = None
        self._is_draining = False
        # The run that has the file of a program, which is never written to again.
        self._programs: dict[Image, RunFolder] = {}

    def __len__(self) -> int:
        """How many runs are under way."""
        return len(self._runs)

    def __iter__(self) -> Iterator[ScheduledRun]:
        return iter(self._runs)

    def held_by(self) -> dict[str, Any]:
        """What the lock file of each run tells: how to reach one of them."""
        return {} if self._channel is None else {"host": self._channel.path}

    def link_program(self, image: Image, folder: RunFolder) -> bool:
        """Give a run the file of its program that another one has already; False where none has."""
        first = self._programs.get(image)
        if first is not None:
            try:
                files.link(first.image, folder.image)
                return True
            except OSError:
                pass  # it was cleared away, or links are impossible here
        if len(self._programs) < _MOST_PROGRAMS:
            self._programs[image] = folder
        return False

    def add(self, run: ScheduledRun) -> None:
        """A run that begins."""
        self._runs[run] = self._fresh[run] = None
        self._ready.append(run)

    # --- turns ----------------------------------------------------------------------------------

    def go(self, on_wait: Callable[[], float] = lambda: float("inf")) -> None:
        """Run them until none is left and none can begin.

        on_wait(): is called whenever there is something to wait for, and says for how long at most.
        """
        while True:
            self._heed()
            moved = self._take_messages() | self._take_done() | self._give_turns()
            moved |= self._give_room() | self._look_at_queues()
            if self._has_place() and self._begin():
                continue
            if not self._runs:
                return
            if not moved:
                self._pause(on_wait())

    def _has_place(self) -> bool:
        """Whether another run would find something to do: not where many wait for room already."""
        return (
            not self._interrupt.count
            and not self._is_draining
            and len(self._runs) < self._width
            and len(self.pool.hungry) + len(self._fresh) < max(self.pool.at_once, 2 * _IO_THREADS)
        )

    def _take_messages(self) -> bool:
        for number in range(_PORTION):
            found = self.pool.next()
            if found is None:
                return number > 0
            effects, message = found
            run = self._of.get(effects)
            if self._is_draining and run is not None and message[1] == DONE:
                run.interrupt.set()  # its result is taken, and nothing more is begun
            if run is not None and run.is_apart:
                run.backlog.append(message)
            elif run is not None:
                self._advance(run, message)
        return True

    def _take_done(self) -> bool:
        """Continue the runs whose work in an I/O thread is done."""
        done = self._threads.done
        turns = len(done)
        for _ in range(turns):
            run, came, trouble = done.popleft()
            run.is_apart = False
            self._advance(run, came, trouble)
            while run.backlog and not run.is_apart and run in self._runs:
                self._advance(run, run.backlog.pop(0))
            if run.interrupt.count:
                self._look_up(run)
        return turns > 0

    def _give_turns(self) -> bool:
        """One to each that needs nothing but time."""
        turns = len(self._ready)
        for _ in range(turns):
            self._advance(self._ready.popleft(), None)
        return turns > 0

    def _give_room(self) -> bool:
        """Let those begin an effect that waited for others to end, first come first served."""
        pool, moved = self.pool, False
        while pool.hungry and pool.working < pool.at_once:
            effects = next(iter(pool.hungry))
            run = self._of[effects]
            if run.is_apart:
                break  # it will begin, or say that it cannot
            self._advance(run, None)
            if next(iter(pool.hungry), None) is effects:
                break
            moved = True
        return moved

    def _look_at_queues(self) -> bool:
        moved = False
        for run in list(self._queued):
            assert run.release is not None
            release, until = run.release
            if release.is_over or clock.monotonic() >= until:
                self._advance(run, None)
                moved = True
        return moved

    def _pause(self, seconds: float) -> None:
        descriptors = [self._interrupt.fileno()]
        if self._channel is not None:
            descriptors.append(self._channel.fileno())
        for run in self._queued:
            assert run.release is not None
            release, until = run.release
            descriptors.append(release.fileno())
            seconds = min(seconds, until - clock.monotonic())
        self.pool.pause(max(0.0, seconds), *descriptors)

    def _advance(self, run: ScheduledRun, came: Any, trouble: Exception | None = None) -> None:
        """Run one on to its next wait, with what came of the last one, or the trouble with it."""
        bounds = run.command.bounds
        if bounds is not self._bounds:
            bounds.apply()
            self._bounds = bounds
        run.release = None
        self._queued.pop(run, None)
        try:
            waits = run.steps.send(came) if trouble is None else run.steps.throw(trouble)
        except StopIteration as end:
            self._drop(run, end.value)
        except Exception as error:
            self._drop(run, error)
        except BaseException as error:
            self._drop(run, error)
            raise
        else:
            self._bounds = run.command.bounds
            if not isinstance(waits, Apart):
                self._fresh.pop(run, None)
            if waits is None:
                self._ready.append(run)
            elif isinstance(waits, RunEffects):
                if run.effects is None:
                    run.effects = waits
                    self._of[waits] = run
            elif isinstance(waits, Apart):
                run.is_apart = True
                self._threads.do(run, waits.action)
            elif isinstance(waits, Release):
                run.release = (waits, clock.monotonic() + LOOK_AGAIN)
                self._queued[run] = None
            else:
                raise TypeError(
                    f"a run waits for {type(waits).__name__}, which the scheduler cannot wait for"
                )

    def _drop(self, run: ScheduledRun, outcome: Outcome | BaseException) -> None:
        del self._runs[run]
        self._fresh.pop(run, None)
        if run.effects is not None:
            del self._of[run.effects]
        if run.run_id is not None:
            self.ours.discard(run.run_id)
        self._ended(run, outcome)

    # --- requests to stop -----------------------------------------------------------------------

    def _heed(self) -> None:
        """Pass on what was asked: of all by a signal, of one by its name."""
        if self._heeded < self._interrupt.count:
            with contextlib.suppress(BlockingIOError):
                files.read(self._interrupt.fileno(), 64)
        while self._heeded < self._interrupt.count:
            self._heeded += 1
            for run in list(self._runs):
                self._stop(run, self._interrupt.is_hangup)
        if self._channel is not None:
            for run_id in self._channel.requests():
                self.stop(run_id)

    def drain(self) -> None:
        """Begin no more runs, and stop each as soon as it has the result of an effect in progress.

        A run that only sleeps or waits for a person stops at once.
        """
        if not self._is_draining:
            self._is_draining = True
            for run in [run for run in self._runs if run.effects is None or not run.effects.is_acting]:
                self._stop(run)

    def park(self, least_s: float, prepare: Callable[[ScheduledRun], object]) -> None:
        """Stop the runs that only wait, for so long already and for so long from now on.

        prepare(run): called for each before it stops.
        """
        for run in list(self._runs):
            is_idle = run.effects is not None and not (
                run.is_apart or run.interrupt.count or run in self._ready
            )
            if is_idle and run.effects is not None and run.effects.park(least_s):
                prepare(run)
                self._stop(run)

    def stop(self, run_id: str) -> None:
        """Ask a run to stop, as Ctrl-C does."""
        for run in [run for run in self._runs if run.run_id == run_id]:
            self._stop(run)

    def _stop(self, run: ScheduledRun, is_hangup: bool = False) -> None:
        run.interrupt.set(is_hangup)
        self._look_up(run)

    def _look_up(self, run: ScheduledRun) -> None:
        """Let one that waits see that it was asked to stop."""
        if run in self._runs and run not in self._ready and not run.is_apart:
            self._advance(run, None)

    def close(self) -> None:
        self._threads.close()
        self.pool.close()
        self.models.close()
        if self._channel is not None:
            self._channel.close()


def place_for(wanted: int, at_once: int) -> int:
    """How many runs can be under way, `wanted` at most, by the files that this process may have open.

    The soft limit is raised as far as it is needed and the system lets us.
    """

    apart = _OF_OURS + at_once * _OF_AN_ACTION
    soft, hard = processes.getrlimit(processes.RLIMIT_NOFILE)
    needed = apart + wanted * _OF_A_RUN
    if soft == processes.RLIM_INFINITY or soft >= needed:
        return wanted
    limit = needed if hard == processes.RLIM_INFINITY else min(hard, needed)
    if limit > soft:
        try:
            processes.setrlimit(processes.RLIMIT_NOFILE, (limit, hard))
        except (OSError, ValueError):
            limit = soft
    return min(wanted, (max(limit, soft) - apart) // _OF_A_RUN)


# What is open: by a run its lock, and for a moment its journal; by an action its pipes, and those of what
# helps it; and by ourselves.
_OF_A_RUN = 1
_OF_AN_ACTION = 20
_OF_OURS = 64
