"""Many runs in one process: one place that waits for all of them.

Owns who has a turn. Each run is a generator that yields what it waits for (`waiting`); threads and timers
are shared (`lanes.Pool`), and a run that waits takes no time and no thread of its own. Which runs there
are, and when another one begins, is the business of whoever gives them (`batch`).
"""

from __future__ import annotations

import contextlib
from collections import deque

from ..host import clock, environment, files, pipes, processes
from ..host.context import Interrupt
from ..host.coroutines import Apart
from ..models.worker_pool import SharedWorkers
from ..runs.locks import LOOK_AGAIN, Release
from .control_channel import Desk
from .effect_pool import Lanes, Pool
from .threads import Threads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from ...vm.code.image import Image
    from ..host.coroutines import Steps
    from ..journal.outcome import Outcome
    from ..journal.run_folder import RunFolder
    from ..launch.command import Command
    from .effect_pool import Message

# What runs do apart, which is waiting for a disk: it writes several things at once in the time of one.
_HELPERS = 4
# Messages that are taken before others have a turn.
_PORTION = 64
_MOST_PROGRAMS = 256


class Strand:
    """A run among many: what it does, and how it is asked to stop; `about` is whatever its giver likes."""

    __slots__ = ("about", "backlog", "command", "interrupt", "is_apart", "lanes", "release", "steps")

    def __init__(self, command: Command, about: Any) -> None:
        self.command = command
        self.about = about
        self.interrupt = Interrupt(is_looked_at=True)
        self.steps: Steps[Outcome]
        self.lanes: Lanes | None = None
        # Whether something is done for it apart, and what has happened since.
        self.is_apart = False
        self.backlog: list[Message] = []
        # Where it stands in a queue: what it sleeps on, and when it looks again all the same.
        self.release: tuple[Release, float] | None = None

    @property
    def run_id(self) -> str | None:
        folder = self.command.folder or self.command.queued
        return None if folder is None else folder.id


class Helpers:
    """A few threads for what runs do apart; `wake()` tells that something is done."""

    def __init__(self, wake: Callable[[], object]) -> None:
        self._wake = wake
        self._threads = Threads(_HELPERS)
        self.done: deque[tuple[Strand, object, Exception | None]] = deque()
        self.close = self._threads.close

    def do(self, strand: Strand, action: Callable[[], object]) -> None:
        self._threads.do(lambda: self._do(strand, action))

    def _do(self, strand: Strand, action: Callable[[], object]) -> None:
        """In a thread."""
        came, trouble = None, None
        try:
            came = action()
        except Exception as error:
            trouble = error
        self.done.append((strand, came, trouble))
        self._wake()


