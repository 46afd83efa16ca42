"""View: a temporary project folder with runs of a database, updated while a command reads it.

Commands that read runs use the view like a project. The view holds the lock of each run that a worker owns or
that is queued, so that the commands show the run as live.
"""

from __future__ import annotations

import contextlib
import json
import os.path
from collections.abc import Sequence
from typing import Any

from ..host import clock, environment, files, processes, threads
from ..host.errors import UserError
from ..host.paths import HISTORY, LOOPS, RUNNING, SOURCE_SUFFIXES, make_private
from ..host.secrets import DATABASE
from ..journal.journal import Blobs, write_file
from ..runs import lookup
from . import live, schema
from .connection import Address, Connection, Session
from .stored_run import ALL, ANSWERS, ENDS, TREES, DatabaseRun, is_file_name, refresh

# Seconds between two updates.
UPDATE_INTERVAL_S = 0.25
# Number of latest runs to fetch for suggestions if the requested run does not exist.
_SUGGESTED_RUNS = 20
_UNFINISHED, _ENDED = ["running", "queued", "waiting", "stopped"], ["ended"]
_ANSWER = "insert into documents (run, name, data) values (%s, %s, %s) on conflict do nothing"
_ROW = """
select id, status, owner, program, path, least(greatest(created, '1970-01-01'), '9999-01-01'),
  case when status = 'stopped' then outcome when status <> 'queued' then null
    when not exists (select 1 from workers where state = 'live' and labels @> runs.labels
        and machine = coalesce(runs.machine, machine))
      then 'a worker' || case when cardinality(labels) = 0 then ''
          else ' with the labels ' || array_to_string(labels, ', ') end
        || coalesce(' in ' || machine || ', where its files are', '')
    when cardinality(refused) > 0 then 'another worker, as one lacks something: ' || outcome
    else (
      select o.id from runs o where o.project = runs.project and o.id <> runs.id and o.status <> 'ended'
        and o.scope <> array[]::text[] and (o.paths && runs.above or o.above && runs.paths)
        and (o.status in ('running', 'waiting') or (o.status = 'queued' and (o.parked_at is not null
          or (runs.parked_at is null and o.ticket < runs.ticket))))
      order by o.ticket limit 1) end, changed
from {table} runs
"""
_BY_ID = _ROW.format(table="runs") + "where id = any(%(ids)s) {of_project}"
# Selects the latest runs of each status with the index `runs_of_status`.
_LATEST = _ROW.format(
    table="""(
  select latest.* from unnest(%(statuses)s::text[]) with ordinality as kinds (kind, rank) cross join lateral (
    select runs.*, rank from runs where status = kind {of_project} {of_target}
    order by created desc limit %(most)s) as latest
  order by rank, created desc limit %(most)s)"""
)
_OF_PROJECT = "and project = %(project)s"
_OF_TARGET = "and (program = %(target)s or path = any(%(paths)s))"
_OUTPUT = "select data from documents where run = %s and name = %s"


