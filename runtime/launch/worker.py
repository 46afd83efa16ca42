"""`llc worker`: drives runs of a cluster's queue, many at once, until it is asked to drain.

Segments arrive in threads of the queue (`database.engine`); all runs are driven by one scheduler in the
main thread, as in a batch. The heartbeat's thread declares dead workers dead and passes on requests. See
`spec/cluster.md`.
"""

from __future__ import annotations

import contextlib
import sys
from collections import Counter, deque
from typing import Any

from ..database import live, removal, schema, survivors
from ..database import owner as owners
from ..database.connection import Address, Connection, DatabaseUnavailable, connected
from ..database.engine import Engine
from ..database.owner import Owner
from ..database.segments import Deliveries
from ..database.store import open_store
from ..database.stored_run import DatabaseRun, deliver_answer
from ..database.watch import Watch
from ..execution.driver import JOBS
from ..execution.scheduler import ScheduledRun, Scheduler, concurrent_run_limit
from ..host import clock, processes, signals, threads
from ..host.effect_context import Interrupt
from ..host.errors import EXIT_OK, UserError
from ..host.screen import Screen
from ..journal.outcome import Outcome
from . import failures
from .segment import FAILED, LACKS, Checkout, base_command, begin, park, result_of

# Exit code of a worker that others declared dead; its supervisor starts it again.
EXIT_BURIED = 86
# Defaults: limit of concurrent runs, and seconds for which actions may continue after SIGTERM.
AT_ONCE = 8
DRAIN_S = 30
# Seconds for which a thread keeps the interpreter while others wait. With Python's 5 ms each thread that a
# segment passes through could begin that much later.
_SWITCH_S = 0.0005
# Seconds between two health lines, two searches for runs without a worker, and two removals of old runs.
HEALTH_S = 60.0
_SWEEP_S = 5.0
_CLEAN_S = 60.0
# What a worker does and asks with each heartbeat: parked runs that are due are queued, and the rows tell when
# the next one will be, of the runs here which are to stop, which are watched and what was answered, and which
# other owners have missed their heartbeats.
_LOOK = """
select 'due' as kind, null as run, null as name, null::bytea as data,
  (select extract(epoch from min(due) - now())::float8 from runs where status = 'waiting' and due > now())
from wake_due()
union all select 'stop', id, null, null, null from runs where owner = %(owner)s and wish is not null
union all select 'watched', id, null, null, null from runs
  where owner = %(owner)s and watched > clock_timestamp() - make_interval(secs => %(watched)s)
union all select 'answer', d.run, d.name, d.data, null from runs r join documents d on d.run = r.id
  where r.owner = %(owner)s and d.name like 'answers/%%'
union all select 'silent', id, null, null, null from workers
  where state <> 'dead' and id <> %(owner)s
    and greatest(beat, pg_postmaster_start_time()) < clock_timestamp() - make_interval(secs => %(lease)s)
"""
# It takes no more runs.
_DRAINING = "update workers set state = 'draining' where id = %s and state = 'live'"


class _Segment:
    """A segment that the queue has given to this worker; `done` is released at its end."""

    __slots__ = ("done", "number", "result", "run")

    def __init__(self, run: str, number: int) -> None:
        self.run = run
        self.number = number
        self.result = ""
        self.done = threads.Lock()
        self.done.acquire()


