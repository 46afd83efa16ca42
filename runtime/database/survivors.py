"""Actions of runs in a database that have survived the process that drove them, on this machine.

Each owner keeps the folders of its runs below one folder of the project. A keeper of actions holds the lock
of such a folder and has its socket there (`host/keeper`), so the next owner of the run finds the actions by
the folders of the others, if it works on the same files. The lock names the epoch of the claim: what later
owners have decided about an effect comes before its action.
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
from .connection import Connection
from .stored_run import DatabaseRun

_LATER = "select min(position) from journal where run = %s and epoch > %s"
# Of some runs those that a process of this machine may take over. A managed run that was stopped is queued
# again by a person, for any machine.
_WAITING = """
select r.id from runs r left join workers w on w.id = r.owner
where r.id = any(%s) and r.status <> 'ended' and not (r.managed and r.status = 'stopped')
  and (w.id is null or w.machine = %s)
"""


def of_run(run: DatabaseRun, cache: str) -> dict[str, Kept]:
    """The actions of a run whose owner before has died, by effect; cache: our own folder."""
    found: dict[str, Kept] = {}
    folders = [(int(folder.about().get("epoch", 0)), folder) for folder in _folders(cache, run.id)]
    for epoch, folder in sorted(folders, key=lambda known: known[0], reverse=True):
        try:
            actions = locks.survivors(folder)
        except UserError:
            # Its process or the keeper is suspended: what it runs is ended like anything else that is left,
            # and without its lock file the keeper starts nothing more.
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


def abandoned(connection: Connection, cache: str, machine: str) -> list[RunFolder]:
    """Folders of other owners with actions of runs that are over, or continue on another machine.

    machine: of this owner, by which others know whether they can take over its actions.
    """
    found = [folder for folder in _folders(cache) if folder.about().get("kept")]
    if not found:
        return []
    rows = connection.execute(_WAITING, [[folder.id for folder in found], machine]).fetchall()
    waiting = {run for (run,) in rows}
    return [folder for folder in found if folder.id not in waiting and locks.is_live(folder)]


def end(folders: Iterable[RunFolder]) -> None:
    """End the actions of these folders."""
    for folder in folders:
        try:
            actions = locks.survivors(folder)
        except UserError:
            continue
        for action in actions.values():
            end_kept(action)


def _folders(cache: str, run_id: str | None = None) -> Iterator[RunFolder]:
    """The folders that other owners had for a run, or for any."""
    parent, own = os.path.split(cache)
    for owner in files.listdir(parent):
        root = os.path.join(parent, owner)
        if owner == own:
            continue
        for name in [run_id] if run_id is not None else _names(os.path.join(root, RUNNING)):
            folder = RunFolder(root, os.path.join(root, RUNNING, name))
            if files.isfile(folder.lock):
                yield folder


def _names(path: str) -> list[str]:
    """Those in a folder, which its owner may just be removing."""
    try:
        return files.listdir(path)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _decided(run: DatabaseRun, epoch: int) -> set[str]:
    """The effects that owners after `epoch` performed in another way."""
    ((offset,),) = run.session.do(lambda connection: connection.execute(_LATER, [run.id, epoch]).fetchall())
    if offset is None:
        return set()
    return {
        f"{run.id}/{seq}"
        for event in read(run.journal, int(offset))
        if isinstance(event, RunResume)
        for seq, policy in event.unknown.items()
        if policy != TAKE_OVER
    }
