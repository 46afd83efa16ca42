"""The run store of a database: starting, resuming and finding runs, as `runs.store` describes them.

A process has one store, with a cache folder for the runs that it drives or reads; it is removed with the
store.
"""

from __future__ import annotations

import contextlib
import os.path
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from ..host import clock, files
from ..host.coroutines import Apart, Steps
from ..host.errors import Failure, UserError, suggest
from ..host.keeper import Kept
from ..host.paths import ROOT
from ..journal.run_folder import RunFolder
from ..runs import locks
from ..runs.runs import make_running_folder
from . import claims, segments, survivors
from .claims import Busy, NewRun
from .connection import Address, Connection, Session
from .owner import Identity, Owner, bury_dead, is_dead
from .stored_run import WORKSPACE, DatabaseRun, is_name

# Seconds until a run in the queue tries again.
RETRY_S = 0.2
# Open connections that are kept for the next runs.
_SPARE = 2
_FIND = """
select id from runs
where project = %(project)s and status <> 'ended'
  and (id = %(target)s or program = %(target)s or path = %(target)s or path = any(%(files)s))
order by (id = %(target)s) desc, created desc
"""


class Claim:
    """The right to drive a run, until `close`. status: what the run is after it, unless it has ended."""

    def __init__(self, run: DatabaseRun, store: DatabaseStore) -> None:
        self.run = run
        self._store = store
        self._is_open = True
        self.status = "stopped"
        self.kept: dict[str, Kept] = {}
        # Of the folder of this process, by which others of this machine find actions that survive it.
        self.lock: locks.Lock | None = None

    def fileno(self) -> int:
        return self.lock.fileno() if self.lock is not None else -1

    def tell(self, **changes: Any) -> None:
        """Nothing: the table of runs has the owner and the scope."""

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._store.claims.pop(self.run.id, None)
            for action in self.kept.values():
                action.close()
            if self.lock is not None:
                self.lock.close()
            run = self.run
            run.cut_cache()
            parking = run.parking
            if parking is not None:
                size = files.getsize(run.journal)
                run.session.do(lambda connection: claims.park(connection, run.id, run.epoch, parking, size))
            else:
                run.session.do(lambda connection: claims.release(connection, run.id, run.epoch, self.status))
            self._store.keep(run.session)


