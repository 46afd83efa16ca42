"""Run folder: the files of one run, and the data in its lock file and in the first and last journal event.

A run exists from the first event of its journal on. A folder without this event was left by a process that
was killed at the start of a run.
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

# Fields of a lock file (about the process and its run), with their types.
_LOCK_FIELDS = {
    **dict.fromkeys(
        ("run", "start_time", "since", "parent", "program", "path", "script", "started_at", "host", "worker"),
        str,
    ),
    "why": str,
    **dict.fromkeys(("pid", "ticket", "epoch"), int),
    **dict.fromkeys(("background", "queued", "kept", "stopped"), bool),
    **dict.fromkeys(("scope", "waits_for"), list),
}
# Attempts to read a lock file that is not valid JSON, and seconds between them.
_LOCK_READ_ATTEMPTS = 5
_RETRY_S = 0.002
_MAX_START_BYTES = 1 << 20
JOURNAL_SUFFIX = ".events.jsonl"
# Length of the checksum and the end of a line, in bytes.
_TAIL = len('"00000000"}\n')


def name_in(run_id: str) -> str:
    """Return the name in a run id such as `fix-types-20240115-103000-3dcc`; "" if the id is invalid."""
    name, *rest = run_id.rsplit("-", 3)
    match rest:
        case [date, time, random] if (len(date), len(time), len(random)) == (8, 6, 4):
            is_id = (date + time).isdecimal() and not random.strip("0123456789abcdef")
            return name if is_id else ""
    return ""


def has_ended(path: str) -> bool:
    """Whether a file belongs to a run in the history, which contains the finished runs."""
    return os.path.dirname(os.path.dirname(path)).endswith(HISTORY)


class Parking(LightRecord):
    """Request to park a run that only waits.

    waited: elapsed waiting time of each effect in seconds. left_s: seconds until the first wait ends; None:
    unknown.
    accounts: accounts whose quota the run waits for.
    """

    waited: dict[int, float]
    left_s: float | None
    accounts: tuple[str, ...] = ()


class Parked(LightRecord):
    """Times of a parked run.

    gap_ms: active time that is not in the journal. waited: waiting time of each effect in seconds, including
    the time without a process.
    """

    gap_ms: int
    waited: dict[int, float]


class RunFolder:
    """Folder of one run and its files. The folder moves to the history when the run ends."""

    __slots__ = ("id", "image_name", "parked", "parking", "path", "root")

    def __init__(self, root: str, path: str) -> None:
        self.root = root
        self.path = path
        # Name of the current program; a run that accepted a changed program has several.
        self.image_name = FIRST_IMAGE
        self.id = os.path.basename(path)
        # For a run that workers drive: times of the last parking, and the request for the next one.
        self.parked: Parked | None = None
        self.parking: Parking | None = None

    @classmethod
    def create(cls, root: str, name: str, seconds: float | None = None) -> RunFolder:
        """Create the folder of a new run of the loop `name`. seconds: start since 1970. Raises UserError."""
        # The ids of a loop's runs are in the order of their starts when they are sorted as text.
        moment = int((clock.time() if seconds is None else seconds) * 0x10000)
        parent = os.path.join(root, RUNNING)
        for ticks in range(moment, moment + 1000):
            started = clock.strftime("%Y%m%d-%H%M%S", clock.gmtime(ticks >> 16))
            path = os.path.join(parent, f"{slug(name)}-{started}-{ticks & 0xFFFF:04x}")
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
        """Return the run in a folder that may have been copied and renamed. Raises UserError."""
        run = cls(root, path)
        if not files.exists(run.journal):
            run.id = str(start_of(journal_in(path)).get("run", run.id))
        return run

    @property
    def name(self) -> str:
        """Prefix of the run's files: the name of the loop, converted by `slug`."""
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
        """Create the journal; it must not exist. Raises JournalError."""
        return Journal.create(self.journal, now)

    def append_journal(self, now: Callable[[], str], lines: int) -> Journal:
        """Open the existing journal with `lines` lines for appending. Raises JournalError."""
        return Journal.append(self.journal, now, lines)

    def check_room(self) -> None:
        """Raise JournalError if the disk has too little free space for resuming the run."""
        check_room(self.path)

    def set_aside(self, offset: int) -> str | None:
        """Truncate the journal at `offset`; return the path of the saved rest or None.

        Raises JournalError.
        """
        return set_aside(self.journal, offset)

    def last_event(self) -> Event | None:
        """Return the last event of the journal; None if it is unreadable or damaged."""
        from .reader import last_event  # imported here, because a new run does not read a journal

        return last_event(self.journal)

    def has_line_end(self, offset: int, crc: str) -> bool:
        """Whether a line of the journal with this checksum ends at `offset`."""
        try:
            with open_regular(self.journal) as file:
                file.seek(max(0, offset - _TAIL))
                return file.read(_TAIL) == b'"%s"}\n' % crc.encode("ascii", "replace")
        except (OSError, ValueError):
            return False

    def saved_ms(self) -> int:
        """Return the last saved active time in milliseconds; 0 if none was saved."""
        return active_time.read(self.path).ms

    # --- documents -----------------------------------------------------------------------------

    def place(self, name: str) -> str:
        """Return the path of a document."""
        return os.path.join(self.path, name)

    def has(self, name: str) -> bool:
        return files.exists(self.place(name))

    def read(self, name: str) -> bytes:
        """Read a document. Raises OSError."""
        return read_regular(self.place(name))

    def write(self, name: str, data: bytes, durable: bool = True) -> None:
        """Replace a document atomically. Raises JournalError."""
        write_file(self.place(name), data, durable, mode=0o600)

    def add_to(self, name: str, data: bytes) -> None:
        """Append to a document; after a crash a part of the data may be there. Raises JournalError."""
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
        """Make the file names of the run and its documents durable. Raises JournalError."""
        try:
            files.sync_names(self.path)
            files.sync_names(os.path.dirname(self.path))
        except OSError as error:
            raise JournalError(f"cannot write {self.path}: {reason(error)}") from None

    def settle(self) -> None:
        """Make the files of a previous process durable; it may have died before. Raises JournalError."""
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

    # --- start, end and lock file ---------------------------------------------------------------

    def start(self) -> dict[str, Any]:
        """Return the `run_start` of the journal; {} if missing or damaged."""
        return start_of(self.journal)

    def end(self) -> dict[str, Any] | None:
        """Return the `run_end` of the journal; None for an unfinished run."""
        event = self.last_event()
        return event.wire if isinstance(event, RunEnd) else None

    def is_scripted(self) -> bool:
        """Whether the effects of the run were scripted."""
        return isinstance(self.start().get("script"), str)

    def is_unrecorded(self) -> bool:
        """Whether a start crashed before the run was on record; then nothing was performed."""
        if files.exists(self.state):
            return False
        try:
            with open_regular(self.journal) as file:
                return not file.readline(_MAX_START_BYTES).endswith(b"\n")
        except FileNotFoundError:
            return True
        except OSError:
            return False  # the journal cannot be read now, so its contents are unknown

    def about(self) -> dict[str, Any]:
        """Return fields of the `run_start` (program, path, script …) and of the lock file (pid, scope …)."""
        start = self.start()
        names = ("program", "path", "script")
        from_start: dict[str, Any] = {name: start[name] for name in names if isinstance(start.get(name), str)}
        more = {"started_at": begun_at(start), "forked_from": forked_from(start)}
        from_start |= {name: value for name, value in more.items() if value is not None}
        return {**self._read_lock(), **from_start}

    def _read_lock(self) -> dict[str, Any]:
        """Return the valid fields of the lock file; {} if it is missing or damaged."""
        data = None
        for _ in range(_LOCK_READ_ATTEMPTS):
            try:
                with open_regular(self.lock) as file:
                    text = file.read(1 << 20)
                data = light_json.loads(text) if text else None
                break
            except OSError as error:
                refuse_transient(error, self.lock)
                break
            except (ValueError, RecursionError):
                # The holder of the lock, or the keeper that takes it over, may be writing the file.
                clock.sleep(_RETRY_S)
        if not isinstance(data, dict):
            return {}
        # A lock file is untrusted input: fields of other types are ignored.
        fields = {name: data[name] for name, kind in _LOCK_FIELDS.items() if type(data.get(name)) is kind}
        for name in ("scope", "waits_for"):
            if name in fields:
                fields[name] = [item for item in fields[name] if isinstance(item, str)]
        return fields

    def discard(self) -> None:
        """Remove the folder of a run that could not start, as far as possible."""
        # The journal is removed first: a folder with a journal and without a program would be a damaged run.
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
    """Return the path of the journal in a folder. Raises UserError."""
    try:
        names = [name for name in files.listdir(path) if name.endswith(JOURNAL_SUFFIX)]
    except OSError:
        names = []
    if len(names) != 1:
        count = "no" if not names else "more than one"
        raise UserError("not-a-run", f"`{path}` has {count} journal (`*{JOURNAL_SUFFIX}`)")
    return os.path.join(path, names[0])


def start_of(journal: str) -> dict[str, Any]:
    """Return the `run_start` of a journal; {} if missing or damaged."""
    try:
        with open_regular(journal) as file:
            event = unseal(file.readline(_MAX_START_BYTES)[:-1])
    except OSError:
        return {}
    return event if event is not None and event[KIND] == RunStart.name else {}


def begun_at(start: dict[str, Any]) -> str | None:
    """Return the start of a run from its `run_start`; for a fork, the time of the fork."""
    return RunStart.of(start).started_at


def forked_from(start: dict[str, Any]) -> dict[str, Any] | None:
    """Return the parent `run` of a fork and the effect `at` which they diverge; None if it is not a fork."""
    return RunStart.of(start).parent
