"""`llc clean --unfinished`: removal of unfinished runs.

Remaining processes of their actions are ended first; the run lock is held meanwhile.
"""

from __future__ import annotations

from ..host.errors import UserError, reason
from ..host.paths import ROOT
from ..journal.run_folder import RunFolder
from ..ledger import claims
from ..runs import locks, retention
from ..runs.lookup import find_run_folder, is_run_of
from ..runs.loop_names import is_loop
from .stop import end_leftovers


def chosen(
    target: str | None, keep: int | None, older_than: float | None, size: int | None = None
) -> list[RunFolder]:
    """The unfinished runs without a process: of a loop, one, or all; without a bound all of them.

    Raises UserError where `target` means neither a run nor a loop, or one that lives or has ended.
    """
    found = [
        run for run in locks.unfinished(ROOT) if target is None or run.id == target or is_run_of(run, target)
    ]
    if target is not None and not found and not is_loop(target):
        run = find_run_folder(target)  # says what there is to name instead
        raise UserError("run-ended", f"{run.id} has ended", "without --unfinished it can be removed")
    dead = []
    for run in found:
        if not locks.is_live(run):
            dead.append(run)
        elif run.id == target:
            raise locks.still_live(run)
    is_bounded = keep is not None or older_than is not None or size is not None
    return retention.surplus(dead, keep if is_bounded else 0, older_than, size)


def forget(found: list[RunFolder], dry_run: bool) -> tuple[list[tuple[str, int]], list[str]]:
    """As `retention.clean`, of these runs."""
    gone, problems = [], []
    for run in found:
        try:
            if dry_run:
                gone.append((run.id, retention.size_of(run.path)))
            else:
                with locks.kept_dead(run):
                    end_leftovers(run)
                    claims.settle_run(run.id)
                    gone.append((run.id, retention.remove(run)))
        except OSError as error:
            problems.append(f"cannot remove {run.path}: {reason(error)}")
        except UserError as error:
            problems.append(error.message)
    return gone, problems
