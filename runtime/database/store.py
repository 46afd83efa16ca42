"""Run store in a database: implements the protocol of `runs.store` (start, resume and find runs).

A process has one store with one cache folder for the runs that it drives or reads. Closing the store removes
the folder.
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
from ..runs.run_lock import Lock
from ..runs.runs import make_running_folder
from ..runs.scope_conflicts import resolve_scope
from . import claims, segments, survivors
from .claims import NewRun, ScopeConflict
from .connection import Address, Connection, Session
from .owner import Identity, Owner, declare_dead_owners, is_dead
from .stored_run import WORKSPACE, DatabaseRun, is_file_name

# Retry interval, in seconds, for a run that waits in the queue.
RETRY_S = 0.2
# Number of open connections that are kept for the next runs.
_MAX_SPARE_CONNECTIONS = 2
_FIND = """
select id from runs
where project = %(project)s and status <> 'ended'
  and (id = %(target)s or program = %(target)s or path = %(target)s or path = any(%(files)s))
order by (id = %(target)s) desc, created desc
"""


class Claim:
    """Exclusive right to drive a run, until `close`. status: status of an unfinished run after `close`."""

    def __init__(self, run: DatabaseRun, store: DatabaseStore) -> None:
        self.run = run
        self._store = store
        self._is_open = True
        self.status = "stopped"
        self.kept: dict[str, Kept] = {}
        # Lock of the run's folder in this process's cache. Other processes on this machine use it to find
        # actions that survive this process.
        self.lock: Lock | None = None

    def fileno(self) -> int:
        return self.lock.fileno() if self.lock is not None else -1

    def tell(self, **changes: Any) -> None:
        """Do nothing: the table of runs has the owner and the scope."""

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._store.claims.pop(self.run.id, None)
            for action in self.kept.values():
                action.close()
            if self.lock is not None:
                self.lock.close()
            run = self.run
            run.truncate_cache()
            parking = run.parking
            if parking is not None:
                size = files.getsize(run.journal)
                run.session.do(lambda connection: claims.park(connection, run.id, run.epoch, parking, size))
            else:
                run.session.do(lambda connection: claims.release(connection, run.id, run.epoch, self.status))
            self._store.keep(run.session)


class DatabaseStore:
    """Run store of one project in a database. project: its name, identical on all machines."""

    # Whether actions survive this process.
    keeps_actions = True

    def __init__(self, address: Address, owner: Identity, project: str, cache: str) -> None:
        self.address = address
        self.owner = owner
        self.project = project
        self.cache = cache
        # For new runs: whether workers drive them, and the labels that such a worker must have.
        self.managed = False
        self.labels: Sequence[str] = ()
        # Status of runs after new claims. A process that drains also returns the runs that it is just
        # claiming.
        self.status_after = "stopped"
        # Called for each outage of the database, with the reason.
        self.on_outage: Callable[[str], object] = lambda reason: None
        # Claims of this process, by run id.
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
        """Create a run that this process owns; see `runs.locks.starting`."""
        del ours
        paths = claims.portable_paths(resolve_scope(scope, root), root)
        run = self._new(name)
        try:
            while True:
                new = NewRun(
                    *(run.id, self.project, str(about["program"]), str(about["path"])),
                    *(paths, self.labels, self.managed),
                )
                result = run.session.do(partial(self._create, new))
                if isinstance(result, int):
                    run.epoch = result
                    return run, self._claimed(run)
                if result is None:
                    run.forget()
                    run = self._new(name)
                elif queue is None:
                    raise result.error()
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
        """Claim a run that no process owns any more; see `runs.locks.taking_over`."""
        del scope, about, ours
        assert isinstance(run, DatabaseRun)
        while True:
            result = run.session.do(lambda connection: claims.claim(connection, run.id, self.owner.id))
            if isinstance(result, ScopeConflict):
                if queue is None:
                    raise result.error()
                yield Apart(lambda: self._pause(queue))
                continue
            if isinstance(result, str):
                raise _is_live_error(run.id, result)
            if result is None:
                raise _has_ended_error(run.id)
            run.epoch = result
            claim = self._claimed(run)
            run.refresh()
            size = files.getsize(run.journal) if files.exists(run.journal) else 0
            run.parked = run.session.do(partial(claims.parked, run_id=run.id, size=size))
            if claim.lock is not None:
                claim.kept = yield Apart(lambda: survivors.find_actions(run, self.cache))
            return claim

    def _claimed(self, run: DatabaseRun) -> Claim:
        claim = self.claims[run.id] = Claim(run, self)
        claim.status = self.status_after
        if self.keeps_actions and not self.managed:
            claim.lock = locks.hold(run, epoch=run.epoch)
        return claim

    def _create(self, new: NewRun, connection: Connection) -> int | ScopeConflict | None:
        return claims.create(connection, new, self.owner.id)

    @staticmethod
    def _pause(queue: locks.Queue) -> None:
        queue.interrupt.check()
        clock.sleep(RETRY_S)

    def _new(self, name: str) -> DatabaseRun:
        folder = RunFolder.create(self.cache, name)
        return DatabaseRun(self.cache, folder.path, self._session())

    def _session(self) -> Session:
        connection = None
        with contextlib.suppress(IndexError):
            connection = self._spare.pop()
        return Session(self.address, lambda: self.owner.is_dead, self.on_outage, connection=connection)

    def keep(self, session: Session) -> None:
        """Close an unused session; keep its connection for the next run if fewer than the limit are kept."""
        connection = session.detach() if len(self._spare) < _MAX_SPARE_CONNECTIONS else None
        if connection is not None:
            self._spare.append(connection)
        session.close()

    def connect(self) -> None:
        """Open the connections for the next runs in advance."""
        sessions = [self._session() for _ in range(_MAX_SPARE_CONNECTIONS)]
        for session in sessions:
            session.do(lambda connection: None)
            self.keep(session)

    # --- finding --------------------------------------------------------------------------------

    def find_unfinished(self, target: str, root: str = ROOT) -> DatabaseRun:
        """Find the unfinished run with this id, or the latest of a loop; fetch its record.

        Raises UserError.
        """
        del root
        names = [f".loops/{target}{suffix}" for suffix in (".yaml", ".yml", ".sexp")]
        values = {"project": self.project, "target": target, "files": names}
        session = self._session()
        for (run_id,) in session.do(lambda connection: connection.execute(_FIND, values).fetchall()):
            run = DatabaseRun.cached(self.cache, run_id, session)
            run.refresh()
            if not run.is_unrecorded():
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
        """Whether a living process owns the run."""
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
    def resume_blocked(self, run: RunFolder) -> Iterator[None]:
        """Prevent other processes from resuming a run in this context. Raises UserError if it is live."""
        session = self._session()
        result = session.do(lambda connection: claims.claim(connection, run.id, self.owner.id))
        if isinstance(result, str):
            raise _is_live_error(run.id, result)
        try:
            yield
        finally:
            if isinstance(result, int):
                session.do(lambda connection: claims.release(connection, run.id, result))
            self.keep(session)

    def unfinished(self, root: str = ROOT) -> Sequence[RunFolder]:
        """Fetch the unfinished runs with their records, latest first."""
        del root
        session = self._session()
        query = "select id from runs where project = %s and status <> 'ended' order by created desc"
        runs = []
        for (run_id,) in session.do(lambda connection: connection.execute(query, [self.project]).fetchall()):
            run = DatabaseRun.cached(self.cache, run_id, session)
            run.refresh()
            if not run.is_unrecorded():
                runs.append(run)
        return runs

    def sweep(self, root: str = ROOT) -> None:
        """Detect dead owners, and remove runs whose process was killed before it wrote a journal."""
        del root
        session = self._session()
        session.do(lambda connection: declare_dead_owners(connection, self.owner.id))
        statement = (
            "delete from runs where project = %s and owner is null and not managed "
            "and not exists (select 1 from journal where run = runs.id)"
        )
        session.do(lambda connection: connection.execute(statement, [self.project]))
        self.keep(session)

    def cached(self, run_id: str) -> DatabaseRun:
        """Fetch a run with its record."""
        run = DatabaseRun.cached(self.cache, run_id, self._session())
        run.refresh()
        return run

    def requeue(self, run_id: str) -> None:
        """Enqueue another segment of a run that was taken from the queue and not claimed."""
        session = self._session()
        statement = (
            "select enqueue_segment(id) from runs where id = %s and status = 'queued' and owner is null"
        )
        with contextlib.suppress(UserError):  # during an outage; `reconcile_segments` enqueues the run later
            session.do(lambda connection: connection.execute(statement, [run_id]))
        self.keep(session)

    def has_workspace(self, run_id: str) -> bool:
        """Whether a run uses a checkout of its own (`trees.workspace`)."""
        if not is_file_name(run_id):
            return False
        session = self._session()
        query = "select 1 from documents where run = %s and name = %s"
        values = [run_id, WORKSPACE]
        try:
            return bool(session.do(lambda connection: connection.execute(query, values).fetchone()))
        finally:
            self.keep(session)

    def requeue_killed(self, run_id: str) -> None:
        """Enqueue a run whose process was killed; a new epoch fences processes that are left of it."""

        def requeue(connection: Connection) -> None:
            with connection.transaction():
                update = (
                    "update runs set epoch = epoch + 1 where id = %s and owner = %s and status = 'running'"
                )
                if connection.execute(update, [run_id, self.owner.id]).rowcount:
                    segments.enqueue(connection, run_id)

        session = self._session()
        session.do(requeue)
        self.keep(session)

    def mark_stopped(self, run_id: str, reason: str) -> None:
        """Mark a run that cannot be driven as stopped, so that it does not return to the queue by itself."""
        session = self._session()
        update = (
            "update runs set status = 'stopped', outcome = %s, owner = null, changed = now() "
            "where id = %s and status <> 'ended' and (owner is null or owner = %s)"
        )
        values = [reason[:1000], run_id, self.owner.id]
        session.do(lambda connection: connection.execute(update, values))
        self.keep(session)

    def refuse(self, run_id: str, reason: str) -> None:
        """Return a run to the queue for other workers, because this worker lacks something that it needs."""
        session = self._session()
        update = (
            "update runs set outcome = %s, refused = refused || %s::text "
            "where id = %s and status = 'stopped' and not %s = any(refused) returning id"
        )

        def refuse(connection: Connection) -> None:
            with connection.transaction():
                values = [reason[:1000], self.owner.id, run_id, self.owner.id]
                if connection.execute(update, values).fetchone() is not None:
                    segments.enqueue(connection, run_id)

        session.do(refuse)
        self.keep(session)

    def close(self) -> None:
        """Remove the cache and close all connections."""
        self.owner.close()
        while self._spare:
            self._spare.pop().close()
        files.rmtree(self.cache, ignore_errors=True)


def open_store(
    address: Address, root: str = ROOT, project: str | None = None, owner: Owner | None = None
) -> DatabaseStore:
    """Open the store of the project in `root`. Raises UserError.

    project: default: the name of the folder. owner: owner of the runs; default: this process.
    """
    owner = owner or Owner(address)
    base = files.realpath(root or ".")
    cache = os.path.join(base, ".loops", ".cluster", owner.id)
    return DatabaseStore(address, owner, project or os.path.basename(base), cache)


def _is_live_error(run_id: str, owner: str) -> UserError:
    return Failure(
        "run-is-live",
        f"{run_id} is still running on {owner}",
        f"to see its state: llc status {run_id} --db URL",
    )


def _has_ended_error(run_id: str) -> UserError:
    return UserError("run-ended", f"{run_id} cannot be resumed: it has ended or was removed")
