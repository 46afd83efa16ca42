"""Folder of one run: its files, and the facts in its lock file and in the first and last journal event.

The first event of the journal defines a run; a folder without one was left by a killed start and is no run.
"""

from __future__ import annotations

import os.path

from ...ir import light_json
from ...ir.light_records import LightRecord
from ...ir.python_internals import suppress
from ..host import clock, files
from ..host.errors import Failure, UserError, reason, refuse_transient
from ..host.paths import (
    FIRST_IMAGE,
    HISTORY,
    RUNNING,
    make_private,
    open_regular,
    read_regular,
    regular_handle,
    slug,
)
from . import active_time
from .codec import KIND, unseal
from .events import Event, RunEnd, RunStart
from .journal import Blobs, Journal, JournalError, check_room, set_aside, write_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# The facts in a lock file, of the process and of its run, with their types.
_HELD = {
    **dict.fromkeys(
        ("run", "start_time", "since", "parent", "program", "path", "script", "started_at", "host", "worker"),
        str,
    ),
    "why": str,
    **dict.fromkeys(("pid", "ticket", "epoch"), int),
    **dict.fromkeys(("background", "queued", "kept", "stopped"), bool),
    **dict.fromkeys(("scope", "waits_for"), list),
}
# How often a lock file is read that is not JSON, and the seconds between.
_READINGS = 5
_PAUSE = 0.002
_LONGEST_START = 1 << 20
JOURNAL_SUFFIX = ".events.jsonl"
# Bytes at the end of a line with its checksum.
_TAIL = len('"00000000"}\n')


def name_in(run_id: str) -> str:
    """The name in a run's id, such as `fix-types-20240115-103000-3dcc`; "" if it is none."""
    name, *rest = run_id.rsplit("-", 3)
    match rest:
        case [date, time, random] if (len(date), len(time), len(random)) == (8, 6, 4):
            is_id = (date + time).isdecimal() and not random.strip("0123456789abcdef")
            return name if is_id else ""
    return ""


def has_ended(path: str) -> bool:
    """Whether a file belongs to a run in the history, where finished runs are."""
    return os.path.dirname(os.path.dirname(path)).endswith(HISTORY)


class Parking(LightRecord):
    """A run that only waits, to be continued later. waited: seconds so far, by effect.

    left_s: seconds until the first of them is over, None for unknown. accounts: whose quota it waits for.
    """

    waited: dict[int, float]
    left_s: float | None
    accounts: tuple[str, ...] = ()


class Parked(LightRecord):
    """What passed while no process drove a parked run. gap_ms: active time that its journal does not have.

    waited: for how many seconds its effects have waited.
    """

    gap_ms: int
    waited: dict[int, float]


