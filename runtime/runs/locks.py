"""Scope locks: mutual exclusion of runs whose paths overlap, and the queue of waiting runs.

A live run holds an flock on its `lock` file, which lists the paths of its scope. A lock on the folder of
unfinished runs serialises starts; it is held only while the other runs are examined.

A queued run holds its `lock` from its arrival; the file marks it as queued and contains a ticket. It waits
for overlapping runs that are running or have an earlier ticket. Therefore runs start in order of arrival and
cannot deadlock. A waiting run sleeps in the kernel until one of these locks is released.
"""

from __future__ import annotations

from ...ir.light_records import LightRecord
from ..host import clock, environment, files, keeper, processes
from ..host.coroutines import Steps, alone
from ..host.effect_context import Interrupt
from ..host.errors import Failure, UserError, reason
from ..journal.run_folder import RunFolder
from .run_lock import Lock, Release, TableLock, is_running, open_lock, try_flock
from .run_lock import is_live as is_live  # a part of `store.Scopes`
from .runs import runs_in
from .scope_conflicts import Holder, conflict_error, conflicting_runs, resolve_scope, ticket_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable
    from typing import Any

# Attempts to take a lock, and seconds between them; `is_live` holds the lock for a moment.
_LOCK_ATTEMPTS = 20
_RETRY_S = 0.01
# Seconds to wait until the keeper of a dead process reports that it holds the run.
_KEEPER_TIMEOUT_S = 5.0


class Queue(LightRecord):
    """Options of waiting in the queue.

    interrupt: ends the wait. on_wait(run, others): called when the set of conflicting runs changes.
    """

    interrupt: Interrupt
    on_wait: Callable[[RunFolder, list[Holder]], object]


def start(
    root: str, name: str, scope: Iterable[str], about: dict[str, Any], queue: Queue | None = None
) -> tuple[RunFolder, Lock]:
    """Create and lock the folder of a new run of `name`.

    about: fields for the lock file. queue: wait if another run holds a path of the scope; None: raise
    UserError. Raises Interrupted if the wait was interrupted; then no trace of the run remains.
    """
    return alone(starting(root, name, scope, about, queue))


def sweep(root: str) -> None:
    """Remove the folders of runs whose process was killed before it recorded the start."""
    with TableLock(root):
        _sweep(root)


def _sweep(root: str) -> None:
    for other in runs_in(root):
        # `is_live` first: a live process may record its start and die between the two checks.
        if not is_live(other) and other.is_unrecorded():
            other.discard()


def starting(
    root: str,
    name: str,
    scope: Iterable[str],
    about: dict[str, Any],
    queue: Queue | None,
    ours: Container[str] | None = None,
) -> Steps[tuple[RunFolder, Lock]]:
    """Coroutine form of `start`.

    ours: ids of runs to ignore, for a caller that starts many runs, knows that they do not conflict and has
    called `sweep`.
    """
    table_lock = TableLock(root)
    wanted = resolve_scope(scope, root)
    with table_lock:
        if ours is None:
            _sweep(root)
            ours = ()
        others = conflicting_runs(root, wanted, None, ours)
        if others and queue is None:
            raise conflict_error(others, root)
        run = RunFolder.create(root, name)
        try:
            lock = _hold(run, wanted, about, _next_ticket(root) if others else None)
        except BaseException:
            run.discard()
            raise
    if others and queue is not None:
        try:
            yield from _wait_for_turn(table_lock, run, wanted, lock, queue, ours)
        except BaseException:
            run.discard()
            lock.close()
            raise
    return run, lock


def take_over(
    run: RunFolder, scope: Iterable[str], about: dict[str, Any], queue: Queue | None = None
) -> Lock:
    """Lock an interrupted run to resume it. Raises UserError if the run is live.

    queue: as for `start`. Raises Interrupted if the wait was interrupted.
    """
    return alone(taking_over(run, scope, about, queue))


def taking_over(
    run: RunFolder,
    scope: Iterable[str],
    about: dict[str, Any],
    queue: Queue | None,
    ours: Container[str] | None = None,
) -> Steps[Lock]:
    """Coroutine form of `take_over`; ours: as for `starting`."""
    ours = ours or ()
    table_lock = TableLock(run.root)
    wanted = resolve_scope(scope, run.root)
    with table_lock:
        kept = _take_from_keeper(run)
        others = conflicting_runs(run.root, wanted, run, ours)
        if others and queue is None:
            if kept is not None:
                _return_to_keeper(kept)
            raise conflict_error(others, run.root)
        lock = _hold(run, wanted, about, _next_ticket(run.root) if others else None, kept)
    if others and queue is not None:
        try:
            yield from _wait_for_turn(table_lock, run, wanted, lock, queue, ours)
        except BaseException:
            lock.close()
            raise
    return lock


def still_live_error(run: RunFolder) -> UserError:
    """Return the error for an attempt to resume or remove a live run."""
    about = run.about()
    pid = f" (pid {about['pid']})" if "pid" in about else ""
    return Failure(
        "run-is-live",
        f"{run.id} is {'in the queue' if about.get('queued') else 'still running'}{pid}",
        f"to watch it: llc attach {run.id}; to stop it: llc stop {run.id}",
    )


def unfinished(root: str) -> list[RunFolder]:
    """Return the unfinished runs, latest first, without those that were killed before recording a start."""
    return [run for run in runs_in(root) if not run.is_unrecorded() or is_live(run)]