class View:
    """Temporary project with runs of a database.

    Args:
        project: only runs of this project; None: of all projects.
        targets: ids of runs and names of loops; empty: all runs.
        is_ended: without targets: only ended runs, only unfinished runs, or both (None).
        most: maximum number of runs for each target, or for ended and unfinished runs each.
        parts: parts of the runs to fetch: ALL, RECORD or ENDS.
    """

    def __init__(
        self,
        address: Address,
        project: str | None,
        targets: Sequence[str],
        is_ended: bool | None = None,
        most: int = 500,
        parts: str = ALL,
    ) -> None:
        self.root = _make_folder()
        self._project = project
        self._targets = targets
        self._status_groups = (
            [_UNFINISHED, _ENDED] if is_ended is None else [_ENDED if is_ended else _UNFINISHED]
        )
        self._most = most
        self._parts = parts
        # Whether the database has more runs than the view.
        self.is_cut = False
        self._session = Session(address, lambda: True, uses_libpq=True)
        self._locks: dict[str, int] = {}
        # Rows of the runs at the time of their last fetch.
        self._rows: dict[str, Any] = {}
        # Names of fetched documents by run. A document is fetched once: a view does not need later
        # checkpoints.
        self._documents: dict[str, list[str]] = {}
        self._stored_answers: set[str] = set()
        self._update_lock = threads.Lock()
        self._is_closed = False
        self._watch_at = 0.0
        for folder in (RUNNING, HISTORY):
            make_private(os.path.join(self.root, folder))
        self._session.do(lambda connection: schema.check(connection, address))
        self.update()
        Blobs.elsewhere = self._fetch_output

    def follow(self) -> None:
        """Start a thread that updates the view."""
        threads.Thread(target=self._follow, name="llc-view", daemon=True).start()

    def _follow(self) -> None:
        while not self._is_closed:
            clock.sleep(UPDATE_INTERVAL_S)
            with contextlib.suppress(
                UserError, OSError
            ):  # an outage: the view remains as it is until the end of it
                self.update()

    def update(self) -> None:
        """Fetch new runs and new events. Raises UserError."""
        with self._update_lock:
            if self._is_closed:
                return
            rows = self._session.do(self._select_rows)
            parts = self._parts
            if not rows and self._targets:  # fetch other runs, so that the command can suggest names
                rows, parts = self._session.do(self._select_latest), ENDS
            changed = [row for row in rows if not self._is_current(row)]
            runs = [DatabaseRun.cached(self.root, row[0], self._session) for row in changed]
            intact = refresh(self._session, runs, self._documents, parts)
            for row in changed:
                if row[0] in intact:
                    self._show(*row[:-1])
                    self._rows[row[0]] = row
            self._session.do(self._store_answers)
            self._fetch_live_output()

    def _fetch_live_output(self) -> None:
        """Request that the workers publish the live output of the runs, and fetch it."""
        live_runs = list(self._locks) if self._targets else []
        if not live_runs:
            return
        now = clock.monotonic()
        if now >= self._watch_at:
            self._watch_at = now + live.WATCHED_S / 2
            self._session.do(lambda connection: connection.execute(live.WATCH, [live_runs]))
        outputs = self._session.do(
            lambda connection: dict(connection.execute(live.READ, [live_runs], binary=True).fetchall())
        )
        for run_id in live_runs:
            run = DatabaseRun.cached(self.root, run_id, self._session)
            if run_id in outputs:
                write_file(run.live, outputs[run_id], durable=False, mode=0o600)
            elif files.exists(run.live):
                files.unlink(run.live)

    def _select_rows(self, connection: Connection) -> list[Any]:
        """Select the rows of the runs that the view contains."""
        values = {"project": self._project, "most": self._most + 1}
        of_project = "" if self._project is None else _OF_PROJECT
        found: dict[str, Any] = {}

        def select(query: str, of_target: str = "", **more: Any) -> int:
            query = query.format(of_project=of_project, of_target=of_target)
            rows = connection.execute(query, {**values, **more}).fetchall()
            self.is_cut |= len(rows) > self._most
            found.update((row[0], row) for row in rows[: self._most] if is_file_name(row[0]))
            return len(rows)

        for target in self._targets:
            if not select(_BY_ID, ids=[target]):
                paths = [target, *(f"{LOOPS}/{target}{suffix}" for suffix in SOURCE_SUFFIXES)]
                select(_LATEST, _OF_TARGET, statuses=_UNFINISHED + _ENDED, target=target, paths=paths)
        for statuses in self._status_groups if not self._targets else ():
            select(_LATEST, statuses=statuses)
        # Newer runs may have displaced an unfinished run that the view already contains.
        displaced = [run for run, row in self._rows.items() if run not in found and row[1] != "ended"]
        if displaced:
            select(_BY_ID, ids=displaced)
        return list(found.values())

    def _select_latest(self, connection: Connection) -> list[Any]:
        """Select the rows of the latest runs of all loops."""
        of_project = "" if self._project is None else _OF_PROJECT
        values = {"project": self._project, "most": _SUGGESTED_RUNS, "statuses": _UNFINISHED + _ENDED}
        rows = connection.execute(_LATEST.format(of_project=of_project, of_target=""), values).fetchall()
        return [row for row in rows if is_file_name(row[0])]

    def _is_current(self, row: Any) -> bool:
        """Whether the view contains the current data of this row's run."""
        known = self._rows.get(row[0])
        # The data of a run that no process drives changes only together with its row.
        return known is not None and (known[1] == "ended" or (known == row and row[1] != "running"))

    def _show(
        self,
        run_id: str,
        status: str,
        owner: str | None,
        program: str,
        path: str,
        created: Any,
        reason: str | None,
    ) -> None:
        """Show a run with its status and lock. reason: why the run is stopped, or what it waits for."""
        run = DatabaseRun.cached(self.root, run_id, self._session)
        if status == "ended":
            files.rename(run.path, os.path.join(self.root, HISTORY, run_id))
            self._unlock(run_id)
            return
        about: dict[str, Any] = {"run": run_id, "program": program, "path": path, "background": True}
        if status == "stopped":
            about |= {"stopped": True, "why": reason}
            write_file(run.lock, _json_line(about), durable=False, mode=0o600)
            self._unlock(run_id)
            return
        about |= {"since": clock.timestamp(created.timestamp()), "queued": status == "queued"}
        if reason:
            about["waits_for"] = [reason]
        if owner is not None:
            about["worker"] = owner
            with contextlib.suppress(IndexError, ValueError):
                about["pid"] = int(owner.rsplit("-", 2)[1])
        if run_id not in self._locks:
            self._locks[run_id] = files.open_handle(run.lock, files.O_RDWR | files.O_CREAT, 0o600)
            files.flock(self._locks[run_id], files.LOCK_EX)
        data = _json_line(about)
        files.pwrite(self._locks[run_id], data, 0)
        files.ftruncate(self._locks[run_id], len(data))

    def _unlock(self, run_id: str) -> None:
        handle = self._locks.pop(run_id, None)
        if handle is not None:
            files.close(handle)

    def _fetch_output(self, path: str) -> bool:
        """Fetch a long text to its path in the view; False if the database does not have it."""
        folder, name = os.path.split(path)
        run_folder = os.path.dirname(folder)
        with self._update_lock:
            values = [os.path.basename(run_folder), f"{os.path.basename(folder)}/{name}"]
            row = self._session.do(
                lambda connection: connection.execute(_OUTPUT, values, binary=True).fetchone()
            )
        if row is not None:
            write_file(path, row[0], durable=False, mode=0o600)
        return row is not None

    def fetch_trees(self, target: str) -> None:
        """Fetch the stored trees of a run. Raises UserError."""
        folder = lookup.find_run_folder(target)
        run = DatabaseRun(self.root, folder.path, self._session)
        files.makedirs(run.place(TREES), exist_ok=True)
        for name, data in run.documents(TREES):
            if is_file_name(name.removeprefix(TREES)):
                write_file(run.place(name), data, durable=False, mode=0o600)

    def close(self) -> None:
        """Store new answers in the database and remove the folder. Raises UserError."""
        with self._update_lock:
            self._is_closed = True
            Blobs.elsewhere = None
            try:
                self._session.do(self._store_answers)
            finally:
                self._remove()

    def _store_answers(self, connection: Connection) -> None:
        running = os.path.join(self.root, RUNNING)
        for run_id in self._locks:
            folder = os.path.join(running, run_id, ANSWERS)
            names = files.listdir(folder) if files.isdir(folder) else []
            for name in [name for name in names if name.endswith(".json")]:
                path = os.path.join(folder, name)
                if path not in self._stored_answers:
                    with files.open(path, "rb") as file:
                        connection.execute(_ANSWER, [run_id, f"{ANSWERS}/{name}", file.read()])
                    connection.execute("select wake_run(%s)", [run_id])
                    self._stored_answers.add(path)

    def _remove(self) -> None:
        for run_id in list(self._locks):
            self._unlock(run_id)
        self._session.close()
        files.rmtree(self.root, ignore_errors=True)


