"""View: runs of a database as a folder of runs, kept up to date while a command reads them.

Commands that read runs work on such a folder as on a project. A run that a worker owns, or that is queued, is
locked in the view, so that it is shown as live.
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
from .stored_run import ALL, ANSWERS, ENDS, TREES, DatabaseRun, is_name, refresh

# Seconds between two updates.
EVERY_S = 0.25
# Other runs that are looked at where the named one is not there.
_AROUND = 20
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
# For each status the latest runs, by the index `runs_of_status`.
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
    """A temporary project with runs of a database. project: None for all.

    targets: runs and loops, by default all. is_ended: without targets only ended runs, only others, or None
    for both. most: how many for each target, or of each of these two kinds. parts: what it has of them.
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
        self._kinds = [_UNFINISHED, _ENDED] if is_ended is None else [_ENDED if is_ended else _UNFINISHED]
        self._most = most
        self._parts = parts
        # Whether there are more runs than are shown.
        self.is_cut = False
        self._session = Session(address, lambda: True, is_light=True)
        self._locks: dict[str, int] = {}
        # The rows of runs as they were when they were fetched.
        self._rows: dict[str, Any] = {}
        # The names of the documents that a run has here; a view needs no later checkpoint.
        self._documents: dict[str, list[str]] = {}
        self._stored: set[str] = set()
        self._turn = threads.Lock()
        self._is_closed = False
        self._watch_at = 0.0
        for folder in (RUNNING, HISTORY):
            make_private(os.path.join(self.root, folder))
        self._session.do(lambda connection: schema.check(connection, address))
        self.update()
        Blobs.elsewhere = self._fetch_output

    def follow(self) -> None:
        """Update it in a thread from now on."""
        threads.Thread(target=self._follow, name="llc-view", daemon=True).start()

    def _follow(self) -> None:
        while not self._is_closed:
            clock.sleep(EVERY_S)
            with contextlib.suppress(UserError, OSError):  # an outage: shown as it was, until it is over
                self.update()

    def update(self) -> None:
        """Fetch what is new. Raises UserError."""
        with self._turn:
            if self._is_closed:
                return
            found = self._session.do(self._look)
            parts = self._parts
            if not found and self._targets:  # others, whose names help: what was meant
                found, parts = self._session.do(self._look_around), ENDS
            news = [row for row in found if not self._is_shown(row)]
            runs = [DatabaseRun.cached(self.root, row[0], self._session) for row in news]
            whole = refresh(self._session, runs, self._documents, parts)
            for row in news:
                if row[0] in whole:
                    self._show(*row[:-1])
                    self._rows[row[0]] = row
            self._session.do(self._store_answers)
            self._show_live()

    def _show_live(self) -> None:
        """Have the workers publish what the runs write, and fetch it."""
        live_runs = list(self._locks) if self._targets else []
        if not live_runs:
            return
        now = clock.monotonic()
        if now >= self._watch_at:
            self._watch_at = now + live.WATCHED_S / 2
            self._session.do(lambda connection: connection.execute(live.WATCH, [live_runs]))
        found = self._session.do(
            lambda connection: dict(connection.execute(live.READ, [live_runs], binary=True).fetchall())
        )
        for run_id in live_runs:
            run = DatabaseRun.cached(self.root, run_id, self._session)
            if run_id in found:
                write_file(run.live, found[run_id], durable=False, mode=0o600)
            elif files.exists(run.live):
                files.unlink(run.live)

    def _look(self, connection: Connection) -> list[Any]:
        """The rows of the runs that are to be shown."""
        values = {"project": self._project, "most": self._most + 1}
        of_project = "" if self._project is None else _OF_PROJECT
        found: dict[str, Any] = {}

        def look(words: str, of_target: str = "", **more: Any) -> int:
            words = words.format(of_project=of_project, of_target=of_target)
            rows = connection.execute(words, {**values, **more}).fetchall()
            self.is_cut |= len(rows) > self._most
            found.update((row[0], row) for row in rows[: self._most] if is_name(row[0]))
            return len(rows)

        for target in self._targets:
            if not look(_BY_ID, ids=[target]):
                paths = [target, *(f"{LOOPS}/{target}{suffix}" for suffix in SOURCE_SUFFIXES)]
                look(_LATEST, _OF_TARGET, statuses=_UNFINISHED + _ENDED, target=target, paths=paths)
        for statuses in self._kinds if not self._targets else ():
            look(_LATEST, statuses=statuses)
        # Later runs may have taken the place of one that is followed.
        left = [run for run, row in self._rows.items() if run not in found and row[1] != "ended"]
        if left:
            look(_BY_ID, ids=left)
        return list(found.values())

    def _look_around(self, connection: Connection) -> list[Any]:
        """The rows of the latest runs of any name."""
        of_project = "" if self._project is None else _OF_PROJECT
        values = {"project": self._project, "most": _AROUND, "statuses": _UNFINISHED + _ENDED}
        rows = connection.execute(_LATEST.format(of_project=of_project, of_target=""), values).fetchall()
        return [row for row in rows if is_name(row[0])]

    def _is_shown(self, row: Any) -> bool:
        """Whether the view has this row and all that belongs to it."""
        known = self._rows.get(row[0])
        # A run that no process drives does not change without its row.
        return known is not None and (known[1] == "ended" or (known == row and row[1] != "running"))

    def _show(
        self,
        run_id: str,
        status: str,
        owner: str | None,
        program: str,
        path: str,
        created: Any,
        why: str | None,
    ) -> None:
        """why: it is stopped, or what it waits for."""
        run = DatabaseRun.cached(self.root, run_id, self._session)
        if status == "ended":
            files.rename(run.path, os.path.join(self.root, HISTORY, run_id))
            self._unlock(run_id)
            return
        facts: dict[str, Any] = {"run": run_id, "program": program, "path": path, "background": True}
        if status == "stopped":
            facts |= {"stopped": True, "why": why}
            write_file(run.lock, _line(facts), durable=False, mode=0o600)
            self._unlock(run_id)
            return
        facts |= {"since": clock.timestamp(created.timestamp()), "queued": status == "queued"}
        if why:
            facts["waits_for"] = [why]
        if owner is not None:
            facts["worker"] = owner
            with contextlib.suppress(IndexError, ValueError):
                facts["pid"] = int(owner.rsplit("-", 2)[1])
        if run_id not in self._locks:
            self._locks[run_id] = files.open_handle(run.lock, files.O_RDWR | files.O_CREAT, 0o600)
            files.flock(self._locks[run_id], files.LOCK_EX)
        data = _line(facts)
        files.pwrite(self._locks[run_id], data, 0)
        files.ftruncate(self._locks[run_id], len(data))

    def _unlock(self, run_id: str) -> None:
        handle = self._locks.pop(run_id, None)
        if handle is not None:
            files.close(handle)

    def _fetch_output(self, path: str) -> bool:
        """Fetch a long text of a run here that is being read; False if the database has none."""
        folder, name = os.path.split(path)
        place = os.path.dirname(folder)
        with self._turn:
            values = [os.path.basename(place), f"{os.path.basename(folder)}/{name}"]
            row = self._session.do(
                lambda connection: connection.execute(_OUTPUT, values, binary=True).fetchone()
            )
        if row is not None:
            write_file(path, row[0], durable=False, mode=0o600)
        return row is not None

    def fetch_trees(self, target: str) -> None:
        """Fetch what the database has of the trees of a run. Raises UserError."""
        folder = lookup.find_run_folder(target)
        run = DatabaseRun(self.root, folder.path, self._session)
        files.makedirs(run.place(TREES), exist_ok=True)
        for name, data in run.documents(TREES):
            if is_name(name.removeprefix(TREES)):
                write_file(run.place(name), data, durable=False, mode=0o600)

    def close(self) -> None:
        """Store the answers that were given in the view, and remove the folder. Raises UserError."""
        with self._turn:
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
                if path not in self._stored:
                    with files.open(path, "rb") as file:
                        connection.execute(_ANSWER, [run_id, f"{ANSWERS}/{name}", file.read()])
                    connection.execute("select wake_run(%s)", [run_id])
                    self._stored.add(path)

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
    """Make a view the working directory; outside of a project it has the runs of all. Raises UserError.

    In a project the view has its other files too. folders: of `.loops` that the command writes to. has_trees:
    it has the trees of the run that is named, as they are now. Otherwise it is kept up to date, unless it has
    only the ENDS of journals.
    """
    here = files.realpath(environment.getcwd())
    loops = os.path.join(here, LOOPS)
    project = os.path.basename(here) if files.isdir(loops) else None
    address = Address.of(url)
    named = environment.environ.get(DATABASE) == url
    lookup.resume_options = f" --on {'cluster' if named else 'URL'}"
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
    """Link the entries of a folder in another one, without those that it has."""
    for name in files.listdir(source):
        with contextlib.suppress(FileExistsError):
            files.symlink(os.path.join(source, name), os.path.join(target, name))


def _line(facts: dict[str, Any]) -> bytes:
    return json.dumps(facts).encode() + b"\n"


def _make_folder() -> str:
    handle, path = files.mkstemp(prefix=f"llc-view-{processes.getpid()}-")
    files.close(handle)
    files.unlink(path)
    files.mkdir(path, 0o700)
    return path
