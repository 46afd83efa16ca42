"""The machine: runs an image, one step after another, until it needs its host.

It never touches the world. `resume` runs until the program asks for an effect, ends, fails or is
out of fuel; a stopped machine is nothing but its frames, for each a function, a state and the
values of its slots (`spec/machine.md`). Where calls run side by side, each has its own frames
(`strands`).

What an opcode does is its step (`steps`). A state is decoded when it is first
entered, so a step costs what it costs however large the program is. An image is taken to be
verified (`verify`): one that is not may end in a Python exception, but cannot run on without using
fuel: a state must be left, and every jump that is not forward costs a tick whatever the code says.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from operator import length_hint

from ..code.opcodes import NO_STATE, decode
from ..primitives.handlers import HANDLERS
from ..values import bounds
from ..values.faults import Fault, PrimitiveFault, show_place
from ..values.values import MAX_HOST_DEPTH, FunctionValue, from_host, show, to_host
from .outcomes import NO_ANSWER, Done, Effect, FrameView, OutOfFuel, StrandView, Waiting
from .steps import STEPS, plain
from .strands import Fork, Raised, Strand, catch, walk

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
    from typing import Any

    from ..code.image import FunctionCode, Image
    from ..code.opcodes import Opcode
    from ..jit.codegen.translate import Translator
    from ..jit.runtime.tier import Direct
    from ..values.faults import Place
    from ..values.values import Value
    from .steps import Outcome, Step

    # A state's code, ready to run: (step, its operand).
    Block = list[tuple[Step, Any]]

# Where functions of the library come from: a fault in one is told at the author's call of it, which is
# looked for so many calls further out.
LIBRARY = "stdlib/"
NEAR = 32


# After how many ticks and effects a program is translated: before, that would take longer than it saves.
TIERS = {"auto": 500, "interpreter": float("inf"), "direct": 0}
# And where another machine has had it translated.
AGAIN = 10
# So many it runs in the interpreter where it is too deep for the other tier.
SLICE = 10_000
DEEPER: Any = object()


# --- frames -----------------------------------------------------------------------------------


class LoadedFunction:
    """A function of the image, each state decoded when it is first entered.

    Equal instructions are one pair, whatever states they stand in: a walk through ten thousand
    states then keeps to little memory (`benchmarks/`, scale).
    """

    __slots__ = ("blocks", "code", "exits", "image", "index", "instructions")

    def __init__(self, image: Image, index: int) -> None:
        self.index = index
        self.code = image.functions[index]
        self.image = image
        self.blocks: dict[int, Block] = {}
        self.instructions: dict[tuple[Opcode, tuple[int, ...]], tuple[Step, Any]] = {}
        self.exits: dict[int, Place | None] = {}

    def block(self, state: int) -> Block:
        """The steps of a state. ValueError where they do not end in an exit: a state must be left."""
        block = self.blocks.get(state)
        if block is None:
            block = []
            row = None
            known = self.instructions
            for _, row, words in decode(self.code.code, *self.code.bounds(state)):
                instruction = known.get((row, words))
                if instruction is None:
                    operands = [self._operand(*pair) for pair in zip(row.operands, words, strict=True)]
                    instruction = (STEPS[row.name], operands[0] if len(operands) == 1 else operands)
                    known[row, words] = instruction
                block.append(instruction)
            if row is None or not row.is_exit:
                raise ValueError(f"state `{self.code.states[state]}` has no exit")
            self.blocks[state] = block
        return block

    def place(self, state: int, index: int) -> Place | None:
        """Where the instruction of that index in a state stands in the source."""
        steps = decode(self.code.code, *self.code.bounds(state))
        offset = next(islice(steps, index, None))[0]
        return self.image.place_at(self.code, offset)

    def exit_place(self, state: int) -> Place | None:
        """Where the exit of a state stands in the source."""
        if state not in self.exits:
            self.exits[state] = self.place(state, len(self.block(state)) - 1)
        return self.exits[state]

    def _operand(self, kind: str, word: int) -> Any:
        """What an operand word stands for; indices that a frame resolves stay as they are."""
        match kind:
            case "constant" | "note" | "effect":
                return self.image.constants[word]
            case "primitive":
                return HANDLERS[self.image.constants[word]]
            case "table":
                return self.code.tables[word]
            case "state?":
                return None if word == NO_STATE else word
            case _:
                return word


class Functions(dict[int, LoadedFunction]):
    """The functions of an image by index, each loaded when it is first looked up.

    The machines of an image share them: what one has decoded is there for all. translators: for the
    direct tier (`direct.library`).
    """

    def __init__(self, image: Image) -> None:
        self.image = image
        self.translators: dict[Any, Translator] = {}

    def __missing__(self, index: int) -> LoadedFunction:
        function = self[index] = LoadedFunction(self.image, index)
        return function


class Frame:
    """An active function. Its operand stack is the machine's: between states there is none."""

    __slots__ = ("function", "slots", "state")

    def __init__(self, function: LoadedFunction, arguments: Sequence[Value]) -> None:
        self.function = function
        self.state = 0
        slots: list[Value] = [None] * len(function.code.slots)
        slots[: len(arguments)] = arguments
        self.slots = slots

    def go(self, machine: Machine, target: int) -> None:
        """Control moves to another state of this frame. A jump that is not forward costs a tick."""
        if target <= self.state:
            machine.ticks += 1
        self.state = target


