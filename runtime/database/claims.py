"""Claims: the exclusive right of a process to drive a run, and the paths that are locked for the run.

A claim is one transaction under a lock of the project. It checks that the previous owner is dead and that no
other run holds a path of the scope, and increments the epoch, which fences the previous owner (`stored_run`).
A run holds its scope from its first claim until it stops or ends. Queued runs acquire their scopes in order
of arrival.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..host import files
from ..host.errors import Failure, UserError
from ..journal.run_folder import Parked, Parking
from ..runs.scope_conflicts import overlap
from . import segments
from .connection import Connection
from .owner import declare_dead, is_dead
from .stored_run import WORKSPACE, Fenced

_LOCK_PROJECT = "select pg_advisory_xact_lock(hashtextextended('llc project ' || %s, 0))"
_LOCK_PROJECT_OF_RUN = (
    "select pg_advisory_xact_lock(hashtextextended('llc project ' || project, 0)) from runs where id = %s"
)
_INSERT = """
insert into runs (id, project, program, path, labels, scope, managed, status)
values (%(id)s, %(project)s, %(program)s, %(path)s, %(labels)s, %(scope)s, %(managed)s, %(status)s)
on conflict (id) do nothing
"""
_CONFLICTING_RUNS = """
select o.id, o.scope, o.status, o.owner from runs r join runs o on o.project = r.project and o.id <> r.id
where r.id = %s and o.status <> 'ended' and o.scope <> '{}' and (o.paths && r.above or o.above && r.paths)
  and (o.status in ('running', 'waiting') or (o.status = 'queued' and (o.parked_at is not null
    or (r.parked_at is null and o.ticket < r.ticket))))
order by o.ticket
"""
_SELECT_RUN = """
select scope, status, owner, epoch from runs where id = %s for update
"""
_CLAIM = """
update runs set owner = %(owner)s, epoch = epoch + 1, status = 'running', wish = null, changed = now(),
  machine = case when managed and not exists (
      select 1 from documents where run = runs.id and name = %(workspace)s)
    then coalesce(machine, (select machine from workers where id = %(owner)s)) end
where id = %(id)s returning epoch
"""
_CLAIM_TO_RECORD = "update runs set owner = %s, epoch = epoch + 1 where id = %s returning epoch"
_RELEASE = """
update runs set owner = null, status = %s, changed = now(), parked = null, parked_at = null
where id = %s and epoch = %s and status <> 'ended' and owner is not null
"""
_PARK = """
update runs set owner = null, status = 'waiting', changed = now(), parked = %(waits)s,
  parked_at = clock_timestamp(), due = clock_timestamp() + make_interval(secs => %(left)s),
  accounts = %(accounts)s
