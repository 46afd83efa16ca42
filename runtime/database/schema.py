"""Database schema: the tables as numbered migrations, and the compatibility check of a connection.

Migrations are only appended; a number is never reused. `installation` applies them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ..host.errors import Failure, UserError, clean
from .connection import Address, Connection, connected, is_schema_mismatch

# Oldest supported version of PostgreSQL, in the format of `server_version_num`.
OLDEST_SERVER = 140_000

_FIRST = """
create table runs (
  id text primary key,
  project text not null,
  program text not null,
  path text not null default '',
  labels text[] not null default '{}',
  scope text[] not null default '{}',
  managed boolean not null,
  status text not null check (status in ('queued', 'running', 'stopped', 'ended')),
  outcome text,
  wish text check (wish in ('stop')),
  owner text,
  epoch integer not null default 0,
  segment integer not null default 0,
  ticket bigint generated always as identity,
  created timestamptz not null default now(),
  changed timestamptz not null default now()
);
create index runs_unfinished on runs (project, ticket) where status <> 'ended';
create index runs_of_program on runs (project, program, created);
create index runs_owner on runs (owner) where owner is not null;
create table journal (
  run text not null,
  position bigint not null check (position >= 0),
  size integer not null check (size > 0),
  lines integer not null,
  epoch integer not null,
  data bytea not null,
  primary key (run, position)
);
create table documents (
  run text not null,
  name text not null,
  data bytea not null,
  primary key (run, name)
);
create table workers (
  id text primary key,
  labels text[] not null,
  capacity integer not null,
  lock_key bigint not null,
  server_start timestamptz not null,
  started timestamptz not null default clock_timestamp(),
  beat timestamptz not null default clock_timestamp(),
  state text not null default 'live' check (state in ('live', 'draining', 'dead'))
);
"""
# Runs that wait without a worker, and the live output of watched runs.
_SECOND = """
alter table runs drop constraint runs_status_check;
alter table runs add constraint runs_status_check
  check (status in ('queued', 'running', 'waiting', 'stopped', 'ended'));
alter table runs add column due timestamptz;
alter table runs add column watched timestamptz;
create index runs_due on runs (due) where status = 'waiting';
create unlogged table live (run text primary key, data bytea not null);
"""
# State of a parked run: the elapsed waiting time of each effect, and the size of the journal.
_THIRD = """
alter table runs add column parked jsonb;
alter table runs add column parked_at timestamptz;
"""
# Ledgers and circuit breakers; same tables as in the SQLite database of `runtime/ledger`.
_FOURTH = """
create table limits (
  scope text not null, name text not null, period text not null, unit text not null,
  amount float8 not null check (amount >= 0), primary key (scope, name, period, unit));
create table calls (
  id bigint primary key generated always as identity, project text not null, run text not null,
  seq bigint not null, day text not null, account text not null, agent text not null, model text not null,
  usd float8 not null default 0 check (usd >= 0), tokens bigint not null default 0 check (tokens >= 0),
  calls bigint not null default 0, seconds float8 not null default 0 check (seconds >= 0),
  unknown bigint not null default 0, held_usd float8, held_tokens float8, held_calls float8,
  held_seconds float8, pid integer, started text);
create index calls_of_day on calls (day);
create index calls_of_project on calls (project, day);
create index calls_of_account on calls (account, day);
create index calls_open on calls (project, run) where pid is not null;
create table breakers (
  account text primary key, until float8 not null, opened float8 not null, reason text not null,
  failures integer not null, run text, pid integer, started text, probe float8);
"""
# Workers that cannot run a program because they lack something that it needs.
_REFUSED = """
alter table runs add column refused text[] not null default '{}';
"""
# Machine whose files a run without a workspace uses; set when a worker starts the run.
_MACHINE = """
alter table runs add column machine text;
alter table workers add column machine text not null default '';
"""
# Two scopes overlap if a path of one (without trailing slash) equals or contains a path of the other.
_PATHS = """
drop function if exists paths_overlap(text[], text[]);
create function paths_above(scope text[]) returns text[] language sql immutable as $$
  select coalesce(array_agg(distinct array_to_string((string_to_array(path, '/'))[1:n], '/')), '{}')
  from (select rtrim(given, '/') as path from unnest(scope) as given) as paths,
    generate_series(1, greatest(1, cardinality(string_to_array(path, '/')))) as n
$$;
create function paths_at(scope text[]) returns text[] language sql immutable as $$
  select coalesce(array_agg(rtrim(path, '/')), '{}') from unnest(scope) as path
