"""Removal of runs from a database: by `llc clean --db`, and by workers as `history:` says."""

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
_RECORDS = ("journal", "documents", "live")


def clean(
    url: str,
    target: str | None,
    keep: int | None,
    older_than: float | None,
    size: int | None,
    is_unfinished: bool,
    is_dry: bool,
) -> list[tuple[str, int]]:
    """As `retention.clean`; with `is_unfinished` the stopped runs instead. Raises UserError."""
    here = files.realpath(environment.getcwd())
    project = os.path.basename(here) if files.isdir(os.path.join(here, LOOPS)) else None
    if project is None and target is None:
        raise UserError("bad-option", "outside of a project, name a run or a loop to remove")
    if is_unfinished and (keep, older_than, size) == (None, None, None):
        keep = 0
    address = Address.of(url)
    with connected(address) as connection:
        schema.check(connection, address)
        status = "stopped" if is_unfinished else "ended"
        found = remove(connection, project, target, status, (keep, older_than, size), is_dry)
        absent = requests.unknown(connection, address, target) if target is not None and not found else None
        if absent is not None:
            raise absent
        return found


def remove(
    connection: Connection,
    project: str | None,
    target: str | None,
    status: str,
    bounds: tuple[int | None, float | None, int | None],
    is_dry: bool = False,
) -> list[tuple[str, int]]:
    """Remove the runs with a status that `bounds` do not keep: their ids with their bytes."""
    values = {"project": project, "target": target, "status": status, "paths": _paths(target)}
    sizes = {run: int(size) for run, size in connection.execute(_RUNS, values).fetchall()}
    folders = [RunFolder("", os.path.join(HISTORY, run)) for run in sizes]
    gone = []
    for folder in retention.surplus(folders, *bounds, measure=lambda run: sizes[run.id]):
        if is_dry or _remove(connection, folder.id, status):
            gone.append((folder.id, sizes[folder.id]))
    return gone


def _remove(connection: Connection, run: str, status: str) -> bool:
    """Whether the run was still there, with this status."""
    with connection.transaction():
        is_ours = bool(connection.execute(_REMOVE, [run, status]).rowcount)
        if is_ours:
            connection.execute("select forget_segments(%s)", [run])
        for table in _RECORDS if is_ours else ():
            connection.execute(f"delete from {table} where run = %s", [run])
        return is_ours


def _paths(target: str | None) -> list[str]:
    return [target, *(f"{LOOPS}/{target}{suffix}" for suffix in SOURCE_SUFFIXES)] if target else []