def _take_from_keeper(run: RunFolder) -> tuple[int, dict[str, keeper.Kept]] | None:
    """Take the lock and the actions of a run from its keeper; None if no process holds the run.

    Raises UserError if the run is live.
    """
    deadline = clock.monotonic() + _KEEPER_TIMEOUT_S
    while is_live(run):
        about = run.about()
        if about.get("kept"):
            kept = keeper.take_over(run.path)
            if kept is not None:
                return kept
        elif is_running(about):
            raise still_live_error(run)
        # The holder is a keeper that has not noticed the death yet or has just ended, or a child process that
        # was just being started.
        if clock.monotonic() >= deadline:
            raise still_live_error(run)
        clock.sleep(_RETRY_S)
    return None


def hold(run: RunFolder, **about: Any) -> Lock:
    """Lock an unused folder without a scope, for a store that decides elsewhere who may drive the run."""
    return _hold(run, [], about, None)


def survivors(run: RunFolder) -> dict[str, keeper.Kept]:
    """Return the actions that have survived the process that held the folder, by effect id.

    Raises UserError if the process is alive.
    """
    boot = str(run.about().get("start_time", "")).partition(":")[0]
    # A process on another machine that shares these files cannot be reached.
    taken = _take_from_keeper(run) if boot == processes.boot_id() else None
    if taken is None:
        return keeper.left(run.path)
    lock, running = taken
    files.close(lock)  # the keeper holds the lock until the actions are released
    return keeper.left(run.path) | running


def _is_held(run: RunFolder) -> bool:
    """Whether a process holds the run.

    Retries, because a child that a killed process was just starting has its file descriptors for a moment.
    """
    for _ in range(_LOCK_ATTEMPTS):
        if not is_live(run):
            return False
        if is_running(run.about()):
            return True
        clock.sleep(_RETRY_S)
    return True


class resume_blocked(TableLock):
    """Context manager that prevents other processes from resuming a run.

    Raises UserError if the run is live.
    """

    def __init__(self, run: RunFolder) -> None:
        super().__init__(run.root)
        self._run = run

    def __enter__(self) -> None:
        super().__enter__()
        if _is_held(self._run):
            self.__exit__()
            raise still_live_error(self._run)


def _wait_for_turn(
    table_lock: TableLock, run: RunFolder, wanted: list[str], lock: Lock, queue: Queue, ours: Container[str]
) -> Steps[None]:
    """Wait until no run conflicts with the queued `run`."""
    ticket = ticket_of(run.about())
    reported: list[str] | None = None
    release: Release | None = None
    try:
        while True:
            queue.interrupt.check()
            with table_lock:
                others = [
                    other
                    for other in conflicting_runs(run.root, wanted, run, ours)
                    if not other.is_queued or other.ticket < ticket
                ]
                names = [other.run.id for other in others]
                if not others:
                    lock.tell(queued=None, ticket=None, waits_for=None, since=clock.timestamp(clock.time()))
                    return
                if names != reported:
                    lock.tell(waits_for=names)
            if names != reported:
                queue.on_wait(run, others)
                reported = names
            # Wait for the last run ahead of this one: `run` cannot start before its end.
            last = max(others, key=lambda other: (other.is_queued, other.ticket, other.run.id)).run.lock
            if release is not None and (release.path != last or release.is_over):
                release.close()
                release = None
            release = release or Release(last, queue.interrupt)
            yield release
    except OSError as error:
        raise Failure("cannot-write", f"cannot write {run.lock}: {reason(error)}") from None
    finally:
        if release is not None:
            release.close()


def _next_ticket(root: str) -> int:
    """Return the ticket after those of all queued runs."""
    return 1 + max((ticket_of(run.about()) for run in runs_in(root) if is_live(run)), default=0)


def _hold(
    run: RunFolder,
    scope: list[str],
    about: dict[str, Any],
    ticket: int | None,
    kept: tuple[int, dict[str, keeper.Kept]] | None = None,
) -> Lock:
    """Lock a run. ticket: the run is queued. kept: lock and actions from the keeper of a dead process."""
    fd = open_lock(run.lock) if kept is None else kept[0]
    try:
        for attempt in range(_LOCK_ATTEMPTS):
            if try_flock(fd, files.LOCK_EX):
                break
            if attempt == _LOCK_ATTEMPTS - 1:
                raise Failure("run-is-live", f"{run.id} is still running")
            clock.sleep(_RETRY_S)
        pid = processes.getpid()
        holder = {
            "run": run.id,
            "pid": pid,
            "start_time": processes.start_time(pid),
            "since": clock.timestamp(clock.time()),
        }
        lock = Lock(fd, holder)
        lock.kept = keeper.left(run.path) | (kept[1] if kept is not None else {})
        queued = {"queued": True, "ticket": ticket} if ticket is not None else {}
        lock.tell(parent=environment.environ.get("LLC_RUN_ID"), **about, scope=scope, **queued)
    except OSError as error:
        files.close(fd)
        raise Failure("cannot-write", f"cannot write {run.lock}: {reason(error)}") from None
    except BaseException:
        files.close(fd)
        raise
    return lock


def _return_to_keeper(kept: tuple[int, dict[str, keeper.Kept]]) -> None:
    """Leave the actions and the lock to their keeper."""
    lock, actions = kept
    files.close(lock)
    for action in actions.values():
        action.close()
