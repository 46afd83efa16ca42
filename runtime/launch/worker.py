"""`llc worker`: drive runs of a cluster's queue concurrently until a drain is requested (`spec/cluster.md`).

Segments arrive in threads of the queue (`database.engine`); one scheduler in the main thread drives all runs,
as in a batch. The thread of the heartbeat marks workers as dead and forwards requests.
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
from .segment import FAILED, REFUSED, Checkout, base_command, park, result_of, start

# Exit code of a worker that other workers declared dead; its supervisor restarts it.
EXIT_DECLARED_DEAD = 86
# Defaults: limit of concurrent runs, and seconds for which actions may continue after SIGTERM.
AT_ONCE = 8
DRAIN_S = 30
# Thread switch interval in seconds. Python's default of 5 ms would add up to 5 ms for each thread that a
# segment passes through.
_SWITCH_S = 0.0005
# Seconds between two health lines, two searches for runs without a worker, and two removals of old runs.
HEALTH_S = 60.0
_SWEEP_S = 5.0
_CLEAN_S = 60.0
# The query of each heartbeat. It queues the parked runs that are due. Rows by kind: due: seconds until the
# next parked run is due; stop: runs of this worker to stop; watched: runs of this worker that a client
# watches; answer: answers for runs of this worker; silent: owners that have missed their heartbeats.
_HEARTBEAT = """
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
_DRAINING = "update workers set state = 'draining' where id = %s and state = 'live'"


class _Segment:
    """A segment that the queue has assigned to this worker; `done` is released at its end."""

    __slots__ = ("done", "number", "result", "run")

    def __init__(self, run: str, number: int) -> None:
        self.run = run
        self.number = number
        self.result = ""
        self.done = threads.Lock()
        self.done.acquire()


