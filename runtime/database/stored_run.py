"""Stored run: the journal, blobs and documents of a run in the database, cached in a local folder.

The cache has the layout of a run folder, so that all code that reads runs can use it. The database is the
source of truth: an event is durable when its transaction is committed, and each machine rebuilds the cache
from the database. In both, the position of an event is the byte offset in the journal.

An append is one statement that locks the row of the run. It succeeds only at the end of the journal and in
the current epoch. Therefore a claim (`claims`) waits for an append in progress, and all later appends of the
old owner fail.
"""

from __future__ import annotations

import contextlib
import os.path
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ...ir.effects import EFFECTS
from ..host import files
from ..host.errors import UserError, clean
from ..host.paths import RUNNING, make_private
from ..journal.events import AgentActed, EffectFinished, Event, TreeTaken
from ..journal.journal import Blobs, Journal, JournalError, write_file
from ..journal.run_folder import RunFolder
from .connection import Connection, Session

OUTPUTS = "outputs"
# Folder of answers to questions; same name as in `effects.ask`.
ANSWERS = "answers"
# Documents of a run that has a workspace (`trees.workspace`).
WORKSPACE, PACKS = "workspace.json", "workspace/"
# Folder of the data that comparisons of trees need (`trees.tree_upload`); same name as in `trees.stores`.
TREES = "kept-trees/"
# Names of the full outputs in `outputs` (`effects.output_capture`). Larger files stay on the worker.
_FULL_OUTPUTS = "{seq}-output.txt", "{seq}-stderr.txt"
_MAX_FULL_OUTPUT_BYTES = 64 << 20
_APPEND = """
insert into journal (run, position, size, lines, epoch, data)
select %(run)s, %(position)s, %(size)s, %(lines)s, %(epoch)s, %(data)s
from (select 1 from runs where id = %(run)s and epoch = %(epoch)s for share) as mine
where coalesce(
  (select position + size from journal where run = %(run)s order by position desc limit 1), 0) = %(position)s
on conflict do nothing
"""
_APPENDED = "select size, epoch, data from journal where run = %s and position = %s"
_WRITE = """
insert into documents (run, name, data)
select %(run)s, %(name)s, %(data)s
from (select 1 from runs where id = %(run)s and epoch = %(epoch)s for share) as mine
on conflict (run, name) do update set data = excluded.data
"""
_REMOVE = """
delete from documents where run = %(run)s and name = %(name)s
  and exists (select 1 from runs where id = %(run)s and epoch = %(epoch)s for share)
"""
_TRUNCATE_CHUNK = """
update journal set data = substr(data, 1, (%(at)s - position)::int), size = %(at)s - position
where run = %(run)s and position < %(at)s and position + size > %(at)s
"""
# Parts of a run to fetch: everything, everything except long texts, or only what a line in a list needs.
ALL, RECORD, ENDS = "outputs", "record", "ends"
# New chunks of several journals.
_TAILS = """
select known.run, position, data from unnest(%(runs)s::text[], %(sizes)s::bigint[]) as known (run, ends)
join journal on journal.run = known.run and position >= ends order by known.run, position
"""
# First and last chunk of several journals.
_ENDS = """
select known.run, position, data from unnest(%(runs)s::text[]) as known (run)
join journal on journal.run = known.run
  and position in (0, (select max(position) from journal where run = known.run))
order by known.run, position
"""
_DOCUMENTS = """
select run, name, data from documents
where run = any(%(runs)s) and (%(parts)s = 'outputs' or name not like 'outputs/%%')
  and (%(parts)s <> 'ends' or name like '%%.state.json')
  and (run, name) not in (select * from unnest(%(of)s::text[], %(names)s::text[]))
  and name not like 'outputs/%%.txt'
  and name not like 'workspace/%%' and name not like 'kept-trees/%%'
"""
# Number of runs to fetch with one statement; their journals are in memory together.
_BATCH_SIZE = 25


class Fenced(JournalError):
    """Another process has claimed the run; this process must not record or perform anything more."""

    id = "run-is-live"

    def __init__(self, run: str) -> None:
        super().__init__(f"{run} was taken over by another process; this process stops driving it")


class WorkspaceFiles(Protocol):
    """Workspace of a run, stored in the documents of the run."""

    def save(self, seq: int) -> None:
        """Store the files after the effect `seq`, before its result is recorded."""

    def finish(self, status: str) -> None:
        """Handle the end of the run."""


