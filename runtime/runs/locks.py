"""Who may run: one run at a time on the same paths.

A run holds an flock on its `lock` file for as long as it lives, so a dead holder holds nothing and
a pid used again fools nobody. The file tells what is held. Starting is serialised by a lock on the
folder of the running, held only while the others are looked at.

A run that queues holds its `lock` from when it arrives, marked as queued and with a ticket. It waits
for the running that overlap with it and for the queued with an earlier ticket, so nobody overtakes and
nobody waits in a circle; it sleeps in the system until the lock of one of them is let go.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os.path

from ..host import clock, environment, files, pipes, processes, threads
from ..host.context import Interrupt
from ..host.coroutines import alone
from ..host.errors import EXIT_FAILURE, UserError, reason
from ..journal.run_folder import RunFolder
from .runs import make_running_folder, runs_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator
    from typing import Any

    from ..host.coroutines import Steps

# Looking whether a run lives takes its lock for a moment; starting has to outwait that.
_TRIES = 20
_PAUSE = 0.01
# A queued run looks again after so many seconds at the latest: who held the lock that it sleeps on may have
# died, and somebody behind it in the queue have taken it over.
LOOK_AGAIN = 5.0
# The id of the error that another run holds a path.
CONFLICT = "scope-conflict"
_BUSY = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)


def overlap(a: str, b: str) -> bool:
    """Whether one of two absolute paths is the other or lies inside it, by whole components."""
    return a == b or a.startswith(b.rstrip("/") + "/") or b.startswith(a.rstrip("/") + "/")


def resolve_scope(scope: Iterable[str], root: str) -> list[str]:
    """The absolute paths of a scope, links followed; paths need not exist."""
    return sorted({files.realpath(os.path.join(root, path)) for path in scope})


class Lock:
    """What a living run holds; letting it go is closing it, or dying."""

    __slots__ = ("_about", "_fd")

    def __init__(self, fd: int, about: dict[str, Any]) -> None:
        self._fd = fd
        self._about = about

    def tell(self, **changes: Any) -> None:
        """Change what the file tells; None takes a fact out. Raises OSError."""
        self._about.update(changes)
        known = {name: value for name, value in self._about.items() if value is not None}
        data = json.dumps(known).encode("utf-8", "surrogateescape") + b"\n"
        # Cut to length last: where this is cut off, the old text or the new one is there, or an error.
        files.pwrite(self._fd, data, 0)
        files.ftruncate(self._fd, len(data))

    def close(self) -> None:
        if self._fd >= 0:
            files.close(self._fd)
            self._fd = -1


class Queue:
    """How to wait for one's turn.

    interrupt: ends the waiting. on_wait(run, others): the run is in the queue, and waits for those;
    called again when it waits for others.
    """

    __slots__ = ("interrupt", "on_wait")

    def __init__(self, interrupt: Interrupt, on_wait: Callable[[RunFolder, list[Holder]], object]) -> None:
        self.interrupt = interrupt
        self.on_wait = on_wait


class Holder:
    """A living run that stands in the way: which of its paths, of ours, and since when it is there."""

    __slots__ = ("is_queued", "mine", "path", "pid", "run", "since", "ticket")

    def __init__(self, run: RunFolder, about: dict[str, Any], mine: str, path: str) -> None:
        self.run = run
        self.mine = mine
        self.path = path
        self.pid = about.get("pid")
        self.since = str(about.get("since") or "")
        self.ticket = _ticket(about)
        self.is_queued = bool(about.get("queued"))


def start(
    root: str, name: str, scope: Iterable[str], about: dict[str, Any], queue: Queue | None = None
) -> tuple[RunFolder, Lock]:
    """A folder for a new run of `name`, held by us, unless another run holds a part of `scope`.

    `about` goes into the lock file. With a `queue` it waits for its turn. Raises UserError, and
    Interrupted where the queue was left; nothing of the run is left then.
    """
    return alone(starting(root, name, scope, about, queue))


def sweep(root: str) -> None:
    """Remove what starts left that were killed: nothing was performed there."""
    with _Gate(root):
        _sweep(root)


def _sweep(root: str) -> None:
    for other in runs_in(root):
        if other.is_husk() and not is_live(other):
            other.discard()


def starting(
    root: str,
    name: str,
    scope: Iterable[str],
    about: dict[str, Any],
    queue: Queue | None,
    ours: Container[str] | None = None,
) -> Steps[tuple[RunFolder, Lock]]:
    """As `start`, step by step.

    ours: runs that are known not to be in the way, of somebody who starts many, and has swept before.
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
    """The lock of a run that was cut off, to go on with it. Raises UserError where it lives.

    With a `queue` it waits for its turn; Interrupted where the queue was left.
    """
    return alone(taking_over(run, scope, about, queue))


