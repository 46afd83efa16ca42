"""Claims: which process drives a run, and which paths its project has locked for it.

A claim is one transaction: under a lock of the project it checks that the owner before is dead and that no
other run holds a part of the scope, and raises the epoch, which fences the owner before (`stored_run`). A
run holds its scope from its first claim until it stops or ends; runs in the queue take it in order of
arrival.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..host import files
from ..host.errors import Failure, UserError
from ..journal.run_folder import Parked, Parking
from ..runs.locks import overlap
from . import segments
from .connection import Connection
from .owner import bury, is_dead
from .stored_run import WORKSPACE, Fenced

_GATE = "select pg_advisory_xact_lock(hashtextextended('llc project ' || %s, 0))"
_GATE_OF = (
    "select pg_advisory_xact_lock(hashtextextended('llc project ' || project, 0)) from runs where id = %s"
)
_INSERT = """
insert into runs (id, project, program, path, labels, scope, managed, status)
values (%(id)s, %(project)s, %(program)s, %(path)s, %(labels)s, %(scope)s, %(managed)s, %(status)s)
on conflict (id) do nothing
"""
_OTHERS = """
select o.id, o.scope, o.status, o.owner from runs r join runs o on o.project = r.project and o.id <> r.id
where r.id = %s and o.status <> 'ended' and o.scope <> '{}' and (o.paths && r.above or o.above && r.paths)
  and (o.status in ('running', 'waiting') or (o.status = 'queued' and (o.parked_at is not null
    or (r.parked_at is null and o.ticket < r.ticket))))
order by o.ticket
"""
_RUN = """
select scope, status, owner, epoch from runs where id = %s for update
"""
_CLAIM = """
update runs set owner = %(owner)s, epoch = epoch + 1, status = 'running', wish = null, changed = now(),
  machine = case when managed and not exists (
      select 1 from documents where run = runs.id and name = %(workspace)s)
    then coalesce(machine, (select machine from workers where id = %(owner)s)) end
