"""Replay of a journal: run the program again with its recorded results, up to the end of the record.

Owns which recorded results the program gets again, and what is lost because of damage. Performs no effects.
`in_doubt` decides on effects whose outcome is unknown; then the driver continues the run.

If several effects wait at the same time, the program got their results in the order of the journal. This
order alone determines how the program continued (`spec/machine.md`, Strands).
"""

from __future__ import annotations

import zlib

from ...ir.light_records import LightRecord, field
from ...vm.code.image import Image
from ...vm.machine.machine import Done, Effect, Machine, OutOfFuel
from ...vm.machine.migration import MigrationError, migrate
from ...vm.values.faults import Fault
from ..host.effect_context import WorldLike
from ..host.errors import Failure, UserError
from ..journal.codec import RESERVED, digest_only, is_same, pack, to_json, unpack
from ..journal.events import EffectStart, Mark, NoteEvent
from ..journal.journal import BlobError, Blobs
from ..journal.position import QUANTUM, Progress, Where, event_fields
from ..journal.run_history import EffectHistory, RunHistory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Stop = Effect | Done | Fault | OutOfFuel


class Position(LightRecord):
    """The end of a replay.

    Args:
        machine: the machine, with the run's current program.
        outcome: the last outcome of the machine.
        open: the waiting effects, none of which has a result, with their record; None if not recorded.
        places: the position of the program when it requested each waiting effect.
        notes: notes that are not in the journal yet.
        cut: the length to which the journal must be cut, in bytes; None to keep all of it.
        lost: what is lost because of damage, one sentence each.
        doubtful: later effects that may have happened in the part that is cut, with their record; None if
            not recorded.
    """

    machine: Machine
    progress: Progress
    outcome: Stop = field(factory=OutOfFuel)
    open: dict[int, EffectHistory | None] = field(factory=dict)
    places: dict[int, Where] = field(factory=dict)
    notes: list[tuple[str, dict[str, Any]]] = field(factory=list)
    cut: int | None = None
    lost: list[str] = field(factory=list)
    doubtful: dict[int, EffectHistory | None] = field(factory=dict)
    _marks: dict[int, Mark | None] = field(factory=dict)

    def doubt(self, seq: int, recorded: EffectHistory | None, mark: Mark | None = None) -> None:
        """Record that effect `seq` may have happened; `mark` identifies its content, if known."""
        if recorded is not None and recorded.is_started:
            mark = _mark(recorded.kind, recorded.args)
        self.doubtful[seq] = recorded
        self._marks[seq] = mark

    def is_doubtful(self, effect: Effect) -> bool:
        """Whether this effect may have happened in the part that is cut from the journal."""
        if effect.seq not in self._marks:
            return False
        mark = self._marks[effect.seq]
        return mark is None or mark == _mark(effect.kind, pack(effect.args, digest_only))

    def settle(self, seq: int) -> None:
        """Remove effect `seq` from the doubtful ones: there is a decision on it."""
        self.doubtful.pop(seq, None)
        self._marks.pop(seq, None)

    def marks(self) -> list[list[Any]]:
        """`doubtful` as recorded for the next resume, which cannot read the part that is cut."""
        return [[seq, *(mark or ())] for seq, mark in sorted(self._marks.items())]


def _mark(kind: str | None, args: Any) -> Mark:
    """The kind and a checksum of the command: they distinguish effects that have the same number."""
    command = args.get("command", args) if isinstance(args, dict) else args
    return str(kind), zlib.crc32(to_json(_sorted(command)))


