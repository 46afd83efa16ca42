"""Simulated processes and their threads, run by one seeded scheduler in virtual time.

A thread of a simulated process is a greenlet that executes the code of llc itself. At each call of the host
another thread may run, a fault may happen, and the process may die. All choices come from one random
generator, so a seed determines the complete run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from greenlet import getcurrent, greenlet

# Duration of a host call, in virtual seconds.
CALL_S = 50e-6
# Probability that a host call switches to another thread.
SWITCH = 0.25
# Few pids, so that they are reused soon.
PIDS = range(100, 140)
TICK_S = 0.01


class Killed(BaseException):
    """The process of this thread is dead; every further call of the host raises it."""


class Stuck(Exception):
    """No thread can continue."""


class TooLong(Exception):
    """The simulation exceeded its number of host calls."""


class Thread:
    """A thread of a simulated process. until: the condition that it waits for; deadline: the end of the
    wait.
    """

    def __init__(self, process: Process, body: Callable[[], object]) -> None:
        self.process = process
        self.body = body
        self.until: Callable[[], object] | None = None
        self.deadline: float | None = None
        self.greenlet = greenlet(self._run)
        self.is_over = False
        self.facade: Any = None  # result of `current_thread`

    def _run(self) -> None:
        try:
            self.body()
        except Killed:
            pass
        finally:
            self.is_over = True

    def is_ready(self, now: float) -> bool:
        process = self.process
        if process.is_stopped:
            return False
        if self.until is None or (process.signals and self is process.threads[0]):
            return True
        return (self.deadline is not None and self.deadline <= now) or bool(self.until())


class Process:
    """A simulated process. status: as from `waitpid`, None while alive. main: its first thread."""

    def __init__(self, world: Scheduler, pid: int, parent: Process | None, env: dict[bytes, bytes]) -> None:
        self.pid = pid
        self.parent = parent
        self.env = env
        self.group = pid
        self.began = int(world.now / TICK_S)
        self.handles: dict[int, Any] = {}
        self.handlers: dict[int, Any] = {}
        self.signals: list[int] = []
        self.threads: list[Thread] = []
        self.status: int | None = None
        self.is_reaped = False
        self.is_stopped = False
        self.is_llc = False
        self.name = ""
        self.about: dict[Any, Any] = {}

    @property
    def is_alive(self) -> bool:
        return self.status is None


class Scheduler:
    """Threads of simulated processes in virtual time.

    now: seconds on the monotonic clock. calls: number of host calls so far. on_call: called at each of them.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self.now = 1000.0
        self.calls = 0
        self.limit = 2_000_000
        self.processes: dict[int, Process] = {}
        self.threads: list[Thread] = []
        self.current: Thread | None = None
        self.on_call: Callable[[], None] = lambda: None
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self._next_pid = 0
        self._dead = Process(self, 0, None, {})
        self._dead.status = 9
        self._hub: greenlet | None = None

    # --- processes ------------------------------------------------------------------------------

    def new_process(self, parent: Process | None, env: dict[bytes, bytes]) -> Process:
        for _ in PIDS:
            pid = PIDS[self._next_pid % len(PIDS)]
            self._next_pid += 1
            old = self.processes.get(pid)
            # No system reuses a pid within a clock tick.
            if old is None or (old.is_reaped and old.began < int(self.now / TICK_S)):
                process = self.processes[pid] = Process(self, pid, parent, env)
                return process
        raise BlockingIOError(11, "no more processes")

    def start_thread(self, process: Process, body: Callable[[], object]) -> Thread:
        thread = Thread(process, body)
        process.threads.append(thread)
        self.threads.append(thread)
        return thread

    def start(self, process: Process, body: Callable[[], int]) -> None:
        """Start the main thread of a process; `body` returns the exit code."""

        def main() -> None:
            code = 70
            try:
                code = body()
            except Killed:
                raise
            except BaseException as error:
                process.about["error"] = error
            self.end(process, code << 8)

        self.start_thread(process, main)

    def end(self, process: Process, status: int) -> None:
        """End a process: close its handles and stop its threads."""
        if not process.is_alive:
            return
        process.status = status
        for handle in list(process.handles):
            process.handles.pop(handle).release()
        for other in self.processes.values():
            if other.parent is process:
                other.parent = None
                other.is_reaped = other.is_reaped or not other.is_alive
        if process.parent is None:
            process.is_reaped = True
        for thread in process.threads:
            if not thread.is_over and thread.greenlet is not getcurrent():
                self._stop(thread)
        self.threads = [thread for thread in self.threads if thread.process is not process]

    def _stop(self, thread: Thread) -> None:
        before, self.current = self.current, thread
        try:
            if thread.greenlet:
                thread.greenlet.parent = getcurrent()
                thread.greenlet.throw(Killed)
        finally:
            self.current = before
            thread.is_over = True

    def living(self) -> list[Process]:
        return [process for process in self.processes.values() if process.is_alive]

    @contextmanager
    def as_dead(self) -> Iterator[Scheduler]:
        """Inside, calls of the host act as those of a dead process."""
        before, self.current = self.current, Thread(self._dead, lambda: None)
        try:
            yield self
        finally:
            self.current = before

    def forget(self) -> None:
        """Release all processes, which have ended."""
        for process in self.processes.values():
            process.threads.clear()
            process.handlers.clear()
        self.threads.clear()
        self.timers.clear()

    # --- host calls -----------------------------------------------------------------------------

    @property
    def process(self) -> Process | None:
        return None if self.current is None else self.current.process

    def point(self) -> None:
        """A call of the host: time passes, faults may happen, other threads may run."""
        thread = self.current
        if thread is None:
            return
        if not thread.process.is_alive:
            raise Killed
        self.calls += 1
        if self.calls > self.limit:
            raise TooLong
        self.now += CALL_S
        self.on_call()
        if not thread.process.is_alive:
            raise Killed
        if thread.process.is_stopped or self.random.random() < SWITCH:
            if not thread.process.is_stopped and self._is_alone(thread):
                self._handle_signals(thread)
            else:
                self._let_others(thread)

    def _is_alone(self, thread: Thread) -> bool:
        """Whether no other thread can run now."""
        now = self.now
        if any(when <= now for when, _ in self.timers):
            return False
        return not any(other is not thread and other.is_ready(now) for other in self.threads)

    def wait(self, until: Callable[[], object], seconds: float | None = None) -> bool:
        """Wait until `until()` is true; False after the timeout."""
        thread = self.current
        if thread is None:
            if not until():
                raise Stuck("the observer would wait")
            return True
        self.point()
        deadline = None if seconds is None else self.now + max(seconds, 0.0)
        while True:
            if until():
                return True
            if deadline is not None and self.now >= deadline:
                return False
            thread.until, thread.deadline = until, deadline
            self._let_others(thread)

    def _let_others(self, thread: Thread) -> None:
        assert self._hub is not None
        thread.greenlet.parent = self._hub
        self._hub.switch()
        thread.until = thread.deadline = None
        if not thread.process.is_alive:
            raise Killed
        self._handle_signals(thread)

    def _handle_signals(self, thread: Thread) -> None:
        process = thread.process
        while process.signals and thread is process.threads[0]:
            number = process.signals.pop(0)
            handler = process.handlers.get(number)
            if not callable(handler):  # it was reset concurrently
                self.end(process, number)
                raise Killed
            handler(number, None)

    # --- scheduling -----------------------------------------------------------------------------

    def run(self, is_over: Callable[[], bool]) -> None:
        """Run the threads until `is_over()`. Raises Stuck."""
        self._hub = getcurrent()
        while not is_over():
            while self.timers and min(when for when, _ in self.timers) <= self.now:
                first = min(self.timers, key=lambda timer: timer[0])
                self.timers.remove(first)
                first[1]()
            ready = [thread for thread in self.threads if thread.is_ready(self.now)]
            if ready:
                thread = ready[0] if len(ready) == 1 else self.random.choice(ready)
                self.current = thread
                thread.greenlet.parent = self._hub
                thread.greenlet.switch()
                self.current = None
                if thread.is_over and thread in self.threads:
                    self.threads.remove(thread)
                continue
            waits = [
                thread.deadline
                for thread in self.threads
                if thread.deadline is not None and not thread.process.is_stopped
            ]
            waits += [when for when, _ in self.timers]
            if not waits:
                raise Stuck("no process can continue: " + ", ".join(self._process_names()))
            self.now = max(self.now, min(waits))

    def _process_names(self) -> list[str]:
        return [
            f"{process.name or process.pid}{' (stopped)' if process.is_stopped else ''}"
            for process in self.living()
        ]

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        self.timers.append((self.now + seconds, action))