where id = %(id)s returning epoch
"""
_RECORD = "update runs set owner = %s, epoch = epoch + 1 where id = %s returning epoch"
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
_ANSWERED = """
select wake_run(id) from runs
where id = %s and exists (select 1 from documents where run = runs.id and name = any(%s))
"""
_PARKED = "select parked, extract(epoch from clock_timestamp() - parked_at)::float from runs where id = %s"


class NewRun(NamedTuple):
    """What a run is created with. managed: workers continue it; else only `llc resume` does."""

    id: str
    project: str
    program: str
    path: str
    scope: Sequence[str]
    labels: Sequence[str] = ()
    managed: bool = False


class Busy(NamedTuple):
    """A claim that has to wait. other: the run that holds `path`, or is before it in the queue."""

    other: str
    path: str
    is_queued: bool

    def error(self) -> UserError:
        how = "is before it in the queue for" if self.is_queued else "works on"
        return Failure(
            "scope-conflict",
            f"{self.other} {how} {_shown(self.path)}",
            "with `--queue` it begins when its turn comes; loops with a `scope:` apart run side by side",
        )


def paths_of(scope: Iterable[str], root: str) -> list[str]:
    """A scope for all machines: paths in the project begin with `/`, its root; others belong to a machine."""
    base = files.realpath(root)
    found = []
    for path in scope:
        inside = overlap(path, base) and len(path) >= len(base)
        found.append("/" + path[len(base) :].strip("/") if inside else "machine:" + path)
    return sorted(found)


def create(connection: Connection, run: NewRun, owner: str) -> int | Busy | None:
    """Create a run and claim it for `owner`; its epoch, or what it has to wait for: then there is no run.

    The result is None if there is another run with this id.
    """
    values = {**run._asdict(), "labels": list(run.labels), "scope": list(run.scope), "status": "queued"}
    try:
        with connection.transaction():
            connection.execute(_GATE, [run.project])
            _refuse_dead(connection, run.id, owner)
            if connection.execute(_INSERT, values).rowcount != 1:
                known = connection.execute("select owner, epoch from runs where id = %s", [run.id]).fetchone()
                # A repeated attempt after a lost connection finds its own run.
                return known[1] if known is not None and known[0] == owner else None
            if run.managed:
                # Recorded here and driven elsewhere: it takes its paths when a worker claims it.
                return int(connection.execute(_RECORD, [owner, run.id]).fetchone()[0])
            came = _claim(connection, run.id, owner)
            if isinstance(came, Busy):
                raise _Rollback(came)
            assert isinstance(came, int)
            return came
    except _Rollback as rolled:
        return rolled.busy


def _refuse_dead(connection: Connection, run_id: str, owner: str) -> None:
    """Refuse an owner that was declared dead while it was suspended: nothing would end its claim."""
    row = connection.execute("select state from workers where id = %s for share", [owner]).fetchone()
    if row is not None and row[0] == "dead":
        raise Fenced(run_id)


class _Rollback(Exception):
    """Undoes the creation of a run that has to wait."""

    def __init__(self, busy: Busy) -> None:
        super().__init__(busy)
        self.busy = busy


def claim(connection: Connection, run_id: str, owner: str) -> int | Busy | str | None:
    """Claim a run: its new epoch, what it waits for, or the living owner that has it.

    None if there is nothing to claim: the run has ended or was removed.
    """
    with connection.transaction():
        if connection.execute(_GATE_OF, [run_id]).fetchone() is None:
            return None
        _refuse_dead(connection, run_id, owner)
        return _claim(connection, run_id, owner)


def _claim(connection: Connection, run_id: str, owner: str) -> int | Busy | str | None:
    row = connection.execute(_RUN, [run_id]).fetchone()
    if row is None or row[1] == "ended":
        return None
    scope, status, before, epoch = row
    if before == owner:
        return int(epoch)  # the answer to this claim was lost
    if before is not None and not is_dead(connection, before):
        return str(before)
    if status != "running" and scope:
        rows = connection.execute(_OTHERS, [run_id]).fetchall()
        holders = {holder for _, _, _, holder in rows if holder is not None}
        dead = [holder for holder in holders if is_dead(connection, holder)]
        for holder in dead:
            bury(connection, holder)
        for other, paths, how, _ in connection.execute(_OTHERS, [run_id]).fetchall() if dead else rows:
            held = _shared(paths, scope)
            if held is not None:
                return Busy(other, held, how == "queued")
    values = {"owner": owner, "workspace": WORKSPACE, "id": run_id}
    return int(connection.execute(_CLAIM, values).fetchone()[0])


def release(connection: Connection, run_id: str, epoch: int, status: str = "stopped") -> bool:
    """Give up a run that did not end; False if it is not ours any more. `queued`: workers continue it."""
    with connection.transaction():
        is_ours = bool(connection.execute(_RELEASE, [status, run_id, epoch]).rowcount == 1)
        if is_ours and status == "queued":
            segments.enqueue(connection, run_id)
        return is_ours


def park(connection: Connection, run_id: str, epoch: int, parking: Parking, size: int) -> None:
    """Give up a run that only waits, until its time has come or a question is answered.

    size: of its journal.
    """
    waits = {str(seq): round(waited, 3) for seq, waited in parking.waited.items()}
    names = [f"answers/{seq}.json" for seq in parking.waited]
    values = {"id": run_id, "epoch": epoch, "waits": json.dumps({"size": size, "waits": waits})}
    values["accounts"] = list(parking.accounts)
    with connection.transaction():
        if connection.execute(_PARK, {**values, "left": parking.left_s}).rowcount:
            # An answer that came before; a later one finds the run parked.
            connection.execute(_ANSWERED, [run_id, names])


def parked(connection: Connection, run_id: str, size: int) -> Parked | None:
    """How long the effects of a run have waited that was parked. size: of its journal now."""
    row = connection.execute(_PARKED, [run_id]).fetchone()
    if row is None or row[0] is None:
        return None
    facts, gap = row
    waited = {int(seq): float(before) + float(gap) for seq, before in facts["waits"].items()}
    # A later event has the gap in its active time already.
    return Parked(round(gap * 1000) if facts["size"] == size else 0, waited)


def _shared(paths: Iterable[str], scope: Sequence[str]) -> str | None:
    """The first of some paths that overlaps with a scope."""
    return next((path for path in paths for mine in scope if overlap(path, mine)), None)


def _shown(path: str) -> str:
    return "the whole project" if path == "/" else f"`{path.removeprefix('machine:').lstrip('/')}`"
