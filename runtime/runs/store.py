"""Protocols of the run store: storage of runs, and the right to drive a run.

The first implementation uses files on one machine: `journal/run_folder` and `journal/journal` for one run,
`runs` for the list of runs, `locks` for scope locks and the queue, `effects/ask` for answers to questions.
The second implementation is `database`, where a run folder is the cache of a run. Two rules apply to both: a
document is found by its name and replaced as a whole; an event is durable when `sync` returns, not before.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from ..host.coroutines import Steps
from ..host.keeper import Kept
from ..journal.events import Event
from ..journal.journal import Blobs, Journal
from ..journal.run_folder import RunFolder
from . import locks, runs
from .run_lock import Lock

TYPE_CHECKING = False


class BlobStore(Protocol):
    """Content-addressed store of the long texts of a run."""

    def store(self, text: str) -> dict[str, Any]:
        """Store a text durably and return its reference. Raises JournalError."""

    def fetch(self, name: str, size: int) -> str:
        """Return the text of a reference. Raises BlobError."""

    def known(self, text: str) -> dict[str, Any] | None:
        """Return the reference of a stored text; None if the text is not stored."""


class JournalWriter(Protocol):
    """Open journal. Appended events are durable after `sync` or `settle`. Raises JournalError."""

    @property
    def size(self) -> int: ...
    @property
    def last_crc(self) -> str: ...
    def record(self, event: Event, ts: str | None = None) -> None: ...
    def flush(self) -> None: ...
    def synced(self) -> tuple[int, int]: ...
    def sync(self) -> None: ...
    def sync_later(self, recorded: Callable[[], object] = ...) -> None: ...
    def settle(self) -> None: ...
    def close(self) -> None: ...


class StoredRun(Protocol):
    """One run: its journal, blobs, documents (program, checkpoints, state) and lock file."""

    id: str

    @property
    def name(self) -> str: ...
    @property
    def blobs(self) -> BlobStore: ...
    def create_journal(self, now: Callable[[], str]) -> JournalWriter: ...
    def append_journal(self, now: Callable[[], str], lines: int) -> JournalWriter: ...
    def check_room(self) -> None: ...
    def set_aside(self, offset: int) -> str | None: ...
    def last_event(self) -> Event | None: ...
    def has_line_end(self, offset: int, crc: str) -> bool: ...
    def saved_ms(self) -> int: ...
    def place(self, name: str) -> str: ...
    def has(self, name: str) -> bool: ...
    def read(self, name: str) -> bytes: ...
    def write(self, name: str, data: bytes, durable: bool = True) -> None: ...
    def remove(self, name: str) -> None: ...
    def sync(self) -> None: ...
    def settle(self) -> None: ...
    def start(self) -> dict[str, Any]: ...
    def end(self) -> dict[str, Any] | None: ...
    def about(self) -> dict[str, Any]: ...
    def is_unrecorded(self) -> bool: ...
    def discard(self) -> None: ...
    def finish(self) -> None: ...


class Ownership(Protocol):
    """Exclusive right to drive a run, held until `close` or the end of the process.

    kept: actions that have survived the process that started them, by effect id.
    """

    kept: dict[str, Kept]

    def fileno(self) -> int:
        """Return a file descriptor that another process can inherit to hold the right; -1 without one."""

    def tell(self, **changes: Any) -> None: ...
    def close(self) -> None: ...


class Scopes(Protocol):
    """Start and resume of runs, with scope locks and the queue."""

    def starting(
        self,
        root: str,
        name: str,
        scope: Iterable[str],
        about: dict[str, Any],
        queue: locks.Queue | None,
        ours: Container[str] | None = None,
    ) -> Steps[tuple[RunFolder, Ownership]]: ...
    def taking_over(
        self,
        run: RunFolder,
        scope: Iterable[str],
        about: dict[str, Any],
        queue: locks.Queue | None,
        ours: Container[str] | None = None,
    ) -> Steps[Ownership]: ...
    def is_live(self, run: RunFolder) -> bool: ...
    def resume_blocked(self, run: RunFolder) -> AbstractContextManager[None]: ...
    def unfinished(self, root: str) -> Sequence[RunFolder]: ...
    def sweep(self, root: str) -> None: ...


class Lookup(Protocol):
    """Function that finds a run by its id or its loop."""

    def __call__(self, target: str, root: str = ...) -> RunFolder: ...


class Listing(Protocol):
    """Lists of the runs of a project."""

    def runs_in(self, root: str, folder: str = ..., but: Container[str] = ...) -> Iterator[RunFolder]: ...
    def count_finished(self, root: str, name: str) -> int: ...
    def unfinished_before(self, run: RunFolder) -> RunFolder | None: ...


if TYPE_CHECKING:
    # Type check of the implementation by files.
    def _files(run: RunFolder, journal: Journal, blobs: Blobs, lock: Lock) -> None:
        parts: tuple[StoredRun, JournalWriter, BlobStore, Ownership] = run, journal, blobs, lock
        lists: tuple[Scopes, Listing] = locks, runs
        del parts, lists
