"""Reader of a run's checkpoints, for resuming it and for showing it.

Owns which of them are valid: one that is damaged, empty, of another run or of another journal is ignored.
"""

from __future__ import annotations

import zlib
from binascii import a2b_base64

from ...ir import light_json
from ...ir.light_records import LightRecord
from ..host.errors import reason
from ..journal import journal as journals
from ..journal.journal import unseal
from ..journal.reader import LINE_LIMIT, ReadError, whole_lines
from ..journal.run_folder import RunFolder
from ..journal.run_history import Checkpoint, RunHistory
from .checkpoints import COUNT, FORMAT, HISTORY, POINT, WAYPOINTS, file_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


# Bytes that the line of a result has at least.
_LEAST = 40
_MALFORMED = KeyError, TypeError, ValueError, AttributeError, OverflowError


def load(run: RunFolder) -> tuple[list[Checkpoint], list[str]]:
    """The valid checkpoints of a run, newest first; and for each other one why it is invalid."""
    found: list[Checkpoint] = []
    notices: list[str] = []
    for turn in range(COUNT):
        checkpoint = _load(run, file_name(turn), turn)
        if isinstance(checkpoint, Checkpoint):
            found.append(checkpoint)
        elif checkpoint is not None:
            notices.append(f"{run.place(file_name(turn))} {checkpoint}")
    found.sort(key=lambda checkpoint: checkpoint.offset, reverse=True)
    return found, notices


def history(run: RunFolder) -> RunHistory:
    """The history of a run up to the newest checkpoint that has it; else one without events."""
    names = {-1: HISTORY} | {turn: file_name(turn) for turn in range(COUNT)}
    found = (_load(run, name, turn) for turn, name in names.items())
    whole = [checkpoint for checkpoint in found if isinstance(checkpoint, Checkpoint) and checkpoint.is_whole]
    return RunHistory(max(whole, key=lambda checkpoint: checkpoint.offset, default=None))


class Waypoint(LightRecord):
    """A point of a run from which its program can be executed again.

    offset, lines: bytes and lines of the journal before it. results: how many the program had got. facts: the
    name of its image, its progress and its snapshot.
    """

    offset: int
    lines: int
    results: int
    facts: dict[str, Any]

    @property
    def place(self) -> tuple[int, int, int]:
        """Bytes, lines and results of the journal before it."""
        return self.offset, self.lines, self.results


def waypoint_before(run: RunFolder, seq: int) -> Waypoint | None:
    """The last waypoint of a run before its effect `seq` was asked for; None without a valid one."""
    found: list[tuple[int, int, str, int, str]] = []
    try:
        for line in whole_lines(run.place(WAYPOINTS)):
            match unseal(line[:-1]):
                case {
                    "event": "waypoint",
                    "format": int(form),
                    "run": str(name),
                    "journal": {"offset": int(offset), "lines": int(lines), "crc": str(crc)},
                    "results": int(results),
                    "seq": int(reached),
                    "facts": str(facts),
                } if reached < seq and form == FORMAT and name == run.id and 0 < results <= offset // _LEAST:
                    found.append((offset, lines, crc, results, facts))
    except ReadError:
        return None
    # A journal that was cut may have been continued in another way.
    for offset, lines, crc, results, packed in sorted(found, reverse=True):
        if run.has_line_end(offset, crc):
            try:
                data = zlib.decompressobj().decompress(a2b_base64(packed), LINE_LIMIT)
                read = light_json.loads(data)
                return Waypoint(offset, lines, results, {name: read[name] for name in POINT})
            except (zlib.error, *_MALFORMED):
                continue
    return None


def unpacked(run: RunFolder, value: Any) -> Any:
    """A fact of a checkpoint with its blobs resolved. Raises BlobError."""
    return journals.unpack(value, run.blobs.fetch)


def _load(run: RunFolder, name: str, turn: int) -> Checkpoint | str | None:
    """The checkpoint in a file, or why it is invalid; None without the file."""
    try:
        data = run.read(name)
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"cannot be read: {reason(error)}"
    checkpoint = _read(data, run, turn)
    if isinstance(checkpoint, Checkpoint) and not _is_readable(checkpoint):
        # Another version has other facts in a history: a resume does not need it.
        checkpoint.facts["history"] = None
        return checkpoint if _is_readable(checkpoint) else "is malformed"
    return checkpoint


def _is_readable(checkpoint: Checkpoint) -> bool:
    try:
        RunHistory(checkpoint)
    except _MALFORMED:
        return False
    return True


def _read(data: bytes, run: RunFolder, turn: int) -> Checkpoint | str:
    """The checkpoint in a file's data, or why it is invalid."""
    if not data:
        return "is empty"
    try:
        line = zlib.decompressobj().decompress(data, LINE_LIMIT)
    except zlib.error:
        return "is damaged"
    event = unseal(line[:-1]) if line.endswith(b"\n") else None
    if event is None:
        return "is damaged"
    if event["event"] != "checkpoint" or event.get("format") != FORMAT:
        return "has a format that this llc does not read"
    if event.get("run") != run.id:
        return "is of another run"
    place = event.get("journal")
    match place:
        case {"offset": int(offset), "lines": int(lines), "crc": str(crc)} if run.has_line_end(offset, crc):
            return Checkpoint(offset, lines, turn, event)
    return "does not fit the journal"
