"""Scheduler: many runs in one process, driven concurrently by one event loop.

Owns the order in which runs continue. Each run is a generator that yields the object that it waits for
(`host.coroutines`). Threads and timers are shared (`effect_pool`), so a waiting run uses neither CPU time nor
a thread. The caller provides the runs.
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
from ..runs.run_lock import RECHECK_S, Release
from .control_channel import ControlChannel
from .effect_pool import DONE, EffectPool, RunEffects
from .io_threads import Threads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Protocol

    from .effect_pool import Message

    class Command(Protocol):
        """The attributes that the scheduler reads of a run's command; all of them change during the run."""

        bounds: Bounds
        folder: RunFolder | None
        queued: RunFolder | None


# Threads for blocking actions of runs. Most of these wait for a sync, and a disk handles several syncs in the
# time of one.
_IO_THREADS = 4
# Messages that are handled before other runs continue.
_MESSAGES_PER_ROUND = 64
_MAX_SHARED_PROGRAMS = 256


class ScheduledRun:
    """A scheduled run: its command, its steps and its interrupt. about: data of the caller."""

    def __init__(self, command: Command, about: Any) -> None:
        self.command = command
        self.about = about
        self.interrupt = Interrupt(is_polled=True)
        self.steps: Steps[Outcome]
        self.effects: RunEffects | None = None
        # Whether an I/O thread executes an action of the run, and the messages that have arrived since.
        self.is_apart = False
        self.backlog: list[Message] = []
        # For a queued run: the lock that it waits for, and the time of its next check.
        self.release: tuple[Release, float] | None = None

    @property
    def run_id(self) -> str | None:
        folder = self.command.folder or self.command.queued
        return None if folder is None else folder.id


class IOThreads:
    """Threads for blocking actions of runs. wake: called when an action is done."""

    def __init__(self, wake: Callable[[], object]) -> None:
        self._wake = wake
        self._threads = Threads(_IO_THREADS)
        self.done: deque[tuple[ScheduledRun, object, Exception | None]] = deque()
        self.close = self._threads.close

    def do(self, run: ScheduledRun, action: Callable[[], object]) -> None:
        self._threads.do(lambda: self._do(run, action))

    def _do(self, run: ScheduledRun, action: Callable[[], object]) -> None:
        """Execute an action. Runs in a thread."""
        result, problem = None, None
        try:
            result = action()
        except Exception as error:
            problem = error
        self.done.append((run, result, problem))
        self._wake()


