"""`llc clean --unfinished`: removal of unfinished runs.

Ends the remaining processes of their actions first, and holds the run lock meanwhile.
"""

from __future__ import annotations

from ..host.errors import UserError, reason
from ..host.paths import ROOT
from ..journal.run_folder import RunFolder
from ..ledger import claims
from ..runs import locks, retention
from ..runs.lookup import find_run_folder, is_run_of
from ..runs.loop_names import is_loop
from ..runs.run_lock import is_live
from .stop import end_leftovers


def select_runs(
    target: str | None, keep: int | None, older_than: float | None, size: int | None = None
) -> list[RunFolder]:
    """Unfinished runs that no process executes: the run or the runs of the loop `target`, or all runs.

    keep, older_than (seconds), size (bytes): select only the runs beyond these bounds; None for no bound.
    Raises UserError if `target` names neither a run nor a loop, or if that run is running or finished.
    """
    unfinished = [
        run for run in locks.unfinished(ROOT) if target is None or run.id == target or is_run_of(run, target)
    ]
    if target is not None and not unfinished and not is_loop(target):
        run = find_run_folder(target)  # raises with suggestions if nothing has this name
        raise UserError("run-ended", f"{run.id} has ended", "remove it without --unfinished")
    dead = []
    for run in unfinished:
        if not is_live(run):
            dead.append(run)
        elif run.id == target:
            raise locks.still_live_error(run)
    is_bounded = keep is not None or older_than is not None or size is not None
    return retention.surplus(dead, keep if is_bounded else 0, older_than, size)


def remove_runs(runs: list[RunFolder], dry_run: bool) -> tuple[list[tuple[str, int]], list[str]]:
    """Remove these runs; the removed runs with their sizes, and the problems, as `retention.clean`."""
    removed, problems = [], []
    for run in runs:
        try:
            if dry_run:
                removed.append((run.id, retention.size_of(run.path)))
            else:
                with locks.resume_blocked(run):
                    end_leftovers(run)
                    claims.settle_run(run.id)
                    removed.append((run.id, retention.remove(run)))
        except OSError as error:
            problems.append(f"cannot remove {run.path}: {reason(error)}")
        except UserError as error:
            problems.append(error.message)
    return removed, problems