# --- the machine ------------------------------------------------------------------------------


class Machine:
    """A run of an image.

    `args` are the entry function's, as plain data. `fuel` bounds the ticks; None is no bound. One
    tick is used by each function entered, the entry function among them, and by each jump that is
    not forward. `ticks` is what was used so far.

    tier: "interpreter", "direct" (`direct`), or "auto": the first for a while and then the other.
    Nothing but time tells them apart.

    `waiting` has the effects that wait for their answers. `seq` counts the effects so far, `ended`
    says that there is nothing to resume. The other attributes are the package's own.
    """

    # `calls` are the frames of `strand`, the one that runs or ran last: it can run on, or waits for an
    # answer. `ready` are the others that can run, `asked` all that wait but the first, by the effect's
    # number; both in order. `outside` counts the frames of all strands but `strand`, `room` is how many
    # that may have.
    __slots__ = (
        "asked",
        "calls",
        "direct",
        "ended",
        "functions",
        "image",
        "limit",
        "notes",
        "obstacle",
        "outside",
        "ready",
        "room",
        "seq",
        "stack",
        "strand",
        "ticks",
        "warm",
    )

    def __init__(
        self, image: Image, args: Sequence[Any] = (), fuel: int | None = None, tier: str = "auto"
    ) -> None:
        entry = image.functions[image.entry]
        if len(args) != entry.parameters:
            raise ValueError(f"`{entry.name}` takes {entry.parameters} arguments, not {len(args)}")
        self.image = image
        if image.loaded is None:
            image.loaded = Functions(image)
        self.functions = image.loaded
        self.stack: list[Value] = []
        self.calls = [Frame(self.functions[image.entry], [from_host(arg) for arg in args])]
        self.strand = Strand(self.calls)
        self.ready: deque[Strand] = deque()
        self.asked: dict[int, Strand] = {}
        self.outside = 0
        self.room = bounds.MAX_CALLS
        self.notes: list[tuple[str, dict[str, Any]]] = []
        self.seq = 0
        self.ended = False
        self.ticks = 1
        self.limit = float("inf") if fuel is None else fuel
        self.direct: Direct | None = None
        # Why the program is not translated though it was to be, in words.
        self.obstacle: str | None = None
        self.warm = TIERS[tier]
        if tier == "auto" and self.functions.translators:
            self.warm = AGAIN

    @property
    def waiting(self) -> dict[int, Effect]:
        """The effects that were asked for and not answered, by number and in that order."""
        if self.asked:
            return {seq: strand.effect for seq, strand in self.asked.items()}  # type: ignore[misc]
        effect = self.strand.effect
        return {} if effect is None else {effect.seq: effect}

    @property
    def effect(self) -> Effect | None:
        """The effect that was asked for last among those that wait; the one, where nothing forks."""
        return next(reversed(self.asked.values())).effect if self.asked else self.strand.effect

    @property
    def is_ready(self) -> bool:
        """Whether something can run without an answer, given fuel."""
        return not self.ended and (self.strand.effect is None or bool(self.ready))

    def resume(
        self, result: Any = NO_ANSWER, seq: int | None = None
    ) -> Effect | Waiting | Done | Fault | OutOfFuel:
        """Answer an effect, if an answer is given, and run on.

        `result` is plain data and a map as a rule; `seq` says which effect it answers, by default
        the one that was asked for last. An answer never faults by itself. TypeError for an answer
        that is no plain data (the effect still waits), RuntimeError where nothing waits for one or
        the program has ended.
        """
        if self.ended:
            raise RuntimeError("the program has ended")
        if result is not NO_ANSWER or seq is not None:
            # The strand that ran last, if it waits, is the one that asked last.
            strand = (
                self.strand if seq is None and self.strand.effect is not None else self._asking(result, seq)
            )
            if strand is not None:
                self._answer(strand, None if result is NO_ANSWER else result)
        self.room = bounds.MAX_CALLS - self.outside
        if self.strand.effect is not None:
            if not self.ready:
                return Waiting()
            self.switch()
        while self.ticks < self.limit:
            direct = self.direct
            outcome: Outcome | OutOfFuel | None
            if direct is None:
                outcome = self._interpret(min(self.limit, self.warm - self.seq))
                if outcome is None and self.ticks + self.seq >= self.warm:
                    self._warm_up()
            else:
                outcome = direct.run()
                if outcome is DEEPER:
                    direct.settle_all()
                    outcome = self._interpret(min(self.limit, self.ticks + SLICE))
            if outcome is not None:
                return outcome
        return OutOfFuel()

    def _interpret(self, limit: float) -> Outcome | None:
        """Run state by state until there is an outcome or so many ticks are used."""
        while self.ticks < limit:
            frame = self.calls[-1]
            outcome: Outcome | None = None
            state = frame.state
            block = frame.function.block(state)
            steps = iter(block)
            try:
                for step, operand in steps:
                    outcome = step(self, frame, operand)
            except PrimitiveFault as fault:
                # The iterator knows which instruction it was; counting along would cost each of them.
                index = len(block) - length_hint(steps) - 1
                outcome = self._unwind(fault, index)
            if outcome is not None:
                return outcome
        return None

    def _warm_up(self) -> None:
        """The program has run for a while: from now on it runs in the direct tier, where that can do it."""
        self.warm = float("inf")
        from ..jit.codegen.translate import obstacle
        from ..jit.runtime.tier import Direct

        self.obstacle = obstacle(self.image)
        if self.obstacle is None:
            self.direct = Direct(self)

    @property
    def tier(self) -> str:
        """How the program runs now: "interpreter" or "direct"."""
        return "interpreter" if self.direct is None else "direct"

    def _asking(self, result: Any, seq: int | None) -> Strand | None:
        """The strand whose effect is answered."""
        if seq is not None:
            strand = self.strand
            if strand.effect is None or strand.effect.seq != seq:
                if seq not in self.asked:
                    raise RuntimeError(f"no effect {seq} waits for an answer")
                strand = self.asked[seq]
            return strand
        if self.asked:
            return next(reversed(self.asked.values()))
        if result is not None:
            raise RuntimeError("no effect waits for an answer")
        return None  # null is as good as no answer, for a host that begins with it

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
        """Allow so many further ticks; None is no bound."""
        self.limit = float("inf") if fuel is None else self.ticks + fuel

    def take_notes(self) -> list[tuple[str, dict[str, Any]]]:
        """The notes since the last call, in order, as (kind, fields in plain data).

        They are kept until taken: the host of a long run bounds them by giving fuel in portions.
        """
        taken, self.notes = self.notes, []
        return taken

    def frames(self, most: int | None = None) -> list[FrameView]:
        """The active functions, innermost last, or the innermost `most` of them; there may be millions.

        They are those of the strand that asked last, or else runs, with those it was forked from before
        them. A view shows the frame as it is when asked.
        """
        self._settle()
        strand = next(reversed(self.asked.values())) if self.asked else self.strand
        parts = [strand.calls]
        count = len(strand.calls)
        while strand.within is not None and (most is None or count < most):
            strand = strand.within.parent
            parts.append(strand.calls)
            count += len(strand.calls)
        # Of the outermost part, only what is left to show.
        if most is not None and count > most:
            parts[-1] = parts[-1][count - most :]
        return [FrameView(frame) for part in reversed(parts) for frame in part]

    def strands(self) -> list[StrandView]:
        """All calls that run side by side, each before those it forked, in order of items; the first is
        the run itself. There may be millions."""
        self._settle()
        return [StrandView(strand) for strand in walk(self.strand)]

    def snapshot(self) -> dict[str, Any]:
        """All there is to this run, as JSON-able data; not once the program has ended."""
        from .snapshot import take

        self._settle()
        return take(self)

    def _settle(self) -> None:
        """Have all frames in `calls`."""
        if self.direct is not None:
            self.direct.settle_all()

    @staticmethod
    def restore(image: Image, snapshot: Any, fuel: int | None = None, tier: str = "auto") -> Machine:
        """A machine that goes on where the snapshot was taken. SnapshotError if it cannot."""
        from .snapshot import restore

        machine = restore(image, snapshot, fuel)
        machine.warm = TIERS[tier]
        return machine

    def call(self, count: int) -> Frame:
        """A frame for the callee and its `count` arguments on the stack. One tick."""
        stack = self.stack
        arguments = stack[len(stack) - count :]
        callee = stack[-1 - count]
        stack.clear()
        if type(callee) is not FunctionValue:
            raise PrimitiveFault("not-a-function", f"cannot call {show(callee)}: it is no function")
        function = self.functions[callee.function]
        code = function.code
        captures = callee.captures
        if len(captures) > code.captures:  # `applied` has filled arguments in
            filled = len(captures) - code.captures
            arguments += captures[:filled]
            captures = captures[filled:]
            count += filled
        if code.rest and count >= code.parameters - 1:
            arguments[code.parameters - 1 :] = [tuple(arguments[code.parameters - 1 :])]
        elif count != code.parameters:
            raise PrimitiveFault("arity", f"`{code.name}` takes {takes(code)}, not {count}")
        self.ticks += 1
        return Frame(function, (*arguments, *captures))

    def switch(self) -> None:
        """Run the strand that has been ready longest."""
        self.outside += len(self.calls)
        self.strand = self.ready.popleft()
        self.calls = self.strand.calls
        self.outside -= len(self.calls)
        self.room = bounds.MAX_CALLS - self.outside

    def fork(self, callee: Value, items: Sequence[Value]) -> None:
        """Call `callee` for each item, of which there are some, in a strand of its own. One tick each."""
        if len(self.calls) + len(items) > self.room:
            raise PrimitiveFault(
                "too-deep", f"more than {bounds.MAX_CALLS} calls inside one another or at once"
            )
        frames = []
        for item in items:
            self.stack[:] = [callee, item]
            frames.append(self.call(1))
        fork = self.strand.fork = Fork(self.strand, frames)
        self.ready += fork.strands  # type: ignore[arg-type]
        self.outside += len(frames)
        self.switch()

    def end_strand(self, value: Value, raised: Raised | None = None) -> Waiting | Fault | None:
        """The running strand has ended with a value or a fault; others go on, its parent perhaps."""
        strand = self.strand
        self.calls.clear()
        while True:
            fork = strand.within
            assert fork is not None
            if not fork.end(strand.item, value, raised):
                break
            # The last one: the strand that forked goes on.
            strand = fork.parent
            strand.fork = None
            frame = strand.calls[-1]
            if fork.raised is None:
                slot, target = frame.function.block(frame.state)[-1][1]
                frame.slots[slot] = tuple(fork.results)
                frame.go(self, target)
                self.ready.append(strand)
                break
            raised = fork.raised
            before = len(strand.calls)
            if catch(self, strand.calls, raised.fault, raised.place):
                self.outside -= before - len(strand.calls)
                self.ready.append(strand)
                break
            raised = raised.under(strand.calls)
            if strand.within is None:
                self.strand, self.calls = strand, strand.calls
                return self._fail(raised)
            self.outside -= before
            strand.calls.clear()
        if self.ready:
            self.switch()
            return None
        # Displays show the one that asked last.
        self.ready.append(next(reversed(self.asked.values())))
        self.switch()
        return Waiting()

    def end(self, value: Value) -> Done | Fault:
        """The program has returned a value; a fault of the program as a whole where that cannot leave."""
        self.ended = True
        try:
            return Done(plain(value, "the program's result"))
        except PrimitiveFault as fault:
            span = self.image.place(self.image.functions[self.image.entry].span)
            return Fault(fault.kind, fault.message, span)

    def _unwind(self, fault: PrimitiveFault, index: int) -> Waiting | Fault | None:
        """Control to the nearest handler, else the strand ends; `index` says which instruction it was."""
        self.stack.clear()
        frame = self.calls[-1]
        place = frame.function.place(frame.state, index)
        if fault.place is None and is_library(place):
            fault.place = show_place(self.author_place(self.calls[-2 : -2 - NEAR : -1]))
        if catch(self, self.calls, fault, place):
            return None
        raised = Raised(fault, (), index).under(self.calls)
        return self._fail(raised) if self.strand.within is None else self.end_strand(None, raised)

    def author_place(self, frames: list[Frame]) -> Place | None:
        """Where the author's code called the library's that is running, if that can be told.

        `frames` are the nearest of the strand's, innermost first.
        """
        strand = self.strand
        while strand.within is not None and len(frames) < NEAR:
            strand = strand.within.parent
            frames += strand.calls[: -1 - NEAR : -1]
        for frame in frames[:NEAR]:
            place = frame.function.exit_place(frame.state)
            if place is not None and not is_library(place):
                return place
        return None

    def _fail(self, raised: Raised) -> Fault:
        """The run ends with a fault."""
        self.ended = True
        fault, place = raised.fault, raised.place
        try:
            details = to_host(fault.details, MAX_HOST_DEPTH)
        except (TypeError, ValueError):
            details = {}
        first = place if fault.place is None else _find_place(self.image, fault.place) or place
        # All but the innermost frame stand at the exit that ends their state.
        places = [function.exit_place(state) for function, state in raised.trace[:-1]]
        trace = [
            (function.code.name, function.code.states[state], here)
            for (function, state), here in zip(raised.trace, [*places, place], strict=True)
        ]
        return Fault(fault.kind, fault.message, first, tuple(trace), raised.omitted, details)


def is_library(place: Place | None) -> bool:
    return place is not None and place[0].startswith(LIBRARY)


def _find_place(image: Image, text: str) -> Place | None:
    """The widest place of the image that `show_place` shows as `text`."""
    found = [image.place(span) for span in range(1, len(image.spans) // 5 + 1)]
    return max((p for p in found if show_place(p) == text), key=lambda p: p[3:], default=None)  # type: ignore[index]


def takes(code: FunctionCode) -> str:
    """How many arguments a function takes, for a message."""
    count = code.parameters - code.rest
    least = "at least " if code.rest else ""
    return f"{least}{count} argument{'' if count == 1 else 's'}"
