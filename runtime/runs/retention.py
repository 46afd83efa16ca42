"""Retention: removal of finished runs by a policy.

A run is removed if its loop has more than `keep` later ones and, with `older_than`, it began longer ago; and,
with `size`, the oldest of those that are left until they are small enough, but never the last of a loop.
A folder is renamed before its files are deleted, so that a partly deleted run is never listed. Unfinished
runs are handled in `inspection/abandon`.
"""

from __future__ import annotations

import contextlib
import os.path

from ...vm.values.text_form import duration_text
from ..host import clock, files
from ..host.errors import reason
from ..host.paths import HISTORY, RUNNING
from ..journal.run_folder import RunFolder
from .lookup import find_run_folder, is_run_of
from .loop_names import is_loop
from .runs import runs_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# Maximum number of runs removed at the end of a run; a backlog is removed gradually.
MOST_AT_ONCE = 4
_GONE = ".gone"
_FOLDERS = (HISTORY, RUNNING)


def begun(run: RunFolder) -> float:
    """The start of a run in seconds since 1970, from its id."""
    import calendar

    return float(calendar.timegm(clock.strptime(run.id[-20:-5], "%Y%m%d-%H%M%S")))


def surplus(
    found: Iterable[RunFolder],
    keep: int | None,
    older_than: float | None,
    size: int | None = None,
    measure: Callable[[RunFolder], int] | None = None,
) -> list[RunFolder]:
    """The runs to remove, oldest first.

    found: runs, latest first. older_than: seconds. size: bytes of all that are kept, which counts whatever
    their age. measure: the bytes of a run, by default of its folder. Without a bound the result is empty.
    """
    if keep is None and older_than is None and size is None:
        return []
    is_bounded = keep is not None or older_than is not None
    latest = clock.time() - older_than if older_than is not None else None
    counts: dict[str, int] = {}
    going = []
    for run in found:
        counts[run.name] = count = counts.get(run.name, 0) + 1
        if is_bounded and (keep is None or count > keep) and (latest is None or begun(run) < latest):
            going.append(run)
        elif size is not None:
            size -= size_of(run.path) if measure is None else measure(run)
            if size < 0 and count > 1:
                going.append(run)
    return going[::-1]


def policy_text(keep: int | None, older_than: float | None, size: int | None) -> str:
    """What `surplus` keeps with these bounds."""
    kept = [] if keep is None else [f"the last {keep} run{'' if keep == 1 else 's'} of each loop"]
    if older_than is not None:
        kept.append(f"all that began in the last {duration_text(older_than * 1000)}")
    if size is not None:
        kept.append(f"{'of these ' if kept else ''}at most {in_bytes(size)}, but the last run of each loop")
    return ", ".join(kept) or "nothing"


def remove(run: RunFolder) -> int:
    """Remove a run; the size of its files in bytes. Raises OSError."""
    parent, name = os.path.split(run.path)
    if files.islink(run.path) or os.path.basename(parent) not in map(os.path.basename, _FOLDERS):
        return 0
    gone = os.path.join(parent, f".{name}{_GONE}")
    try:
        files.rename(run.path, gone)
    except FileNotFoundError:
        return 0  # removed by another process
    return _remove_folder(gone)


def remove_rest(root: str) -> None:
    """Finish removals that were interrupted."""
    for folder in _FOLDERS:
        parent = os.path.join(root, folder)
        with contextlib.suppress(OSError):
            for name in files.listdir(parent):
                if name.startswith(".") and name.endswith(_GONE):
                    _remove_folder(os.path.join(parent, name))


def _remove_folder(path: str) -> int:
    """Remove a folder as far as possible; the size of its files in bytes.

    Without `shutil`, whose import takes longer: most runs remove an old one when they end.
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
    """The size of the files in a folder, in bytes."""
    size = 0
    for folder, _, names in files.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                size += files.lstat(os.path.join(folder, name)).st_size
    return size


def after(run: RunFolder, keep: int, older_than: float | None, size: int | None) -> None:
    """Apply the policy after the end of a run: the count to its loop, the size to all runs.

    Ignores what cannot be removed.
    """
    found = list(runs_in(run.root, HISTORY))
    going = surplus([other for other in found if other.name == run.name], keep, older_than)
    if size is not None:
        going += [other for other in surplus(found, None, None, size) if other not in going]
    for other in going[:MOST_AT_ONCE]:
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
    """Remove finished runs by a policy: their ids with their sizes in bytes, and errors.

    Raises UserError if `target` is neither a run nor a loop.
    """
    found = [
        run for run in runs_in(root, HISTORY) if target is None or run.id == target or is_run_of(run, target)
    ]
    if target is not None and not found and not is_loop(target, root):
        find_run_folder(target, root)  # its error suggests names
    if not dry_run:
        remove_rest(root)
    gone, problems = [], []
    for run in surplus(found, keep, older_than, size):
        try:
            gone.append((run.id, size_of(run.path) if dry_run else remove(run)))
        except OSError as error:
            problems.append(f"cannot remove {run.path}: {reason(error)}")
    return gone, problems


def in_bytes(size: int) -> str:
    """A size in a readable unit."""
    amount = float(size)
    for unit in ("bytes", "KB", "MB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} GB"
