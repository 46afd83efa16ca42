"""Who may run: one run at a time on the same paths.

A run holds an flock on its `lock` file for as long as it lives, so a dead holder holds nothing and
a pid used again fools nobody. The file tells what is held. Starting is serialised by a lock on the
folder of the running, held only while the others are looked at.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time

from .errors import EXIT_FAILURE, UserError, reason
from .leftover import start_time
from .runs import RunFolder, make_running_folder, runs_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

# Looking whether a run lives takes its lock for a moment; starting has to outwait that.
_TRIES = 20
_PAUSE = 0.01
_BUSY = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)


def overlap(a: str, b: str) -> bool:
    """Whether one of two absolute paths is the other or lies inside it, by whole components."""
    return a == b or a.startswith(b.rstrip("/") + "/") or b.startswith(a.rstrip("/") + "/")


def resolve_scope(scope: Iterable[str], root: str) -> list[str]:
    """The absolute paths of a scope, links followed; paths need not exist."""
    return sorted({os.path.realpath(os.path.join(root, path)) for path in scope})


class Lock:
    """What a living run holds; letting it go is closing it, or dying."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def start(root: str, name: str, scope: Iterable[str], about: dict[str, Any]) -> tuple[RunFolder, Lock]:
    """A folder for a new run of `name`, held by us, unless another run holds a part of `scope`.

    `about` goes into the lock file. Raises UserError.
    """
    folder = make_running_folder(root)
    gate = _open(os.path.join(folder, ".lock"))
    try:
        _flock(gate, fcntl.LOCK_EX)
        for other in runs_in(root):
            if other.is_husk() and not is_live(other):
                other.discard()
        wanted = resolve_scope(scope, root)
        _refuse_conflict(root, wanted, None)
        run = RunFolder.create(root, name)
        try:
            return run, _hold(run, wanted, about)
        except BaseException:
            run.discard()
            raise
    finally:
        os.close(gate)


def take_over(run: RunFolder, scope: Iterable[str], about: dict[str, Any]) -> Lock:
    """The lock of a run that was cut off, to go on with it. Raises UserError where it lives."""
    gate = _open(os.path.join(make_running_folder(run.root), ".lock"))
    try:
        _flock(gate, fcntl.LOCK_EX)
        if is_live(run):
            pid = run.about().get("pid")
            raise UserError(
                "run-is-live",
                f"{run.id} is still running" + (f" (pid {pid})" if pid else ""),
                exit_code=EXIT_FAILURE,
            )
        wanted = resolve_scope(scope, run.root)
        _refuse_conflict(run.root, wanted, run)
        return _hold(run, wanted, about)
    finally:
        os.close(gate)


def is_live(run: RunFolder) -> bool:
    """Whether some process holds the run now."""
    try:
        fd = os.open(run.lock, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not _try_flock(fd, fcntl.LOCK_SH)
    finally:
        os.close(fd)


def _refuse_conflict(root: str, wanted: list[str], own: RunFolder | None) -> None:
    if not wanted:
        return
    passed = _ancestors(root)
    if own is not None:
        passed.add(own.id)
    for other in runs_in(root):
        if other.id in passed:
            continue
        about = other.about()
        held = about.get("scope")
        for path in held if isinstance(held, list) else ():
            for mine in wanted:
                if isinstance(path, str) and overlap(mine, path) and is_live(other):
                    raise UserError(
                        "scope-conflict",
                        f"{_shown(mine, root)} is in the hands of {other.id} (pid {about.get('pid')}), "
                        f"which works on {_shown(path, root)}",
                        "wait for that run or stop it; loops with a `scope:` apart from its run beside it",
                        EXIT_FAILURE,
                    )


def _ancestors(root: str) -> set[str]:
    """The runs whose actions we are part of: they hold their paths for us too."""
    found: set[str] = set()
    parent = os.environ.get("LLC_RUN_ID")
    while isinstance(parent, str) and parent not in found:
        found.add(parent)
        known = [run for run in runs_in(root) if run.id == parent]
        parent = known[0].about().get("parent") if known else None
    return found


def _shown(path: str, root: str) -> str:
    base = os.path.realpath(root)
    if path == base:
        return "the whole project"
    return (
        f"`{os.path.relpath(path, base)}`" if overlap(path, base) and len(path) > len(base) else f"`{path}`"
    )


def _hold(run: RunFolder, scope: list[str], about: dict[str, Any]) -> Lock:
    fd = _open(run.lock)
    try:
        for attempt in range(_TRIES):
            if _try_flock(fd, fcntl.LOCK_EX):
                break
            if attempt == _TRIES - 1:
                raise UserError("run-is-live", f"{run.id} is still running", exit_code=EXIT_FAILURE)
            time.sleep(_PAUSE)
        parent = os.environ.get("LLC_RUN_ID")
        pid = os.getpid()
        known = {"run": run.id, "pid": pid, "start_time": start_time(pid)}
        if parent:
            known["parent"] = parent
        text = json.dumps({**known, **about, "scope": scope})
        data = text.encode("utf-8", "surrogateescape") + b"\n"
        # Cut to length last: where this is cut off, the old text or the new one is there, or an error.
        os.pwrite(fd, data, 0)
        os.ftruncate(fd, len(data))
    except OSError as error:
        os.close(fd)
        raise UserError(
            "cannot-write", f"cannot write {run.lock}: {reason(error)}", exit_code=EXIT_FAILURE
        ) from None
    except BaseException:
        os.close(fd)
        raise
    return Lock(fd)


def _open(path: str) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UserError(
            "cannot-write", f"cannot write {path}: {reason(error)}", exit_code=EXIT_FAILURE
        ) from None


def _try_flock(fd: int, operation: int) -> bool:
    try:
        fcntl.flock(fd, operation | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _BUSY:
            return False
        raise UserError("no-locks", f"file locks do not work here: {reason(error)}") from None
    return True


def _flock(fd: int, operation: int) -> None:
    try:
        fcntl.flock(fd, operation)
    except OSError as error:
        raise UserError("no-locks", f"file locks do not work here: {reason(error)}") from None