def taking_over(
    run: RunFolder,
    scope: Iterable[str],
    about: dict[str, Any],
    queue: Queue | None,
    ours: Container[str] | None = None,
) -> Steps[Lock]:
    """As `take_over`, step by step; ours as for `starting`."""
    ours = ours or ()
    gate = _Gate(run.root)
    wanted = resolve_scope(scope, run.root)
    with gate:
        if _is_held(run):
            raise still_live(run)
        others = _in_the_way(run.root, wanted, run, ours)
        if others and queue is None:
            raise _conflict(others, run.root)
        lock = _hold(run, wanted, about, _next_ticket(run.root) if others else None)
    if others and queue is not None:
        try:
            yield from _turn(gate, run, wanted, lock, queue, ours)
        except BaseException:
            lock.close()
            raise
    return lock


def still_live(run: RunFolder) -> UserError:
    """That a run can be neither taken up nor removed, because somebody runs it."""
    held = run.about()
    pid = f" (pid {held['pid']})" if "pid" in held else ""
    return UserError(
        "run-is-live",
        f"{run.id} is {'in the queue' if held.get('queued') else 'still running'}{pid}",
        f"to look at it: llc attach {run.id}; to stop it: llc stop {run.id}",
        EXIT_FAILURE,
    )


@contextlib.contextmanager
def kept_dead(run: RunFolder) -> Iterator[None]:
    """Inside, nobody takes up a run that nobody runs. Raises UserError where somebody does."""
    with _Gate(run.root):
        if _is_held(run):
            raise still_live(run)
        yield


def unfinished(root: str) -> list[RunFolder]:
    """The runs that have not ended, the latest first; what a start that was killed left is none."""
    return [run for run in runs_in(root) if not run.is_husk() or is_live(run)]


def _is_held(run: RunFolder) -> bool:
    """Whether somebody holds a run, and goes on to.

    What a process was starting when it was killed has its files for a moment longer.
    """
    for _ in range(_TRIES):
        if not is_live(run):
            return False
        about = run.about()
        pid, began = about.get("pid"), about.get("start_time")
        if not began or (isinstance(pid, int) and processes.is_alive(pid, str(began))):
            return True
        clock.sleep(_PAUSE)
    return True


class _Gate:
    """Whoever looks who may run, looks alone."""

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


def _turn(
    gate: _Gate, run: RunFolder, wanted: list[str], lock: Lock, queue: Queue, ours: Container[str]
) -> Steps[None]:
    """Wait until nobody stands in the way of `run`, which is in the queue."""
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
                    lock.tell(queued=None, ticket=None, waits_for=None, since=_now())
                    return
                if names != shown:
                    lock.tell(waits_for=names)
            if names != shown:
                queue.on_wait(run, others)
                shown = names
            # The last one to get its turn before us: until that is gone there is nothing to look for.
            last = max(others, key=lambda other: (other.is_queued, other.ticket, other.run.id)).run.lock
            if release is not None and (release.path != last or release.is_over):
                release.close()
                release = None
            release = release or Release(last, queue.interrupt)
            yield release
    except OSError as error:
        raise UserError(
            "cannot-write", f"cannot write {run.lock}: {reason(error)}", exit_code=EXIT_FAILURE
        ) from None
    finally:
        if release is not None:
            release.close()


