"""A strand of the machine that runs as Python functions made of its code (`library`).

A strand that runs so has a greenlet of its own: its frames are Python frames, and an effect is a switch
back to the machine, whatever the depth. To be inspected, frames are settled: they become the
machine's own frames again, at the same states with the same slots, and the greenlet is dropped. Frames
that were settled are entered again, one when the other returns, by a function that begins at their state.
So snapshots, faults and ticks are the same in either tier.

Must not contain: what instructions become (`translate`), order of strands (`machine`, `strands`).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from types import FrameType, TracebackType

from greenlet import getcurrent, greenlet

from ...code.opcodes import decode
from ...machine.control import NEAR, is_library
from ...machine.frames import Frame, FuelMeter
from ...machine.machine import COLD, DEEPER, SLICE, CompiledTier, Machine
from ...machine.outcomes import Effect, OutOfFuel
from ...machine.steps import EFFECT_ARGUMENTS, NOTE_FIELDS, plain_map
from ...machine.strands import CompiledStrand, Raised, Strand, Trail, walk
from ...primitives.operands import items as items_of
from ...values.faults import TRACE_ENDS, Place, PrimitiveFault, show_place
from ...values.values import Value, small_map
from ..analysis.uniqueness import grown
from .fuel import DEEP, OUT, SETTLE, TAILCALL, Ticks
from .functions import Library, Untranslatable
from .process_state import RUNNING, SHALLOW

# Frames that a caught fault left, from which on they are not kept as they are but cut to those of a trace.
_MANY = 64
# The most ways of caught faults that are known.
_CATCHES = 256

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class _Fork:
    """Why a greenlet stops: it calls for each item of a list."""

    def __init__(self, callee: Value, items: tuple[Value, ...]) -> None:
        self.callee = callee
        self.items = items


class _Left:
    """Why a greenlet stops: the interpreter must go on, with `callee` where a function was called."""

    def __init__(self, why: str, callee: Frame | None = None) -> None:
        self.why = why
        self.callee = callee


class _Returned:
    def __init__(self, value: Value) -> None:
        self.value = value


class _Failed:
    def __init__(self, raised: Raised) -> None:
        self.raised = raised


class _Catch:
    """Where faults on one way are caught: the slot of the fault map, and where control goes from which state.

    inner: the functions that they come through and where those stand, outermost first. place: the
    innermost's, as a fault's map says it. has_ahead: whether they may keep from being done what ticks were
    used for (`unused`).
    """

    def __init__(
        self,
        slot: int,
        target: int,
        state: int,
        inner: list[tuple[int, int]],
        place: Place | None,
        has_ahead: bool,
    ) -> None:
        self.slot = slot
        self.target = target
        self.is_back = target <= state
        self.inner = inner
        self.place = show_place(place)
        self.is_library = is_library(place)
        self.has_ahead = has_ahead


class LiveStrand(CompiledStrand):
    """The running part of a strand: its greenlet; answer: the result that it continues with."""

    __slots__ = ("answer", "greenlet", "is_back")

    def __init__(self, greenlet_: greenlet) -> None:
        self.greenlet = greenlet_
        # Whether it continues by a jump that costs a tick.
        self.is_back = False
        self.answer: list[Value] = []

    def take(self, meter: FuelMeter, value: Value) -> None:
        """The answer to the effect; the jump that follows has its tick at once."""
        self.answer.append(value)
        if self.is_back:
            meter.ticks += 1


class Direct(Ticks, CompiledTier):
    """Runs the strands of a machine."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine, Library(machine.image))
        # Entered for each effect, so it is worth a tenth of an event where nothing needs it.
        image = machine.image
        is_states = image.meta["kind"] == "loop" and len(image.functions) == 1
        self.running = SHALLOW if is_states else RUNNING
        self.is_patient = machine.is_patient
        # What is left of a run that has ended.
        self.last: list[Frame] = []
        # Where effects are asked for, by code object and line: whether the next jump is backward; the place.
        self.sites: dict[tuple[int, int], tuple[bool, Place | None]] = {}
        # Where faults are caught, by the code objects and lines that they came through.
        self.catches: dict[tuple[int, ...], _Catch | None] = {}
        self.names |= {
            "PERFORM": self.perform,
            "FORK": self.fork,
            "NOTE": self.note,
            "SET_BOX": machine.set_box,
            "CAUGHT": self.caught,
            "LEAVE": self.leave,
            "END": self.end,
        }

    # --- what code asks for ---------------------------------------------------------------

    def perform(self, kind: str, args: Value) -> Value:
        machine, library = self.machine, self.library
        given = plain_map(args, EFFECT_ARGUMENTS, kind)
        frame = sys._getframe(1)
        # A code object is known by its identity: to hash one is to read all of it.
        at = id(frame.f_code), frame.f_lineno
        site = self.sites.get(at)
        if site is None:
            function, offset, _ = library.codes[frame.f_code][frame.f_lineno][-1]
            state = library.state_of(function, offset)
            _, _, target = machine.functions[function].block(state)[-1][1]
            site = self.sites[at] = target <= state, library.place(function, offset)
        machine.seq += 1
        strand = machine.strand
        if strand.within is not None:
            machine.asked[machine.seq] = strand
        effect = strand.effect = Effect(machine.seq, kind, given, site[1])
        live = strand.live
        assert isinstance(live, LiveStrand)
        live.is_back = site[0]
        self.count()
        self.host.switch(effect)
        return live.answer.pop()

    def fork(self, callee: Value, items: Value) -> Value:
        found = items_of(items)
        if found:
            self.count()
            self.host.switch(_Fork(callee, found))
        return ()

    def note(self, kind: str, fields: Value) -> None:
        made = small_map(fields)
        self.machine.notes.append((kind, plain_map(fields, NOTE_FIELDS, kind) if made is None else made))

    def leave(self, why: str, function: int, slots: Sequence[Value], state: int | None = None) -> None:
        """Deoptimise: continue in the interpreter, because what follows cannot be translated.

        A call of a function, or the function from a state on, where that is given.
        """
        self.count()
        frame = Frame(self.machine.functions[function], slots)
        if state is None:
            self.machine.ticks += 1
        else:
            frame.state = state
        self.host.switch(_Left(why, frame))

    def end(self, value: Value) -> Value:
        """A loop's run ends with a value. Its frame stays, for those who look at what was captured."""
        self.last = self.seen(sys._getframe(1), False)
        return value

    def caught(self, function: int, fault: PrimitiveFault) -> tuple[int, int, Value, bool] | None:
        """A fault came to a frame of a function with handlers: where control goes, if anywhere."""
        trace = fault.__traceback__
        assert trace is not None
        way: list[int] = []
        inmost: TracebackType | None = trace
        while inmost is not None:
            # A code object is known by its identity, as in `perform`.
            way += (id(inmost.tb_frame.f_code), inmost.tb_lasti)
            inmost = inmost.tb_next
        key = tuple(way)
        if key in self.catches:
            site = self.catches[key]
        else:
            site = self.catch_at(function, trace)
            if len(self.catches) < _CATCHES and len(key) < _MANY:
                self.catches[key] = site
        if site is None:
            return None
        inner = site.inner
        if site.has_ahead:
            self.returned += self.unused(trace)
        if site.is_library and fault.place is None:
            self.locate(fault, inner, trace.tb_frame.f_back)
        trail: Any = partial(self.trail, inner)
        if fault.is_again:
            trail = self.machine.whole(Raised(fault, *self.trail(inner))).trail
        elif len(inner) > _MANY:
            trail = self.trail(inner)
        value = self.machine.caught(fault, site.place, trail)
        return site.target, site.slot, value, site.is_back

    def catch_at(self, function: int, trace: TracebackType) -> _Catch | None:
        """What is the same for every fault that comes to a frame of a function with handlers on one way; None
        where it is not caught there."""
        library = self.library
        code, line = trace.tb_frame.f_code, trace.tb_lineno
        places = library.codes[code][line]
        if not places:  # another entry of the function has taken its place
            return None
        state = library.state_of(function, places[0][1])
        handler = self.machine.image.functions[function].handlers.get(state)
        inner = self.frames_of(trace)
        if handler is None or (len(inner) > 1 and self.is_dead(code, line)):
            return None
        target, slot = handler
        return _Catch(slot, target, state, inner, library.place(*inner[-1]), self.has_ahead(trace))

    def has_ahead(self, trace: TracebackType | None) -> bool:
        """Whether a fault may have kept from being done what ticks were used for (`unused`)."""
        while trace is not None:
            places = self.library.codes.get(trace.tb_frame.f_code)
            if places is not None and places.is_ahead(trace.tb_lineno):
                return True
            trace = trace.tb_next
        return False

    def unused(self, trace: TracebackType | None) -> int:
        """How many ticks were used for what a fault kept from being done."""
        found = 0
        while trace is not None:
            places = self.library.codes.get(trace.tb_frame.f_code)
            if places is not None:
                found = places.unused(trace.tb_lineno, trace.tb_frame)
            trace = trace.tb_next
        return found

    def frames_of(self, trace: TracebackType | None) -> list[tuple[int, int]]:
        """The functions that a fault came through and where they stand, outermost first."""
        found = []
        codes = self.library.codes
        while trace is not None:
            places = codes.get(trace.tb_frame.f_code)
            if places is not None:
                found += [(function, offset) for function, offset, _ in places[trace.tb_lineno]]
            trace = trace.tb_next
        return found

    def locate(self, fault: PrimitiveFault, trace: list[tuple[int, int]], outer: FrameType | None) -> None:
        """Set the place of a fault in the library to the author's call.

        `trace` is where it came through so far, `outer` the next frame outwards.
        """
        library, machine = self.library, self.machine
        if fault.place is not None or not is_library(library.place(*trace[-1])):
            return
        found = [
            self.frame_at(*where) for where in trace[-2 : -2 - 2 * NEAR : -1] if not self.is_tail(*where)
        ]
        while outer is not None and len(found) < NEAR:
            places = library.codes.get(outer.f_code)
            if places is not None:
                for function, offset, _ in reversed(places[outer.f_lineno]):
                    if not self.is_tail(function, offset):
                        found.append(self.frame_at(function, offset))
            outer = outer.f_back
        fault.place = show_place(machine.author_place([*found, *machine.calls[: -1 - NEAR : -1]]))

    def frame_at(self, function: int, offset: int) -> Frame:
        frame = Frame(self.machine.functions[function], ())
        frame.state = self.library.state_of(function, offset)
        return frame

    # --- strands --------------------------------------------------------------------------

    def run(self) -> Any:
        """Run the machine's strand on until it stops; its outcome, None where there is none yet.

        DEEPER where the interpreter must do it: that counts each call. COLD where it is done sooner.
        """
        machine = self.machine
        strand = machine.strand
        if len(strand.calls) + SLICE > machine.room:
            return DEEPER  # the interpreter knows when it is too deep
        if strand.live is None and self.is_cold(strand):
            return COLD
        self.host = getcurrent()
        self.allow()
        with self.running:
            live: LiveStrand | None = strand.live  # type: ignore[assignment]
            if live is None:
                live = strand.live = LiveStrand(greenlet(self.main))
                self.depth = len(strand.calls)
                self.deep = min(max(DEEP, 2 * self.depth), machine.room - 2 * SLICE)
                said = live.greenlet.switch(strand)
            else:
                said = live.greenlet.switch()
            if said is SETTLE or said is DEEPER or said is COLD or type(said) is _Fork:
                self.settle(strand)
            elif type(said) is _Left:
                self.settle(strand, said.callee)
        if said is SETTLE:
            return None
        if said is DEEPER or said is COLD:
            return said
        kind = type(said)
        if kind is Effect or kind is OutOfFuel:
            return said
        if kind is _Fork:
            try:
                machine.fork(said.callee, said.items)
            except PrimitiveFault as fault:
                frame = machine.calls[-1]
                return machine.unwind(fault, len(frame.function.block(frame.state)) - 1)
            return None
        if kind is _Left:
            self.settle_all()
            machine.direct = None
            machine.obstacle = said.why
            return None
        strand.live = None
        if kind is _Returned:
            if strand.within is not None:
                return machine.end_strand(said.value)
            strand.calls += self.last
            return machine.end(said.value)
        return machine.fail(said.raised) if strand.within is None else machine.end_strand(None, said.raised)

    def main(self, strand: Strand) -> Any:
        """A strand's greenlet: enter its innermost frame, then those it returns to."""
        machine, library = self.machine, self.library
        calls = strand.calls
        while True:
            frame = calls[-1]
            try:
                begun = library.beginning(frame)
                entry = begun or library.entry(frame.function.index, frame.state, frame.slots)
                self.returned += begun is not None  # it takes a tick that has been used
            except Untranslatable as error:
                self.host.switch(_Left(str(error)))
            slots = frame.slots
            calls.pop()
            del frame
            try:
                value = entry(slots)
            except PrimitiveFault as fault:
                self.returned += self.unused(fault.__traceback__)
                self.count()
                trace = self.frames_of(fault.__traceback__)
                self.locate(fault, trace, None)
                raised = Raised(fault, *self.trail(trace))
                if machine.catch(calls, raised, library.place(*trace[-1])):
                    self.restart()
                    continue
                whole = machine.whole(raised.under(calls))
                for function, state in raised.trace:  # to be looked at
                    frame = Frame(function, ())
                    frame.state = state
                    calls.append(frame)
                return _Failed(whole)
            self.count()
            if not calls:
                return _Returned(value)
            caller = calls[-1]
            _, slot, target = caller.function.block(caller.state)[-1][1]
            caller.slots[slot] = value
            caller.go(machine, target)
            if self.is_cold(strand):
                self.host.switch(COLD)
            self.restart()

    def is_cold(self, strand: Strand) -> bool:
        """Whether the interpreter continues a strand, until it reaches a function or a loop.

        It must not reach other strands, which have live frames.
        """
        if not self.is_patient or strand.within is not None:
            return False
        frame = strand.calls[-1]
        if self.library.beginning(frame) is not None:
            return False
        return not self.library.is_worth_entering(frame.function.index, frame.state)

    def restart(self) -> None:
        """Continue with another settled frame."""
        if self.machine.ticks >= self.machine.limit:
            self.host.switch(OUT)
        else:
            self.allow()

    def trail(self, found: list[tuple[int, int]]) -> Trail:
        """The frames that a fault left, which came through `found`."""
        codes = self.machine.image.functions
        last = len(found) - 1
        live = [where for index, where in enumerate(found) if index == last or not self.is_tail(*where)]
        ends = live if len(live) <= 2 * TRACE_ENDS else live[:TRACE_ENDS] + live[-TRACE_ENDS:]
        functions, state_of = self.machine.functions, self.library.state_of
        trace = tuple((functions[function], state_of(function, offset)) for function, offset in ends)
        function, offset = found[last]
        steps = decode(codes[function].code, *codes[function].bounds(trace[-1][1]))
        at = next(index for index, (place, _, _) in enumerate(steps) if place == offset)
        return trace, at, len(live) - len(ends)

    def settle(self, strand: Strand, callee: Frame | None = None) -> None:
        """Make the frames of a strand the machine's own; `callee` is of a function that they just called."""
        live: LiveStrand | None = strand.live  # type: ignore[assignment]
        if live is None:
            return
        strand.live = None
        machine, library = self.machine, self.library
        found = [] if callee is None else [callee]
        frame = live.greenlet.gr_frame
        is_inner = callee is not None
        while frame is not None:
            if frame.f_code in library.codes:
                found += self.seen(frame, is_inner)
                is_inner |= bool(library.codes[frame.f_code][frame.f_lineno])
            frame = frame.f_back
        if live.answer:
            inner = found[0]
            _, slot, target = inner.function.block(inner.state)[-1][1]
            inner.slots[slot] = live.answer.pop()
            inner.state = target
        strand.calls += reversed(found)
        if strand is not machine.strand:
            machine.outside += len(found)
        with RUNNING:
            live.greenlet.throw()

    def seen(self, frame: FrameType, is_inner: bool) -> list[Frame]:
        """The machine's frames that a Python frame is, innermost first. is_inner: it has called others."""
        machine, library = self.machine, self.library
        found = []
        for function, offset, names in reversed(library.codes[frame.f_code][frame.f_lineno]):
            code = machine.image.functions[function]
            if not (is_inner and code.code[offset] == TAILCALL):
                made = Frame(machine.functions[function], ())
                made.state = library.state_of(function, offset)
                # Not of a frame that is left behind: Python makes a map of all its locals.
                values = frame.f_locals
                made.slots = [_held(values, name) for name in names]
                found.append(made)
            is_inner = True
        return found

    def settle_all(self) -> None:
        for strand in walk(self.machine.strand):
            self.settle(strand)


def _held(local: Mapping[str, Value], name: str) -> Value:
    """What a slot holds: a local, or a list of several (`Place`)."""
    if "," in name:
        return tuple(grown(local.get(one)) for one in name.split(",")[:-1])
    return grown(local.get(name))