class _Replayer:
    """One replay.

    done: how many results the program got so far. floor: the offset of the last of them in the journal.
    matched: how many of the notes recorded since then the program made. pending: the notes that it made since
    then, each with its offset in the journal; None for a note that is not there.
    """

    def __init__(
        self,
        machine: Machine,
        history: RunHistory,
        blobs: Blobs,
        world: WorldLike,
        progress: Progress,
        programs: Callable[[str], Image] | None,
    ) -> None:
        self.machine = machine
        self.history = history
        self.blobs = blobs
        self.world = world
        self.programs = programs
        self.changes = list(history.changes)
        self.done = 0
        self.recorded_notes = history.notes_after(0)
        self.matched = 0
        self.floor = 0 if history.checkpoint is None else history.checkpoint.offset
        self.pending: list[tuple[str, dict[str, Any], int | None]] = []
        self.position = Position(machine, progress)
        if history.checkpoint is not None:
            self.position.places = {
                seq: (state, lap) for seq, state, lap in history.checkpoint.facts["places"]
            }

    def run(self) -> Position:
        position = self.position
        for effect in self.machine.waiting.values():
            self._adopt(effect)
        outcome: Any = self.machine.effect or OutOfFuel()
        while True:
            if self.machine.is_ready:
                outcome = self._run_on()
            if self.machine.ended or self.machine.is_ready:
                break
            if self.changes and self.changes[0][0] == self.done:
                change = self.changes[0][1]
                if any(self.floor <= damage.offset < change.offset for damage in self.history.damage):
                    break
                del self.changes[0]
                self._change_program(change.image, change.offset)
                continue
            answer = self._next()
            if answer is None:
                break
            outcome = self._give(*answer)
        machine = position.machine = self.machine
        waiting = machine.waiting
        position.outcome = outcome if machine.ended or machine.is_ready else machine.effect or outcome
        position.open = {seq: self.history.effects.get(seq) for seq in waiting}
        self._account_for_damage()
        self._doubt_what_is_cut()
        cut = position.cut
        position.notes = [
            (kind, fields)
            for kind, fields, offset in self.pending
            if offset is None or (cut is not None and offset >= cut)
        ]
        return position

    def _run_on(self) -> Any:
        """Run until every strand waits for a result, or until the program is past its record."""
        machine = self.machine
        while True:
            machine.refuel(QUANTUM)
            outcome = machine.resume()
            self._take(outcome)
            if not machine.is_ready or (isinstance(outcome, OutOfFuel) and self._is_past_record()):
                return outcome

    def _give(self, effect: Effect, answer: dict[str, Any]) -> Any:
        """Give an effect its recorded result."""
        seq = effect.seq
        state, _ = self.position.places.pop(seq, (None, 0))
        self.world.observe(effect, answer, state)
        self.floor = self.history.effects[seq].end_offset
        self.done += 1
        self.recorded_notes = self.history.notes_after(self.done)
        self.matched = 0
        self.pending.clear()
        self.machine.refuel(QUANTUM)
        outcome = self.machine.resume(answer, seq)
        self._take(outcome)
        return outcome

    def _take(self, outcome: Any) -> None:
        for kind, fields in self.machine.take_notes():
            self._note(kind, fields)
        if isinstance(outcome, Effect):
            self.position.places[outcome.seq] = self.position.progress.place
            self._check_effect(outcome)

    def _adopt(self, effect: Effect) -> None:
        """Complete the record of an effect that waits in the checkpoint and started before it.

        The history begins at the checkpoint, so kind and arguments come from the effect itself.
        """
        recorded = self.history.effects.get(effect.seq)
        if recorded is not None and recorded.start is None:
            args = pack(effect.args, digest_only)
            recorded.start = EffectStart(seq=effect.seq, kind=effect.kind, args=args)

    def _is_past_record(self) -> bool:
        """Whether the program is beyond the end of its journal without having requested an effect."""
        return (
            self.done >= len(self.history.order)
            and self.machine.seq >= self.history.last_seq
            and (
                self.matched >= len(self.recorded_notes)
                or any(offset is None for _, _, offset in self.pending)
            )
        )

    def _note(self, kind: str, fields: dict[str, Any]) -> None:
        self.position.progress.note(kind, fields)
        recorded = self.recorded_notes
        is_unsure = self.done in self.history.unsure
        # Around damage, notes may be missing: search for this note among the following ones too.
        for index in range(
            self.matched, len(recorded) if is_unsure else min(self.matched + 1, len(recorded))
        ):
            event = recorded[index]
            if _is_same_note(kind, fields, event):
                self.matched = index + 1
                self.pending.append((kind, fields, event.offset))
                return
        if not is_unsure:
            if self.matched < len(recorded):
                was = recorded[self.matched].kind_name
                raise self._diverged(
                    f"the record has the note `{was}`, and the program now makes `{kind}`, or other fields"
                )
            if self.machine.seq < self.history.last_seq or self.done < len(self.history.order):
                raise self._diverged(f"the program makes the note `{kind}`, which is not on record")
        self.pending.append((kind, fields, None))

    def _change_program(self, name: str, offset: int) -> None:
        """Continue with the next program of the run."""
        if self.programs is None:
            raise self._diverged("the run continued with another program")
        try:
            self.machine, _ = migrate(self.machine, self.programs(name))
        except MigrationError as error:
            raise self._diverged(f"the program cannot continue with {name}: {error}") from None
        for effect in self.machine.waiting.values():
            recorded = self.history.effects.get(effect.seq)
            if recorded is not None and recorded.start_offset > offset:
                self._check_effect(effect)

    def _check_effect(self, effect: Effect) -> None:
        recorded = self.history.effects.get(effect.seq)
        if recorded is None or not recorded.is_started:
            return
        if self.changes and recorded.start_offset > self.changes[0][1].offset:
            return  # recorded with the arguments of the next program
        args = pack(effect.args, digest_only)
        if recorded.kind != effect.kind or not is_same(_sorted(recorded.args), _sorted(args)):
            unpack(recorded.args, lambda name, size: "")  # raises if the cause is a missing secret
            was = f"`{recorded.kind}` {_command(recorded.args)}".rstrip()
            now = f"`{effect.kind}` {_command(args)}".rstrip()
            raise self._diverged(f"the program requested {was} and now requests {now}", effect.seq)

    def _next(self) -> tuple[Effect, dict[str, Any]] | None:
        """The effect with the next result, and the result; None at the end of the replay."""
        history, waiting = self.history, self.machine.waiting
        if self.done == len(history.order):
            return None
        seq = history.order[self.done]
        recorded = history.effects[seq]
        if any(self.floor <= damage.offset < recorded.end_offset for damage in history.damage):
            # A lost line may be a result of another waiting effect, or of the effect before this one.
            if len(waiting) > 1 or seq not in waiting:
                return None
        elif seq not in waiting:
            raise self._diverged(
                f"the record has a result of effect {seq}, which the program did not request", seq
            )
        try:
            return waiting[seq], unpack(recorded.result, self.blobs.fetch)
        except BlobError as error:
            self.position.lost.append(f"{error}: the result of effect {seq} is lost")
            self.position.cut = recorded.end_offset
            return None

    def _account_for_damage(self) -> None:
        """Describe what each damaged part costs, and find where the journal must be cut."""
        position, history = self.position, self.history
        for damage in history.damage:
            if damage.offset < self.floor:
                position.lost.append(f"{damage}; no result of an effect is lost")
            elif position.cut is None or damage.offset < position.cut:
                position.cut = damage.offset
                if damage.is_torn_line:
                    position.lost.append(f"{damage}; it is dropped")
                else:
                    position.lost.append(f"{damage}; events after the last result before it are unknown")
                    self._suspect()
                break
        waits = min(position.open, default=self.machine.seq + 1)
        later = [seq for seq in history.order[self.done :] if seq != waits]
        if later and position.cut is not None:
            if len(later) == 1:
                subject = f"the result of effect {later[0]} depends"
            else:
                subject = f"the results of effects {min(later)} to {max(later)} depend"
            position.lost.append(f"{subject} on effect {waits} and cannot be used without it")

    def _doubt_what_is_cut(self) -> None:
        """Mark the effects that started, or may have started, in the part of the journal that is cut."""
        position, history = self.position, self.history
        last = history.last_seq
        for damage in history.damage:
            # Each finished effect in the damaged part took two lines.
            if damage.at_end and not damage.is_torn_line:
                last += (damage.line_count + 1) // 2
        if position.cut is not None:
            for seq in range(self.machine.seq + 1, last + 1):
                position.doubt(seq, history.effects.get(seq))
        for seq, mark in history.doubtful.items():
            is_to_come = seq > self.machine.seq or seq in position.open
            if is_to_come and seq not in history.effects and seq not in position.doubtful:
                position.doubt(seq, None, mark)

    def _suspect(self) -> None:
        """Treat all waiting effects as started: the record of their start may be lost."""
        for seq, recorded in self.position.open.items():
            suspected = recorded or EffectHistory()
            suspected.is_started = True
            self.position.open[seq] = suspected

    def _diverged(self, difference: str, seq: int | None = None) -> UserError:
        return _diverged(difference, self.machine.seq + 1 if seq is None else seq)


