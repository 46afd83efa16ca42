"""Segments: the durable queue of runs that workers drive, in tables of DBOS Transact.

A run is a chain of segments, each a DBOS workflow `<run>/<n>`. The queue decides which worker takes a
segment; everything inside a segment belongs to the journal. DBOS has its tables in a schema of its own,
next to ours; functions of our schema enqueue and requeue segments, so that this happens in the transaction
that changes the run and needs no DBOS in the client.
"""

from __future__ import annotations

from ..host.errors import Failure, UserError
from .connection import Address, Connection, connected

try:
    import dbos
except ImportError as error:
    _absent: ImportError | None = error
else:
    _absent = None

# Constants of all versions of llc: a worker takes only segments with its own.
APPLICATION = "llc"
VERSION = "llc-segments-1"
QUEUE = "llc"
WORKFLOW = "segment"
CHANNEL = "llc_work"

_FUNCTIONS = """
-- Whether a worker may take a run now: it has its project, labels and files, and no run holds its paths
-- or waits longer for them.
create or replace function {schema}.is_due(segment_ text, project_ text, labels_ text[], worker_ text)
returns boolean language sql stable as $$
  select exists (
    select 1 from {schema}.runs r
    where r.id = split_part(segment_, '/', 1) and r.project = project_ and r.labels <@ labels_
      and not worker_ = any(r.refused)
      and (r.machine is null or r.machine = (select w.machine from {schema}.workers w where w.id = worker_))
      and r.status = 'queued'
      and not exists (
        select 1 from {schema}.runs o
        where o.project = r.project and o.id <> r.id
          and o.status <> 'ended' and o.scope <> '{{}}' and (o.paths && r.above or o.above && r.paths)
          and (o.status in ('running', 'waiting') or (o.status = 'queued' and (o.parked_at is not null
            or (r.parked_at is null and o.ticket < r.ticket))))))
$$;
create or replace function {schema}.enqueue_segment(run_ text) returns integer
language plpgsql as $$
declare n integer;
begin
  update {schema}.runs set segment = segment + 1, status = 'queued', owner = null, changed = now()
  where id = run_ returning segment into n;
  perform {dbos}.enqueue_workflow(
    workflow_name => '{workflow}', queue_name => '{queue}', workflow_id => run_ || '/' || n,
    positional_args => array[to_json(run_), to_json(n)]::json[], app_version => '{version}');
  delete from {dbos}.workflow_status where workflow_uuid = run_ || '/' || (n - 2)
    or (workflow_uuid = run_ || '/' || (n - 1) and status = 'SUCCESS');
  return n;
end $$;
-- As in SQLite, for the statements of `runtime/ledger`.
create or replace function {schema}.instr(text_ text, part text) returns integer
language sql immutable as $$ select strpos(text_, part) $$;
-- A parked run continues: its answer has come.
create or replace function {schema}.wake_run(run_ text) returns void
language plpgsql as $$
begin
  perform 1 from {schema}.runs where id = run_ and status = 'waiting' for update;
  if found then
    perform {schema}.enqueue_segment(run_);
  end if;
end $$;
-- Parked runs continue whose time has come, or whose quota is there again before. One caller at a time
-- looks for them.
create or replace function {schema}.wake_due() returns integer
language plpgsql as $$
declare n integer;
begin
  if not pg_try_advisory_xact_lock(hashtextextended('llc due', 0)) then
    return 0;
  end if;
  select count({schema}.enqueue_segment(d.id)) into n from (
    select id from {schema}.runs where status = 'waiting' and due <= clock_timestamp()
    order by due limit 2000 for update skip locked) d;
  return n + (select count({schema}.enqueue_segment(q.id)) from (
    select r.id from {schema}.runs r where r.status = 'waiting' and r.accounts <> '{{}}' and exists (
      select 1 from unnest(r.accounts) a
      where not exists (select 1 from {schema}.breakers b where b.account = a))
    limit 2000 for update skip locked) q);
end $$;
create or replace function {schema}.forget_segments(run_ text) returns void
language sql as $$
  delete from {dbos}.workflow_status where starts_with(workflow_uuid, run_ || '/')
$$;
-- The segments of a dead worker return to the queue, but for those of runs that have ended.
create or replace function {schema}.requeue_segments(worker text) returns integer
language plpgsql as $$
declare n integer;
begin
  delete from {dbos}.workflow_status w
  where w.status = 'PENDING' and w.executor_id = worker and w.name = '{workflow}' and not exists (
    select 1 from {schema}.runs r where r.id = split_part(w.workflow_uuid, '/', 1) and r.status = 'queued');
  update {dbos}.workflow_status set status = 'ENQUEUED', owner_xid = null, started_at_epoch_ms = null
  where status = 'PENDING' and executor_id = worker and name = '{workflow}';
  get diagnostics n = row_count;
  return n;
end $$;
-- Queued runs without a segment, after a client that died between two statements, get one; so do runs whose
-- segment was taken by a worker that did not know yet that it had been declared dead.
create or replace function {schema}.reconcile_segments() returns integer
language sql as $$
  select count({schema}.enqueue_segment(r.id))::integer from {schema}.runs r
  where r.managed and r.status = 'queued' and r.owner is null and r.changed < now() - interval '5 seconds'
    and not exists (
      select 1 from {dbos}.workflow_status w
      where w.workflow_uuid = r.id || '/' || r.segment and (w.status in ('ENQUEUED', 'DELAYED')
        or w.status = 'PENDING' and exists (
          select 1 from {schema}.workers k where k.id = w.executor_id and k.state <> 'dead')))
$$;
create or replace function {schema}.wake_workers() returns trigger language plpgsql as $$
begin
  perform pg_notify('{channel}', '');
  return null;
end $$;
create or replace trigger llc_wake after insert or update of status on {dbos}.workflow_status
for each row when (new.status = 'ENQUEUED') execute function {schema}.wake_workers();
"""


