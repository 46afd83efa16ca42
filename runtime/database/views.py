"""View: runs of a database as a folder of runs, kept up to date while a command reads them.

Commands that read runs work on such a folder as on a project. A run that a worker owns, or that is queued, is
locked in the view, so that it is shown as live.
"""

from __future__ import annotations

import contextlib
import json
import os.path
from typing import Any

from ..host import clock, environment, files, processes, threads
from ..host.errors import UserError
from ..host.paths import HISTORY, LOOPS, RUNNING, make_private
from . import schema
from .connection import Address, Connection, Session
from .stored_run import ANSWERS, DatabaseRun

# Seconds between two updates, and how many runs are shown at most.
EVERY_S = 0.25
_MOST = 500
_ANSWER = "insert into documents (run, name, data) values (%s, %s, %s) on conflict do nothing"
_RUNS = """
select id, status, owner, program, path, created from runs
where (%(project)s::text is null or project = %(project)s)
  and (%(target)s::text is null or id = %(target)s or program = %(target)s or path = any(%(paths)s))
order by (status = 'ended'), created desc limit %(most)s
"""


class View:
    """A temporary project with runs of a database. project: None for all. target: a run or a loop."""

    def __init__(self, address: Address, project: str | None, target: str | None) -> None:
        self.root = _make_folder()
        paths = [f"{LOOPS}/{target}{suffix}" for suffix in (".yaml", ".yml", ".sexp")]
        self._wanted = {
            "project": project,
            "target": target,
            "paths": [*paths, target or ""],
            "most": _MOST,
        }
        self._session = Session(address, lambda: True)
        self._locks: dict[str, int] = {}
        self._ended: set[str] = set()
        self._turn = threads.Lock()
        self._is_closed = False
        for folder in (RUNNING, HISTORY):
            make_private(os.path.join(self.root, folder))
        self._session.do(lambda connection: schema.check(connection, address))
        self.update()

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
            rows = self._session.do(self._rows)
            for row in rows:
                if row[0] not in self._ended:
                    self._fetch(*row)

    def _rows(self, connection: Connection) -> list[Any]:
        return list(connection.execute(_RUNS, self._wanted).fetchall())

    def _fetch(
        self, run_id: str, status: str, owner: str | None, program: str, path: str, created: Any
    ) -> None:
        run = DatabaseRun.cached(self.root, run_id, self._session)
        run.refresh(with_outputs=True)
        if status == "ended":
            self._ended.add(run_id)
            files.rename(run.path, os.path.join(self.root, HISTORY, run_id))
            self._unlock(run_id)
            return
        if status == "stopped":
            self._unlock(run_id)
            return
        is_queued = status == "queued"
        facts: dict[str, Any] = {"run": run_id, "program": program, "path": path, "background": True}
        facts |= {"since": clock.timestamp(created.timestamp()), "queued": is_queued}
        if owner is not None:
            facts["pid"] = int(owner.rsplit("-", 2)[1])
        if run_id not in self._locks:
            self._locks[run_id] = files.open_handle(run.lock, files.O_RDWR | files.O_CREAT, 0o600)
            files.flock(self._locks[run_id], files.LOCK_EX)
        data = json.dumps(facts).encode() + b"\n"
        files.pwrite(self._locks[run_id], data, 0)
        files.ftruncate(self._locks[run_id], len(data))

    def _unlock(self, run_id: str) -> None:
        handle = self._locks.pop(run_id, None)
        if handle is not None:
            files.close(handle)

    def close(self) -> None:
        """Store the answers that were given in the view, and remove the folder. Raises UserError."""
        with self._turn:
            self._is_closed = True
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
                with files.open(os.path.join(folder, name), "rb") as file:
                    connection.execute(_ANSWER, [run_id, f"{ANSWERS}/{name}", file.read()])

    def _remove(self) -> None:
        for run_id in list(self._locks):
            self._unlock(run_id)
        self._session.close()
        files.rmtree(self.root, ignore_errors=True)


def enter(url: str, target: str | None) -> View:
    """Make a view the working directory; outside of a project it has the runs of all. Raises UserError."""
    here = files.realpath(environment.getcwd())
    project = os.path.basename(here) if files.isdir(os.path.join(here, LOOPS)) else None
    view = View(Address.of(url), project, target)
    environment.chdir(view.root)
    view.follow()
    return view


def _make_folder() -> str:
    handle, path = files.mkstemp(prefix=f"llc-view-{processes.getpid()}-")
    files.close(handle)
    files.unlink(path)
    files.mkdir(path, 0o700)
    return path