class Scheduler:
    """Concurrent runs.

    Args:
        at_once: limit of concurrently working effects of all runs.
        width: limit of concurrent runs.
        interrupt: stops all runs. The scheduler also handles requests of other processes to stop single runs.
        begin: starts another run with `add`; returns False if there is none that can start now.
        ended: called with each finished run and its outcome, or the exception that ended it.
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
        # The ids of the runs of this process: conflicts between their scopes are found without reading lock
        # files.
        self.ours: set[str] = set()
        self._width = width
        self._interrupt = interrupt
        # The number of interrupts that were passed on to the runs.
        self._handled_interrupts = 0
        self._threads = IOThreads(self.pool.wake)
        self._begin = begin
        self._ended = ended
        self._channel = ControlChannel.open()
        self._runs: dict[ScheduledRun, None] = {}
        self._run_of: dict[RunEffects, ScheduledRun] = {}
        self._ready: deque[ScheduledRun] = deque()
        # Runs that are starting: they have not waited for an effect yet.
        self._starting: dict[ScheduledRun, None] = {}
        # Runs that wait for a path that is locked by another run.
        self._queued: dict[ScheduledRun, None] = {}
        pipes.set_blocking(interrupt.fileno(), False)
        self._bounds: Any = None
        self._is_draining = False
        # For each program, a run that has its file; these files are never changed.
        self._programs: dict[Image, RunFolder] = {}

    def __len__(self) -> int:
        """The number of runs."""
        return len(self._runs)

    def __iter__(self) -> Iterator[ScheduledRun]:
        return iter(self._runs)

    def held_by(self) -> dict[str, Any]:
        """Facts for the lock file of each run: the address of the control channel."""
        return {} if self._channel is None else {"host": self._channel.path}

    def link_program(self, image: Image, folder: RunFolder) -> bool:
        """Link the program's file of another run into a folder; False if there is none, or linking fails."""
        first = self._programs.get(image)
        if first is not None:
            try:
                files.link(first.image, folder.image)
                return True
            except OSError:
                pass  # the file was removed, or the file system has no links
        if len(self._programs) < _MAX_SHARED_PROGRAMS:
            self._programs[image] = folder
        return False

    def add(self, run: ScheduledRun) -> None:
        """Add a run, which starts in its next turn."""
        self._runs[run] = self._starting[run] = None
        self._ready.append(run)

    # --- turns ----------------------------------------------------------------------------------

    def go(self, on_wait: Callable[[], float] = lambda: float("inf")) -> None:
        """Execute the runs until none is left and none can start.

        on_wait: called before each wait; returns the maximum seconds to wait.
        """
        while True:
            self._handle_stop_requests()
            has_progress = self._take_messages() | self._take_done() | self._continue_ready()
            has_progress |= self._give_slots() | self._check_queued()
            if self._can_start_run() and self._begin():
                continue
            if not self._runs:
                return
            if not has_progress:
                self._pause(on_wait())

    def _can_start_run(self) -> bool:
        """Whether another run may start: not if many runs wait for a slot already."""
        return (
            not self._interrupt.count
            and not self._is_draining
            and len(self._runs) < self._width
            and len(self.pool.waiting_for_slot) + len(self._starting)
            < max(self.pool.at_once, 2 * _IO_THREADS)
        )

    def _take_messages(self) -> bool:
        """Handle messages of effects; whether there were any."""
        for number in range(_MESSAGES_PER_ROUND):
            next_message = self.pool.next()
            if next_message is None:
                return number > 0
            effects, message = next_message
            run = self._run_of.get(effects)
            if self._is_draining and run is not None and message[1] == DONE:
                run.interrupt.set()  # the run takes this result and starts nothing more
            if run is not None and run.is_apart:
                run.backlog.append(message)
            elif run is not None:
                self._advance(run, message)
        return True

    def _take_done(self) -> bool:
        """Continue the runs whose action in an I/O thread is done; whether there were any."""
        done = self._threads.done
        turns = len(done)
        for _ in range(turns):
            run, result, problem = done.popleft()
            run.is_apart = False
            self._advance(run, result, problem)
            while run.backlog and not run.is_apart and run in self._runs:
                self._advance(run, run.backlog.pop(0))
            if run.interrupt.count:
                self._notice_interrupt(run)
        return turns > 0

    def _continue_ready(self) -> bool:
        """Continue each computing run once; whether there were any."""
        turns = len(self._ready)
        for _ in range(turns):
            self._advance(self._ready.popleft(), None)
        return turns > 0

    def _give_slots(self) -> bool:
        """Give free slots to the runs that wait for one, in order; whether a run made progress."""
        pool, has_progress = self.pool, False
        while pool.waiting_for_slot and pool.working < pool.at_once:
            effects = next(iter(pool.waiting_for_slot))
            run = self._run_of[effects]
            if run.is_apart:
                break  # the run uses the slot after its action in the I/O thread
            self._advance(run, None)
            if next(iter(pool.waiting_for_slot), None) is effects:
                break
            has_progress = True
        return has_progress

    def _check_queued(self) -> bool:
        """Continue the queued runs whose lock may be free; whether there were any."""
        has_progress = False
        for run in list(self._queued):
            assert run.release is not None
            release, until = run.release
            if release.is_over or clock.monotonic() >= until:
                self._advance(run, None)
                has_progress = True
        return has_progress

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

    def _advance(self, run: ScheduledRun, result: Any, problem: Exception | None = None) -> None:
        """Continue a run to its next wait, with the result of the last wait or its exception."""
        bounds = run.command.bounds
        if bounds is not self._bounds:
            bounds.apply()
            self._bounds = bounds
        run.release = None
        self._queued.pop(run, None)
        try:
            waits_for = run.steps.send(result) if problem is None else run.steps.throw(problem)
        except StopIteration as end:
            self._drop(run, end.value)
        except Exception as error:
            self._drop(run, error)
        except BaseException as error:
            self._drop(run, error)
            raise
        else:
            self._bounds = run.command.bounds
            if not isinstance(waits_for, Apart):
                self._starting.pop(run, None)
            if waits_for is None:
                self._ready.append(run)
            elif isinstance(waits_for, RunEffects):
                if run.effects is None:
                    run.effects = waits_for
                    self._run_of[waits_for] = run
            elif isinstance(waits_for, Apart):
                run.is_apart = True
                self._threads.do(run, waits_for.action)
            elif isinstance(waits_for, Release):
                run.release = (waits_for, clock.monotonic() + RECHECK_S)
                self._queued[run] = None
            else:
                raise TypeError(
                    f"a run waits for {type(waits_for).__name__}, which the scheduler cannot wait for"
                )

    def _drop(self, run: ScheduledRun, outcome: Outcome | BaseException) -> None:
        del self._runs[run]
        self._starting.pop(run, None)
        if run.effects is not None:
            del self._run_of[run.effects]
        if run.run_id is not None:
            self.ours.discard(run.run_id)
        self._ended(run, outcome)

    # --- requests to stop -----------------------------------------------------------------------

    def _handle_stop_requests(self) -> None:
        """Pass on requests to stop: signals to all runs, requests of other processes to single runs."""
        if self._handled_interrupts < self._interrupt.count:
            with contextlib.suppress(BlockingIOError):
                files.read(self._interrupt.fileno(), 64)
        while self._handled_interrupts < self._interrupt.count:
            self._handled_interrupts += 1
            for run in list(self._runs):
                self._stop(run, self._interrupt.is_hangup)
        if self._channel is not None:
            for run_id in self._channel.requests():
                self.stop(run_id)

    def drain(self) -> None:
        """Start no more runs, and stop each run when it gets the next result of a running effect.

        A run that only sleeps or waits for a person stops at once.
        """
        if not self._is_draining:
            self._is_draining = True
            for run in [run for run in self._runs if run.effects is None or not run.effects.is_acting]:
                self._stop(run)

    def park(self, least_s: float, prepare: Callable[[ScheduledRun], object]) -> None:
        """Stop the runs that have only waited for `least_s` seconds, and will wait as long.

        prepare: called with each of these runs before it stops.
        """
        for run in list(self._runs):
            is_idle = run.effects is not None and not (
                run.is_apart or run.interrupt.count or run in self._ready
            )
            if is_idle and run.effects is not None and run.effects.park(least_s):
                prepare(run)
                self._stop(run)

    def stop(self, run_id: str) -> None:
        """Request a run to stop, like Ctrl-C."""
        for run in [run for run in self._runs if run.run_id == run_id]:
            self._stop(run)

    def _stop(self, run: ScheduledRun, is_hangup: bool = False) -> None:
        run.interrupt.set(is_hangup)
        self._notice_interrupt(run)

    def _notice_interrupt(self, run: ScheduledRun) -> None:
        """Continue a waiting run, so that it checks its interrupt."""
        if run in self._runs and run not in self._ready and not run.is_apart:
            self._advance(run, None)

    def close(self) -> None:
        self._threads.close()
        self.pool.close()
        self.models.close()
        if self._channel is not None:
            self._channel.close()


def concurrent_run_limit(wanted: int, at_once: int) -> int:
    """The number of runs that the limit of open files allows, `wanted` at most.

    Raises the soft limit as far as necessary and permitted. at_once: limit of concurrent actions.
    """
    fixed = _FILES_OF_PROCESS + at_once * _FILES_PER_ACTION
    soft, hard = processes.getrlimit(processes.RLIMIT_NOFILE)
    needed = fixed + wanted * _FILES_PER_RUN
    if soft == processes.RLIM_INFINITY or soft >= needed:
        return wanted
    limit = needed if hard == processes.RLIM_INFINITY else min(hard, needed)
    if limit > soft:
        try:
            processes.setrlimit(processes.RLIMIT_NOFILE, (limit, hard))
        except (OSError, ValueError):
            limit = soft
    return min(wanted, (max(limit, soft) - fixed) // _FILES_PER_RUN)


# Open files: of a run, its lock (the journal is open for a moment only); of an action, its pipes and those of
# its helper processes; of the process itself.
_FILES_PER_RUN = 1
_FILES_PER_ACTION = 20
_FILES_OF_PROCESS = 64
