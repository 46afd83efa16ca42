"""Replay of a journal: the program runs again over its recorded results, up to their end.

Owns which results of a run (`past`) its program gets again, and what damage costs. The world is not
touched here. `in_doubt` decides on effects whose outcome is unknown; the driver continues
from there.

Where several effects wait at once, the order in which their results stand in the journal is the order
in which the program got them; it alone decides how the program went on (`spec/machine.md`, Strands).
"""

from __future__ import annotations

import zlib

from ...ir.light_records import LightRecord, field
from ...vm.code.image import Image
from ...vm.machine.machine import Done, Effect, Machine, OutOfFuel
from ...vm.machine.migration import RenewalError, renew
from ...vm.values.faults import Fault
from ..host.effect_context import WorldLike
from ..host.errors import Failure, UserError
from ..journal.codec import RESERVED, digest_only, is_same, pack, to_json, unpack
from ..journal.events import Mark, NoteEvent
from ..journal.journal import BlobError, Blobs
from ..journal.position import QUANTUM, Progress, Where, event_fields
from ..journal.run_history import EffectHistory, RunHistory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Stop = Effect | Done | Fault | OutOfFuel


class Position(LightRecord):
    """Where a replay arrived.

    machine: in the program that it has now. outcome: what it said last. open: the effects that wait,
    what is on record of each, None for nothing; none of them has a result yet. places: where the program
    was when it asked for each. notes: those not in the journal yet. cut: the journal's length to keep,
    None to keep it all. lost: what damage cost, a sentence each. doubtful: later effects that may have
    happened in the part that is cut, with their history, None without one.
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
        """Effect `seq` may have happened; `mark` tells which one, if it is known at all."""
        if recorded is not None and recorded.is_started:
            mark = _mark(recorded.kind, recorded.args)
        self.doubtful[seq] = recorded
        self._marks[seq] = mark

    def is_doubtful(self, effect: Effect) -> bool:
        """Whether this effect may have happened already, in the part that is cut from the journal."""
        if effect.seq not in self._marks:
            return False
        mark = self._marks[effect.seq]
        return mark is None or mark == _mark(effect.kind, pack(effect.args, digest_only))

    def settled(self, seq: int) -> None:
        """There is a decision on effect `seq`."""
        self.doubtful.pop(seq, None)
        self._marks.pop(seq, None)

    def marks(self) -> list[list[Any]]:
        """`doubtful` for the journal: the next resume does not have the part that is cut."""
        return [[seq, *(mark or ())] for seq, mark in sorted(self._marks.items())]


def _mark(kind: str | None, args: Any) -> Mark:
    """What tells an effect from another with its number: its kind and its command."""
    command = args.get("command", args) if isinstance(args, dict) else args
    return str(kind), zlib.crc32(to_json(_sorted(command)))


class _Replay:
    """One replay; `done` counts the results that the program got so far, `floor` is where the last stands.

    pending: the notes since the last result, each with its offset in the journal, None where it is
    not there.
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
        self.taken = 0
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
        """Run until nothing can run without an answer, or the program is past its record."""
        machine = self.machine
        while True:
            machine.refuel(QUANTUM)
            outcome = machine.resume()
            self._take(outcome)
            if not machine.is_ready or (isinstance(outcome, OutOfFuel) and self._is_past_record()):
                return outcome

    def _give(self, effect: Effect, answer: dict[str, Any]) -> Any:
        """Answer an effect as it was answered."""
        seq = effect.seq
        state, _ = self.position.places.pop(seq, (None, 0))
        self.world.observe(effect, answer, state)
        self.floor = self.history.effects[seq].end_offset
        self.done += 1
        self.recorded_notes = self.history.notes_after(self.done)
        self.taken = 0
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
        """An effect that a checkpoint has among those that wait: what its start said is what it says."""
        recorded = self.history.effects.get(effect.seq)
        if recorded is not None and recorded.kind is None:
            recorded.kind = effect.kind
            recorded.args = pack(effect.args, digest_only)

    def _is_past_record(self) -> bool:
        """Whether the program went beyond its journal without asking for an effect."""
        return (
            self.done >= len(self.history.order)
            and self.machine.seq >= self.history.last_seq
            and (
                self.taken >= len(self.recorded_notes) or any(offset is None for _, _, offset in self.pending)
            )
        )

    def _note(self, kind: str, fields: dict[str, Any]) -> None:
        self.position.progress.note(kind, fields)
        recorded = self.recorded_notes
        is_unsure = self.done in self.history.unsure
        # Next to damage some notes may be missing: look for this one further on.
        for index in range(self.taken, len(recorded) if is_unsure else min(self.taken + 1, len(recorded))):
            event = recorded[index]
            if _is_same_note(kind, fields, event):
                self.taken = index + 1
                self.pending.append((kind, fields, event.offset))
                return
        if not is_unsure:
            if self.taken < len(recorded):
                was = recorded[self.taken].kind_name
                raise self._diverged(f"where it noted `{was}` it now notes `{kind}`, or with other fields")
            if self.machine.seq < self.history.last_seq or self.done < len(self.history.order):
                raise self._diverged(f"it notes `{kind}`, which it did not before")
        self.pending.append((kind, fields, None))

    def _change_program(self, name: str, offset: int) -> None:
        """Continue with the next program of the run."""
        if self.programs is None:
            raise self._diverged("it went on with another program")
        try:
            self.machine, _ = renew(self.machine, self.programs(name))
        except RenewalError as error:
            raise self._diverged(f"it cannot continue with {name}: {error}") from None
        for effect in self.machine.waiting.values():
            recorded = self.history.effects.get(effect.seq)
            if recorded is not None and recorded.start_offset > offset:
                self._check_effect(effect)

    def _check_effect(self, effect: Effect) -> None:
        recorded = self.history.effects.get(effect.seq)
        if recorded is None or not recorded.is_started:
            return
        if self.changes and recorded.start_offset > self.changes[0][1].offset:
            return  # it is on record as the next program asked for it
        args = pack(effect.args, digest_only)
        if recorded.kind != effect.kind or not is_same(_sorted(recorded.args), _sorted(args)):
            unpack(recorded.args, lambda name, size: "")  # says so if a secret is missing
            was = f"`{recorded.kind}` {_command(recorded.args)}".rstrip()
            now = f"`{effect.kind}` {_command(args)}".rstrip()
            raise self._diverged(f"it asked for {was} and now asks for {now}", effect.seq)

    def _next(self) -> tuple[Effect, dict[str, Any]] | None:
        """The effect with the next result, and the result; None at the end of the replay."""
        history, waiting = self.history, self.machine.waiting
        if self.done == len(history.order):
            return None
        seq = history.order[self.done]
        recorded = history.effects[seq]
        if any(self.floor <= damage.offset < recorded.end_offset for damage in history.damage):
            # What is lost may be a result: of another effect that waited, or of the one before this.
            if len(waiting) > 1 or seq not in waiting:
                return None
        elif seq not in waiting:
            raise self._diverged(f"it has a result for effect {seq}, which it did not ask for", seq)
        try:
            return waiting[seq], unpack(recorded.result, self.blobs.fetch)
        except BlobError as error:
            self.position.lost.append(f"{error}: the result of effect {seq} is lost")
            self.position.cut = recorded.end_offset
            return None

    def _account_for_damage(self) -> None:
        """Say what each stretch of damage costs, and where the journal must be cut to go on."""
        position, history = self.position, self.history
        for damage in history.damage:
            if damage.offset < self.floor:
                position.lost.append(f"{damage}; no result of an effect is lost")
            elif position.cut is None or damage.offset < position.cut:
                position.cut = damage.offset
                if damage.is_torn_line:
                    position.lost.append(f"{damage}; it is dropped")
                else:
                    position.lost.append(f"{damage}; what followed the result before it is not known")
                    self._suspect()
                break
        waits = min(position.open, default=self.machine.seq + 1)
        later = [seq for seq in history.order[self.done :] if seq != waits]
        if later and position.cut is not None:
            span = f"{min(later)} to {max(later)}" if len(later) > 1 else f"{later[0]}"
            position.lost.append(
                f"the result{'s' if len(later) > 1 else ''} of effect{'s' if len(later) > 1 else ''} {span} "
                f"rest{'s' if len(later) == 1 else ''} on effect {waits} and cannot be used without it"
            )

    def _doubt_what_is_cut(self) -> None:
        """Effects that had started, or may have, in a part of the journal that is not used any more."""
        position, history = self.position, self.history
        last = history.last_seq
        for damage in history.damage:
            # Each effect in it that was finished took two lines.
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
        """The record of the effects that wait may be lost: they may have started."""
        for seq, recorded in self.position.open.items():
            suspected = recorded or EffectHistory()
            suspected.is_started = True
            self.position.open[seq] = suspected

    def _diverged(self, what: str, seq: int | None = None) -> UserError:
        return _diverged(what, self.machine.seq + 1 if seq is None else seq)


def replay(
    machine: Machine,
    history: RunHistory,
    blobs: Blobs,
    world: WorldLike,
    progress: Progress | None = None,
    programs: Callable[[str], Image] | None = None,
) -> Position:
    """Run a machine over what is on record, to where the record ends.

    The machine is a fresh one; or, with the `progress` it had made, one from the checkpoint that the
    history begins with. `programs` gives the other programs of the run by the names of their files.
    Raises UserError where the program does something else than it did.
    """
    return _Replay(machine, history, blobs, world, progress or Progress(), programs).run()


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


def _diverged(what: str, seq: int) -> UserError:
    return Failure(
        "not-repeatable",
        f"the run cannot be resumed: run again over its record the program differs; {what} (effect {seq})",
        "another version of llc may have begun it; its journal is left as it is",
    )
