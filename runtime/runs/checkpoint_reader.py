"""Checkpoint reader, for resuming and displaying a run.

Owns the validation: a checkpoint that is damaged, empty, or belongs to another run or journal is ignored.
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


# Minimum size of the journal line of a result, in bytes.
_MIN_RESULT_BYTES = 40
_MALFORMED = KeyError, TypeError, ValueError, AttributeError, OverflowError


def load(run: RunFolder) -> tuple[list[Checkpoint], list[str]]:
    """Load the valid checkpoints of a run, newest first, and the reasons why others are invalid."""
    checkpoints: list[Checkpoint] = []
    notices: list[str] = []
    for turn in range(COUNT):
        checkpoint = _load(run, file_name(turn), turn)
        if isinstance(checkpoint, Checkpoint):
            checkpoints.append(checkpoint)
        elif checkpoint is not None:
            notices.append(f"{run.place(file_name(turn))} {checkpoint}")
    checkpoints.sort(key=lambda checkpoint: checkpoint.offset, reverse=True)
    return checkpoints, notices


def history(run: RunFolder) -> RunHistory:
    """Load the history from the newest checkpoint that contains one; otherwise return an empty history."""
    names = {-1: HISTORY} | {turn: file_name(turn) for turn in range(COUNT)}
    loaded = (_load(run, name, turn) for turn, name in names.items())
    usable = [entry for entry in loaded if isinstance(entry, Checkpoint) and entry.is_whole]
    return RunHistory(max(usable, key=lambda checkpoint: checkpoint.offset, default=None))


class Waypoint(LightRecord):
    """Point of a run from which its program can be executed again.

    offset, lines: bytes and lines of the journal before the point. results: number of results that the
    program had received. facts: image name, progress and snapshot.
    """

    offset: int
    lines: int
    results: int
    facts: dict[str, Any]

    @property
    def place(self) -> tuple[int, int, int]:
        """Bytes, lines and results of the journal before the waypoint."""
        return self.offset, self.lines, self.results


def waypoint_before(run: RunFolder, seq: int) -> Waypoint | None:
    """Return the last valid waypoint before the request of effect `seq`; None if there is none."""
    candidates: list[tuple[int, int, str, int, str]] = []
    try:
        for line in whole_lines(run.place(WAYPOINTS)):
            match unseal(line[:-1]):
                case {
                    "event": "waypoint",
                    "format": int(format),
                    "run": str(name),
                    "journal": {"offset": int(offset), "lines": int(lines), "crc": str(crc)},
                    "results": int(results),
                    "seq": int(reached),
                    "facts": str(facts),
                } if (
                    reached < seq and format == FORMAT and name == run.id
                ) and 0 < results <= offset // _MIN_RESULT_BYTES:
                    candidates.append((offset, lines, crc, results, facts))
    except ReadError:
        return None
    # The position is checked, because a journal that was cut may have continued differently.
    for offset, lines, crc, results, packed in sorted(candidates, reverse=True):
        if run.has_line_end(offset, crc):
            try:
                data = zlib.decompressobj().decompress(a2b_base64(packed), LINE_LIMIT)
                point = light_json.loads(data)
                return Waypoint(offset, lines, results, {name: point[name] for name in POINT})
            except (zlib.error, *_MALFORMED):
                continue
    return None


def unpacked(run: RunFolder, value: Any) -> Any:
    """Return a value of a checkpoint with its blobs resolved. Raises BlobError."""
    return journals.unpack(value, run.blobs.fetch)


def _load(run: RunFolder, name: str, turn: int) -> Checkpoint | str | None:
    """Load a checkpoint from a file. Returns the reason if it is invalid, None if the file does not exist."""
    try:
        data = run.read(name)
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"cannot be read: {reason(error)}"
    checkpoint = _read(data, run, turn)
    if isinstance(checkpoint, Checkpoint) and not _is_readable(checkpoint):
        # Another version wrote a history in another format. A resume does not need the history.
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
    """Decode a checkpoint, or return the reason why it is invalid."""
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
        return "belongs to another run"
    match event.get("journal"):
        case {"offset": int(offset), "lines": int(lines), "crc": str(crc)} if run.has_line_end(offset, crc):
            return Checkpoint(offset, lines, turn, event)
    return "does not match the journal"