$$;
alter table runs add column paths text[] generated always as (paths_at(scope)) stored;
alter table runs add column above text[] generated always as (paths_above(scope)) stored;
create index runs_paths on runs using gin (paths) with (fastupdate = off)
  where status <> 'ended' and scope <> '{}';
create index runs_above on runs using gin (above) with (fastupdate = off)
  where status <> 'ended' and scope <> '{}';
"""
# A format in which only the functions of `installation` have changed.
_FUNCTIONS = "select 1"
# Accounts whose quota a parked run waits for.
_ACCOUNTS = """
alter table runs add column accounts text[] not null default '{}';
create index runs_of_accounts on runs (id) where status = 'waiting' and accounts <> '{}';
"""
# Index of the latest runs of each status, for lists.
_LISTS = """
drop index runs_unfinished;
create index runs_of_status on runs (project, status, created);
"""
# Start of each owner's connection: an outage may explain missing heartbeats before this time.
_SINCE = """
alter table workers add column since timestamptz not null default clock_timestamp();
"""
MIGRATIONS = (
    *(_FIRST, _SECOND, _THIRD, _FOURTH, _REFUSED, _MACHINE, _PATHS, _FUNCTIONS, _ACCOUNTS),
    *(_LISTS, _FUNCTIONS, _SINCE, _FUNCTIONS, _FUNCTIONS),
)
FORMAT = len(MIGRATIONS)
# Number of queries for the server process on each of two connections, to detect a connection pooler.
_POOLER_PROBES = 10


def check(connection: Connection, address: Address) -> None:
    """Check that this version of llc is compatible with the server and the tables. Raises UserError."""
    check_server(connection)
    _check_pooler(connection, address)
    format = read_format(connection, address)
    if format is None:
        raise missing_tables(address)
    if format > FORMAT:
        raise newer_tables(address, format)
    if format < FORMAT:
        raise Failure(
            "database-schema",
            f"the schema `{address.schema}` of {address} has format {format}; this llc needs {FORMAT}",
            "llc db migrate",
        )


def read_format(connection: Connection, address: Address) -> int | None:
    """Return the format of the tables; None if there are no tables."""
    query = "select to_regclass(%s)"
    if connection.execute(query, [f"{address.schema}.version"]).fetchone()[0] is None:
        return None
    with mismatch_errors(address):
        row = connection.execute("select max(format)::integer from version").fetchone()
    return int(row[0]) if row[0] is not None else None


@contextlib.contextmanager
def mismatch_errors(address: Address) -> Iterator[None]:
    """Convert an error that tables of another program caused to a UserError."""
    try:
        yield
    except Exception as error:
        if not is_schema_mismatch(error):
            raise
        message = f"the schema `{address.schema}` of {address} contains tables of another program"
        help = "use a separate schema: postgresql://…?schema=NAME"
        raise Failure("database-schema", f"{message}: {clean(str(error), 200)}", help) from None


def check_server(connection: Connection) -> None:
    """Check the version of the server. Raises UserError."""
    version = connection.info.server_version
    if version < OLDEST_SERVER:
        raise Failure(
            "database-schema",
            f"the server is PostgreSQL {version // 10_000}; llc needs {OLDEST_SERVER // 10_000} or later",
        )


def _check_pooler(connection: Connection, address: Address) -> None:
    """Reject a connection pooler in transaction mode, which shares server connections between clients.

    A pooler reports a process number of its own as the server process. In transaction mode two connections
    change their server process or share one; in session mode they never do.
    """
    own = _processes(connection)
    if own == {connection.info.backend_pid}:
        return
    with connected(address) as other:
        others = set[int]()
        for _ in range(_POOLER_PROBES):
            others |= _processes(other)
            own |= _processes(connection)
    if own & others or len(own | others) > 2:
        raise Failure(
            "database-pooler",
            f"{address} is a connection pooler in transaction mode; llc needs sessions for locks and NOTIFY",
            "use the address of the server, or set `pool_mode = session` for this database",
        )


def _processes(connection: Connection) -> set[int]:
    return {int(connection.execute("select pg_backend_pid()", prepare=False).fetchone()[0])}


def missing_tables(address: Address) -> UserError:
    message = f"{address} has no tables of llc in the schema `{address.schema}`"
    return Failure("database-schema", message, "llc db init")


def newer_tables(address: Address, format: int) -> UserError:
    return Failure(
        "database-schema",
        f"the schema `{address.schema}` of {address} has format {format}; this llc supports {FORMAT}",
        "update llc on this machine",
    )