class Many:
    """Runs that go on side by side.

    at_once: how many of their effects do something at the same time. interrupt: asks all to stop; looked
    after here, as the requests of others to stop one of them are. begin(): begins another run, by `add`, if
    there is one that can begin; False where there is none now. ended(strand, outcome): one is over, by
    itself or by an exception.
    """

    def __init__(
        self,
        at_once: int,
        width: int,
        interrupt: Interrupt,
        begin: Callable[[], bool],
        ended: Callable[[Strand, Outcome | BaseException], object],
    ) -> None:
        self.pool = Pool(at_once)
        self.models = SharedWorkers(dict(environment.environb))
        # The runs of this process: which of them may go on side by side is known without looking at files.
        self.ours: set[str] = set()
        self._width = width
        self._interrupt = interrupt
        self._heeded = 0
        self._helpers = Helpers(self.pool.wake)
        self._begin = begin
        self._ended = ended
        self._desk = Desk.open()
        self._strands: dict[Strand, None] = {}
        self._of: dict[Lanes, Strand] = {}
        self._ready: deque[Strand] = deque()
        # Those that begin, and have not come to anything that takes long.
        self._fresh: dict[Strand, None] = {}
        # Those in the queue for paths that others work on.
        self._queued: dict[Strand, None] = {}
        pipes.set_blocking(interrupt.fileno(), False)
        self._bounds: Any = None
        # The run that has the file of a program, which is never written to again.
        self._programs: dict[Image, RunFolder] = {}

    def __len__(self) -> int:
        """How many runs are under way."""
        return len(self._strands)

    def __iter__(self) -> Iterator[Strand]:
        return iter(self._strands)

    def held_by(self) -> dict[str, Any]:
        """What the lock file of each run tells: how to reach one of them."""
        return {} if self._desk is None else {"host": self._desk.path}

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

    def add(self, strand: Strand) -> None:
        """A run that begins."""
        self._strands[strand] = self._fresh[strand] = None
        self._ready.append(strand)

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
            if not self._strands:
                return
            if not moved:
                self._pause(on_wait())

    def _has_place(self) -> bool:
        """Whether another run would find something to do: not where many wait for room already."""
        return (
            not self._interrupt.count
            and len(self._strands) < self._width
            and len(self.pool.hungry) + len(self._fresh) < max(self.pool.at_once, 2 * _HELPERS)
        )

    def _take_messages(self) -> bool:
        for number in range(_PORTION):
            found = self.pool.next()
            if found is None:
                return number > 0
            lanes, message = found
            strand = self._of.get(lanes)
            if strand is not None and strand.is_apart:
                strand.backlog.append(message)
            elif strand is not None:
                self._advance(strand, message)
        return True

    def _take_done(self) -> bool:
        """Go on with those that had something done apart."""
        done = self._helpers.done
        turns = len(done)
        for _ in range(turns):
            strand, came, trouble = done.popleft()
            strand.is_apart = False
            self._advance(strand, came, trouble)
            while strand.backlog and not strand.is_apart and strand in self._strands:
                self._advance(strand, strand.backlog.pop(0))
            if strand.interrupt.count:
                self._look_up(strand)
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
            lanes = next(iter(pool.hungry))
            strand = self._of[lanes]
            if strand.is_apart:
                break  # it will begin, or say that it cannot
            self._advance(strand, None)
            if next(iter(pool.hungry), None) is lanes:
                break
            moved = True
        return moved

    def _look_at_queues(self) -> bool:
        moved = False
        for strand in list(self._queued):
            assert strand.release is not None
            release, until = strand.release
            if release.is_over or clock.monotonic() >= until:
                self._advance(strand, None)
                moved = True
        return moved

    def _pause(self, seconds: float) -> None:
        descriptors = [self._interrupt.fileno()]
        if self._desk is not None:
            descriptors.append(self._desk.fileno())
        for strand in self._queued:
            assert strand.release is not None
            release, until = strand.release
            descriptors.append(release.fileno())
            seconds = min(seconds, until - clock.monotonic())
        self.pool.pause(max(0.0, seconds), *descriptors)

    def _advance(self, strand: Strand, came: Any, trouble: Exception | None = None) -> None:
        """Run one on to its next wait, with what came of the last one, or the trouble with it."""
        bounds = strand.command.bounds
        if bounds is not self._bounds:
            bounds.apply()
            self._bounds = bounds
        strand.release = None
        self._queued.pop(strand, None)
        try:
            waits = strand.steps.send(came) if trouble is None else strand.steps.throw(trouble)
        except StopIteration as end:
            self._drop(strand, end.value)
        except Exception as error:
            self._drop(strand, error)
        except BaseException as error:
            self._drop(strand, error)
            raise
        else:
            self._bounds = strand.command.bounds
            if not isinstance(waits, Apart):
                self._fresh.pop(strand, None)
            if waits is None:
                self._ready.append(strand)
            elif isinstance(waits, Lanes):
                if strand.lanes is None:
                    strand.lanes = waits
                    self._of[waits] = strand
            elif isinstance(waits, Apart):
                strand.is_apart = True
                self._helpers.do(strand, waits.action)
            elif isinstance(waits, Release):
                strand.release = (waits, clock.monotonic() + LOOK_AGAIN)
                self._queued[strand] = None
            else:
                raise TypeError(f"a run waits for {type(waits).__name__}, which nobody here can")

    def _drop(self, strand: Strand, outcome: Outcome | BaseException) -> None:
        del self._strands[strand]
        self._fresh.pop(strand, None)
        if strand.lanes is not None:
            del self._of[strand.lanes]
        if strand.run_id is not None:
            self.ours.discard(strand.run_id)
        self._ended(strand, outcome)

    # --- requests to stop -----------------------------------------------------------------------

    def _heed(self) -> None:
        """Pass on what was asked: of all by a signal, of one by its name."""
        if self._heeded < self._interrupt.count:
            with contextlib.suppress(BlockingIOError):
                files.read(self._interrupt.fileno(), 64)
        while self._heeded < self._interrupt.count:
            self._heeded += 1
            for strand in list(self._strands):
                self._stop(strand)
        if self._desk is not None:
            for run_id in self._desk.requests():
                for strand in [strand for strand in self._strands if strand.run_id == run_id]:
                    self._stop(strand)

    def _stop(self, strand: Strand) -> None:
        strand.interrupt.set()
        self._look_up(strand)

    def _look_up(self, strand: Strand) -> None:
        """Let one that waits see that it was asked to stop."""
        if strand in self._strands and strand not in self._ready and not strand.is_apart:
            self._advance(strand, None)

    def close(self) -> None:
        self._helpers.close()
        self.pool.close()
        self.models.close()
        if self._desk is not None:
            self._desk.close()


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