def dbos_schema(address: Address) -> str:
    """The schema with the tables of DBOS."""
    return f"{address.schema}_dbos"


def install(address: Address) -> None:
    """Create or update the tables of DBOS and our functions on them. Raises UserError."""
    if _absent is not None:
        raise missing_package()
    dbos.DBOS.migrate(address.url, schema=dbos_schema(address))
    names = {
        "schema": address.schema,
        "dbos": dbos_schema(address),
        "workflow": WORKFLOW,
        "queue": QUEUE,
        "version": VERSION,
        "channel": CHANNEL,
    }
    with connected(address) as connection, connection.transaction():
        connection.execute("select pg_advisory_xact_lock(hashtextextended('llc functions', 0))")
        connection.execute(_FUNCTIONS.format(**names))


def enqueue(connection: Connection, run_id: str) -> int:
    """Queue the next segment of a run; its number. Part of the caller's transaction."""
    return int(connection.execute("select enqueue_segment(%s)", [run_id]).fetchone()[0])


class Deliveries:
    """The segments that this worker performs, and those of the queue that never arrived.

    DBOS marks a segment as taken, commits, and then starts it. If the answer to the commit is lost, the
    segment is marked, and nobody performs it: it goes back to the queue once it was seen so twice.
    """

    def __init__(self, address: Address, worker: str) -> None:
        self._worker = worker
        self._here: set[str] = set()
        self._missing: set[str] = set()
        where = f"{dbos_schema(address)}.workflow_status"
        self._marked = f"select workflow_uuid from {where} where status = 'PENDING' and executor_id = %s"
        self._return = (
            f"update {where} set status = 'ENQUEUED', owner_xid = null, started_at_epoch_ms = null "
            "where workflow_uuid = any(%s) and status = 'PENDING' and executor_id = %s and exists "
            "(select 1 from runs where id = split_part(workflow_uuid, '/', 1) and status = 'queued')"
        )

    def begin(self, run: str, number: int) -> None:
        self._here.add(f"{run}/{number}")

    def end(self, run: str, number: int) -> None:
        self._here.discard(f"{run}/{number}")

    def return_missing(self, connection: Connection) -> None:
        """To be called every few seconds."""
        marked = {name for (name,) in connection.execute(self._marked, [self._worker]).fetchall()}
        missing = marked - self._here
        lost, self._missing = missing & self._missing, missing - self._missing
        if lost:
            connection.execute(self._return, [sorted(lost), self._worker])


def missing_package() -> UserError:
    return Failure(
        "missing-package",
        f"the package `dbos` is missing ({_absent})",
        "in a checkout of llc: pip install '.[cluster]'",
    )