def replay(
    machine: Machine,
    history: RunHistory,
    blobs: Blobs,
    world: WorldLike,
    progress: Progress | None = None,
    programs: Callable[[str], Image] | None = None,
) -> Position:
    """Run a machine with its recorded results, up to the end of the record.

    Args:
        machine: a new machine, or the machine of the checkpoint with which the history begins.
        history: the recorded events.
        blobs: the store of long recorded texts.
        world: observes each recorded result; performs nothing.
        progress: the progress at the checkpoint; None for a new machine.
        programs: loads another program of the run by the name of its file.

    Raises UserError if the program does not repeat its record.
    """
    return _Replayer(machine, history, blobs, world, progress or Progress(), programs).run()


def _is_same_note(kind: str, fields: dict[str, Any], event: NoteEvent) -> bool:
    if event.kind_name != kind:
        return False
    now = {
        name: pack(value, digest_only)
        for name, value in event_fields(kind, fields).items()
        if name not in RESERVED
    }
    return is_same(event.own_fields(), now)


def _sorted(args: Any) -> Any:
    return dict(sorted(args.items())) if isinstance(args, dict) else args


def _command(args: Any) -> str:
    command = args.get("command", args.get("name")) if isinstance(args, dict) else None
    return repr(command[:80]) if isinstance(command, str) else ""


def _diverged(difference: str, seq: int) -> UserError:
    return Failure(
        "not-repeatable",
        f"the run cannot be resumed: its program does not repeat the record; {difference} (effect {seq})",
        "the run may have been started by another version of llc; its journal was not changed",
    )
