"""Surviving actions: actions on this machine that outlived the process that drove their run in a database.

Each owner keeps the folders of its runs below one folder of the project. A keeper of actions holds the lock
of such a folder and has its socket there (`host/keeper`). The next owner of the run finds the actions in the
folders of other owners if it uses the same files. The lock records the epoch of the claim: a decision of a
later owner about an effect takes precedence over the surviving action.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterable, Iterator
from contextlib import suppress

from ..host import files
from ..host.errors import UserError
from ..host.keeper import Kept
from ..host.leftovers import end_kept
from ..host.paths import RUNNING
from ..journal.events import TAKE_OVER, RunResume
from ..journal.reader import read
from ..journal.run_folder import RunFolder
from ..runs import locks
from ..runs.run_lock import is_live
from .connection import Connection
from .stored_run import DatabaseRun

_FIRST_LATER_POSITION = "select min(position) from journal where run = %s and epoch > %s"
# Selects the runs that a process of this machine may take over. A stopped managed run is excluded: when a
# person resumes it, any machine may continue it.
_RESUMABLE_HERE = """
select r.id from runs r left join workers w on w.id = r.owner
where r.id = any(%s) and r.status <> 'ended' and not (r.managed and r.status = 'stopped')
  and (w.id is null or w.machine = %s)
"""


def find_actions(run: DatabaseRun, cache: str) -> dict[str, Kept]:
    """Find the surviving actions of a run by effect id. cache: folder of this owner."""
    found: dict[str, Kept] = {}
    folders = [(int(folder.about().get("epoch", 0)), folder) for folder in _folders(cache, run.id)]
    for epoch, folder in sorted(folders, key=lambda pair: pair[0], reverse=True):
        try:
            actions = locks.survivors(folder)
        except UserError:
            # The process or its keeper is suspended: its actions are ended later like other leftover
            # processes. Without the lock file the keeper starts no more actions.
            with suppress(FileNotFoundError):
                files.unlink(folder.lock)
            continue
        decided = _decided(run, epoch) if actions else set()
        for effect, action in actions.items():
            if effect in decided or effect in found:
                end_kept(action)
            else:
                found[effect] = action
    return found


def find_abandoned(connection: Connection, cache: str, machine: str) -> list[RunFolder]:
    """Find folders of other owners with actions of runs that have ended or continue on another machine.

    machine: machine id of this owner; only owners with the same id can take over its actions.
    """
    folders = [folder for folder in _folders(cache) if folder.about().get("kept")]
    if not folders:
        return []
    rows = connection.execute(_RESUMABLE_HERE, [[folder.id for folder in folders], machine]).fetchall()
    resumable = {run for (run,) in rows}
    return [folder for folder in folders if folder.id not in resumable and is_live(folder)]


def end_actions(folders: Iterable[RunFolder]) -> None:
    """End the actions in these folders."""
    for folder in folders:
        try:
            actions = locks.survivors(folder)
        except UserError:
            continue
        for action in actions.values():
            end_kept(action)


def _folders(cache: str, run_id: str | None = None) -> Iterator[RunFolder]:
    """List the folders of other owners for a run; None: for all runs."""
    parent, own = os.path.split(cache)
    for owner in files.listdir(parent):
        root = os.path.join(parent, owner)
        if owner == own:
            continue
        for name in [run_id] if run_id is not None else _list_folder(os.path.join(root, RUNNING)):
            folder = RunFolder(root, os.path.join(root, RUNNING, name))
            if files.isfile(folder.lock):
                yield folder


def _list_folder(path: str) -> list[str]:
    """List a folder that its owner may be removing at the same time."""
    try:
        return files.listdir(path)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _decided(run: DatabaseRun, epoch: int) -> set[str]:
    """Return the ids of effects about which owners after `epoch` decided otherwise than to take over."""
    ((offset,),) = run.session.do(
        lambda connection: connection.execute(_FIRST_LATER_POSITION, [run.id, epoch]).fetchall()
    )
    if offset is None:
        return set()
    return {
        f"{run.id}/{seq}"
        for event in read(run.journal, int(offset))
        if isinstance(event, RunResume)
        for seq, policy in event.unknown.items()
        if policy != TAKE_OVER
    }