class Worker:
    """A worker.

    Args:
        address: database of the cluster.
        labels: labels of the runs that the worker accepts.
        at_once: limit of concurrent runs.
        drain_s: seconds for which actions may continue after SIGTERM.
        machine: name of the project's files, for runs without a workspace; see `Owner`.
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
        # Runs to stop, added by the thread of the heartbeat; and all runs for which it has seen the request.
        self._stops: set[str] = set()
        self._stop_requested: set[str] = set()
        # Processes of the runs with a workspace.
        self._checkouts: dict[str, Checkout] = {}
        # The heartbeat starts before the worker is completely initialised.
        self._is_ready = self._is_leaving = False
        now = clock.monotonic()
        self._next_health, self._next_sweep, self._next_clean = now + HEALTH_S, now + _SWEEP_S, now + _CLEAN_S
        with connected(address) as connection:
            schema.check(connection, address)
        concurrent_run_limit(at_once, at_once)
        self._scheduler = Scheduler(
            max(at_once, JOBS), at_once, self._interrupt, self._start_next, self._on_end
        )
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

    def work(self) -> int:
        """Drive runs until drained; return the exit code."""
        sys.setswitchinterval(_SWITCH_S)
        handlers = {
            number: signals.signal(number, self._on_signal)
            for number in (signals.SIGTERM, signals.SIGINT, signals.SIGHUP)
            if number != signals.SIGHUP or signals.getsignal(number) != signals.SIG_IGN
        }
        self._log(f"worker {self._owner.id}: project {self._store.project}, {self._at_once} at once")
        try:
            while not self._is_drained():
                self._scheduler.go(self._on_wait)
                if not self._is_drained() and not self._inbox:
                    self._scheduler.pool.pause(self._on_wait(), self._interrupt.fileno())
        finally:
            for number, handler in handlers.items():
                signals.signal(number, handler)
            self._close()
        if self._owner.is_dead:
            self._log("declared dead by another worker; the runs continue elsewhere")
            return EXIT_DECLARED_DEAD
        self._log(f"drained: {self._totals()}")
        return EXIT_OK

    def _is_drained(self) -> bool:
        must_end = self._drain_until is not None or self._interrupt.count or self._owner.is_dead
        return bool(must_end) and not len(self._scheduler) and not self._checkouts

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
        """The first signal drains, the second one stops actions, the third one kills them.

        A closed terminal may send more than one SIGHUP, so SIGHUP counts only as the first signal.
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
            self._log(f"{len(self._scheduler)} running; {self._totals()}")
        return 0.5

    def _stop(self, run: str) -> None:
        child = self._checkouts.get(run)
        if child is not None:
            child.stop()
        else:
            self._scheduler.stop(run)

    def _on_beat(self, connection: Connection) -> float | None:
        """Handle a heartbeat, in its thread; return the seconds until the next parked run is due, or None."""
        if not self._is_ready:
            return None
        if self._drain_until is not None:
            connection.execute(_DRAINING, [self._owner.id])
        values = {"owner": self._owner.id, "watched": live.WATCHED_S, "lease": owners.LEASE_S}
        rows: dict[str, list[Any]] = {"due": [], "stop": [], "watched": [], "answer": [], "silent": []}
        for kind, *row in connection.execute(_HEARTBEAT, values, binary=True).fetchall():
            rows[kind].append(row)
        self._live.watch(run for run, *_ in rows["watched"])
        for run, *_ in rows["stop"]:
            is_here = run in self._store.claims or run in self._checkouts
            if is_here and run not in self._stop_requested:
                self._stop_requested.add(run)
                self._stops.add(run)
                self._scheduler.pool.wake()
        for run, name, data, _ in rows["answer"]:
            claim, child = self._store.claims.get(run), self._checkouts.get(run)
            if claim is not None:
                deliver_answer(claim.run.place(name), data)
            elif child is not None:
                child.deliver(name, data)
        now = clock.monotonic()
        is_sweep = now >= self._next_sweep
        if is_sweep or rows["silent"]:
            self._on_deaths(owners.declare_dead_owners(connection, self._owner.id))
        if is_sweep:
            self._next_sweep = now + _SWEEP_S
            connection.execute("select reconcile_segments()")
            self._deliveries.return_missing(connection)
            self._end_abandoned(connection)
        if now >= self._next_clean:
            self._next_clean = now + _CLEAN_S
            threads.Thread(target=self._remove_old, daemon=True).start()
        return min((wait_s for *_, wait_s in rows["due"] if wait_s is not None), default=None)

    def _remove_old(self) -> None:
        """Apply the retention, in a separate thread: with many runs it takes longer than a heartbeat may."""
        with contextlib.suppress(UserError), connected(self._address) as connection:
            removal.remove(connection, self._store.project, None, "ended", self._base.retention)

    def _end_abandoned(self, connection: Connection) -> None:
        """End the actions of abandoned runs, in another thread: the heartbeat must not wait for keepers."""
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
        """Kill the actions, which another worker may repeat, and leave; in the thread of the heartbeat."""
        self._interrupt.set()
        self._interrupt.set()
        for child in list(self._checkouts.values()):
            child.leave()
        self._scheduler.pool.wake()

    def _on_deaths(self, dead: list[str]) -> None:
        for worker in dead:
            self._log(f"worker {worker} is dead; its runs continue")

    def _on_outage(self, reason: str) -> None:
        self._log(f"waiting for the database: {reason}")

    # --- segments -------------------------------------------------------------------------------

    def _perform(self, run: str, number: int) -> str:
        """Execute a segment and return its result, in a thread of the queue. Never raises."""
        self._deliveries.begin(run, number)
        try:
            return self._execute(run, number)
        except DatabaseUnavailable:  # declared dead in an outage; another worker continues it
            return "returned"
        finally:
            self._deliveries.end(run, number)

    def _execute(self, run: str, number: int) -> str:
        if self._is_leaving:
            self._store.requeue(run)  # the queue assigned the run just before the drain
            return "returned"
        segment = _Segment(run, number)
        if self._store.has_workspace(run):
            self._execute_in_process(segment)
            return segment.result
        self._inbox.append(segment)
        self._scheduler.pool.wake()
        segment.done.acquire()
        return segment.result

    def _start_next(self) -> bool:
        if not self._inbox:
            return False
        segment = self._inbox.popleft()
        start(self._scheduler, self._base, self._store, segment.run, segment, self._on_end)
        return True

    def _on_end(self, scheduled: ScheduledRun, ended: Outcome | BaseException) -> None:
        if not isinstance(ended, Outcome) and failures.is_internal(ended):
            self._counts["defects"] += 1
        folder = scheduled.command.folder
        if isinstance(ended, Outcome) and ended.status == "interrupted" and isinstance(folder, DatabaseRun):
            folder.forget()
        self._conclude(scheduled.about, *result_of(ended))

    def _conclude(self, segment: _Segment, result: str, reason: str) -> None:
        self._stop_requested.discard(segment.run)
        if result == FAILED:
            self._store.mark_stopped(segment.run, reason)
            self._log(f"{segment.run} stopped: {reason}")
        elif result == REFUSED:
            self._store.refuse(segment.run, reason)
            self._log(f"{segment.run} is for another worker: {reason}")
        elif reason:
            self._log(f"{segment.run} ended: {reason}")
        self._finish(segment, result)

    def _execute_in_process(self, segment: _Segment) -> None:
        """Drive a run with a workspace in a separate process, in a thread of the queue."""
        run = segment.run
        result: tuple[str, str] | None
        while run in self._checkouts:  # the queue delivered the run twice, or its process is just ending
            clock.sleep(0.05)
        try:
            child = self._checkouts[run] = Checkout(self._store, run)
            if self._owner.is_dead:
                child.leave()
            result = child.wait()
        except OSError as error:
            result = FAILED, f"its process cannot be started: {error}"
        finally:
            self._checkouts.pop(run, None)
        if result is None:
            self._log(f"the process of {run} was killed; the run continues")
            self._store.requeue_killed(run)
            result = "returned", ""
        self._conclude(segment, *result)
        self._scheduler.pool.wake()

    def _finish(self, segment: _Segment, result: str) -> None:
        self._counts[result] += 1
        segment.result = result
        segment.done.release()
        self._engine.poll()

    def _totals(self) -> str:
        return ", ".join(f"{count} {name}" for name, count in sorted(self._counts.items())) or "no run yet"

    def _log(self, text: str) -> None:
        self._screen.write(f"{clock.timestamp(clock.time())} {text}\n")


def work(
    url: str | None, labels: tuple[str, ...], at_once: int, drain_s: float, machine: str | None = None
) -> int:
    """Execute `llc worker`; return the exit code. Raises UserError."""
    code = Worker(Address.resolve(url), labels, at_once, drain_s, machine).work()
    if code == EXIT_DECLARED_DEAD:
        processes.exit_now(code)  # threads of the queue may wait for segments that this worker has lost
    return code
