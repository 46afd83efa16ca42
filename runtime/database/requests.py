"""Requests to runs of a database from anywhere: stop, queue again, and fork."""

from __future__ import annotations

import contextlib
import os.path
from collections.abc import Sequence
from typing import Any

from ..host import clock, environment, files
from ..host.errors import EXIT_FAILURE, EXIT_OK, Failure, UserError, suggest
from ..host.paths import LOOPS
from ..journal.run_folder import RunFolder
from . import schema, segments
from .connection import Address, Connection, connected
from .stored_run import OUTPUTS

_FIND = """
select id, status from runs
where status = any(%(statuses)s) and (%(target)s::text is null or id = %(target)s or program = %(target)s
  or path = %(target)s or path = any(%(paths)s))
order by (id = %(target)s) desc, created desc
"""
_STOP = """
update runs set wish = case when status = 'running' then 'stop' end, changed = now(),
  outcome = case when status = 'running' then outcome end,
  status = case when status in ('queued', 'waiting') then 'stopped' else status end
where id = %s and status in ('queued', 'running', 'waiting') returning status
"""
# A person decides that it continues, so also on another machine. Another one may just have resumed it.
_RESUME = (
    "update runs set managed = true, outcome = null, machine = null where id = %s and status = 'stopped'"
)
# Its files are those of the run that it is forked from.
_FORK = """
insert into runs (id, project, program, path, labels, scope, machine, managed, status)
select %s, project, program, path, labels, scope, machine, true, 'queued' from runs where id = %s
"""
_JOURNAL = "insert into journal (run, position, size, lines, epoch, data) values (%s, 0, %s, %s, 0, %s)"
_DOCUMENT = "insert into documents (run, name, data) values (%s, %s, %s)"
_NAMES = """
select program, id from runs
where project = %(project)s and (%(ended)s::boolean is null or (status = 'ended') = %(ended)s)
order by created desc limit 200
"""
_ALL = ("running", "queued", "waiting", "stopped", "ended")
_PAUSE_S = 0.1


def stop(url: str, target: str | None, wait: float, is_all: bool) -> tuple[list[dict[str, Any]], int]:
    """Stop runs: what came of each, and the exit code. Raises UserError."""
    address = Address.of(url)
    with connected(address) as connection:
        schema.check(connection, address)
        found = _find(connection, target, ("queued", "running", "waiting"))
        if not found and target is not None:
            raise unknown(connection, address, target) or Failure(
                "not-running", f"no run of `{target}` is running or queued in {address}"
            )
        if len(found) > 1 and not is_all and found[0] != target:
            raise Failure(
                "several-runs", f"{len(found)} runs of `{target}` are running", "name one, or say --all"
            )
        chosen = found if is_all else found[:1]
        for run in chosen:
            connection.execute(_STOP, [run])
        end = clock.monotonic() + wait
        told = [{"run": run, "how": _await(connection, run, end)} for run in chosen]
    return told, EXIT_FAILURE if any(one["how"] == "running" for one in told) else EXIT_OK


def names(url: str, is_ended: bool | None) -> list[str]:
    """Loops and runs of the project in this folder, the latest first; none without the database."""
    with contextlib.suppress(UserError), connected(Address.of(url)) as connection:
        return _names(connection, is_ended)
    return []


def _names(connection: Connection, is_ended: bool | None = None) -> list[str]:
    values = {"project": os.path.basename(files.realpath(environment.getcwd())), "ended": is_ended}
    rows = connection.execute(_NAMES, values).fetchall()
    return list(dict.fromkeys(name for row in rows for name in row))


def unknown(connection: Connection, address: Address, target: str) -> UserError | None:
    """The error for a name of which there is no run at all; None if there is one."""
    if _find(connection, target, _ALL):
        return None
    help = suggest(target, _names(connection), "runs there")
    return UserError("unknown-run", f"there is no run of `{target}` in {address}", help)


def ask_to_stop(url: str, run: str) -> None:
    """Ask one run to stop, without waiting for it. Raises UserError."""
    with connected(Address.of(url)) as connection:
        connection.execute(_STOP, [run])


def _await(connection: Connection, run: str, end: float) -> str:
    """What a run is that was asked to stop, at the latest at `end`."""
    while True:
        (status,) = connection.execute("select status from runs where id = %s", [run]).fetchone()
        if status != "running" or clock.monotonic() >= end:
            return str(status)
        clock.sleep(_PAUSE_S)


def resume(url: str, target: str) -> str:
    """Queue a stopped run again; its id. Raises UserError."""
    address = Address.of(url)
    with connected(address) as connection:
        schema.check(connection, address)
        found = _find(connection, target, ("stopped",))
        with connection.transaction():
            if found and connection.execute(_RESUME, [found[0]]).rowcount:
                segments.enqueue(connection, found[0])
                return found[0]
        raise unknown(connection, address, target) or Failure(
            "unknown-run", f"no run of `{target}` is stopped in {address}", "llc status --db URL"
        )


def fork(connection: Connection, parent: str, made: RunFolder, more: Sequence[tuple[str, bytes]]) -> None:
    """Store and queue a run that was forked from `parent`, with its files and more documents."""
    outputs = files.listdir(made.outputs) if files.isdir(made.outputs) else []
    own = {os.path.basename(path) for path in (made.journal, made.lock, made.outputs)}
    names = [name for name in files.listdir(made.path) if name not in own]
    names += [f"{OUTPUTS}/{name}" for name in outputs]
    data = _read(made.journal)
    with connection.transaction():
        connection.execute(_FORK, [made.id, parent])
        connection.execute(_JOURNAL, [made.id, len(data), data.count(b"\n"), data])
        for name, content in [*((name, _read(made.place(name))) for name in names), *more]:
            connection.execute(_DOCUMENT, [made.id, name, content])
        segments.enqueue(connection, made.id)


def _read(path: str) -> bytes:
    with files.open(path, "rb") as file:
        return file.read()


def _find(connection: Connection, target: str | None, statuses: tuple[str, ...]) -> list[str]:
    paths = [f"{LOOPS}/{target}{suffix}" for suffix in (".yaml", ".yml", ".sexp")]
    values = {"target": target, "paths": paths, "statuses": list(statuses)}
    return [row[0] for row in connection.execute(_FIND, values).fetchall()]