class DatabaseStore:
    """The runs of a project in a database. project: its name, the same on all machines."""

    # Whether actions survive this process.
    keeps_actions = True

    def __init__(self, address: Address, owner: Identity, project: str, cache: str) -> None:
        self.address = address
        self.owner = owner
        self.project = project
        self.cache = cache
        # For new runs: whether workers drive them, and what a worker must have.
        self.managed = False
        self.labels: Sequence[str] = ()
        # What runs are after new claims; a process that drains returns also those that it is just taking.
        self.status_after = "stopped"
        # Called for each outage of the database, with the reason.
        self.on_outage: Callable[[str], object] = lambda why: None
        # The claims of this process, by run.
        self.claims: dict[str, Claim] = {}
        self._spare: list[Connection] = []
        make_running_folder(cache)

    # --- starting and resuming --------------------------------------------------------------------

    def starting(
        self,
        root: str,
        name: str,
        scope: Iterable[str],
        about: dict[str, Any],
        queue: locks.Queue | None,
        ours: Container[str] | None = None,
    ) -> Steps[tuple[RunFolder, Claim]]:
        """A new run that this process owns; see `runs.locks.starting`."""
        del ours
        wanted = claims.paths_of(locks.resolve_scope(scope, root), root)
        run = self._new(name)
        try:
            while True:
                new = NewRun(
                    *(run.id, self.project, str(about["program"]), str(about["path"])),
                    *(wanted, self.labels, self.managed),
                )
                came = run.session.do(partial(self._create, new))
                if isinstance(came, int):
                    run.epoch = came
                    return run, self._claimed(run)
                if came is None:
                    run.forget()
                    run = self._new(name)
                elif queue is None:
                    raise came.error()
                else:
                    yield Apart(lambda: self._pause(queue))
        except BaseException:
            run.forget()
            run.session.close()
            raise

    def taking_over(
        self,
        run: RunFolder,
        scope: Iterable[str],
        about: dict[str, Any],
        queue: locks.Queue | None,
        ours: Container[str] | None = None,
    ) -> Steps[Claim]:
        """The claim on a run that no process owns any more; see `runs.locks.taking_over`."""
        del scope, about, ours
        assert isinstance(run, DatabaseRun)
        while True:
            came = run.session.do(lambda connection: claims.claim(connection, run.id, self.owner.id))
            if isinstance(came, Busy):
                if queue is None:
                    raise came.error()
                yield Apart(lambda: self._pause(queue))
                continue
            if isinstance(came, str):
                raise _live(run.id, came)
            if came is None:
                raise _unknown(run.id)
            run.epoch = came
            claim = self._claimed(run)
            run.refresh()
            size = files.getsize(run.journal) if files.exists(run.journal) else 0
            run.parked = run.session.do(partial(claims.parked, run_id=run.id, size=size))
            if claim.lock is not None:
                claim.kept = yield Apart(lambda: survivors.of_run(run, self.cache))
            return claim

    def _claimed(self, run: DatabaseRun) -> Claim:
        claim = self.claims[run.id] = Claim(run, self)
        claim.status = self.status_after
        if self.keeps_actions and not self.managed:
            claim.lock = locks.hold(run, epoch=run.epoch)
        return claim

    def _create(self, new: NewRun, connection: Connection) -> int | Busy | None:
        return claims.create(connection, new, self.owner.id)

    @staticmethod
    def _pause(queue: locks.Queue) -> None:
        queue.interrupt.check()
        clock.sleep(RETRY_S)

    def _new(self, name: str) -> DatabaseRun:
        made = RunFolder.create(self.cache, name)
        return DatabaseRun(self.cache, made.path, self._session())

    def _session(self) -> Session:
        connection = None
        with contextlib.suppress(IndexError):
            connection = self._spare.pop()
        return Session(self.address, lambda: self.owner.is_dead, self.on_outage, connection=connection)

    def keep(self, session: Session) -> None:
        """Close a session that is not used any more, but for some connections, which others will use."""
        connection = session.take() if len(self._spare) < _SPARE else None
        if connection is not None:
            self._spare.append(connection)
        session.close()

    def connect(self) -> None:
        """Open the connections that the next runs will use."""
        sessions = [self._session() for _ in range(_SPARE)]
        for session in sessions:
            session.do(lambda connection: None)
            self.keep(session)

    # --- finding --------------------------------------------------------------------------------

    def find_unfinished(self, target: str, root: str = ROOT) -> DatabaseRun:
        """The unfinished run with this id, or the latest of a loop, with its record. Raises UserError."""
        del root
        names = [f".loops/{target}{suffix}" for suffix in (".yaml", ".yml", ".sexp")]
        values = {"project": self.project, "target": target, "files": names}
        session = self._session()
        for (run_id,) in session.do(lambda connection: connection.execute(_FIND, values).fetchall()):
            run = DatabaseRun.cached(self.cache, run_id, session)
            run.refresh()
            if not run.is_husk():
                return run
            run.forget()
        known = session.do(
            lambda connection: connection.execute(
                "select id, program from runs where project = %s and status <> 'ended' limit 100",
                [self.project],
            ).fetchall()
        )
        self.keep(session)
        raise UserError(
            "unknown-run",
            f"no unfinished run of `{target}` in {self.address}",
            suggest(target, [name for row in known for name in row], "unfinished runs"),
        )

    def is_live(self, run: RunFolder) -> bool:
        """Whether a process owns the run."""
        session = self._session()
        try:
            row = session.do(
                lambda connection: connection.execute(
                    "select owner from runs where id = %s", [run.id]
                ).fetchone()
            )
            if row is None or row[0] is None:
                return False
            return not session.do(lambda connection: is_dead(connection, row[0]))
        finally:
            self.keep(session)

    @contextlib.contextmanager
    def kept_dead(self, run: RunFolder) -> Iterator[None]:
        """Context in which no process can resume a run. Raises UserError if the run is live."""
        session = self._session()
        came = session.do(lambda connection: claims.claim(connection, run.id, self.owner.id))
        if isinstance(came, str):
            raise _live(run.id, came)
        try:
            yield
        finally:
            if isinstance(came, int):
                session.do(lambda connection: claims.release(connection, run.id, came))
            self.keep(session)

    def unfinished(self, root: str = ROOT) -> Sequence[RunFolder]:
        """The unfinished runs, latest first, with their records."""
        del root
        session = self._session()
        where = "select id from runs where project = %s and status <> 'ended' order by created desc"
        found = []
        for (run_id,) in session.do(lambda connection: connection.execute(where, [self.project]).fetchall()):
            run = DatabaseRun.cached(self.cache, run_id, session)
            run.refresh()
            if not run.is_husk():
                found.append(run)
        return found

    def sweep(self, root: str = ROOT) -> None:
        """Declare dead owners dead, and remove runs whose start was killed."""
        del root
        session = self._session()
        session.do(lambda connection: bury_dead(connection, self.owner.id))
        husks = (
            "delete from runs where project = %s and owner is null and not managed "
            "and not exists (select 1 from journal where run = runs.id)"
        )
        session.do(lambda connection: connection.execute(husks, [self.project]))
        self.keep(session)

    def cached(self, run_id: str) -> DatabaseRun:
        """The run with an id, with its record."""
        run = DatabaseRun.cached(self.cache, run_id, self._session())
        run.refresh()
        return run

    def requeue(self, run_id: str) -> None:
        """Queue another segment of a run that was taken from the queue and not claimed."""
        session = self._session()
        again = "select enqueue_segment(id) from runs where id = %s and status = 'queued' and owner is null"
        with contextlib.suppress(UserError):  # without the database, `reconcile_segments` does it later
            session.do(lambda connection: connection.execute(again, [run_id]))
        self.keep(session)

    def has_workspace(self, run_id: str) -> bool:
        """Whether a run works on a checkout of its own (`trees.workspace`)."""
        if not is_name(run_id):
            return False
        session = self._session()
        where = "select 1 from documents where run = %s and name = %s"
        values = [run_id, WORKSPACE]
        try:
            return bool(session.do(lambda connection: connection.execute(where, values).fetchone()))
        finally:
            self.keep(session)

    def give_back(self, run_id: str) -> None:
        """Queue a run again whose process was killed; its next epoch fences what is left of it."""

        def give_back(connection: Connection) -> None:
            with connection.transaction():
                mine = "update runs set epoch = epoch + 1 where id = %s and owner = %s and status = 'running'"
                if connection.execute(mine, [run_id, self.owner.id]).rowcount:
                    segments.enqueue(connection, run_id)

        session = self._session()
        session.do(give_back)
        self.keep(session)

    def give_up(self, run_id: str, why: str) -> None:
        """Mark a run that cannot be driven as stopped: it does not return to the queue by itself."""
        session = self._session()
        stopped = (
            "update runs set status = 'stopped', outcome = %s, owner = null, changed = now() "
            "where id = %s and status <> 'ended' and (owner is null or owner = %s)"
        )
        values = [why[:1000], run_id, self.owner.id]
        session.do(lambda connection: connection.execute(stopped, values))
        self.keep(session)

    def refuse(self, run_id: str, why: str) -> None:
        """Return a run to the queue for other workers: this one lacks what its program needs."""
        session = self._session()
        refused = (
            "update runs set outcome = %s, refused = refused || %s::text "
            "where id = %s and status = 'stopped' and not %s = any(refused) returning id"
        )

        def once(connection: Connection) -> None:
            with connection.transaction():
                values = [why[:1000], self.owner.id, run_id, self.owner.id]
                if connection.execute(refused, values).fetchone() is not None:
                    segments.enqueue(connection, run_id)

        session.do(once)
        self.keep(session)

    def close(self) -> None:
        """Remove the cache and leave the database."""
        self.owner.close()
        while self._spare:
            self._spare.pop().close()
        files.rmtree(self.cache, ignore_errors=True)


def open_store(
    address: Address, root: str = ROOT, project: str | None = None, owner: Owner | None = None
) -> DatabaseStore:
    """The store of the project in `root`. Raises UserError.

    project: its name, by default that of the folder. owner: of the runs, by default this process.
    """
    owner = owner or Owner(address)
    base = files.realpath(root or ".")
    cache = os.path.join(base, ".loops", ".cluster", owner.id)
    return DatabaseStore(address, owner, project or os.path.basename(base), cache)


def _live(run_id: str, owner: str) -> UserError:
    return Failure(
        "run-is-live", f"{run_id} is still running on {owner}", f"to look at it: llc status {run_id} --db URL"
    )


def _unknown(run_id: str) -> UserError:
    return UserError("run-ended", f"there is nothing to resume: {run_id} has ended or was removed")
