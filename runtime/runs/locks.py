"""Scope locks: runs whose paths overlap run one after the other.

A run holds an flock on its `lock` file while it lives, so a dead process holds nothing and a reused pid does
not matter. The file states which paths are held. Starts are serialised by a lock on the folder of unfinished
runs, held only while the other runs are examined.

A queued run holds its `lock` from its arrival, marked as queued and with a ticket. It waits for the running
ones that overlap with it and for queued ones with an earlier ticket, so runs start in order of arrival and
cannot deadlock. It sleeps in the kernel until one of these locks is released.
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


# `is_live` takes a lock for a moment, so starting retries.
_TRIES = 20
_PAUSE = 0.01
# Seconds until the keeper of a process that has died says that it holds the run.
_DEAD = 5.0
# A queued run checks again after this many seconds: the holder of the lock that it sleeps on may have died,
# and a later run may have taken it over.
LOOK_AGAIN = 5.0
# The id of the error that another run holds a path.
_BUSY = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)


def overlap(a: str, b: str) -> bool:
    """Whether one of two absolute paths is the other or lies inside it, by whole components."""
    return a == b or a.startswith(b.rstrip("/") + "/") or b.startswith(a.rstrip("/") + "/")


def resolve_scope(scope: Iterable[str], root: str) -> list[str]:
    """The absolute paths of a scope, links followed; paths need not exist."""
    return sorted({files.realpath(os.path.join(root, path)) for path in scope})


class Lock:
    """The lock of a living run, released by `close` or by the end of the process."""

    def __init__(self, fd: int, about: dict[str, Any]) -> None:
        self._fd = fd
        self._about = about
        # Actions that have survived the process which had started them, by effect.
        self.kept: dict[str, keeper.Kept] = {}

    def fileno(self) -> int:
        """The handle that holds it; -1 once it is released."""
        return self._fd

    def tell(self, **changes: Any) -> None:
        """Change facts in the lock file; None removes one. Raises OSError."""
        self._about.update(changes)
        known = {name: value for name, value in self._about.items() if value is not None}
        data = light_json.dumps_ascii(known).encode("utf-8", "surrogateescape") + b"\n"
        # Truncated last: after a crash the file holds the old text, the new one, or an invalid one.
        files.pwrite(self._fd, data, 0)
        files.ftruncate(self._fd, len(data))

    def close(self) -> None:
        for action in self.kept.values():
            action.close()
        if self._fd >= 0:
            files.close(self._fd)
            self._fd = -1


class Queue(LightRecord):
    """How a run waits in the queue.

    interrupt: ends the wait. on_wait(run, others): called when the runs that it waits for change.
    """

    interrupt: Interrupt
    on_wait: Callable[[RunFolder, list[Holder]], object]


class Holder:
    """A living run that conflicts: its path, our path (`mine`), and since when it holds it."""

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
    """A folder for a new run of `name`, held by us, unless another run holds a part of `scope`.

    about: facts for the lock file. With a `queue` it waits for its turn. Raises UserError, and Interrupted
    if the wait was interrupted; then no trace of the run remains.
    """
    return alone(starting(root, name, scope, about, queue))


def sweep(root: str) -> None:
    """Remove folders of starts that were killed before the run was on record."""
    with _Gate(root):
        _sweep(root)


def _sweep(root: str) -> None:
    for other in runs_in(root):
        # `is_live` first: no process resumes a husk, but a start that is live may yet be recorded and die.
        if not is_live(other) and other.is_husk():
            other.discard()


def starting(
    root: str,
    name: str,
    scope: Iterable[str],
    about: dict[str, Any],
    queue: Queue | None,
    ours: Container[str] | None = None,
) -> Steps[tuple[RunFolder, Lock]]:
    """`start` as a coroutine.

    ours: runs that do not conflict, known to a caller that starts many and has called `sweep`.
    """
    gate = _Gate(root)
    wanted = resolve_scope(scope, root)
    with gate:
        if ours is None:
            _sweep(root)
            ours = ()
        others = _in_the_way(root, wanted, None, ours)
        if others and queue is None:
            raise _conflict(others, root)
        run = RunFolder.create(root, name)
        try:
            lock = _hold(run, wanted, about, _next_ticket(root) if others else None)
        except BaseException:
            run.discard()
            raise
    if others and queue is not None:
        try:
            yield from _turn(gate, run, wanted, lock, queue, ours)
        except BaseException:
            run.discard()
            lock.close()
            raise
    return run, lock


def take_over(
    run: RunFolder, scope: Iterable[str], about: dict[str, Any], queue: Queue | None = None
) -> Lock:
    """The lock of an interrupted run, to resume it. Raises UserError if the run is live.

    With a `queue` it waits for its turn; raises Interrupted if the wait was interrupted.
    """
    return alone(taking_over(run, scope, about, queue))


def taking_over(
    run: RunFolder,
    scope: Iterable[str],
    about: dict[str, Any],
    queue: Queue | None,
    ours: Container[str] | None = None,
) -> Steps[Lock]:
    """`take_over` as a coroutine; ours: as for `starting`."""
    ours = ours or ()
    gate = _Gate(run.root)
    wanted = resolve_scope(scope, run.root)
    with gate:
        kept = _take(run)
        others = _in_the_way(run.root, wanted, run, ours)
        if others and queue is None:
            if kept is not None:
                _let_go(kept)
            raise _conflict(others, run.root)
        lock = _hold(run, wanted, about, _next_ticket(run.root) if others else None, kept)
    if others and queue is not None:
        try:
            yield from _turn(gate, run, wanted, lock, queue, ours)
        except BaseException:
            lock.close()
            raise
    return lock


def still_live(run: RunFolder) -> UserError:
    """The error that a live run can be neither resumed nor removed."""
    held = run.about()
    pid = f" (pid {held['pid']})" if "pid" in held else ""
    return Failure(
        "run-is-live",
        f"{run.id} is {'in the queue' if held.get('queued') else 'still running'}{pid}",
        f"to look at it: llc attach {run.id}; to stop it: llc stop {run.id}",
    )


def unfinished(root: str) -> list[RunFolder]:
    """The unfinished runs, latest first, without folders of killed starts."""
    return [run for run in runs_in(root) if not run.is_husk() or is_live(run)]


def _take(run: RunFolder) -> tuple[int, dict[str, keeper.Kept]] | None:
    """What a keeper has of a run whose driver has died; None if no process holds it.

    Raises UserError if the run is live.
    """
    end = clock.monotonic() + _DEAD
    while is_live(run):
        about = run.about()
        if about.get("kept"):
            kept = keeper.take_over(run.path)
            if kept is not None:
                return kept
        elif _is_running(about):
            raise still_live(run)
        # A keeper that has not noticed yet, or has just ended; or a child that was just being started.
        if clock.monotonic() >= end:
            raise still_live(run)
        clock.sleep(_PAUSE)
    return None


def hold(run: RunFolder, **about: Any) -> Lock:
    """The lock of a folder that no process uses; who may drive the run is decided elsewhere."""
    return _hold(run, [], about, None)


def survivors(run: RunFolder) -> dict[str, keeper.Kept]:
    """The actions that have survived the process that held the folder, by effect.

    Raises UserError if it is alive.
    """
    boot = str(run.about().get("start_time", "")).partition(":")[0]
    # A process of another machine that has the same files cannot be asked.
    found = _take(run) if boot == processes.boot_id() else None
    if found is None:
        return keeper.left(run.path)
    lock, running = found
    files.close(lock)  # the keeper holds it until they are released
    return keeper.left(run.path) | running


def is_driven(run: RunFolder) -> bool:
    """Whether a process drives the run or waits for its turn; the keeper of its actions does not count."""
    if not is_live(run):
        return False
    about = run.about()
    return not about.get("kept") and _is_running(about)


def _is_running(about: dict[str, Any]) -> bool:
    """Whether the process lives that a lock file names."""
    pid, began = about.get("pid"), about.get("start_time")
    return not began or (isinstance(pid, int) and processes.is_alive(pid, str(began)))


def _is_held(run: RunFolder) -> bool:
    """Whether a run is held, after some retries.

    A child that a killed process was just starting still has its handles for a moment.
    """
    for _ in range(_TRIES):
        if not is_live(run):
            return False
        if _is_running(run.about()):
            return True
        clock.sleep(_PAUSE)
    return True


class _Gate:
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


class kept_dead(_Gate):
    """Context in which no process can resume a run. Raises UserError if the run is live."""

    def __init__(self, run: RunFolder) -> None:
        super().__init__(run.root)
        self._run = run

    def __enter__(self) -> None:
        super().__enter__()
        if _is_held(self._run):
            self.__exit__()
            raise still_live(self._run)


def _turn(
    gate: _Gate, run: RunFolder, wanted: list[str], lock: Lock, queue: Queue, ours: Container[str]
) -> Steps[None]:
    """Wait until no run conflicts with `run`, which is in the queue."""
    ticket = _ticket(run.about())
    shown: list[str] | None = None
    release: Release | None = None
    try:
        while True:
            queue.interrupt.check()
            with gate:
                others = [
                    other
                    for other in _in_the_way(run.root, wanted, run, ours)
                    if not other.is_queued or other.ticket < ticket
                ]
                names = [other.run.id for other in others]
                if not others:
                    lock.tell(queued=None, ticket=None, waits_for=None, since=clock.timestamp(clock.time()))
                    return
                if names != shown:
                    lock.tell(waits_for=names)
            if names != shown:
                queue.on_wait(run, others)
                shown = names
            # The last one before us: nothing changes until it ends.
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
    """Notification that a lock file was released: a thread sleeps in the kernel until then.

    Such a wait cannot be cancelled: the thread of an abandoned one stays.
    """

    def __init__(self, path: str, interrupt: Interrupt) -> None:

        self.path = path
        self._interrupt = interrupt
        self._read, write = pipes.pipe()
        threads.Thread(target=_await, args=(path, write), daemon=True).start()

    @property
    def is_over(self) -> bool:
        """Whether it was released."""
        return bool(pipes.select([self._read], [], [], 0)[0])

    def wait(self) -> None:
        """Wait for the release, at most `LOOK_AGAIN` seconds. Raises Interrupted."""
        self._interrupt.wait(LOOK_AGAIN, wake=self._read)

    def fileno(self) -> int:
        """Readable after the release; a caller checks again after `LOOK_AGAIN` in any case."""
        return self._read

    def close(self) -> None:
        files.close(self._read)


def _await(path: str, write: int) -> None:
    """In a thread: close `write` when the file is released; it stays open if that cannot be determined."""
    try:
        fd = regular_handle(path, files.O_RDONLY)
    except OSError:
        files.close(write)  # it has ended meanwhile
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


def _in_the_way(
    root: str, wanted: list[str], own: RunFolder | None, ours: Container[str] = ()
) -> list[Holder]:
    """The live and queued runs whose paths overlap with the wanted ones."""
    if not wanted:
        return []
    above = _ancestors(root)
    found: list[Holder] = []
    for other in runs_in(root, but=ours):
        if other.id in above or (own is not None and other.id == own.id):
            continue
        about = other.about()
        held = [path for path in _paths(about) for mine in wanted if overlap(mine, path)]
        if not held or not is_live(other):
            continue
        # Left over from an action of this run, which will end it; it shared the run's paths before.
        if own is not None and own.id in _climb(about.get("parent"), root):
            continue
        # Waiting for a run that waits for an ancestor of ours would be a deadlock.
        if about.get("queued") and any(
            overlap(a, b) for a in _paths(about) for b in _held_by(above.values())
        ):
            continue
        mine = next(path for path in wanted if overlap(path, held[0]))
        found.append(Holder(other, about, mine, held[0]))
    return found


def _paths(about: dict[str, Any]) -> list[str]:
    scope = about.get("scope")
    return [path for path in scope if isinstance(path, str)] if isinstance(scope, list) else []


def _held_by(runs: Iterable[RunFolder | None]) -> list[str]:
    return [path for run in runs if run is not None for path in _paths(run.about())]


def _ticket(about: dict[str, Any]) -> int:
    ticket = about.get("ticket")
    return ticket if type(ticket) is int else 0


def _next_ticket(root: str) -> int:
    """The ticket after all queued ones."""
    return 1 + max((_ticket(run.about()) for run in runs_in(root) if is_live(run)), default=0)


def _conflict(others: list[Holder], root: str) -> UserError:
    from ..journal.quantities import moment_text  # only an error needs it

    # A running one is more relevant than a queued one.
    holder = min(others, key=lambda other: (other.is_queued, other.ticket))
    since = f", since {moment_text(holder.since)}" if holder.since else ""
    how = "is waited for by" if holder.is_queued else "is locked by"
    what = f"works on {_shown(holder.path, root)}"
    if holder.is_queued:
        what = f"is before you in the queue for {_shown(holder.path, root)}"
    help = "with `--queue` it begins when its turn comes; loops with a `scope:` apart run side by side"
    if holder.is_keeper:
        help = f"its process has died, and its action continues; to take it over: llc resume {holder.run.id}"
    return Failure(
        "scope-conflict",
        f"{_shown(holder.mine, root)} {how} {holder.run.id} (pid {holder.pid}{since}), which {what}",
        help,
    )


def _ancestors(root: str) -> dict[str, RunFolder | None]:
    """The runs whose actions this process is part of: they hold their paths for us too."""
    return _climb(environment.environ.get("LLC_RUN_ID"), root)


def _climb(parent: Any, root: str) -> dict[str, RunFolder | None]:
    """A run, the run whose action started it, and so on."""
    found: dict[str, RunFolder | None] = {}
    while isinstance(parent, str) and parent not in found:
        run = found[parent] = next((run for run in runs_in(root) if run.id == parent), None)
        parent = run.about().get("parent") if run is not None else None
    return found


def _shown(path: str, root: str) -> str:
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
    """The lock of a run, which a keeper may have handed over; with a ticket the run is queued."""
    fd = _open(run.lock) if kept is None else kept[0]
    try:
        for attempt in range(_TRIES):
            if _try_flock(fd, files.LOCK_EX):
                break
            if attempt == _TRIES - 1:
                raise Failure("run-is-live", f"{run.id} is still running")
            clock.sleep(_PAUSE)
        pid = processes.getpid()
        known = {
            "run": run.id,
            "pid": pid,
            "start_time": processes.start_time(pid),
            "since": clock.timestamp(clock.time()),
        }
        lock = Lock(fd, known)
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


def _let_go(kept: tuple[int, dict[str, keeper.Kept]]) -> None:
    """Leave actions to their keeper."""
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
        if error.errno in _BUSY:
            return False
        raise UserError("no-locks", f"file locks do not work here: {reason(error)}") from None
    return True


def _flock(fd: int, operation: int) -> None:
    try:
        files.flock(fd, operation)
    except OSError as error:
        raise UserError("no-locks", f"file locks do not work here: {reason(error)}") from None