class Worker:
    """One worker. at_once: limit of concurrent runs. drain_s: how long actions may continue after SIGTERM.

    machine: names the files of the project, for runs without a workspace; see `Owner`.
    """

    def __init__(
        self, address: Address, labels: tuple[str, ...], at_once: int, drain_s: float, machine: str | None
    ) -> None:
        self._address = address
        self._at_once = at_once
        self._drain_s = drain_s
        self._drain_until: float | None = None
        self._screen = Screen(sys.stderr)
        self._interrupt = Interrupt()
        self._inbox: deque[_Segment] = deque()
        self._counts: Counter[str] = Counter()
        # Runs that were asked to stop; written by the thread of the heartbeat.
        self._stops: set[str] = set()
        self._asked: set[str] = set()
        # Runs with a workspace.
        self._checkouts: dict[str, Checkout] = {}
        # The heartbeat begins before the rest of the worker is there.
        self._is_ready = self._is_leaving = False
        now = clock.monotonic()
        self._next_health, self._next_sweep, self._next_clean = now + HEALTH_S, now + _SWEEP_S, now + _CLEAN_S
        with connected(address) as connection:
            schema.check(connection, address)
        concurrent_run_limit(at_once, at_once)
        self._scheduler = Scheduler(max(at_once, JOBS), at_once, self._interrupt, self._begin, self._ended)
        self._live = live.Publisher(address, self._live_file)
        self._owner = Owner(address, labels, at_once, self._on_beat, self._on_death, self._on_outage, machine)
        self._store = open_store(address, owner=self._owner)
        self._store.on_outage = self._on_outage
        self._store.connect()
        self._base = base_command(self._store)
        self._deliveries = Deliveries(address, self._owner.id)
        self._watch = Watch(address, self._owner, self._on_deaths)
        self._engine = Engine(address, self._owner.id, self._store.project, labels, at_once, self._perform)
        self._is_ready = True

    def go(self) -> int:
        """Work until drained; the exit code."""
        sys.setswitchinterval(_SWITCH_S)
        handlers = {
            number: signals.signal(number, self._on_signal)
            for number in (signals.SIGTERM, signals.SIGINT, signals.SIGHUP)
            if number != signals.SIGHUP or signals.getsignal(number) != signals.SIG_IGN
        }
        self._say(f"worker {self._owner.id}: project {self._store.project}, {self._at_once} at once")
        try:
            while not self._is_over():
                self._scheduler.go(self._on_wait)
                if not self._is_over() and not self._inbox:
                    self._scheduler.pool.pause(self._on_wait(), self._interrupt.fileno())
        finally:
            for number, handler in handlers.items():
                signals.signal(number, handler)
            self._close()
        if self._owner.is_dead:
            self._say("declared dead by another worker; the runs continue elsewhere")
            return EXIT_BURIED
        self._say(f"drained: {self._totals()}")
        return EXIT_OK

    def _is_over(self) -> bool:
        is_asked = self._drain_until is not None or self._interrupt.count or self._owner.is_dead
        return bool(is_asked) and not len(self._scheduler) and not self._checkouts

    def _close(self) -> None:
        self._is_leaving = True
        self._engine.drain()
        while self._inbox:
            segment = self._inbox.popleft()
            self._store.requeue(segment.run)
            self._finish(segment, "returned")
        self._watch.close()
        self._live.close()
        self._engine.close()
        self._store.close()
        self._scheduler.close()

    # --- requests -------------------------------------------------------------------------------

    def _on_signal(self, number: int, frame: Any) -> None:
        """The first one drains, the second one stops actions, the third one kills them.

        A closed terminal may send more than one SIGHUP, so only the first request can be one.
        """
        if self._drain_until is None:
            self._drain_until = clock.monotonic() + self._drain_s
        elif number != signals.SIGHUP:
            self._interrupt.set()
        self._scheduler.pool.wake()

    def _on_wait(self) -> float:
        now = clock.monotonic()
        while self._stops:
            self._stop(self._stops.pop())
        if self._drain_until is not None:
            self._engine.drain()
            self._store.status_after = "queued"
            for claim in list(self._store.claims.values()):
                claim.status = "queued"
            self._scheduler.drain()
            for child in list(self._checkouts.values()):
                child.drain(1 + (now >= self._drain_until or self._interrupt.count > 0))
            if now >= self._drain_until and not self._interrupt.count:
                self._interrupt.set()
        else:
            park(self._scheduler, self._store)
        if now >= self._next_health:
            self._next_health = now + HEALTH_S
            self._say(f"{len(self._scheduler)} running; {self._totals()}")
        return 0.5

    def _stop(self, run: str) -> None:
        child = self._checkouts.get(run)
        if child is not None:
            child.stop()
        else:
            self._scheduler.stop(run)

    def _on_beat(self, connection: Connection) -> float | None:
        """In the thread of the heartbeat; the seconds until the next parked run is due."""
        if not self._is_ready:
            return None
        if self._drain_until is not None:
            connection.execute(_DRAINING, [self._owner.id])
        values = {"owner": self._owner.id, "watched": live.WATCHED_S, "lease": owners.LEASE_S}
        found: dict[str, list[Any]] = {"due": [], "stop": [], "watched": [], "answer": [], "silent": []}
        for kind, *row in connection.execute(_LOOK, values, binary=True).fetchall():
            found[kind].append(row)
        self._live.watch(run for run, *_ in found["watched"])
        for run, *_ in found["stop"]:
            is_here = run in self._store.claims or run in self._checkouts
            if is_here and run not in self._asked:
                self._asked.add(run)
                self._stops.add(run)
                self._scheduler.pool.wake()
        for run, name, data, _ in found["answer"]:
            claim, child = self._store.claims.get(run), self._checkouts.get(run)
            if claim is not None:
                deliver_answer(claim.run.place(name), data)
            elif child is not None:
                child.deliver(name, data)
        now = clock.monotonic()
        is_sweep = now >= self._next_sweep
        if is_sweep or found["silent"]:
            self._on_deaths(owners.declare_dead_owners(connection, self._owner.id))
        if is_sweep:
            self._next_sweep = now + _SWEEP_S
            connection.execute("select reconcile_segments()")
            self._deliveries.return_missing(connection)
            self._end_abandoned(connection)
        if now >= self._next_clean:
            self._next_clean = now + _CLEAN_S
            threads.Thread(target=self._remove_old, daemon=True).start()
        return min((left_s for *_, left_s in found["due"] if left_s is not None), default=None)

    def _remove_old(self) -> None:
        """In a thread of its own: with many runs it takes longer than others wait for a heartbeat."""
        with contextlib.suppress(UserError), connected(self._address) as connection:
            removal.remove(connection, self._store.project, None, "ended", self._base.retention)

    def _end_abandoned(self, connection: Connection) -> None:
        """In the thread of the heartbeat, which does not wait for keepers of actions."""
        folders = survivors.find_abandoned(connection, self._store.cache, self._owner.machine)
        if folders:
            threads.Thread(target=survivors.end_actions, args=(folders,), daemon=True).start()

    def _live_file(self, run: str) -> str | None:
        child = self._checkouts.get(run)
        if child is not None:
            return child.folder.live
        claim = self._store.claims.get(run)
        return claim.run.live if claim is not None else None

    def _on_death(self) -> None:
        """In the thread of the heartbeat: kill the actions, which another worker may repeat, and leave."""
        self._interrupt.set()
        self._interrupt.set()
        for child in list(self._checkouts.values()):
            child.leave()
        self._scheduler.pool.wake()

    def _on_deaths(self, dead: list[str]) -> None:
        for worker in dead:
            self._say(f"worker {worker} is dead; its runs continue")

    def _on_outage(self, why: str) -> None:
        self._say(f"waiting: {why}")

    # --- segments -------------------------------------------------------------------------------

    def _perform(self, run: str, number: int) -> str:
        """In a thread of the queue: have a segment driven, and wait for its end. Never raises."""
        self._deliveries.begin(run, number)
        try:
            return self._performed(run, number)
        except DatabaseUnavailable:  # declared dead in an outage; another worker continues it
            return "returned"
        finally:
            self._deliveries.end(run, number)

    def _performed(self, run: str, number: int) -> str:
        if self._is_leaving:
            self._store.requeue(run)  # taken just before the queue heard of it
            return "returned"
        segment = _Segment(run, number)
        if self._store.has_workspace(run):
            self._perform_apart(segment)
            return segment.result
        self._inbox.append(segment)
        self._scheduler.pool.wake()
        segment.done.acquire()
        return segment.result

    def _begin(self) -> bool:
        if not self._inbox:
            return False
        segment = self._inbox.popleft()
        begin(self._scheduler, self._base, self._store, segment.run, segment, self._ended)
        return True

    def _ended(self, scheduled: ScheduledRun, came: Outcome | BaseException) -> None:
        if not isinstance(came, Outcome) and failures.is_internal(came):
            self._counts["defects"] += 1
        folder = scheduled.command.folder
        if isinstance(came, Outcome) and came.status == "interrupted" and isinstance(folder, DatabaseRun):
            folder.forget()
        self._conclude(scheduled.about, *result_of(came))

    def _conclude(self, segment: _Segment, result: str, why: str) -> None:
        self._asked.discard(segment.run)
        if result == FAILED:
            self._store.mark_stopped(segment.run, why)
            self._say(f"{segment.run} stopped: {why}")
        elif result == LACKS:
            self._store.refuse(segment.run, why)
            self._say(f"{segment.run} is for another worker: {why}")
        elif why:
            self._say(f"{segment.run} ended: {why}")
        self._finish(segment, result)

    def _perform_apart(self, segment: _Segment) -> None:
        """In a thread of the queue: drive a run with a workspace in a process of its own."""
        run = segment.run
        came: tuple[str, str] | None
        while run in self._checkouts:  # the queue gave it out twice, or its process is just ending
            clock.sleep(0.05)
        try:
            child = self._checkouts[run] = Checkout(self._store, run)
            if self._owner.is_dead:
                child.leave()
            came = child.wait()
        except OSError as error:
            came = FAILED, f"its process cannot be started: {error}"
        finally:
            self._checkouts.pop(run, None)
        if came is None:
            self._say(f"the process of {run} was killed; the run continues")
            self._store.requeue_killed(run)
            came = "returned", ""
        self._conclude(segment, *came)
        self._scheduler.pool.wake()

    def _finish(self, segment: _Segment, result: str) -> None:
        self._counts[result] += 1
        segment.result = result
        segment.done.release()
        self._engine.poll()

    def _totals(self) -> str:
        return ", ".join(f"{count} {name}" for name, count in sorted(self._counts.items())) or "no run yet"

    def _say(self, text: str) -> None:
        self._screen.write(f"{clock.timestamp(clock.time())} {text}\n")


def work(
    url: str | None, labels: tuple[str, ...], at_once: int, drain_s: float, machine: str | None = None
) -> int:
    """`llc worker`; the exit code. Raises UserError."""
    code = Worker(Address.resolve(url), labels, at_once, drain_s, machine).go()
    if code == EXIT_BURIED:
        processes.exit_now(code)  # threads of the queue may wait for segments that are not ours any more
    return code
