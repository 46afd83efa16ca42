"""Coming back to where a run was cut off: its program runs again over its recorded results.

Owns what a journal means for that: which effects have their result, which had started, what damage
costs. The world is not touched here. `launch` decides what becomes of an effect whose outcome is
unknown; the driver goes on from there.
"""

from __future__ import annotations

import time
import zlib

from ..vm.faults import Fault
from ..vm.machine import Done, Effect, OutOfFuel
from . import journal
from .errors import EXIT_FAILURE, UserError
from .events import OWN
from .journal import BlobError, Blobs, Damage
from .progress import QUANTUM, Progress, event_fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..vm.machine import Machine
    from .world import WorldLike

    # An effect's kind, and a CRC-32 of its command.
    Mark = tuple[str, int]

_STARTS = ("action_start", "effect_start")
_ENDS = ("action_complete", "effect_complete")


class Recorded:
    """What is on record of one effect; values as they stand in the journal (`journal.unpack`)."""

    __slots__ = ("args", "end_offset", "finished", "kind", "processes", "result", "started")

    def __init__(self) -> None:
        self.kind: str | None = None
        self.args: Any = None
        self.started = False
        self.finished = False
        self.result: Any = None
        self.end_offset = 0
        self.processes: list[tuple[int, str]] = []


class History:
    """A journal taken apart.

    notes[n]: what the program noted before effect n, each with its offset. unsure: those n whose
    notes stand next to damage, so that some may be missing. active_ms: how long the run was active.
    end: its `run_end`. doubtful: what an earlier resume could not know of; see `Position`.
    """

    def __init__(self) -> None:
        self.effects: dict[int, Recorded] = {}
        self.notes: dict[int, list[tuple[dict[str, Any], int]]] = {}
        self.unsure: set[int] = set()
        self.damage: list[Damage] = []
        self.end: dict[str, Any] | None = None
        self.doubtful: dict[int, Mark | None] = {}
        self.begun: str | None = None
        self.active_ms = 0
        self.last = 0

    @classmethod
    def load(cls, path: str) -> History:
        """What the journal at `path` holds. Raises journal.JournalError."""
        history = cls()
        group = 1
        hole_since: int | None = None
        since: Any = None
        until: Any = None
        for record in journal.read(path):
            event = record.event
            if event is None:
                if record.damage is not None:
                    history.damage.append(record.damage)
                history.unsure.add(group)
                hole_since = group if hole_since is None else hole_since
                continue
            kind = event["event"]
            if since is None or kind == "run_resume":
                history.active_ms += _milliseconds(since, until)
                since = event.get("ts")
            until = event.get("ts")
            seq = event.get("seq")
            if kind in OWN and isinstance(seq, int):
                effect = history.effects.setdefault(seq, Recorded())
                history.last = max(history.last, seq)
                group = seq + 1
                if hole_since is not None:
                    history.unsure.update(range(hole_since, group + 1))
                    hole_since = None
                _take(effect, kind, event, record.offset)
            elif kind == "run_start":
                history.begun = history.begun or event.get("ts")
            elif kind == "run_end":
                history.end = event
            elif kind == "run_resume":
                history.doubtful.update(_read_marks(event.get("doubtful")))
            elif kind not in OWN:
                history.notes.setdefault(group, []).append((event, record.offset))
        history.active_ms += _milliseconds(since, until)
        return history


def _take(effect: Recorded, kind: str, event: dict[str, Any], offset: int) -> None:
    if kind in _STARTS:
        effect.started = True
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


def _milliseconds(since: Any, until: Any) -> int:
    """The time between two time stamps of a journal; 0 where one is none or the clock went back."""
    try:
        return max(0, int((_seconds(until) - _seconds(since)) * 1000))
    except (ValueError, OverflowError):
        return 0


def _seconds(ts: Any) -> float:
    """Seconds since 1970. ValueError for what is no time stamp."""
    import calendar

    whole, _, milli = str(ts).rstrip("Z").partition(".")
    return calendar.timegm(time.strptime(whole, "%Y-%m-%dT%H:%M:%S")) + int(milli or 0) / 1000