class Release:
    """Notices when the holder of a lock file lets it go: a thread sleeps in the system until then.

    Such a wait cannot be called off. Where it is not needed any more its thread stays behind.
    """

    __slots__ = ("_interrupt", "_read", "path")

    def __init__(self, path: str, interrupt: Interrupt) -> None:

        self.path = path
        self._interrupt = interrupt
        self._read, write = pipes.pipe()
        threads.Thread(target=_await, args=(path, write), daemon=True).start()

    @property
    def is_over(self) -> bool:
        """Whether it was let go."""
        return bool(pipes.select([self._read], [], [], 0)[0])

    def wait(self) -> None:
        """Wait for that, for a while. Raises Interrupted."""
        self._interrupt.wait(LOOK_AGAIN, wake=self._read)

    def fileno(self) -> int:
        """Readable once it is let go; whoever waits looks again after `LOOK_AGAIN` all the same."""
        return self._read

    def close(self) -> None:
        files.close(self._read)


def _await(path: str, write: int) -> None:
    """In a thread: close `write` once nobody holds the file. Where that cannot be known it stays open."""
    try:
        fd = files.open_handle(path, files.O_RDONLY)
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
    """Whether some process holds the run now."""
    try:
        fd = files.open_handle(run.lock, files.O_RDONLY)
    except OSError:
        return False
    try:
        return not _try_flock(fd, files.LOCK_SH)
    finally:
        files.close(fd)


def _in_the_way(
    root: str, wanted: list[str], own: RunFolder | None, ours: Container[str] = ()
) -> list[Holder]:
    """The living runs, and those in the queue, whose paths overlap with the wanted ones."""
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
        # Left of an action of the run that goes on, which ends it; it shared that one's paths before.
        if own is not None and own.id in _climb(about.get("parent"), root):
            continue
        # Who waits for the run that we are a part of cannot be waited for.
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
    """Behind all that are in the queue."""
    return 1 + max((_ticket(run.about()) for run in runs_in(root) if is_live(run)), default=0)


def _conflict(others: list[Holder], root: str) -> UserError:
    # A run that works is of more interest than one that waits.
    holder = min(others, key=lambda other: (other.is_queued, other.ticket))
    since = f", since {holder.since.replace('T', ' ')[:19]} UTC" if holder.since else ""
    how = "is waited for by" if holder.is_queued else "is in the hands of"
    what = f"works on {_shown(holder.path, root)}"
    if holder.is_queued:
        what = f"is before you in the queue for {_shown(holder.path, root)}"
    return UserError(
        CONFLICT,
        f"{_shown(holder.mine, root)} {how} {holder.run.id} (pid {holder.pid}{since}), which {what}",
        "with `--queue` it begins when its turn comes; loops with a `scope:` apart run side by side",
        EXIT_FAILURE,
    )


def _ancestors(root: str) -> dict[str, RunFolder | None]:
    """The runs whose actions we are part of: they hold their paths for us too."""
    return _climb(environment.environ.get("LLC_RUN_ID"), root)


def _climb(parent: Any, root: str) -> dict[str, RunFolder | None]:
    """A run, the run whose action started that, and so on."""
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


def _hold(run: RunFolder, scope: list[str], about: dict[str, Any], ticket: int | None) -> Lock:
    """The lock of a run; with a ticket it is in the queue."""
    fd = _open(run.lock)
    try:
        for attempt in range(_TRIES):
            if _try_flock(fd, files.LOCK_EX):
                break
            if attempt == _TRIES - 1:
                raise UserError("run-is-live", f"{run.id} is still running", exit_code=EXIT_FAILURE)
            clock.sleep(_PAUSE)
        pid = processes.getpid()
        known = {"run": run.id, "pid": pid, "start_time": processes.start_time(pid), "since": _now()}
        lock = Lock(fd, known)
        queued = {"queued": True, "ticket": ticket} if ticket is not None else {}
        lock.tell(parent=environment.environ.get("LLC_RUN_ID"), **about, scope=scope, **queued)
    except OSError as error:
        files.close(fd)
        raise UserError(
            "cannot-write", f"cannot write {run.lock}: {reason(error)}", exit_code=EXIT_FAILURE
        ) from None
    except BaseException:
        files.close(fd)
        raise
    return lock


def _now() -> str:
    return clock.strftime("%Y-%m-%dT%H:%M:%SZ", clock.gmtime())


def _open(path: str) -> int:
    try:
        return files.open_handle(path, files.O_RDWR | files.O_CREAT, 0o600)
    except OSError as error:
        raise UserError(
            "cannot-write", f"cannot write {path}: {reason(error)}", exit_code=EXIT_FAILURE
        ) from None


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