def enter(
    url: str,
    targets: Sequence[str],
    is_ended: bool | None,
    most: int,
    parts: str,
    folders: Sequence[str] = (),
    has_trees: bool = False,
) -> View:
    """Create a view and make it the working directory. Raises UserError.

    In a project, the view also contains links to the project's other files. Outside of a project, it contains
    the runs of all projects. A view is updated in a thread, except with `has_trees` or with parts ENDS.

    Args:
        url: address of the database.
        targets, is_ended, most, parts: see `View`.
        folders: names of folders in `.loops` to which the command writes.
        has_trees: fetch the current trees of the first target.
    """
    here = files.realpath(environment.getcwd())
    loops = os.path.join(here, LOOPS)
    project = os.path.basename(here) if files.isdir(loops) else None
    address = Address.parse(url)
    is_default = environment.environ.get(DATABASE) == url
    lookup.resume_options = f" --on {'cluster' if is_default else 'URL'}"
    view = View(address, project, targets, is_ended, most, parts)
    if project is not None:
        for name in folders:
            files.makedirs(os.path.join(loops, name), exist_ok=True)
        _link(here, view.root)
        _link(loops, os.path.join(view.root, LOOPS))
    environment.chdir(view.root)
    if has_trees:
        view.fetch_trees(targets[0])
    elif parts != ENDS:
        view.follow()
    return view


def _link(source: str, target: str) -> None:
    """Create symbolic links to the entries of a folder in another folder, except for existing names."""
    for name in files.listdir(source):
        with contextlib.suppress(FileExistsError):
            files.symlink(os.path.join(source, name), os.path.join(target, name))


def _json_line(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode() + b"\n"


def _make_folder() -> str:
    handle, path = files.mkstemp(prefix=f"llc-view-{processes.getpid()}-")
    files.close(handle)
    files.unlink(path)
    files.mkdir(path, 0o700)
    return path