class Position:
    """Where a replay arrived.

    outcome: what the machine said last; where it is an effect, that effect has no result yet, and
    `recorded` is what is on record of it. notes: those not in the journal yet. cut: the journal's
    length to keep, None to keep it all. lost: what damage cost, a sentence each. doubtful: later
    effects that may have happened, by what is cut off: what is on record of them, None for nothing.
    """

    __slots__ = ("_marks", "cut", "doubtful", "lost", "notes", "outcome", "progress", "recorded")

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.outcome: Effect | Done | Fault | OutOfFuel = OutOfFuel()
        self.recorded: Recorded | None = None
        self.notes: list[tuple[str, dict[str, Any]]] = []
        self.cut: int | None = None
        self.lost: list[str] = []
        self.doubtful: dict[int, Recorded | None] = {}
        self._marks: dict[int, Mark | None] = {}

    def doubt(self, seq: int, recorded: Recorded | None, mark: Mark | None = None) -> None:
        """Effect `seq` may have happened; `mark` tells which one, if it is known at all."""
        if recorded is not None and recorded.started:
            mark = _mark(recorded.kind, recorded.args)
        self.doubtful[seq] = recorded
        self._marks[seq] = mark

    def is_doubtful(self, effect: Effect) -> bool:
        """Whether this effect may have happened already, in what was cut off the journal."""
        if effect.seq not in self._marks:
            return False
        mark = self._marks[effect.seq]
        return mark is None or mark == _mark(effect.kind, journal.pack(effect.args, _digest_only))

    def settled(self, seq: int) -> None:
        """It has been decided what becomes of effect `seq`."""
        self.doubtful.pop(seq, None)
        self._marks.pop(seq, None)

    def marks(self) -> list[list[Any]]:
        """`doubtful` for the journal: what is cut off it is not there at the next resume."""
        return [[seq, *(mark or ())] for seq, mark in sorted(self._marks.items())]


def _mark(kind: str | None, args: Any) -> Mark:
    """What tells an effect from another with its number: its kind and its command."""
    command = args.get("command", args) if isinstance(args, dict) else args
    return str(kind), zlib.crc32(_sorted_json(command))


def _read_marks(rows: Any) -> dict[int, Mark | None]:
    """The marks of an event; what is not as `Position.marks` made it is left out."""
    found: dict[int, Mark | None] = {}
    for row in rows if isinstance(rows, list) else ():
        match row:
            case [int(seq)]:
                found[seq] = None
            case [int(seq), str(kind), int(crc)]:
                found[seq] = (kind, crc)
    return found


