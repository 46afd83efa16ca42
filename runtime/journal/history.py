"""What a journal holds of a run: its effects and their results in order, its notes, what is damaged.

Owns how events are put together; what follows from them for a run that is to go on is `replay`'s.
"""

from __future__ import annotations

import os.path

from . import active_time, journal
from .active_time import ActiveTime, seconds
from .events import OWN
from .journal import Damage
from .run_folder import begun_at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..runs.checkpoints import Checkpoint

    # An effect's kind, and a CRC-32 of its command.
    Mark = tuple[str, int]

_STARTS = ("action_start", "effect_start")
_ENDS = ("action_complete", "effect_complete")


class Recorded:
    """What is on record of one effect; values as they stand in the journal (`journal.unpack`)."""

    __slots__ = ("args", "end_offset", "finished", "kind", "processes", "result", "start_offset", "started")

    def __init__(self) -> None:
        self.kind: str | None = None
        self.args: Any = None
        self.started = False
        self.finished = False
        self.result: Any = None
        self.start_offset = 0
        self.end_offset = 0
        self.processes: list[tuple[int, str]] = []


class History:
    """A journal taken apart, from its beginning or from a checkpoint on.

    order: the effects that finished, in the order of their results. notes[n]: what the program noted
    when n of them had finished, each with its offset. unsure: those n whose notes stand next to
    damage, so that some may be missing. active_ms: how long the run was active. end: its `run_end`.
    doubtful: what an earlier resume could not know of; see `Position`. last: the last effect that
    started. lines: how many the journal has. changes: how many effects had finished when the run went on
    with another program, the file of that, and where that stands.
    """

    def __init__(self, checkpoint: Checkpoint | None = None) -> None:
        self.effects: dict[int, Recorded] = {}
        self.order: list[int] = []
        self.notes: dict[int, list[tuple[dict[str, Any], int]]] = {}
        self.unsure: set[int] = set()
        self.damage: list[Damage] = []
        self.end: dict[str, Any] | None = None
        self.doubtful: dict[int, Mark | None] = {}
        self.begun: str | None = None
        self.active_ms = 0
        self.last = 0
        self.lines = 0
        self.changes: list[tuple[int, str, int]] = []
        self.checkpoint = checkpoint
        if checkpoint is not None:
            facts = checkpoint.facts
            self.begun = facts["begun"]
            self.last = facts["last"]
            self.lines = checkpoint.lines
            self.doubtful = read_marks(facts["doubtful"])
            for seq, processes in facts["open"]:
                effect = self.effects[seq] = Recorded()
                effect.started = True
                effect.processes = [(pid, begun) for pid, begun in processes]

    @classmethod
    def load(cls, path: str, checkpoint: Checkpoint | None = None) -> History:
        """What the journal at `path` holds. Raises journal.JournalError."""
        history = cls(checkpoint)
        clock = ActiveTime()
        offset = 0
        if checkpoint is not None:
            offset = checkpoint.offset
            clock.known(checkpoint.facts["active_ms"], seconds(checkpoint.facts["ts"]))
        for record in journal.read(path, offset, history.lines):
            history.lines = record.line
            event = record.event
            if event is None:
                if record.damage is not None:
                    history.damage.append(record.damage)
                    history.lines = record.damage.last_line
                history.unsure.add(len(history.order))
                continue
            history._add(event, record.offset)
            clock.add(event)
        history.active_ms = max(clock.total(), active_time.told(os.path.dirname(path)))
        return history

    def _add(self, event: dict[str, Any], offset: int) -> None:
        kind = event["event"]
        seq = event.get("seq")
        if kind in OWN and isinstance(seq, int):
            effect = self.effects.setdefault(seq, Recorded())
            self.last = max(self.last, seq)
            had_finished = effect.finished
            _take(effect, kind, event, offset)
            if effect.finished and not had_finished:
                self.order.append(seq)
        elif kind == "run_start":
            self.begun = self.begun or begun_at(event)
        elif kind == "run_end":
            self.end = event
        elif kind == "run_resume":
            self.doubtful.update(read_marks(event.get("doubtful")))
        elif kind == "program_changed":
            self.changes.append((len(self.order), str(event.get("image")), offset))
        elif kind not in OWN:
            self.notes.setdefault(len(self.order), []).append((event, offset))


def _take(effect: Recorded, kind: str, event: dict[str, Any], offset: int) -> None:
    if kind in _STARTS:
        effect.started = True
        effect.start_offset = offset
        effect.processes = []
        args = event.get("args")
        effect.kind = event.get("kind")
        effect.args = {**(args if isinstance(args, dict) else {})}
        if "action" in event:
            effect.args.setdefault("command", event["action"])
    elif kind == "process":
        pid, begun = event.get("pid"), event.get("start_time")
        if isinstance(pid, int) and isinstance(begun, str):
            effect.processes.append((pid, begun))
    elif kind in _ENDS and isinstance(event.get("result"), dict):
        effect.finished = True
        effect.result = event["result"]
        effect.end_offset = offset


def read_marks(rows: Any) -> dict[int, Mark | None]:
    """The marks of an event; what is not as `Position.marks` made it is left out."""
    found: dict[int, Mark | None] = {}
    for row in rows if isinstance(rows, list) else ():
        match row:
            case [int(seq)]:
                found[seq] = None
            case [int(seq), str(kind), int(crc)]:
                found[seq] = (kind, crc)
    return found
