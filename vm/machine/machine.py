"""The machine: runs an image, one step after another, until it needs its host.

It never accesses the outside world. `resume` runs until the program requests an effect, ends, fails or is
out of fuel. A stopped machine is a list of frames, for each a function, a state and the values of its
slots (`spec/machine.md`); concurrent calls have their own frames each (`strands`).

A state is decoded when it is first entered, so the cost of a step does not depend on the size of the program.
An image must be verified (`code/verify.py`): one that is not may end in a Python exception, but cannot run
forever without using fuel: every state must be left, and every jump that is not forward costs a tick.

This machine interprets. `tiered.py` extends it with the compiled tier.
"""

from __future__ import annotations

from ...ir.python_internals import length_hint
from ..code.image import Image
from ..values import bounds
from ..values.faults import Fault, PrimitiveFault
from ..values.values import from_host
from .control import Control
from .frames import FrameView, Functions
from .outcomes import NO_ANSWER, Done, Effect, Outcome, OutOfFuel, Waiting
from .steps import STEPS
from .strands import Strand, StrandView, walk

__all__ = [
    "NO_ANSWER",
    "Done",
    "Effect",
    "Fault",
    "FrameView",
    "Machine",
    "OutOfFuel",
    "StrandView",
    "Waiting",
]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Self

# Execution modes, and the number of ticks plus effects after which a program is translated: earlier,
# translation would take longer than it saves.
TIERS = {"auto": 500, "interpreter": float("inf"), "direct": 0}
# The same if another machine of the image has already had it translated.
WARM_AGAIN = 10
# Interpreted instructions between two effects after which a program is translated too, and the ticks between
# two checks of their number.
BUSY = 12_000
_LOOK = 10
# Ticks that run in the interpreter if the stack is too deep for the compiled tier.
SLICE = 10_000
DEEPER: Any = object()
COLD: Any = object()


class CompiledTier:
    """Interface of the compiled tier, which runs strands instead of the interpreter
    (`jit/runtime/tier.py`).
    """

    def run(self) -> Any:
        """Run the machine's strand until it stops: an outcome, None to continue, or a reason to interpret.

        DEEPER: the stack is too deep. COLD: the code before the next tick is not worth a translation.
        """
        raise NotImplementedError  # in `jit/runtime/tier.py`

    def settle_all(self) -> None:
        """Move all live frames into the `calls` of their strands."""
        raise NotImplementedError  # in `jit/runtime/tier.py`


