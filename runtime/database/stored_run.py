"""A run in the database: its journal, blobs and documents, with a folder on this machine as a cache.

The folder has the form of a run folder, so that all code that reads runs works on it. The database is the
truth: an event is durable when its transaction is committed, and the folder is made again from the database
on each machine. A position in the journal is the offset of its first byte in both.

An append succeeds only at the end of the journal and in the current epoch, in one statement that locks the
row of the run: a claim (`claims`) waits for an append in progress, and every later one of the old owner
fails.
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
# As `effects.ask` names the folder of answers to questions.
ANSWERS = "answers"
# The files of a run that has a workspace (`trees.workspace`).
WORKSPACE, PACKS = "workspace.json", "workspace/"
# What differences between its trees read (`trees.kept`), as `trees.stores` names it.
TREES = "kept-trees/"
# Files of long outputs in `outputs` (`effects.output_capture`); larger ones stay on the worker, in bytes.
_COPIES = "{seq}-output.txt", "{seq}-stderr.txt"
_LARGEST_COPY = 64 << 20
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
_SHORTEN = """
update journal set data = substr(data, 1, (%(at)s - position)::int), size = %(at)s - position
where run = %(run)s and position < %(at)s and position + size > %(at)s
"""
# What is fetched of a run: all, all but long texts, or only what a line in a list needs.
ALL, RECORD, ENDS = "outputs", "record", "ends"
# What was appended to journals, or what each begins and ends with.
_TAILS = """
select known.run, position, data from unnest(%(runs)s::text[], %(sizes)s::bigint[]) as known (run, ends)
join journal on journal.run = known.run and position >= ends order by known.run, position
"""
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
# Runs that are fetched in one statement: their journals are in memory at once.
_TOGETHER = 25


class Fenced(JournalError):
    """Another process has claimed the run: nothing more is recorded or performed here."""

    id = "run-is-live"

    def __init__(self, run: str) -> None:
        super().__init__(f"{run} was taken over by another process; nothing more is performed here")


class Files(Protocol):
    """The files that a run works on, kept in its record."""

    def save(self, seq: int) -> None:
        """Store them as the effect `seq` has left them; its result follows."""

    def finish(self, status: str) -> None:
        """The run has ended."""


class Trees(Protocol):
    """The trees of the files, kept in the record of a run."""

    def keep(self, event: TreeTaken) -> None:
        """A tree was taken; its event follows."""


class DatabaseBlobs(Blobs):
    """Long texts of a run: documents `outputs/<hash>` of the database, cached in the folder."""

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
            found = self._run.get(f"{OUTPUTS}/{name}")
            if found is not None:
                write_file(os.path.join(self.folder, name), found, durable=False, mode=0o600)
        return super().fetch(name, size)


class DatabaseJournal(Journal):
    """An open journal in the database; `flush` writes the cache, `sync` commits.

    A process that is killed loses what it had not committed. That is right: no effect starts and no result is
    shown to others before the commit, so the program repeats only what was visible to no other process.
    """

    __slots__ = ("_position", "_recorded", "_run", "_sent_lines", "_unsent")

    def __init__(self, fd: int, path: str, now: Callable[[], str], lines: int = 0) -> None:
        super().__init__(fd, path, now, lines)
        self._run: DatabaseRun
        self._unsent: list[bytes] = []
        # What to call after the next commit.
        self._recorded: list[Callable[[], object]] = []
        self._position = self.size
        self._sent_lines = lines

    def attach(self, run: DatabaseRun) -> DatabaseJournal:
        self._run = run
        self.blobs = run.blobs
        return self

    def record(self, event: Event, ts: str | None = None) -> dict[str, Any]:
        kept = self._run.files
        if kept is not None and isinstance(event, EffectFinished) and EFFECTS[event.kind].changes_files:
            kept.save(event.seq)
        if isinstance(event, EffectFinished) and (event.result or {}).get("truncated"):
            self._run.keep_copies(event.seq)
        if self._run.trees is not None and isinstance(event, TreeTaken):
            self._run.trees.keep(event)
        line = super().record(event, ts)
        if isinstance(event, AgentActed):
            self.sync()  # another machine continues the agent's session
        return line

    def flush(self) -> None:
        waiting = self._buffer[:]
        super().flush()
        self._unsent += waiting

    def sync(self) -> None:
        self.flush()
        length = self.size, self.lines
        if self._unsent:
            data = b"".join(self._unsent)
            self._run.append(self._position, data, self.lines - self._sent_lines)
            self._unsent.clear()
            self._position += len(data)
            self._sent_lines = self.lines
        self._synced = length
        self._is_unsynced = False
        self._call_recorded()

    def sync_later(self, recorded: Callable[[], object] = bool) -> None:
        super().sync_later()
        self._recorded.append(recorded)

    @property
    def committed(self) -> int:
        """The size of what the database has."""
        return self._position

    def close(self) -> None:
        try:
            super().close()
        finally:
            self._call_recorded()  # what could not be committed is for the next owner to decide

    def _call_recorded(self) -> None:
        while self._recorded:
            self._recorded.pop(0)()


class DatabaseRun(RunFolder):
    """A run of the database and its cache on this machine.

    epoch: of our claim; 0 to read only. files: of its workspace, None where it works on the project's folder.
    trees: None where they are not kept.
    """

    __slots__ = ("_journal", "epoch", "files", "session", "trees")

    def __init__(self, root: str, path: str, session: Session) -> None:
        super().__init__(root, path)
        self.session = session
        self.epoch = 0
        self.files: Files | None = None
        self.trees: Trees | None = None
        self._journal: DatabaseJournal | None = None

    @classmethod
    def cached(cls, cache: str, run_id: str, session: Session) -> DatabaseRun:
        """The run with an id, in a cache folder; nothing is fetched yet. Raises OSError and UserError."""
        if not is_name(run_id):
            raise UserError("no-record", f"`{clean(run_id, 80)}` cannot be the id of a run")
        path = os.path.join(cache, RUNNING, run_id)
        make_private(os.path.join(cache, RUNNING))
        files.makedirs(path, mode=0o700, exist_ok=True)
        return cls(cache, path, session)

    def refresh(self) -> None:
        """Bring the cache up to date, without long texts. Raises Lost and JournalError."""
        if self.id not in refresh(self.session, [self], {}):
            raise JournalError(f"the journal of {self.id} in the database has a gap")

    # --- the database ---------------------------------------------------------------------------

    def append(self, position: int, data: bytes, lines: int) -> None:
        """Append to the journal, durably. Raises Fenced, and Lost when the session gives up."""
        values = {
            "run": self.id,
            "position": position,
            "size": len(data),
            "lines": lines,
            "epoch": self.epoch,
            "data": data,
        }

        def once(connection: Connection) -> bool:
            if connection.execute(_APPEND, values).rowcount == 1:
                return True
            # After a lost connection this may be our own append.
            found = connection.execute(_APPENDED, [self.id, position], binary=True).fetchone()
            return found is not None and tuple(found) == (len(data), self.epoch, data)

        if not self.session.do(once):
            raise Fenced(self.id)

    def put(self, name: str, data: bytes) -> None:
        """Store a document. Raises Fenced, and Lost when the session gives up."""
        values = {"run": self.id, "name": name, "data": data, "epoch": self.epoch}
        if self.session.do(lambda connection: connection.execute(_WRITE, values).rowcount) != 1:
            raise Fenced(self.id)

    def keep_copies(self, seq: int) -> None:
        """Store the whole outputs of an effect, of which its result has only the ends."""
        for name in (copy.format(seq=seq) for copy in _COPIES):
            path = os.path.join(self.outputs, name)
            if files.exists(path) and files.getsize(path) <= _LARGEST_COPY:
                with files.open(path, "rb") as file:
                    self.put(f"{OUTPUTS}/{name}", file.read())

    def get(self, name: str) -> bytes | None:
        """A document; None if there is none."""
        where = "select data from documents where run = %s and name = %s"
        row = self.session.do(
            lambda connection: connection.execute(where, [self.id, name], binary=True).fetchone()
        )
        return None if row is None else bytes(row[0])

    def documents(self, prefix: str) -> list[tuple[str, bytes]]:
        """The documents whose names begin so, with their names."""
        where = "select name, data from documents where run = %s and starts_with(name, %s)"
        rows = self.session.do(
            lambda connection: connection.execute(where, [self.id, prefix], binary=True).fetchall()
        )
        return [(name, bytes(data)) for name, data in rows]

    def drop(self, names: list[str]) -> None:
        """Remove documents that are only in the database."""

        def drop(connection: Connection) -> None:
            for name in names:
                connection.execute(_REMOVE, {"run": self.id, "name": name, "epoch": self.epoch})

        self.session.do(drop)

    def commit(self) -> None:
        """Commit what the journal has."""
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
            self.session.do(lambda connection: self._cut(connection, offset))
        return kept

    def _cut(self, connection: Connection, offset: int) -> None:
        mine = "select 1 from runs where id = %s and epoch = %s for update"
        with connection.transaction():
            if connection.execute(mine, [self.id, self.epoch]).fetchone() is None:
                raise Fenced(self.id)
            connection.execute("delete from journal where run = %s and position >= %s", [self.id, offset])
            connection.execute(_SHORTEN, {"run": self.id, "at": offset})

    def write(self, name: str, data: bytes, durable: bool = True) -> None:
        super().write(name, data, durable=False)
        if name == self.state_name:
            return  # only a view of the journal
        self.commit()  # a checkpoint names a position that must be there
        self.put(name, data)

    def remove(self, name: str) -> None:
        values = {"run": self.id, "name": name, "epoch": self.epoch}
        self.session.do(lambda connection: connection.execute(_REMOVE, values))
        super().remove(name)

    def sync(self) -> None:
        """Nothing: the database has it, or `DatabaseJournal.sync` commits it."""

    def discard(self) -> None:
        self.session.do(self._delete)
        super().discard()

    def _delete(self, connection: Connection) -> None:
        with connection.transaction():
            found = connection.execute("delete from runs where id = %s and epoch = %s", [self.id, self.epoch])
            if found.rowcount:
                connection.execute("delete from journal where run = %s", [self.id])
                connection.execute("delete from documents where run = %s", [self.id])

    def finish(self) -> None:
        """Mark the run as ended; its journal has the end already."""
        end = self.end() or {}
        if self.files is not None:
            self.files.finish(str(end.get("status")))
        ended = (
            "with past as (delete from live where run = %s) "
            "update runs set status = 'ended', outcome = %s, owner = null, changed = now() "
            "where id = %s and epoch = %s"
        )
        values = [self.id, str(end.get("status")), self.id, self.epoch]
        self.session.do(lambda connection: connection.execute(ended, values))
        super().finish()

    def cut_cache(self) -> None:
        """Remove what was not committed, without which the next owner continues, also this process."""
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
    """Bring the caches of runs up to date; the ids of those whose journal has no gap. Raises Lost.

    documents: the names of those that a run has already, by id; gets the names of those that are fetched.
    """
    whole = set[str]()
    for at in range(0, len(runs), _TOGETHER):
        whole |= _refresh(session, {run.id: run for run in runs[at : at + _TOGETHER]}, documents, parts)
    return whole


def _refresh(
    session: Session, runs: dict[str, DatabaseRun], documents: dict[str, list[str]], parts: str
) -> set[str]:
    ends = {
        name: files.getsize(run.journal) if files.exists(run.journal) else 0 for name, run in runs.items()
    }
    known = [(run, name) for run in runs for name in documents.get(run, ())]
    values = {"runs": list(runs), "sizes": list(ends.values()), "parts": parts}
    values |= {"of": [run for run, _ in known], "names": [name for _, name in known]}
    rows, found = session.do(
        lambda connection: [
            connection.execute(words, values, binary=True).fetchall()
            for words in (_ENDS if parts == ENDS else _TAILS, _DOCUMENTS)
        ]
    )
    for run_id, name, data in found:
        if all(map(is_name, name.split("/", 1))):  # else written by another program
            write_file(runs[run_id].place(name), data, durable=False, mode=0o600)
            documents.setdefault(run_id, []).append(name)
    texts: dict[str, list[bytes]] = {name: [] for name, end in ends.items() if not end}
    damaged = set[str]()
    for run_id, position, data in rows:
        if parts != ENDS and position != ends[run_id]:
            damaged.add(run_id)
        ends[run_id] += len(data)
        texts.setdefault(run_id, []).append(data)
    for run_id in texts.keys() - damaged:
        with files.open(runs[run_id].journal, "ab") as file:
            file.write(b"".join(texts[run_id]))
    return runs.keys() - damaged


def is_name(text: str) -> bool:
    """Whether a text of the database names a file in a folder, and nothing outside of it."""
    return text not in ("", ".", "..") and not {"/", "\0"} & set(text) and len(text) < 200


def deliver(path: str, data: bytes) -> None:
    """Put an answer where the run finds it, and wake the run; nothing if it has it already."""
    if files.exists(path):
        return
    write_file(path, data, durable=False, mode=0o600)
    with contextlib.suppress(OSError):
        wake = files.open_handle(f"{path.removesuffix('.json')}.wake", files.O_WRONLY | files.O_NONBLOCK)
        try:
            files.write(wake, b"!")
        finally:
            files.close(wake)
