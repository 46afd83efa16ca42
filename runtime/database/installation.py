"""Database installation: creates the tables of llc and DBOS and the SQL functions that use both.

One transaction applies all missing migrations (`schema`). It holds an advisory lock, so that several machines
may migrate at the same time. This is the only client-side module that imports DBOS.
"""

from __future__ import annotations

import logging

from ..host.errors import Failure, UserError
from . import schema
from .connection import Address, Connection, connected, translated_errors
from .segments import CHANNEL, QUEUE_PREFIX, VERSION, WORKFLOW, dbos_schema

try:
    import dbos
except ImportError as error:
    _import_error: ImportError | None = error
else:
    _import_error = None

# Key of the advisory lock that is held while migrations are applied.
_MIGRATION_LOCK_KEY = 0x6C6C63
_FUNCTIONS = """
-- Whether a worker may take a run now: the worker has the project, the labels and the files of the run, and
-- no other run holds its paths or has waited longer for them.
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
-- Function of SQLite that the statements of `runtime/ledger` use.
create or replace function {schema}.instr(text_ text, part text) returns integer
language sql immutable as $$ select strpos(text_, part) $$;
-- Enqueue a parked run whose answer has arrived.
create or replace function {schema}.wake_run(run_ text) returns void
language plpgsql as $$
begin
  perform 1 from {schema}.runs where id = run_ and status = 'waiting' for update;
  if found then
    perform {schema}.enqueue_segment(run_);
  end if;
end $$;
-- Enqueue parked runs that are due, and parked runs whose quota is available again. Only one caller at a time
-- searches for them.
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
-- Return the segments of a dead worker to the queue; delete those of runs that are not queued.
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
-- Declare an owner dead: its runs that were submitted to the queue continue elsewhere, others wait for a
-- resume. The new epoch fences an owner that is only suspended: another run may hold the paths when it wakes
-- up.
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
-- Enqueue queued runs that have no usable segment: the client died between two statements, or the segment was
-- taken by a worker that did not know yet that it had been declared dead, or the segment is in the queue that
-- all projects shared in formats before 13.
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
-- Wake the workers of a project when a run releases its paths: another run in the queue may wait for them.
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
    """Create or migrate the tables; return the number of applied migrations. Raises UserError."""
    with connected(address) as connection:
        schema.check_server(connection)
        with schema.mismatch_errors(address), connection.transaction():
            connection.execute("select pg_advisory_xact_lock(%s)", [_MIGRATION_LOCK_KEY])
            if not _has_schema(connection, address):
                connection.execute(f"create schema {address.schema}")
            connection.execute("create table if not exists version (format integer not null)")
            old_format = schema.read_format(connection, address) or 0
            if old_format > schema.FORMAT:
                raise schema.newer_tables(address, old_format)
            for migration in schema.MIGRATIONS[old_format:]:
                connection.execute(migration)
            if old_format < schema.FORMAT:
                connection.execute("delete from version")
                connection.execute("insert into version values (%s)", [schema.FORMAT])
    _install(address)
    return schema.FORMAT - old_format


def migrate(address: Address) -> int:
    """Migrate existing tables; return the number of applied migrations. Raises UserError."""
    with connected(address) as connection:
        if schema.read_format(connection, address) is None:
            raise schema.missing_tables(address)
    return initialise(address)


def _has_schema(connection: Connection, address: Address) -> bool:
    result = connection.execute("select 1 from pg_namespace where nspname = %s", [address.schema])
    return result.fetchone() is not None


def _install(address: Address) -> None:
    """Create or update the tables of DBOS and the functions of llc that use them. Raises UserError."""
    if _import_error is not None:
        raise _missing_package()
    # DBOS warns if the user has no access to the server's database `postgres`, which llc does not need.
    logging.getLogger("dbos").setLevel(logging.ERROR)
    with translated_errors(address):
        dbos.DBOS.migrate(address.url, schema=dbos_schema(address))
    names = {
        "schema": address.schema,
        "dbos": dbos_schema(address),
        "workflow": WORKFLOW,
        "queues": QUEUE_PREFIX,
        "version": VERSION,
        "channel": CHANNEL,
    }
    with connected(address) as connection, connection.transaction():
        connection.execute("select pg_advisory_xact_lock(hashtextextended('llc functions', 0))")
        connection.execute(_FUNCTIONS.format(**names))


def _missing_package() -> UserError:
    return Failure(
        "missing-package",
        f"the package `dbos` is missing ({_import_error})",
        "in a checkout of llc: pip install '.[cluster]'",
    )