class Machine(Control):
    """A run of an image.

    Args:
        args: arguments of the entry function, as plain data.
        fuel: limit of the ticks, None for no limit. Each function entry, including the entry function's, and
            each backward jump uses a tick; `ticks` is the number used so far.
        tier: "interpreter", "direct" (the compiled tier), or "auto": the interpreter first, then the compiled
            tier. Results are identical, only speed differs.

    `waiting` has the pending effects, `seq` counts the effects so far, `ended` is true if nothing
    can be resumed. The other attributes are internal to `vm`.
    """

    __slots__ = ("direct", "is_patient", "obstacle", "warm", "work")

    def __init__(
        self, image: Image, args: Sequence[Any] = (), fuel: int | None = None, tier: str = "auto"
    ) -> None:
        entry = image.functions[image.entry]
        if len(args) != entry.parameters:
            raise ValueError(f"`{entry.name}` takes {entry.parameters} arguments, not {len(args)}")
        functions = image.loaded
        if not isinstance(functions, Functions):
            functions = image.loaded = Functions(image, STEPS)
        super().__init__(image, functions, args, fuel)
        self.direct: CompiledTier | None = None
        # The reason why a warm program is not translated, for people.
        self.obstacle: str | None = None
        self.warm = TIERS[tier]
        # Instructions interpreted since the last outcome.
        self.work = 0
        # Whether the interpreter runs code that is entered only once, because a translation would take
        # longer.
        self.is_patient = tier == "auto"
        if self.is_patient and functions.translators:
            self.warm = WARM_AGAIN

    def translate(self) -> CompiledTier | str:
        """The compiled tier for this machine, or the reason why there is none."""
        return "this machine only interprets"

    @property
    def waiting(self) -> dict[int, Effect]:
        """The pending effects, by number and in that order."""
        if self.asked:
            return {seq: strand.effect for seq, strand in self.asked.items()}  # type: ignore[misc]
        effect = self.strand.effect
        return {} if effect is None else {effect.seq: effect}

    @property
    def effect(self) -> Effect | None:
        """The most recent pending effect; without forks there is at most one."""
        return next(reversed(self.asked.values())).effect if self.asked else self.strand.effect

    @property
    def is_ready(self) -> bool:
        """Whether a strand can run without a result, given fuel."""
        return not self.ended and (self.strand.effect is None or bool(self.ready))

    def resume(
        self, result: Any = NO_ANSWER, seq: int | None = None
    ) -> Effect | Waiting | Done | Fault | OutOfFuel:
        """Deliver the result of an effect, if one is given, and run until the next outcome.

        result: plain data, usually a map. seq: the number of the effect, by default the most recent pending
        one. A result never causes a fault by itself. Raises TypeError for a result that is not plain data
        (the effect is still pending), RuntimeError if no effect is pending or the program has ended.
        """
        if self.ended:
            raise RuntimeError("the program has ended")
        if result is not NO_ANSWER or seq is not None:
            # If the strand that ran last waits, its request is the latest.
            strand: Strand | None = self.strand
            effect = self.strand.effect
            if effect is None or (seq is not None and seq != effect.seq):
                strand = self._asking(result, seq)
            if strand is not None:
                self._answer(strand, None if result is NO_ANSWER else result)
        self.room = bounds.MAX_CALLS - self.outside
        if self.strand.effect is not None:
            if not self.ready:
                return Waiting()
            self.switch()
        self.work = 0
        while self.ticks < self.limit:
            direct = self.direct
            outcome: Outcome | OutOfFuel | None
            if direct is None:
                warm = self.warm - self.seq
                outcome = self._interpret(min(self.limit, warm, self.ticks + _LOOK))
                if outcome is None and (self.ticks >= warm or self.work > BUSY) and warm < float("inf"):
                    self._warm_up()
            else:
                outcome = direct.run()
                if outcome is DEEPER:
                    direct.settle_all()
                    outcome = self._interpret(min(self.limit, self.ticks + SLICE))
                elif outcome is COLD:
                    outcome = self._interpret(min(self.limit, self.ticks + 1))
            if outcome is not None:
                return outcome
        return OutOfFuel()

    def _interpret(self, limit: float) -> Outcome | None:
        """Run state by state until there is an outcome or the ticks reach `limit`."""
        outcome: Outcome | None = None
        work = 0
        while outcome is None and self.ticks < limit:
            frame = self.calls[-1]
            state = frame.state
            block = frame.function.block(state)
            steps = iter(block)
            work += len(block)
            try:
                for step, operand in steps:
                    outcome = step(self, frame, operand)
            except PrimitiveFault as fault:
                # The iterator knows the instruction; counting would slow down each of them.
                index = len(block) - length_hint(steps) - 1
                outcome = self.unwind(fault, index)
        self.work += work
        return outcome

    def _warm_up(self) -> None:
        """Switch to the compiled tier, if this machine has one that can run the program."""
        self.warm = float("inf")
        found = self.translate()
        if isinstance(found, str):
            self.obstacle = found
        else:
            self.direct = found

    @property
    def tier(self) -> str:
        """The current execution mode: "interpreter" or "direct"."""
        return "interpreter" if self.direct is None else "direct"

    def _asking(self, result: Any, seq: int | None) -> Strand | None:
        """The strand, other than the last one, that receives the result; None if no result is delivered."""
        if seq is not None:
            if seq not in self.asked:
                raise RuntimeError(f"no effect {seq} waits for an answer")
            return self.asked[seq]
        if self.asked:
            return next(reversed(self.asked.values()))
        if result is not None:
            raise RuntimeError("no effect waits for an answer")
        return None  # None is accepted at the start of a run, for hosts that always pass a result

    def _answer(self, strand: Strand, result: Any) -> None:
        value = from_host(result)
        if strand.within is not None:
            del self.asked[strand.effect.seq]  # type: ignore[union-attr]
        strand.effect = None
        if strand.live is not None:
            strand.live.take(self, value)
        else:
            frame = strand.calls[-1]
            _, slot, target = frame.function.block(frame.state)[-1][1]
            frame.slots[slot] = value
            frame.go(self, target)
        if strand is not self.strand:
            self.ready.append(strand)
        elif self.ready:
            self.ready.append(strand)
            self.switch()

    def refuel(self, fuel: int | None) -> None:
        """Allow `fuel` further ticks; None is no limit."""
        self.limit = float("inf") if fuel is None else self.ticks + fuel

    def take_notes(self) -> list[tuple[str, dict[str, Any]]]:
        """The notes since the last call, in order, as (kind, fields in plain data).

        They are kept until taken; the host of a long run limits their number by giving fuel in portions.
        """
        taken, self.notes = self.notes, []
        return taken

    def frames(self, most: int | None = None) -> list[FrameView]:
        """The active functions, innermost last, or the innermost `most` of them; there may be millions.

        They belong to the strand with the most recent pending effect, or else to the running one, preceded
        by the frames of its ancestors. A view shows the frame as it is when asked.
        """
        self._settle()
        strand = next(reversed(self.asked.values())) if self.asked else self.strand
        parts = [strand.calls]
        count = len(strand.calls)
        while strand.within is not None and (most is None or count < most):
            strand = strand.within.parent
            parts.append(strand.calls)
            count += len(strand.calls)
        # Only the visible part of the outermost strand.
        if most is not None and count > most:
            parts[-1] = parts[-1][count - most :]
        return [FrameView(frame) for part in reversed(parts) for frame in part]

    def strands(self) -> list[StrandView]:
        """All strands, each before those it forked, in order of items; the first is the run itself.

        There may be millions.
        """
        self._settle()
        return [StrandView(strand) for strand in walk(self.strand)]

    def snapshot(self) -> dict[str, Any]:
        """The complete state of the run as JSON-able data. RuntimeError if the program has ended."""
        # Deferred with `restore`: a short run takes no snapshot, and loads this module only if it does.
        from .snapshot import take

        self._settle()
        return take(self)

    def _settle(self) -> None:
        """Move all frames into `calls`."""
        if self.direct is not None:
            self.direct.settle_all()

    @classmethod
    def restore(cls, image: Image, snapshot: Any, fuel: int | None = None, tier: str = "auto") -> Self:
        """A machine that continues where the snapshot was taken. Raises SnapshotError if it cannot."""
        from .snapshot import restore

        machine = cls(image, [None] * image.functions[image.entry].parameters)
        restore(machine, snapshot)
        machine.refuel(fuel)
        machine.warm = TIERS[tier]
        machine.is_patient = tier == "auto"
        return machine
