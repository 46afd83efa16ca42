"""Scope locks: mutual exclusion of runs whose paths overlap, and the queue of waiting runs.

A live run holds an flock on its `lock` file, which lists the paths of its scope. A dead process holds no
flock, so reused pids do not matter. A lock on the folder of unfinished runs serialises starts; it is held
only while the other runs are examined.

A queued run holds its `lock` from its arrival; the file marks it as queued and contains a ticket. It waits
for overlapping runs that are running or have an earlier ticket. Therefore runs start in order of arrival and
cannot deadlock. A waiting run sleeps in the kernel until one of these locks is released.
"""

from __future__ import annotations

import errno
import os.path

from ...ir import light_json
from ...ir.light_records import LightRecord
from ..host import clock, environment, files, keeper, pipes, processes, threads
from ..host.coroutines import Steps, alone
from ..host.effect_context import Interrupt
from ..host.errors import Failure, UserError, reason, refuse_transient
from ..host.paths import regular_handle
from ..journal.run_folder import RunFolder
from .runs import make_running_folder, runs_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable
    from typing import Any


# Attempts to take a lock, and seconds between them; `is_live` holds the lock for a moment.
_LOCK_ATTEMPTS = 20
_RETRY_S = 0.01
# Seconds to wait until the keeper of a dead process reports that it holds the run.
_KEEPER_TIMEOUT_S = 5.0
# Seconds after which a queued run checks its conflicts again: the holder of the lock on which it sleeps may
# have died, and a later run may have taken the lock over.
RECHECK_S = 5.0
# Errors of flock for a lock that another process holds.
_LOCKED_ERRORS = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)


def overlap(a: str, b: str) -> bool:
    """Whether two absolute paths are equal or one contains the other, by whole components."""
    return a == b or a.startswith(b.rstrip("/") + "/") or b.startswith(a.rstrip("/") + "/")


def resolve_scope(scope: Iterable[str], root: str) -> list[str]:
    """Return the real absolute paths of a scope; the paths need not exist."""
    return sorted({files.realpath(os.path.join(root, path)) for path in scope})


class Lock:
    """Lock of a live run, released by `close` or by the end of the process."""

    def __init__(self, fd: int, about: dict[str, Any]) -> None:
        self._fd = fd
        self._about = about
        # Actions that have survived the process that started them, by effect id.
        self.kept: dict[str, keeper.Kept] = {}

    def fileno(self) -> int:
        """Return the file descriptor that holds the lock; -1 after its release."""
        return self._fd

    def tell(self, **changes: Any) -> None:
        """Change fields of the lock file; None removes a field. Raises OSError."""
        self._about.update(changes)
        known = {name: value for name, value in self._about.items() if value is not None}
        data = light_json.dumps_ascii(known).encode("utf-8", "surrogateescape") + b"\n"
        # Truncated last: after a crash the file contains the old text, the new text, or invalid JSON.
        files.pwrite(self._fd, data, 0)
        files.ftruncate(self._fd, len(data))

    def close(self) -> None:
        for action in self.kept.values():
            action.close()
        if self._fd >= 0:
            files.close(self._fd)
            self._fd = -1


class Queue(LightRecord):
    """Options of waiting in the queue.

    interrupt: ends the wait. on_wait(run, others): called when the set of conflicting runs changes.
    """

    interrupt: Interrupt
    on_wait: Callable[[RunFolder, list[Holder]], object]


class Holder:
    """Live run that conflicts with ours.

    path: its path; mine: our overlapping path; since: start of its lock.
    """

    def __init__(self, run: RunFolder, about: dict[str, Any], mine: str, path: str) -> None:
        self.run = run
        self.mine = mine
        self.path = path
        self.pid = about.get("pid")
        self.since = str(about.get("since") or "")
        self.ticket = _ticket(about)
        self.is_queued = bool(about.get("queued"))
        self.is_keeper = bool(about.get("kept"))


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
    with _TableLock(root):
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
    table_lock = _TableLock(root)
    wanted = resolve_scope(scope, root)
    with table_lock:
        if ours is None:
            _sweep(root)
            ours = ()
        others = _conflicting_runs(root, wanted, None, ours)
        if others and queue is None:
            raise _conflict_error(others, root)
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
    table_lock = _TableLock(run.root)
    wanted = resolve_scope(scope, run.root)
    with table_lock:
        kept = _take_from_keeper(run)
        others = _conflicting_runs(run.root, wanted, run, ours)
        if others and queue is None:
            if kept is not None:
                _return_to_keeper(kept)
            raise _conflict_error(others, run.root)
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
        elif _is_running(about):
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


