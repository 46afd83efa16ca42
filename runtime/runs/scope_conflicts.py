"""Conflicts of scopes: live and queued runs whose paths overlap those of another run.

The lock file of a run lists the paths of its scope, and marks the run as queued.
"""

from __future__ import annotations

import os.path

from ..host import environment, files
from ..host.errors import Failure, UserError
from ..journal.quantities import moment_text
from ..journal.run_folder import RunFolder
from .run_lock import is_live
from .runs import runs_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterable
    from typing import Any


def overlap(a: str, b: str) -> bool:
    """Whether two absolute paths are equal or one contains the other, by whole components."""
    return a == b or a.startswith(b.rstrip("/") + "/") or b.startswith(a.rstrip("/") + "/")


def resolve_scope(scope: Iterable[str], root: str) -> list[str]:
    """Return the real absolute paths of a scope; the paths need not exist."""
    return sorted({files.realpath(os.path.join(root, path)) for path in scope})


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
        self.ticket = ticket_of(about)
        self.is_queued = bool(about.get("queued"))
        self.is_keeper = bool(about.get("kept"))


def conflicting_runs(
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


def ticket_of(about: dict[str, Any]) -> int:
    ticket = about.get("ticket")
    return ticket if type(ticket) is int else 0


def conflict_error(others: list[Holder], root: str) -> UserError:
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
        "scope-conflict", f"{own} {how} {holder.run.id} (pid {holder.pid}{since}), which {status}", help
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