class _Replay:
    """One replay; `seq` is the effect that the program comes to next.

    pending: the notes since the last result, each with its offset in the journal, None where it is
    not there.
    """

    def __init__(self, machine: Machine, history: History, blobs: Blobs, world: WorldLike) -> None:
        self.machine = machine
        self.history = history
        self.blobs = blobs
        self.world = world
        self.seq = 1
        self.taken = 0
        self.pending: list[tuple[str, dict[str, Any], int | None]] = []
        self.position = Position(Progress())

    def run(self) -> Position:
        machine, position = self.machine, self.position
        answer: Any = None
        while True:
            machine.refuel(QUANTUM)
            outcome = machine.resume(answer)
            answer = None
            for kind, fields in machine.take_notes():
                self._note(kind, fields)
            if isinstance(outcome, Effect):
                self._check_effect(outcome)
                answer = self._answer(outcome)
                if answer is None:
                    break
                self.world.observe(outcome, answer, position.progress.state)
                self.seq += 1
                self.taken = 0
                self.pending.clear()
            elif not isinstance(outcome, OutOfFuel) or self._is_past_record():
                break
        position.outcome = outcome
        self._account_for_damage()
        self._doubt_what_is_cut()
        cut = position.cut
        position.notes = [
            (kind, fields)
            for kind, fields, offset in self.pending
            if offset is None or (cut is not None and offset >= cut)
        ]
        return position

    def _is_past_record(self) -> bool:
        """Whether the program went beyond its journal without asking for an effect."""
        return self.seq > self.history.last and any(offset is None for _, _, offset in self.pending)

    def _note(self, kind: str, fields: dict[str, Any]) -> None:
        self.position.progress.note(kind, fields)
        recorded = self.history.notes.get(self.seq, [])
        is_unsure = self.seq in self.history.unsure
        # Next to damage some notes may be missing: look for this one further on.
        for index in range(self.taken, len(recorded) if is_unsure else min(self.taken + 1, len(recorded))):
            event, offset = recorded[index]
            if _same_note(kind, fields, event):
                self.taken = index + 1
                self.pending.append((kind, fields, offset))
                return
        if not is_unsure:
            if self.taken < len(recorded):
                was = recorded[self.taken][0].get("event")
                raise _diverged(
                    f"where it noted `{was}` it now notes `{kind}`, or with other fields", self.seq
                )
            if self.seq <= self.history.last:
                raise _diverged(f"it notes `{kind}`, which it did not before", self.seq)
        self.pending.append((kind, fields, None))

    def _check_effect(self, effect: Effect) -> None:
        recorded = self.history.effects.get(effect.seq)
        if recorded is None or not recorded.started:
            return
        args = journal.pack(effect.args, _digest_only)
        if recorded.kind != effect.kind or _sorted_json(recorded.args) != _sorted_json(args):
            was = f"`{recorded.kind}` {_command(recorded.args)}".rstrip()
            now = f"`{effect.kind}` {_command(args)}".rstrip()
            raise _diverged(f"it asked for {was} and now asks for {now}", effect.seq)

    def _answer(self, effect: Effect) -> dict[str, Any] | None:
        """The result on record, None where there is none; then the run goes on from here."""
        recorded = self.history.effects.get(effect.seq)
        position = self.position
        if recorded is not None and recorded.finished:
            try:
                return journal.unpack(recorded.result, self.blobs.fetch)  # type: ignore[no-any-return]
            except BlobError as error:
                position.lost.append(f"{error}: the result of effect {effect.seq} is lost")
                position.cut = recorded.end_offset
        position.recorded = recorded
        return None

    def _account_for_damage(self) -> None:
        """Say what each stretch of damage costs, and where the journal must be cut to go on."""
        position, history = self.position, self.history
        before = history.effects.get(self.seq - 1)
        floor = before.end_offset if before is not None else 0
        for damage in history.damage:
            if damage.offset < floor:
                position.lost.append(f"{damage}; no result of an effect is lost")
            elif position.cut is None or damage.offset < position.cut:
                position.cut = damage.offset
                if damage.at_end and damage.torn and damage.first_line == damage.last_line:
                    position.lost.append(f"{damage}; it is dropped")
                else:
                    position.lost.append(f"{damage}; what followed the result before it is not known")
                    self._suspect()
                break
        later = [seq for seq, effect in history.effects.items() if seq > self.seq and effect.finished]
        if later and position.cut is not None:
            span = f"{min(later)} to {max(later)}" if len(later) > 1 else f"{later[0]}"
            position.lost.append(
                f"the result{'s' if len(later) > 1 else ''} of effect{'s' if len(later) > 1 else ''} {span} "
                f"rest{'s' if len(later) == 1 else ''} on effect {self.seq} and cannot be used without it"
            )

    def _doubt_what_is_cut(self) -> None:
        """Effects that had started, or may have, in a part of the journal that is not used any more."""
        position, history = self.position, self.history
        last = history.last
        for damage in history.damage:
            # Each effect in it that was finished took two lines.
            if damage.at_end and not (damage.torn and damage.first_line == damage.last_line):
                last += (damage.last_line - damage.first_line + 2) // 2
        if position.cut is not None:
            for seq in range(self.seq + 1, last + 1):
                position.doubt(seq, history.effects.get(seq))
        for seq, mark in history.doubtful.items():
            if seq >= self.seq and seq not in history.effects and seq not in position.doubtful:
                position.doubt(seq, None, mark)

    def _suspect(self) -> None:
        """The record of the effect may be lost: it may have started."""
        if isinstance(self.position.outcome, Effect):
            if self.position.recorded is None:
                self.position.recorded = Recorded()
            self.position.recorded.started = True


def replay(machine: Machine, history: History, blobs: Blobs, world: WorldLike) -> Position:
    """Run a fresh machine over what is on record, to where the record ends.

    Raises UserError where the program does something else than it did.
    """
    return _Replay(machine, history, blobs, world).run()


def _same_note(kind: str, fields: dict[str, Any], event: dict[str, Any]) -> bool:
    if event.get("event") != kind:
        return False
    then = {name: value for name, value in event.items() if name not in journal.RESERVED}
    now = {
        name: journal.pack(value, _digest_only)
        for name, value in event_fields(kind, fields).items()
        if name not in journal.RESERVED
    }
    return journal.to_json(then) == journal.to_json(now)


def _digest_only(text: str) -> dict[str, Any]:
    from hashlib import sha256

    data = text.encode("utf-8", "surrogatepass")
    return {"$blob": sha256(data).hexdigest(), "size": len(data)}


def _sorted_json(args: Any) -> bytes:
    return journal.to_json(dict(sorted(args.items())) if isinstance(args, dict) else args)


def _command(args: Any) -> str:
    command = args.get("command") if isinstance(args, dict) else None
    return repr(command[:80]) if isinstance(command, str) else ""


def _diverged(what: str, seq: int) -> UserError:
    return UserError(
        "not-repeatable",
        f"the run cannot be resumed: run again over its record the program differs; {what} (effect {seq})",
        "another version of llc may have begun it; its journal is left as it is",
        EXIT_FAILURE,
    )