def is_driven(run: RunFolder) -> bool:
    """Whether a process drives the run or waits in the queue with it. A keeper of actions does not count."""
    if not is_live(run):
        return False
    about = run.about()
    return not about.get("kept") and _is_running(about)


def _is_running(about: dict[str, Any]) -> bool:
    """Whether the process in the lock file is alive."""
    pid, start_time = about.get("pid"), about.get("start_time")
    return not start_time or (isinstance(pid, int) and processes.is_alive(pid, str(start_time)))


def _is_held(run: RunFolder) -> bool:
    """Whether a process holds the run.

    Retries, because a child that a killed process was just starting has its file descriptors for a moment.
    """
    for _ in range(_LOCK_ATTEMPTS):
        if not is_live(run):
            return False
        if _is_running(run.about()):
            return True
        clock.sleep(_RETRY_S)
    return True


class _TableLock:
    """Exclusive lock held while reading and writing the table of run locks."""

    def __init__(self, root: str) -> None:
        self._path = os.path.join(make_running_folder(root), ".lock")
        self._fd = -1

    def __enter__(self) -> None:
        self._fd = _open(self._path)
        try:
            _flock(self._fd, files.LOCK_EX)
        except BaseException:
            files.close(self._fd)
            raise

    def __exit__(self, *error: object) -> None:
        files.close(self._fd)