class RunFolder:
    """The folder of one run and the files in it; it moves to the history when the run ends."""

    __slots__ = ("id", "image_name", "parked", "parking", "path", "root")

    def __init__(self, root: str, path: str) -> None:
        self.root = root
        self.path = path
        # The current program; a run that accepted a changed program has several.
        self.image_name = FIRST_IMAGE
        self.id = os.path.basename(path)
        # Of a run that workers drive: how it was parked, and how it is to be.
        self.parked: Parked | None = None
        self.parking: Parking | None = None

    @classmethod
    def create(cls, root: str, name: str, seconds: float | None = None) -> RunFolder:
        """A new folder for a run of the loop `name`, begun `seconds` after 1970. Raises UserError."""
        # Sorted by name the runs of a loop are in the order they began.
        moment = int((clock.time() if seconds is None else seconds) * 0x10000)
        parent = os.path.join(root, RUNNING)
        for ticks in range(moment, moment + 1000):
            begun = clock.strftime("%Y%m%d-%H%M%S", clock.gmtime(ticks >> 16))
            path = os.path.join(parent, f"{slug(name)}-{begun}-{ticks & 0xFFFF:04x}")
            try:
                files.mkdir(path, 0o700)
            except FileExistsError:
                continue
            except OSError as error:
                raise Failure("cannot-write", f"cannot create {path}: {reason(error)}") from None
            return cls(root, path)
        raise Failure("cannot-write", f"no free name for a run in {parent}")

    @classmethod
    def at(cls, root: str, path: str) -> RunFolder:
        """The run in a folder that may have been copied and renamed. Raises UserError."""
        found = cls(root, path)
        if not files.exists(found.journal):
            found.id = str(start_of(journal_in(path)).get("run", found.id))
        return found

    @property
    def name(self) -> str:
        """The prefix of the run's files: the loop's name as returned by `slug`."""
        return name_in(self.id) or self.id

    @property
    def journal(self) -> str:
        return os.path.join(self.path, self.name + JOURNAL_SUFFIX)

    @property
    def state_name(self) -> str:
        return f"{self.name}.state.json"

    @property
    def state(self) -> str:
        return self.place(self.state_name)

    @property
    def live(self) -> str:
        return os.path.join(self.path, f"{self.name}.live")

    @property
    def log(self) -> str:
        return os.path.join(self.path, f"{self.name}.log")

    @property
    def image(self) -> str:
        return os.path.join(self.path, self.image_name)

    @property
    def lock(self) -> str:
        return os.path.join(self.path, "lock")

    @property
    def outputs(self) -> str:
        return os.path.join(self.path, "outputs")

    # --- the journal and its blobs --------------------------------------------------------------

    @property
    def blobs(self) -> Blobs:
        return Blobs(self.outputs)

    def create_journal(self, now: Callable[[], str]) -> Journal:
        """A new journal; there must be none yet. Raises JournalError."""
        return Journal.create(self.journal, now)

    def append_journal(self, now: Callable[[], str], lines: int) -> Journal:
        """The existing journal of `lines` lines, to append to. Raises JournalError."""
        return Journal.append(self.journal, now, lines)

    def check_room(self) -> None:
        """Raise JournalError if the disk has too little room to resume the run."""
        check_room(self.path)

    def set_aside(self, offset: int) -> str | None:
        """Cut the journal at `offset`; the path of the saved rest, None without one. Raises JournalError."""
        return set_aside(self.journal, offset)

    def last_event(self) -> Event | None:
        """The last event of the journal; None if it is unreadable or damaged."""
        from .reader import last_event  # a new run reads no journal

        return last_event(self.journal)

    def has_line_end(self, offset: int, crc: str) -> bool:
        """Whether a line of the journal with that checksum ends at `offset`."""
        try:
            with open_regular(self.journal) as file:
                file.seek(max(0, offset - _TAIL))
                return file.read(_TAIL) == b'"%s"}\n' % crc.encode("ascii", "replace")
        except (OSError, ValueError):
            return False

    def saved_ms(self) -> int:
        """The active time that the run saved last, in milliseconds; 0 if none."""
        return active_time.read(self.path).ms

    # --- documents -----------------------------------------------------------------------------

    def place(self, name: str) -> str:
        """Where a document is stored, for messages."""
        return os.path.join(self.path, name)

    def has(self, name: str) -> bool:
        return files.exists(self.place(name))

    def read(self, name: str) -> bytes:
        """The content of a document. Raises OSError."""
        return read_regular(self.place(name))

    def write(self, name: str, data: bytes, durable: bool = True) -> None:
        """Replace a document atomically. Raises JournalError."""
        write_file(self.place(name), data, durable, mode=0o600)

    def add_to(self, name: str, data: bytes) -> None:
        """Add to the end of a document; a crash may leave a part of it. Raises JournalError."""
        path = self.place(name)
        try:
            handle = regular_handle(path, files.O_WRONLY | files.O_APPEND | files.O_CREAT)
            try:
                files.write(handle, data)
            finally:
                files.close(handle)
        except OSError as error:
            raise JournalError(f"cannot write {path}: {reason(error)}") from None

    def remove(self, name: str) -> None:
        """Remove a document. Raises OSError."""
        files.unlink(self.place(name))

    def sync(self) -> None:
        """Make the names of the run and its documents durable. Raises JournalError."""
        try:
            files.sync_names(self.path)
            files.sync_names(os.path.dirname(self.path))
        except OSError as error:
            raise JournalError(f"cannot write {self.path}: {reason(error)}") from None

    def settle(self) -> None:
        """Make durable what another process has left: it may have died before that. Raises JournalError."""
        try:
            handle = regular_handle(self.journal, files.O_RDWR)
            try:
                files.fdatasync(handle)
            finally:
                files.close(handle)
            if files.isdir(self.outputs):
                files.sync_names(self.outputs)
        except OSError as error:
            raise JournalError(f"cannot write {self.journal}: {reason(error)}") from None
        self.sync()

    # --- facts ---------------------------------------------------------------------------------

    def start(self) -> dict[str, Any]:
        """The journal's `run_start`; {} if missing or damaged."""
        return start_of(self.journal)

    def end(self) -> dict[str, Any] | None:
        """The journal's `run_end`; None for an unfinished run."""
        event = self.last_event()
        return event.wire if isinstance(event, RunEnd) else None

    def is_scripted(self) -> bool:
        """Whether its effects were scripted."""
        return isinstance(self.start().get("script"), str)

    def is_unrecorded(self) -> bool:
        """Whether a start crashed before the run was on record; then nothing was performed."""
        if files.exists(self.state):
            return False
        try:
            with open_regular(self.journal) as file:
                return not file.readline(_LONGEST_START).endswith(b"\n")
        except FileNotFoundError:
            return True
        except OSError:
            return False  # it cannot be read now, which says nothing

    def about(self) -> dict[str, Any]:
        """Facts about the run: program, path, script from its journal; pid, scope … from its lock file."""
        start = self.start()
        names = ("program", "path", "script")
        told: dict[str, Any] = {name: start[name] for name in names if isinstance(start.get(name), str)}
        more = {"started_at": begun_at(start), "forked_from": forked_from(start)}
        return {**self._held(), **told, **{name: value for name, value in more.items() if value is not None}}

    def _held(self) -> dict[str, Any]:
        found = None
        for _ in range(_READINGS):
            try:
                with open_regular(self.lock) as file:
                    text = file.read(1 << 20)
                found = light_json.loads(text) if text else None
                break
            except OSError as error:
                refuse_transient(error, self.lock)
                break
            except (ValueError, RecursionError):
                # Its holder, or the keeper that takes it over, may be writing it.
                clock.sleep(_PAUSE)
        if not isinstance(found, dict):
            return {}
        # A lock file may come from anywhere: facts of other types are ignored.
        held = {name: found[name] for name, kind in _HELD.items() if type(found.get(name)) is kind}
        for name in ("scope", "waits_for"):
            if name in held:
                held[name] = [item for item in held[name] if isinstance(item, str)]
        return held

    def discard(self) -> None:
        """Remove the folder of a run that could not start, as far as possible."""
        # The journal first: a folder without one is no run, one that has lost only its program is.
        with suppress(OSError):
            files.unlink(self.journal)
        files.rmtree(self.path, ignore_errors=True)

    def finish(self) -> None:
        """Move the folder of a finished run to the history. Raises UserError."""
        target = os.path.join(self.root, HISTORY, self.id)
        try:
            make_private(os.path.dirname(target))
            files.rename(self.path, target)
        except OSError as error:
            raise Failure("cannot-write", f"cannot move the run to {target}: {reason(error)}") from None
        self.path = target


def journal_in(path: str) -> str:
    """The journal in a folder. Raises UserError."""
    try:
        names = [name for name in files.listdir(path) if name.endswith(JOURNAL_SUFFIX)]
    except OSError:
        names = []
    if len(names) != 1:
        count = "no" if not names else "more than one"
        raise UserError("not-a-run", f"`{path}` has {count} journal (`*{JOURNAL_SUFFIX}`)")
    return os.path.join(path, names[0])


def start_of(journal: str) -> dict[str, Any]:
    """The `run_start` of a journal; {} if missing or damaged."""
    try:
        with open_regular(journal) as file:
            event = unseal(file.readline(_LONGEST_START)[:-1])
    except OSError:
        return {}
    return event if event is not None and event[KIND] == RunStart.name else {}


def begun_at(start: dict[str, Any]) -> str | None:
    """The start of a run from its `run_start`; a fork began when its parent did."""
    return RunStart.of(start).started_at


def forked_from(start: dict[str, Any]) -> dict[str, Any] | None:
    """The `run` that a run was forked from, and the effect `at` which they diverge; None if it is no fork."""
    return RunStart.of(start).parent
