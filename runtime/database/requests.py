"""Requests of any client to the runs of a database: stop, resume, and fork."""

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
from .stored_run import OUTPUTS, WORKSPACE

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
# A person resumes the run, so it may continue on another machine. The status is checked because another
# client may have resumed the run at the same time. An ended run is resumed if its files could not be pushed:
# its journal has the end, so the worker only pushes the files again.
_RESUME = f"""
update runs set managed = true, outcome = null, machine = null, status = 'stopped'
where id = %s and case status when 'stopped' then true when 'ended' then exists (
  select 1 from documents where run = runs.id and name = '{WORKSPACE}'
    and convert_from(data, 'UTF8')::jsonb ? 'error') else false end
"""
# The fork uses the files of its parent, so it inherits `machine`.
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
_ALL_STATUSES = ("running", "queued", "waiting", "stopped", "ended")
_POLL_S = 0.1


def stop(url: str, target: str | None, wait: float, is_all: bool) -> tuple[list[dict[str, Any]], int]:
    """Stop runs; return the outcome of each and the exit code. wait: seconds to wait. Raises UserError."""
    address = Address.parse(url)
    with connected(address) as connection:
        schema.check(connection, address)
        matches = _find(connection, target, ("queued", "running", "waiting"))
        if not matches and target is not None:
            raise unknown_run_error(connection, address, target) or Failure(
                "not-running", f"no run of `{target}` is running or queued in {address}"
            )
        if len(matches) > 1 and not is_all and matches[0] != target:
            raise Failure(
                "several-runs", f"{len(matches)} runs of `{target}` are running", "name one run, or use --all"
            )
        chosen = matches if is_all else matches[:1]
        for run in chosen:
            connection.execute(_STOP, [run])
        deadline = clock.monotonic() + wait
        outcomes = [{"run": run, "how": _wait_for_stop(connection, run, deadline)} for run in chosen]
    return outcomes, EXIT_FAILURE if any(outcome["how"] == "running" for outcome in outcomes) else EXIT_OK


def list_names(url: str, is_ended: bool | None) -> list[str]:
    """List loops and runs of the project in this folder, latest first; empty without the database."""
    with contextlib.suppress(UserError), connected(Address.parse(url)) as connection:
        return _list_names(connection, is_ended)
    return []


def _list_names(connection: Connection, is_ended: bool | None = None) -> list[str]:
    values = {"project": os.path.basename(files.realpath(environment.getcwd())), "ended": is_ended}
    rows = connection.execute(_NAMES, values).fetchall()
    return list(dict.fromkeys(name for row in rows for name in row))


def unknown_run_error(connection: Connection, address: Address, target: str) -> UserError | None:
    """Return the error for a target without any run; None if the target has a run."""
    if _find(connection, target, _ALL_STATUSES):
        return None
    help = suggest(target, _list_names(connection), "runs there")
    return UserError("unknown-run", f"there is no run of `{target}` in {address}", help)


def request_stop(url: str, run: str) -> None:
    """Request the stop of one run without waiting for it. Raises UserError."""
    with connected(Address.parse(url)) as connection:
        connection.execute(_STOP, [run])


def _wait_for_stop(connection: Connection, run: str, deadline: float) -> str:
    """Wait until the run has left the status `running` or the deadline has passed; return its status."""
    while True:
        (status,) = connection.execute("select status from runs where id = %s", [run]).fetchone()
        if status != "running" or clock.monotonic() >= deadline:
            return str(status)
        clock.sleep(_POLL_S)


def resume(url: str, target: str) -> str:
    """Enqueue a stopped run, or an ended run whose files could not be pushed; return its id.

    Raises UserError.
    """
    address = Address.parse(url)
    with connected(address) as connection:
        schema.check(connection, address)
        matches = _find(connection, target, ("stopped",)) or _find(connection, target, ("ended",))
        with connection.transaction():
            if matches and connection.execute(_RESUME, [matches[0]]).rowcount:
                segments.enqueue(connection, matches[0])
                return matches[0]
        raise unknown_run_error(connection, address, target) or Failure(
            "unknown-run", f"no run of `{target}` is stopped in {address}", "llc status --db URL"
        )


def fork(
    connection: Connection, parent: str, folder: RunFolder, documents: Sequence[tuple[str, bytes]]
) -> None:
    """Store and enqueue a run that was forked from `parent`: its folder and additional documents."""
    outputs = files.listdir(folder.outputs) if files.isdir(folder.outputs) else []
    excluded = {os.path.basename(path) for path in (folder.journal, folder.lock, folder.outputs)}
    names = [name for name in files.listdir(folder.path) if name not in excluded]
    names += [f"{OUTPUTS}/{name}" for name in outputs]
    data = _read(folder.journal)
    with connection.transaction():
        connection.execute(_FORK, [folder.id, parent])
        connection.execute(_JOURNAL, [folder.id, len(data), data.count(b"\n"), data])
        for name, content in [*((name, _read(folder.place(name))) for name in names), *documents]:
            connection.execute(_DOCUMENT, [folder.id, name, content])
        segments.enqueue(connection, folder.id)


def _read(path: str) -> bytes:
    with files.open(path, "rb") as file:
        return file.read()


def _find(connection: Connection, target: str | None, statuses: tuple[str, ...]) -> list[str]:
    paths = [f"{LOOPS}/{target}{suffix}" for suffix in (".yaml", ".yml", ".sexp")]
    values = {"target": target, "paths": paths, "statuses": list(statuses)}
    return [row[0] for row in connection.execute(_FIND, values).fetchall()]