where id = %(id)s and epoch = %(epoch)s and status = 'running'
"""
_WAKE_IF_ANSWERED = """
select wake_run(id) from runs
where id = %s and exists (select 1 from documents where run = runs.id and name = any(%s))
"""
_SELECT_PARKED = (
    "select parked, extract(epoch from clock_timestamp() - parked_at)::float from runs where id = %s"
)


class NewRun(NamedTuple):
    """Initial values of a run. managed: workers continue the run; otherwise only `llc resume` does."""

    id: str
    project: str
    program: str
    path: str
    scope: Sequence[str]
    labels: Sequence[str] = ()
    managed: bool = False


class ScopeConflict(NamedTuple):
    """Reason why a claim must wait: the run `other` holds `path`, or is ahead in the queue for it."""

    other: str
    path: str
    is_queued: bool

    def error(self) -> UserError:
        relation = "is ahead in the queue for" if self.is_queued else "holds"
        return Failure(
            "scope-conflict",
            f"{self.other} {relation} {_describe_path(self.path)}",
            "use `--queue` to wait; loops whose `scope:` does not overlap can run at the same time",
        )


def portable_paths(scope: Iterable[str], root: str) -> list[str]:
    """Convert a scope to a form that is valid on all machines.

    Paths in the project begin with `/`, which stands for its root; other paths get the prefix `machine:`.
    """
    base = files.realpath(root)
    paths = []
    for path in scope:
        is_inside = overlap(path, base) and len(path) >= len(base)
        paths.append("/" + path[len(base) :].strip("/") if is_inside else "machine:" + path)
    return sorted(paths)


def create(connection: Connection, run: NewRun, owner: str) -> int | ScopeConflict | None:
    """Create a run and claim it for `owner`.

    Returns the epoch of the claim; a ScopeConflict if the run must wait (then it is not created); None if the
    id is in use.
    """
    values = {**run._asdict(), "labels": list(run.labels), "scope": list(run.scope), "status": "queued"}
    try:
        with connection.transaction():
            connection.execute(_LOCK_PROJECT, [run.project])
            _check_owner(connection, run.id, owner)
            if connection.execute(_INSERT, values).rowcount != 1:
                row = connection.execute("select owner, epoch from runs where id = %s", [run.id]).fetchone()
                # A repeated attempt after a lost connection finds its own run.
                return row[1] if row is not None and row[0] == owner else None
            if run.managed:
                # This process only records the start. The run acquires its paths when a worker claims it.
                return int(connection.execute(_CLAIM_TO_RECORD, [owner, run.id]).fetchone()[0])
            result = _claim(connection, run.id, owner)
            if isinstance(result, ScopeConflict):
                raise _Rollback(result)
            assert isinstance(result, int)
            return result
    except _Rollback as rollback:
        return rollback.conflict


def _check_owner(connection: Connection, run_id: str, owner: str) -> None:
    """Raise Fenced if the owner was declared dead while it was suspended: nothing would end its claim."""
    row = connection.execute("select state from workers where id = %s for share", [owner]).fetchone()
    if row is not None and row[0] == "dead":
        raise Fenced(run_id)


class _Rollback(Exception):
    """Rolls back the creation of a run that must wait."""

    def __init__(self, conflict: ScopeConflict) -> None:
        super().__init__(conflict)
        self.conflict = conflict


def claim(connection: Connection, run_id: str, owner: str) -> int | ScopeConflict | str | None:
    """Claim a run for `owner`.

    Returns the new epoch; a ScopeConflict if the run must wait; the id of a living owner; None if the run has
    ended or was removed.
    """
    with connection.transaction():
        if connection.execute(_LOCK_PROJECT_OF_RUN, [run_id]).fetchone() is None:
            return None
        _check_owner(connection, run_id, owner)
        return _claim(connection, run_id, owner)


def _claim(connection: Connection, run_id: str, owner: str) -> int | ScopeConflict | str | None:
    row = connection.execute(_SELECT_RUN, [run_id]).fetchone()
    if row is None or row[1] == "ended":
        return None
    scope, status, previous_owner, epoch = row
    if previous_owner == owner:
        return int(epoch)  # a repeated attempt; the result of the first one was lost
    if previous_owner is not None and not is_dead(connection, previous_owner):
        return str(previous_owner)
    if status != "running" and scope:
        rows = connection.execute(_CONFLICTING_RUNS, [run_id]).fetchall()
        holders = {holder for _, _, _, holder in rows if holder is not None}
        dead = [holder for holder in holders if is_dead(connection, holder)]
        for holder in dead:
            declare_dead(connection, holder)
        if dead:
            rows = connection.execute(_CONFLICTING_RUNS, [run_id]).fetchall()
        for other, paths, other_status, _ in rows:
            path = _first_overlap(paths, scope)
            if path is not None:
                return ScopeConflict(other, path, other_status == "queued")
    values = {"owner": owner, "workspace": WORKSPACE, "id": run_id}
    return int(connection.execute(_CLAIM, values).fetchone()[0])


def release(connection: Connection, run_id: str, epoch: int, status: str = "stopped") -> bool:
    """Release an unfinished run; return False if the claim has ended before.

    status: new status of the run; `queued`: workers continue it.
    """
    with connection.transaction():
        is_released = bool(connection.execute(_RELEASE, [status, run_id, epoch]).rowcount == 1)
        if is_released and status == "queued":
            segments.enqueue(connection, run_id)
        return is_released


def park(connection: Connection, run_id: str, epoch: int, parking: Parking, size: int) -> None:
    """Release a run that only waits, until it is due or a question is answered.

    size: of its journal, in bytes.
    """
    waits = {str(seq): round(waited, 3) for seq, waited in parking.waited.items()}
    names = [f"answers/{seq}.json" for seq in parking.waited]
    values = {"id": run_id, "epoch": epoch, "waits": json.dumps({"size": size, "waits": waits})}
    values["accounts"] = list(parking.accounts)
    with connection.transaction():
        if connection.execute(_PARK, {**values, "left": parking.left_s}).rowcount:
            # Wake the run if an answer arrived before; a later answer finds the run parked and wakes it.
            connection.execute(_WAKE_IF_ANSWERED, [run_id, names])


def parked(connection: Connection, run_id: str, size: int) -> Parked | None:
    """Return the waiting times of a parked run; None if it was not parked.

    size: of its journal now, in bytes.
    """
    row = connection.execute(_SELECT_PARKED, [run_id]).fetchone()
    if row is None or row[0] is None:
        return None
    state, gap_s = row
    waited = {int(seq): float(before) + float(gap_s) for seq, before in state["waits"].items()}
    # If events were recorded since, their active time already includes the gap.
    return Parked(round(gap_s * 1000) if state["size"] == size else 0, waited)


def _first_overlap(paths: Iterable[str], scope: Sequence[str]) -> str | None:
    """Return the first path that overlaps a path of the scope."""
    return next((path for path in paths for own in scope if overlap(path, own)), None)


def _describe_path(path: str) -> str:
    return "the whole project" if path == "/" else f"`{path.removeprefix('machine:').lstrip('/')}`"