class StoredTrees(Protocol):
    """File trees of a run, stored in the documents of the run."""

    def keep(self, event: TreeTaken) -> None:
        """Store a tree before its event is recorded."""


class DatabaseBlobs(Blobs):
    """Long texts of a run: documents `outputs/<hash>` in the database, cached in the folder."""

    __slots__ = ("_run",)

    def __init__(self, folder: str, run: DatabaseRun) -> None:
        super().__init__(folder)
        self._run = run

    def store(self, text: str) -> dict[str, Any]:
        reference = super().store(text)
        data = text.encode("utf-8", "surrogatepass")
        self._run.put(f"{OUTPUTS}/{reference['$blob']}", data)
        return reference

    def fetch(self, name: str, size: int) -> str:
        if not files.exists(os.path.join(self.folder, name)):
            data = self._run.get(f"{OUTPUTS}/{name}")
            if data is not None:
                write_file(os.path.join(self.folder, name), data, durable=False, mode=0o600)
        return super().fetch(name, size)


class DatabaseJournal(Journal):
    """Open journal in the database. `flush` writes the cache; `sync` commits to the database.

    A killed process loses uncommitted events. This is safe: no effect starts and no result becomes visible to
    other processes before the commit, so only work that no other process has seen is repeated.
    """

    __slots__ = ("_on_commit", "_position", "_run", "_sent_lines", "_unsent")

    def __init__(self, fd: int, path: str, now: Callable[[], str], lines: int = 0) -> None:
        super().__init__(fd, path, now, lines)
        self._run: DatabaseRun
        self._unsent: list[bytes] = []
        # Callbacks for the next commit.
        self._on_commit: list[Callable[[], object]] = []
        self._position = self.size
        self._sent_lines = lines

    def attach(self, run: DatabaseRun) -> DatabaseJournal:
        self._run = run
        self.blobs = run.blobs
        return self

    def record(self, event: Event, ts: str | None = None) -> None:
        workspace = self._run.files
        if workspace is not None and isinstance(event, EffectFinished) and EFFECTS[event.kind].changes_files:
            workspace.save(event.seq)
        if isinstance(event, EffectFinished) and (event.result or {}).get("truncated"):
            self._run.store_full_outputs(event.seq)
        if self._run.trees is not None and isinstance(event, TreeTaken):
            self._run.trees.keep(event)
        super().record(event, ts)
        if isinstance(event, AgentActed):
            self.sync()  # so that another machine can continue the agent's session

    def flush(self) -> None:
        lines = self._buffer[:]
        super().flush()
        self._unsent += lines

    def sync(self) -> None:
        self.flush()
        synced = self.size, self.lines
        if self._unsent:
            data = b"".join(self._unsent)
            self._run.append(self._position, data, self.lines - self._sent_lines)
            self._unsent.clear()
            self._position += len(data)
            self._sent_lines = self.lines
        self._synced = synced
        self._is_unsynced = False
        self._call_on_commit()

    def sync_later(self, recorded: Callable[[], object] = bool) -> None:
        super().sync_later()
        self._on_commit.append(recorded)

    @property
    def committed(self) -> int:
        """Size of the journal in the database, in bytes."""
        return self._position

    def close(self) -> None:
        try:
            super().close()
        finally:
            self._call_on_commit()  # also after a failed commit: the next owner decides about those events

    def _call_on_commit(self) -> None:
        while self._on_commit:
            self._on_commit.pop(0)()


