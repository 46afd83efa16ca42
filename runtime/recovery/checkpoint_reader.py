"""Reading the checkpoints of a run that is resumed.

Owns which of them are valid: one that is damaged, empty, of another run or of another journal is ignored.
"""

from __future__ import annotations

import zlib

from ..host.errors import reason
from ..journal import journal as journals
from ..journal.journal import unseal
from ..journal.reader import LINE_LIMIT
from ..journal.run_folder import RunFolder
from ..journal.run_history import Checkpoint
from ..runs.checkpoints import COUNT, FORMAT, file_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def load(run: RunFolder) -> tuple[list[Checkpoint], list[str]]:
    """The valid checkpoints of a run, newest first; and for each other one why it is invalid."""
    found: list[Checkpoint] = []
    notices: list[str] = []
    for turn in range(COUNT):
        path = run.place(file_name(turn))
        try:
            data = run.read(file_name(turn))
        except FileNotFoundError:
            continue
        except OSError as error:
            notices.append(f"{path} cannot be read: {reason(error)}")
            continue
        checkpoint = _read(data, run, turn)
        if isinstance(checkpoint, Checkpoint):
            found.append(checkpoint)
        else:
            notices.append(f"{path} {checkpoint}")
    found.sort(key=lambda checkpoint: checkpoint.offset, reverse=True)
    return found, notices


def unpacked(run: RunFolder, value: Any) -> Any:
    """A fact of a checkpoint with its blobs resolved. Raises BlobError."""
    return journals.unpack(value, run.blobs.fetch)


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