class resume_blocked(_TableLock):
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
    table_lock: _TableLock, run: RunFolder, wanted: list[str], lock: Lock, queue: Queue, ours: Container[str]
) -> Steps[None]:
    """Wait until no run conflicts with the queued `run`."""
    ticket = _ticket(run.about())
    reported: list[str] | None = None
    release: Release | None = None
    try:
        while True:
            queue.interrupt.check()
            with table_lock:
                others = [
                    other
                    for other in _conflicting_runs(run.root, wanted, run, ours)
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


class Release:
    """Notification of the release of a lock file. A thread sleeps in the kernel until the release.

    Such a wait cannot be cancelled: the thread of an abandoned notification remains.
    """

    def __init__(self, path: str, interrupt: Interrupt) -> None:
        self.path = path
        self._interrupt = interrupt
        self._read, write = pipes.pipe()
        threads.Thread(target=_wait_for_release, args=(path, write), daemon=True).start()

    @property
    def is_over(self) -> bool:
        """Whether the lock was released."""
        return bool(pipes.select([self._read], [], [], 0)[0])

    def wait(self) -> None:
        """Wait for the release, at most `RECHECK_S` seconds. Raises Interrupted."""
        self._interrupt.wait(RECHECK_S, wake=self._read)

    def fileno(self) -> int:
        """Return a file descriptor that is readable after the release.

        Callers also check after `RECHECK_S`.
        """
        return self._read

    def close(self) -> None:
        files.close(self._read)


def _wait_for_release(path: str, write: int) -> None:
    """Thread: close `write` when the lock file is released; leave it open if this cannot be determined."""
    try:
        fd = regular_handle(path, files.O_RDONLY)
    except OSError:
        files.close(write)  # the run has ended in the meantime
        return
    try:
        files.flock(fd, files.LOCK_SH)
    except OSError:
        return
    finally:
        files.close(fd)
    files.close(write)


def is_live(run: RunFolder) -> bool:
    """Whether a process holds the run. Raises UserError."""
    try:
        fd = regular_handle(run.lock, files.O_RDONLY)
    except OSError as error:
        refuse_transient(error, run.lock)
        return False
    try:
        return not _try_flock(fd, files.LOCK_SH)
    finally:
        files.close(fd)


def _conflicting_runs(
    root: str, wanted: list[str], own: RunFolder | None, ours: Container[str] = ()
) -> list[Holder]:
    """Return the live and queued runs whose paths overlap the wanted paths."""
    if not wanted:
        return []
    ancestors = _ancestors(root)
    holders: list[Holder] = []
    for other in runs_in(root, but=ours):
        if other.id in ancestors or (own is not None and other.id == own.id):
            continue
        about = other.about()
        held = [path for path in _paths(about) for mine in wanted if overlap(mine, path)]
        if not held or not is_live(other):
            continue
        # A run that an action of this run has started: it shares the paths of this run, which will end it.
        if own is not None and own.id in _parent_chain(about.get("parent"), root):
            continue
        # Waiting for a run that waits for an ancestor of this run would be a deadlock.
        if about.get("queued") and any(
            overlap(a, b) for a in _paths(about) for b in _held_by(ancestors.values())
        ):
            continue
        mine = next(path for path in wanted if overlap(path, held[0]))
        holders.append(Holder(other, about, mine, held[0]))
    return holders


def _paths(about: dict[str, Any]) -> list[str]:
    scope = about.get("scope")
    return [path for path in scope if isinstance(path, str)] if isinstance(scope, list) else []


def _held_by(runs: Iterable[RunFolder | None]) -> list[str]:
    return [path for run in runs if run is not None for path in _paths(run.about())]


def _ticket(about: dict[str, Any]) -> int:
    ticket = about.get("ticket")
    return ticket if type(ticket) is int else 0


def _next_ticket(root: str) -> int:
    """Return the ticket after those of all queued runs."""
    return 1 + max((_ticket(run.about()) for run in runs_in(root) if is_live(run)), default=0)


def _conflict_error(others: list[Holder], root: str) -> UserError:
    from ..journal.quantities import moment_text  # only an error needs it

    # A running run is more relevant than a queued one.
    holder = min(others, key=lambda other: (other.is_queued, other.ticket))
    since = f", since {moment_text(holder.since)}" if holder.since else ""
    own, path = _describe_path(holder.mine, root), _describe_path(holder.path, root)
    if holder.is_queued:
        how, status = "is reserved by", f"is ahead in the queue for {path}"
    else:
        how, status = "is locked by", f"works on {path}"
    help = "use `--queue` to wait; loops whose `scope:` does not overlap can run at the same time"
    if holder.is_keeper:
        help = f"its process has died, but its action continues; to take it over: llc resume {holder.run.id}"
    return Failure(
        "scope-conflict",
        f"{own} {how} {holder.run.id} (pid {holder.pid}{since}), which {status}",
        help,
    )


def _ancestors(root: str) -> dict[str, RunFolder | None]:
    """Return the runs whose actions started this process. It may use the paths that they hold."""
    return _parent_chain(environment.environ.get("LLC_RUN_ID"), root)


def _parent_chain(run_id: Any, root: str) -> dict[str, RunFolder | None]:
    """Return a run, the run whose action started it, and so on; None for a run without a folder here."""
    chain: dict[str, RunFolder | None] = {}
    while isinstance(run_id, str) and run_id not in chain:
        run = chain[run_id] = next((run for run in runs_in(root) if run.id == run_id), None)
        run_id = run.about().get("parent") if run is not None else None
    return chain


def _describe_path(path: str, root: str) -> str:
    base = files.realpath(root)
    if path == base:
        return "the whole project"
    return (
        f"`{os.path.relpath(path, base)}`" if overlap(path, base) and len(path) > len(base) else f"`{path}`"
    )


def _hold(
    run: RunFolder,
    scope: list[str],
    about: dict[str, Any],
    ticket: int | None,
    kept: tuple[int, dict[str, keeper.Kept]] | None = None,
) -> Lock:
    """Lock a run. ticket: the run is queued. kept: lock and actions from the keeper of a dead process."""
    fd = _open(run.lock) if kept is None else kept[0]
    try:
        for attempt in range(_LOCK_ATTEMPTS):
            if _try_flock(fd, files.LOCK_EX):
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


def _open(path: str) -> int:
    try:
        return regular_handle(path, files.O_RDWR | files.O_CREAT)
    except OSError as error:
        raise Failure("cannot-write", f"cannot write {path}: {reason(error)}") from None


def _try_flock(fd: int, operation: int) -> bool:
    try:
        files.flock(fd, operation | files.LOCK_NB)
    except OSError as error:
        if error.errno in _LOCKED_ERRORS:
            return False
        raise UserError("no-locks", f"file locks do not work here: {reason(error)}") from None
    return True


def _flock(fd: int, operation: int) -> None:
    try:
        files.flock(fd, operation)
    except OSError as error:
        raise UserError("no-locks", f"file locks do not work here: {reason(error)}") from None
