"""Removal of runs from a database, by `llc clean --db` and by workers (retention setting `history:`)."""

from __future__ import annotations

import os.path

from ..host import environment, files
from ..host.errors import UserError
from ..host.paths import HISTORY, LOOPS, SOURCE_SUFFIXES
from ..journal.run_folder import RunFolder
from ..runs import retention
from . import requests, schema
from .connection import Address, Connection, connected

_RUNS = """
select r.id,
  (select coalesce(sum(size), 0) from journal where run = r.id)
  + (select coalesce(sum(octet_length(data)), 0) from documents where run = r.id)
from runs r
where (%(project)s::text is null or project = %(project)s) and status = %(status)s
  and (%(target)s::text is null or id = %(target)s or program = %(target)s or path = any(%(paths)s))
order by created desc
"""
_REMOVE = "delete from runs where id = %s and status = %s"
_RECORD_TABLES = ("journal", "documents", "live")


def clean(
    url: str,
    target: str | None,
    keep: int | None,
    older_than: float | None,
    size: int | None,
    is_unfinished: bool,
    is_dry: bool,
) -> list[tuple[str, int]]:
    """Remove ended runs like `retention.clean`, or stopped runs (`is_unfinished`). Raises UserError."""
    here = files.realpath(environment.getcwd())
    project = os.path.basename(here) if files.isdir(os.path.join(here, LOOPS)) else None
    if project is None and target is None:
        raise UserError("bad-option", "no run or loop is named; outside of a project, this is required")
    if is_unfinished and (keep, older_than, size) == (None, None, None):
        keep = 0
    address = Address.parse(url)
    with connected(address) as connection:
        schema.check(connection, address)
        status = "stopped" if is_unfinished else "ended"
        removed = remove(connection, project, target, status, (keep, older_than, size), is_dry)
        if target is not None and not removed:
            error = requests.unknown_run_error(connection, address, target)
            if error is not None:
                raise error
        return removed


def remove(
    connection: Connection,
    project: str | None,
    target: str | None,
    status: str,
    bounds: tuple[int | None, float | None, int | None],
    is_dry: bool = False,
) -> list[tuple[str, int]]:
    """Remove the runs with a status that exceed the bounds; return the ids of removed runs and their bytes.

    Args:
        project: only runs of this project; None: of all projects.
        target: only the run with this id, or runs of this loop; None: all.
        status: only runs with this status.
        bounds: number of runs to keep, maximum age in seconds, maximum total size in bytes; None: no bound.
        is_dry: only return what would be removed.
    """
    values = {"project": project, "target": target, "status": status, "paths": _paths(target)}
    sizes = {run: int(size) for run, size in connection.execute(_RUNS, values).fetchall()}
    folders = [RunFolder("", os.path.join(HISTORY, run)) for run in sizes]
    removed = []
    for folder in retention.surplus(folders, *bounds, measure=lambda run: sizes[run.id]):
        if is_dry or _remove(connection, folder.id, status):
            removed.append((folder.id, sizes[folder.id]))
    return removed


def _remove(connection: Connection, run: str, status: str) -> bool:
    """Remove a run; return False if it no longer existed with this status."""
    with connection.transaction():
        if not connection.execute(_REMOVE, [run, status]).rowcount:
            return False
        connection.execute("select forget_segments(%s)", [run])
        for table in _RECORD_TABLES:
            connection.execute(f"delete from {table} where run = %s", [run])
        return True


def _paths(target: str | None) -> list[str]:
    return [target, *(f"{LOOPS}/{target}{suffix}" for suffix in SOURCE_SUFFIXES)] if target else []