class DatabaseRun(RunFolder):
    """Run in the database with its cache on this machine.

    epoch: epoch of this process's claim; 0 for a reader. files: the workspace; None if the run uses the
    project's folder. trees: None if trees are not stored.
    """

    __slots__ = ("_journal", "epoch", "files", "session", "trees")

    def __init__(self, root: str, path: str, session: Session) -> None:
        super().__init__(root, path)
        self.session = session
        self.epoch = 0
        self.files: WorkspaceFiles | None = None
        self.trees: StoredTrees | None = None
        self._journal: DatabaseJournal | None = None

    @classmethod
    def cached(cls, cache: str, run_id: str, session: Session) -> DatabaseRun:
        """Return a run with its folder in a cache, without its data. Raises OSError and UserError."""
        if not is_file_name(run_id):
            raise UserError("no-record", f"`{clean(run_id, 80)}` is not a valid run id")
        path = os.path.join(cache, RUNNING, run_id)
        make_private(os.path.join(cache, RUNNING))
        files.makedirs(path, mode=0o700, exist_ok=True)
        return cls(cache, path, session)

    def refresh(self) -> None:
        """Update the cache, without long texts. Raises DatabaseUnavailable and JournalError."""
        if self.id not in refresh(self.session, [self], {}):
            raise JournalError(f"the journal of {self.id} in the database has a gap")

    # --- the database ---------------------------------------------------------------------------

    def append(self, position: int, data: bytes, lines: int) -> None:
        """Append to the journal durably. Raises Fenced, and DatabaseUnavailable when the session gives up."""
        values = {
            "run": self.id,
            "position": position,
            "size": len(data),
            "lines": lines,
            "epoch": self.epoch,
            "data": data,
        }

        def append(connection: Connection) -> bool:
            if connection.execute(_APPEND, values).rowcount == 1:
                return True
            # After a lost connection, a previous attempt may have appended this data.
            found = connection.execute(_APPENDED, [self.id, position], binary=True).fetchone()
            return found is not None and tuple(found) == (len(data), self.epoch, data)

        if not self.session.do(append):
            raise Fenced(self.id)

    def put(self, name: str, data: bytes) -> None:
        """Store a document. Raises Fenced, and DatabaseUnavailable when the session gives up."""
        values = {"run": self.id, "name": name, "data": data, "epoch": self.epoch}
        if self.session.do(lambda connection: connection.execute(_WRITE, values).rowcount) != 1:
            raise Fenced(self.id)

    def store_full_outputs(self, seq: int) -> None:
        """Store the full outputs of an effect whose result contains only their beginning and end."""
        for name in (pattern.format(seq=seq) for pattern in _FULL_OUTPUTS):
            path = os.path.join(self.outputs, name)
            if files.exists(path) and files.getsize(path) <= _MAX_FULL_OUTPUT_BYTES:
                with files.open(path, "rb") as file:
                    self.put(f"{OUTPUTS}/{name}", file.read())

    def get(self, name: str) -> bytes | None:
        """Fetch a document; None if it does not exist."""
        query = "select data from documents where run = %s and name = %s"
        row = self.session.do(
            lambda connection: connection.execute(query, [self.id, name], binary=True).fetchone()
        )
        return None if row is None else bytes(row[0])

    def documents(self, prefix: str) -> list[tuple[str, bytes]]:
        """Fetch the documents whose names start with `prefix`: names and contents."""
        query = "select name, data from documents where run = %s and starts_with(name, %s)"
        rows = self.session.do(
            lambda connection: connection.execute(query, [self.id, prefix], binary=True).fetchall()
        )
        return [(name, bytes(data)) for name, data in rows]

    def drop(self, names: list[str]) -> None:
        """Remove documents that are in the database but not in the cache."""

        def drop(connection: Connection) -> None:
            for name in names:
                connection.execute(_REMOVE, {"run": self.id, "name": name, "epoch": self.epoch})

        self.session.do(drop)

    def commit(self) -> None:
        """Commit all events of the journal."""
        if self._journal is not None:
            self._journal.sync()

    # --- the protocol of a stored run -----------------------------------------------------------

    @property
    def blobs(self) -> Blobs:
        return DatabaseBlobs(self.outputs, self)

    def create_journal(self, now: Callable[[], str]) -> Journal:
        self._journal = DatabaseJournal.create(self.journal, now).attach(self)
        return self._journal

    def append_journal(self, now: Callable[[], str], lines: int) -> Journal:
        self._journal = DatabaseJournal.append(self.journal, now, lines).attach(self)
        return self._journal

    def set_aside(self, offset: int) -> str | None:
        kept = super().set_aside(offset)
        if kept is not None:
            with files.open(kept, "rb") as file:
                self.put(os.path.basename(kept), file.read())
            self.session.do(lambda connection: self._truncate_journal(connection, offset))
        return kept

    def _truncate_journal(self, connection: Connection, offset: int) -> None:
        lock = "select 1 from runs where id = %s and epoch = %s for update"
        with connection.transaction():
            if connection.execute(lock, [self.id, self.epoch]).fetchone() is None:
                raise Fenced(self.id)
            connection.execute("delete from journal where run = %s and position >= %s", [self.id, offset])
            connection.execute(_TRUNCATE_CHUNK, {"run": self.id, "at": offset})

    def write(self, name: str, data: bytes, durable: bool = True) -> None:
        super().write(name, data, durable=False)
        if name == self.state_name:
            return  # the state file is derived from the journal
        self.commit()  # a checkpoint refers to a journal position, which must be committed first
        self.put(name, data)

    def remove(self, name: str) -> None:
        values = {"run": self.id, "name": name, "epoch": self.epoch}
        self.session.do(lambda connection: connection.execute(_REMOVE, values))
        super().remove(name)

    def sync(self) -> None:
        """Do nothing: documents are in the database, and `DatabaseJournal.sync` commits the journal."""

    def discard(self) -> None:
        self.session.do(self._delete)
        super().discard()

    def _delete(self, connection: Connection) -> None:
        with connection.transaction():
            result = connection.execute(
                "delete from runs where id = %s and epoch = %s", [self.id, self.epoch]
            )
            if result.rowcount:
                connection.execute("delete from journal where run = %s", [self.id])
                connection.execute("delete from documents where run = %s", [self.id])

    def finish(self) -> None:
        """Mark the run as ended; its journal already contains the end."""
        end = self.end() or {}
        if self.files is not None:
            self.files.finish(str(end.get("status")))
        statement = (
            "with past as (delete from live where run = %s) "
            "update runs set status = 'ended', outcome = %s, owner = null, changed = now() "
            "where id = %s and epoch = %s"
        )
        values = [self.id, str(end.get("status")), self.id, self.epoch]
        self.session.do(lambda connection: connection.execute(statement, values))
        super().finish()

    def truncate_cache(self) -> None:
        """Remove uncommitted events from the cache: the next owner, even this process, does not have them."""
        if self._journal is not None:
            with contextlib.suppress(OSError), files.open(self.journal, "r+b") as file:
                file.truncate(min(self._journal.committed, files.getsize(self.journal)))

    def forget(self) -> None:
        """Remove the cache."""
        with contextlib.suppress(OSError):
            files.rmtree(self.path, ignore_errors=True)


