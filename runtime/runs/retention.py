"""Retention: removal of finished runs by a policy.

A run is removed if its loop has at least `keep` later runs and the run started more than `older_than` seconds
ago (each condition only if the bound is given). With `size`, the oldest remaining runs are removed until the
total size is within the bound, except for the last run of each loop. A folder is renamed before its files are
deleted, so that a partly deleted run is never listed. `inspection/abandon` removes unfinished runs.
"""

from __future__ import annotations

import contextlib
import os.path

from ...vm.values.text_form import duration_text
from ..host import clock, files
from ..host.errors import reason
from ..host.paths import HISTORY, RUNNING
from ..host.screen import counted
from ..journal.run_folder import RunFolder
from .lookup import find_run_folder, is_run_of
from .loop_names import is_loop
from .runs import runs_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# Maximum number of runs to remove at the end of a run; a backlog is removed gradually.
MAX_REMOVED_AT_END = 4
_REMOVED_SUFFIX = ".gone"
_FOLDERS = (HISTORY, RUNNING)


def started_at(run: RunFolder) -> float:
    """Return the start of a run in seconds since 1970, from its id."""
    import calendar

    return float(calendar.timegm(clock.strptime(run.id[-20:-5], "%Y%m%d-%H%M%S")))


def surplus(
    runs: Iterable[RunFolder],
    keep: int | None,
    older_than: float | None,
    size: int | None = None,
    measure: Callable[[RunFolder], int] | None = None,
) -> list[RunFolder]:
    """Return the runs to remove, oldest first; empty without a bound.

    Args:
        runs: all runs, latest first.
        keep: number of latest runs of each loop to keep.
        older_than: age in seconds; younger runs are kept.
        size: maximum total size of the kept runs in bytes, regardless of their age.
        measure: returns the size of a run in bytes; default: size of its folder.
    """
    if keep is None and older_than is None and size is None:
        return []
    is_bounded = keep is not None or older_than is not None
    latest = clock.time() - older_than if older_than is not None else None
    counts: dict[str, int] = {}
    removed = []
    for run in runs:
        counts[run.name] = count = counts.get(run.name, 0) + 1
        if is_bounded and (keep is None or count > keep) and (latest is None or started_at(run) < latest):
            removed.append(run)
        elif size is not None:
            size -= size_of(run.path) if measure is None else measure(run)
            if size < 0 and count > 1:
                removed.append(run)
    return removed[::-1]


def policy_text(keep: int | None, older_than: float | None, size: int | None) -> str:
    """Describe the runs that `surplus` keeps with these bounds."""
    kept = [] if keep is None else [f"the last {counted(keep, 'run')} of each loop"]
    if older_than is not None:
        kept.append(f"all runs started in the last {duration_text(older_than * 1000)}")
    if size is not None:
        kept.append(
            f"{'of these ' if kept else ''}at most {size_text(size)}, but always the last run of each loop"
        )
    return ", ".join(kept) or "nothing"


def remove(run: RunFolder) -> int:
    """Remove a run; return the size of its files in bytes. Raises OSError."""
    parent, name = os.path.split(run.path)
    if files.islink(run.path) or os.path.basename(parent) not in map(os.path.basename, _FOLDERS):
        return 0
    renamed = os.path.join(parent, f".{name}{_REMOVED_SUFFIX}")
    try:
        files.rename(run.path, renamed)
    except FileNotFoundError:
        return 0  # removed by another process
    return _remove_folder(renamed)


def finish_removals(root: str) -> None:
    """Finish removals that were interrupted."""
    for folder in _FOLDERS:
        parent = os.path.join(root, folder)
        with contextlib.suppress(OSError):
            for name in files.listdir(parent):
                if name.startswith(".") and name.endswith(_REMOVED_SUFFIX):
                    _remove_folder(os.path.join(parent, name))


def _remove_folder(path: str) -> int:
    """Remove a folder as far as possible; return the size of its files in bytes.

    Does not use `shutil`, whose import is slow: most runs remove an old run at their end.
    """
    size = 0
    for folder, folders, names in files.walk(path, topdown=False):
        for name in names:
            inner = os.path.join(folder, name)
            with contextlib.suppress(OSError):
                size += files.lstat(inner).st_size
                files.unlink(inner)
        for name in folders:
            inner = os.path.join(folder, name)
            with contextlib.suppress(OSError):
                (files.unlink if files.islink(inner) else files.rmdir)(inner)
    with contextlib.suppress(OSError):
        files.rmdir(path)
    return size


def size_of(path: str) -> int:
    """Return the size of the files in a folder, in bytes."""
    size = 0
    for folder, _, names in files.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                size += files.lstat(os.path.join(folder, name)).st_size
    return size


def apply_after_run(run: RunFolder, keep: int, older_than: float | None, size: int | None) -> None:
    """Apply the policy after the end of a run: `keep` and `older_than` to its loop, `size` to all runs.

    Errors are ignored.
    """
    runs = list(runs_in(run.root, HISTORY))
    removed = surplus([other for other in runs if other.name == run.name], keep, older_than)
    if size is not None:
        removed += [other for other in surplus(runs, None, None, size) if other not in removed]
    for other in removed[:MAX_REMOVED_AT_END]:
        with contextlib.suppress(OSError):
            remove(other)


def clean(
    root: str,
    target: str | None,
    keep: int | None,
    older_than: float | None,
    size: int | None = None,
    *,
    dry_run: bool,
) -> tuple[list[tuple[str, int]], list[str]]:
    """Remove finished runs by a policy; return the ids and sizes in bytes of removed runs, and errors.

    Args:
        target: only the run with this id, or runs of this loop; None: all.
        keep, older_than, size: see `surplus`.
        dry_run: only return what would be removed.

    Raises UserError if `target` is neither a run nor a loop.
    """
    runs = [
        run for run in runs_in(root, HISTORY) if target is None or run.id == target or is_run_of(run, target)
    ]
    if target is not None and not runs and not is_loop(target, root):
        find_run_folder(target, root)  # raises an error that suggests names
    if not dry_run:
        finish_removals(root)
    removed, errors = [], []
    for run in surplus(runs, keep, older_than, size):
        try:
            removed.append((run.id, size_of(run.path) if dry_run else remove(run)))
        except OSError as error:
            errors.append(f"cannot remove {run.path}: {reason(error)}")
    return removed, errors


def size_text(size: int) -> str:
    """Format a size in bytes with a readable unit."""
    amount = float(size)
    for unit in ("bytes", "KB", "MB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} GB"
