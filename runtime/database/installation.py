"""Installation: the tables of llc and of DBOS, and the functions of our schema on both.

One transaction applies all migrations (`schema`) that are missing, under a lock, so that several machines may
migrate at once. The only module for clients that loads DBOS.
"""

from __future__ import annotations

import logging

from ..host.errors import Failure, UserError
from . import schema
from .connection import Address, Connection, connected, refusals
from .segments import CHANNEL, QUEUES, VERSION, WORKFLOW, dbos_schema

try:
    import dbos
except ImportError as error:
    _absent: ImportError | None = error
else:
    _absent = None

# Key of the advisory lock under which migrations are applied.
_LOCK = 0x6C6C63
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
create or replace function {schema}.enqueue_segments(runs_ text[]) returns integer
language sql as $$
  with moved as (
    update {schema}.runs set segment = segment + 1, status = 'queued', owner = null, changed = now()
    where id = any(runs_) returning id, segment, project),
  old as (
    delete from {dbos}.workflow_status w
    using (select id || '/' || (segment - back) as name, back from moved, generate_series(1, 2) as back) past
    where w.workflow_uuid = past.name and (w.status = 'SUCCESS' or back = 2))
  select count({dbos}.enqueue_workflow(
    workflow_name => '{workflow}', queue_name => '{queues}' || project,
    workflow_id => id || '/' || segment, positional_args => array[to_json(id), to_json(segment)]::json[],
    app_version => '{version}'))::integer
  from moved
$$;
create or replace function {schema}.enqueue_segment(run_ text) returns integer
language sql as $$
  select {schema}.enqueue_segments(array[run_]);
  select segment from {schema}.runs where id = run_
$$;
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
declare found_ text[];
begin
  if not pg_try_advisory_xact_lock(hashtextextended('llc due', 0)) then
    return 0;
  end if;
  select array_agg(id) into found_ from (
    select id from {schema}.runs where status = 'waiting' and due <= clock_timestamp()
    order by due limit 2000 for update skip locked) d;
  select found_ || array_agg(id) into found_ from (
    select r.id from {schema}.runs r where r.status = 'waiting' and r.accounts <> '{{}}' and exists (
      select 1 from unnest(r.accounts) a
      where not exists (select 1 from {schema}.breakers b where b.account = a))
    limit 2000 for update skip locked) q;
  return {schema}.enqueue_segments(found_);
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
-- An owner is dead: its runs that were submitted to the queue continue elsewhere, others wait for a resume.
-- The next epoch fences an owner that is only frozen: another run may have the paths when it wakes up.
create or replace function {schema}.bury(worker text) returns integer
language plpgsql as $$
declare n integer;
begin
  update {schema}.workers set state = 'dead' where id = worker;
  update {schema}.runs set owner = null, epoch = epoch + 1, changed = now(),
    status = case when managed then 'queued' else 'stopped' end
  where owner = worker and status <> 'ended';
  get diagnostics n = row_count;
  perform {schema}.requeue_segments(worker);
  return n;
end $$;
-- Queued runs without a segment, after a client that died between two statements, get one; so do runs whose
-- segment was taken by a worker that did not know yet that it had been declared dead, or is in the queue that
-- all projects had in formats before 13.
create or replace function {schema}.reconcile_segments() returns integer
language sql as $$
  select {schema}.enqueue_segments(array(select r.id from {schema}.runs r
  where r.managed and r.status = 'queued' and r.owner is null and r.changed < now() - interval '5 seconds'
    and not exists (
      select 1 from {dbos}.workflow_status w
      where w.workflow_uuid = r.id || '/' || r.segment and w.queue_name = '{queues}' || r.project
        and (w.status in ('ENQUEUED', 'DELAYED')
        or w.status = 'PENDING' and exists (
          select 1 from {schema}.workers k where k.id = w.executor_id and k.state <> 'dead')))))
$$;
create or replace function {schema}.wake_workers() returns trigger language plpgsql as $$
begin
  perform pg_notify('{channel}', new.queue_name);
  return null;
end $$;
create or replace trigger llc_wake after insert or update of status on {dbos}.workflow_status
for each row when (new.status = 'ENQUEUED') execute function {schema}.wake_workers();
-- A run gives up its paths, for which another machine may have a run in the queue.
create or replace function {schema}.wake_next() returns trigger language plpgsql as $$
begin
  perform pg_notify('{channel}', '{queues}' || new.project);
  return null;
end $$;
create or replace trigger llc_wake_next after update of status on {schema}.runs
for each row when (new.scope <> '{{}}' and new.status in ('stopped', 'ended'))
execute function {schema}.wake_next();
"""


def initialise(address: Address) -> int:
    """Create the schema and its tables, or bring them up to date; the number of applied migrations.

    Raises UserError.
    """
    with connected(address) as connection:
        schema.check_server(connection)
        with schema.others(address), connection.transaction():
            connection.execute("select pg_advisory_xact_lock(%s)", [_LOCK])
            if not _has_schema(connection, address):
                connection.execute(f"create schema {address.schema}")
            connection.execute("create table if not exists version (format integer not null)")
            found = schema.format_of(connection, address) or 0
            if found > schema.FORMAT:
                raise schema.newer_tables(address, found)
            for migration in schema.MIGRATIONS[found:]:
                connection.execute(migration)
            if found < schema.FORMAT:
                connection.execute("delete from version")
                connection.execute("insert into version values (%s)", [schema.FORMAT])
    _install(address)
    return schema.FORMAT - found


def migrate(address: Address) -> int:
    """Bring existing tables up to date; the number of applied migrations. Raises UserError."""
    with connected(address) as connection:
        if schema.format_of(connection, address) is None:
            raise schema.missing_tables(address)
    return initialise(address)


def _has_schema(connection: Connection, address: Address) -> bool:
    found = connection.execute("select 1 from pg_namespace where nspname = %s", [address.schema])
    return found.fetchone() is not None


def _install(address: Address) -> None:
    """Create or update the tables of DBOS and our functions on them. Raises UserError."""
    if _absent is not None:
        raise _missing_package()
    # It warns where the user has no access to the server's database `postgres`, which is not needed.
    logging.getLogger("dbos").setLevel(logging.ERROR)
    with refusals(address):
        dbos.DBOS.migrate(address.url, schema=dbos_schema(address))
    names = {
        "schema": address.schema,
        "dbos": dbos_schema(address),
        "workflow": WORKFLOW,
        "queues": QUEUES,
        "version": VERSION,
        "channel": CHANNEL,
    }
    with connected(address) as connection, connection.transaction():
        connection.execute("select pg_advisory_xact_lock(hashtextextended('llc functions', 0))")
        connection.execute(_FUNCTIONS.format(**names))


def _missing_package() -> UserError:
    return Failure(
        "missing-package",
        f"the package `dbos` is missing ({_absent})",
        "in a checkout of llc: pip install '.[cluster]'",
    )