def refresh(
    session: Session, runs: Sequence[DatabaseRun], documents: dict[str, list[str]], parts: str = RECORD
) -> set[str]:
    """Update the caches of runs. Return the ids of those without a gap. Raises DatabaseUnavailable.

    documents: names of the cached documents by run id; the names of fetched documents are added.
    """
    intact = set[str]()
    for at in range(0, len(runs), _BATCH_SIZE):
        intact |= _refresh(session, {run.id: run for run in runs[at : at + _BATCH_SIZE]}, documents, parts)
    return intact


def _refresh(
    session: Session, runs: dict[str, DatabaseRun], documents: dict[str, list[str]], parts: str
) -> set[str]:
    ends = {
        name: files.getsize(run.journal) if files.exists(run.journal) else 0 for name, run in runs.items()
    }
    known = [(run, name) for run in runs for name in documents.get(run, ())]
    values = {"runs": list(runs), "sizes": list(ends.values()), "parts": parts}
    values |= {"of": [run for run, _ in known], "names": [name for _, name in known]}
    journal_rows, document_rows = session.do(
        lambda connection: [
            connection.execute(query, values, binary=True).fetchall()
            for query in (_ENDS if parts == ENDS else _TAILS, _DOCUMENTS)
        ]
    )
    for run_id, name, data in document_rows:
        if all(map(is_file_name, name.split("/", 1))):  # else written by another program
            write_file(runs[run_id].place(name), data, durable=False, mode=0o600)
            documents.setdefault(run_id, []).append(name)
    chunks: dict[str, list[bytes]] = {name: [] for name, end in ends.items() if not end}
    damaged = set[str]()
    for run_id, position, data in journal_rows:
        if parts != ENDS and position != ends[run_id]:
            damaged.add(run_id)
        ends[run_id] += len(data)
        chunks.setdefault(run_id, []).append(data)
    for run_id in chunks.keys() - damaged:
        with files.open(runs[run_id].journal, "ab") as file:
            file.write(b"".join(chunks[run_id]))
    return runs.keys() - damaged


def is_file_name(text: str) -> bool:
    """Whether a text from the database is a valid file name, without a path."""
    return text not in ("", ".", "..") and not {"/", "\0"} & set(text) and len(text) < 200


def deliver_answer(path: str, data: bytes) -> None:
    """Write an answer to its file in the run's folder and wake the run. Do nothing if the file exists."""
    if files.exists(path):
        return
    write_file(path, data, durable=False, mode=0o600)
    with contextlib.suppress(OSError):
        wake = files.open_handle(f"{path.removesuffix('.json')}.wake", files.O_WRONLY | files.O_NONBLOCK)
        try:
            files.write(wake, b"!")
        finally:
            files.close(wake)
