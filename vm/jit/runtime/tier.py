"""Compiled tier: runs the strands of a machine as Python functions generated from its code (`functions`).

Each strand has its own greenlet. Its frames are Python frames, and an effect is a switch
back to the machine, at any depth. To be inspected, frames are *settled*: they are converted to
frames of the machine at the same states with the same slots, and the greenlet is dropped. Settled
frames are entered again one by one, when the inner one returns, by functions that begin at their states.
Snapshots, faults and ticks are therefore identical in both tiers.

Must not contain: translation of instructions (`translate`), the order of strands (`machine`, `strands`).
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
from ...values import bounds
from ...values.faults import TRACE_ENDS, Place, PrimitiveFault, show_place
from ...values.values import Value, small_map
from ..analysis.uniqueness import finished_list
from .fuel import DEEP, OUT, SETTLE, TAILCALL, Ticks
from .functions import Library, Untranslatable
from .process_state import RUNNING, SHALLOW

# Frames of a caught fault; if there are at least this many, only those of the backtrace are kept.
_MANY = 64
# Limit of cached catch sites.
_CATCHES = 256

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class _Fork:
    """Reason why a greenlet stops: it forks for the items of a list."""

    def __init__(self, callee: Value, items: tuple[Value, ...]) -> None:
        self.callee = callee
        self.items = items


class _Deoptimized:
    """Reason why a greenlet stops: deoptimisation; `callee` is the frame of a function that was called."""

    def __init__(self, reason: str, callee: Frame | None = None) -> None:
        self.reason = reason
        self.callee = callee


class _Returned:
    def __init__(self, value: Value) -> None:
        self.value = value


class _Failed:
    def __init__(self, raised: Raised) -> None:
        self.raised = raised


class _Catch:
    """A catch site: the slot of the fault map, the state of the fault, and the target of its handler.

    inner: the functions through which the fault passes, with their offsets, outermost first. place: the
    innermost place, as in a fault map. has_ahead: whether ticks may have been charged in advance for code
    that the fault skips (`unused_ticks`).
    """

    def __init__(
        self,
        slot: int,
        target: int,
        state: int,
        inner: list[tuple[int, int]],
        place: Place | None,
        has_prepaid: bool,
    ) -> None:
        self.slot = slot
        self.target = target
        self.is_back = target <= state
        self.inner = inner
        self.place = show_place(place)
        self.is_library = is_library(place)
        self.has_prepaid = has_prepaid


class LiveStrand(CompiledStrand):
    """The running part of a strand: its greenlet; answer: the result that it continues with."""

    __slots__ = ("answer", "greenlet", "is_back")

    def __init__(self, greenlet_: greenlet) -> None:
        self.greenlet = greenlet_
        # Whether execution continues by a jump that costs a tick.
        self.is_back = False
        self.answer: list[Value] = []

    def take(self, meter: FuelMeter, value: Value) -> None:
        """Deliver the result of the effect; the following jump is charged at once."""
        self.answer.append(value)
        if self.is_back:
            meter.ticks += 1


class DirectTier(Ticks, CompiledTier):
    """Runs the strands of a machine."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine, Library(machine.image))
        # Entered for each effect; skipping it saves a tenth of an event.
        image = machine.image
        is_states = image.meta["kind"] == "loop" and len(image.functions) == 1
        self.running = SHALLOW if is_states else RUNNING
        self.is_patient = machine.is_patient
        # The frames of a run that has ended.
        self.final_frames: list[Frame] = []
        # Effect sites, by code object and instruction: whether the following jump is backward; the place.
        self.sites: dict[tuple[int, int], tuple[bool, Place | None]] = {}
        # Catch sites, by the code objects and lines through which the fault passed.
        self.catches: dict[tuple[int, ...], _Catch | None] = {}
        self.names |= {
            "PERFORM": self.perform,
            "FORK": self.fork,
            "NOTE": self.note,
            "SET_BOX": machine.set_box,
            "CAUGHT": self.caught,
            "LEAVE": self.deoptimize,
            "END": self.end,
        }

    # --- what code asks for ---------------------------------------------------------------

    def perform(self, kind: str, args: Value) -> Value:
        machine, library = self.machine, self.library
        given = plain_map(args, EFFECT_ARGUMENTS, kind)
        frame = sys._getframe(1)
        # Code objects are identified by `id`, because hashing one reads all of it.
        at = id(frame.f_code), frame.f_lasti
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

    def deoptimize(
        self, reason: str, function: int, slots: Sequence[Value], state: int | None = None
    ) -> None:
        """Deoptimise: continue in the interpreter, because the following code cannot be translated.

        Continues at the call of `function`, or, with `state`, at that state of the function.
        """
        self.count()
        frame = Frame(self.machine.functions[function], slots)
        if state is None:
            self.machine.ticks += 1
        else:
            frame.state = state
        self.host.switch(_Deoptimized(reason, frame))

    def end(self, value: Value) -> Value:
        """End the run of a loop with a value. Its frame is kept so that its captures can be inspected."""
        self.final_frames = self.seen(sys._getframe(1), False)
        return value

    def caught(self, function: int, fault: PrimitiveFault) -> tuple[int, int, Value, bool] | None:
        """Handle a fault in a frame of a function with handlers: the target and its arguments; None if it
        is not caught.
        """
        trace = fault.__traceback__
        assert trace is not None
        path: list[int] = []
        innermost: TracebackType | None = trace
        while innermost is not None:
            # Identified by `id`, as in `perform`.
            path += (id(innermost.tb_frame.f_code), innermost.tb_lasti)
            innermost = innermost.tb_next
        key = tuple(path)
        if key in self.catches:
            site = self.catches[key]
        else:
            site = self.find_catch(function, trace)
            if len(self.catches) < _CATCHES and len(key) < _MANY:
                self.catches[key] = site
        if site is None:
            return None
        inner = site.inner
        if site.has_prepaid:
            self.returned += self.unused_ticks(trace)
        if site.is_library and fault.place is None:
            self.locate(fault, inner, trace.tb_frame.f_back)
        trail: Any = partial(self.trail, inner)
        if fault.is_again:
            trail = self.machine.whole(Raised(fault, *self.trail(inner))).trail
        elif len(inner) > _MANY:
            trail = self.trail(inner)
        value = self.machine.caught(fault, site.place, trail)
        return site.target, site.slot, value, site.is_back

    def find_catch(self, function: int, trace: TracebackType) -> _Catch | None:
        """The catch site for faults that arrive at a frame through the same code; None if the frame does not
        catch them.
        """
        library = self.library
        code, line = trace.tb_frame.f_code, trace.tb_lineno
        places = library.codes[code][line]
        if not places:  # another entry of the function has replaced it
            return None
        state = library.state_of(function, places[0][1])
        handler = self.machine.image.functions[function].handlers.get(state)
        inner = self.frames_of(trace)
        if handler is None or (len(inner) > 1 and self.is_dead(code, line)):
            return None
        target, slot = handler
        return _Catch(slot, target, state, inner, library.place(*inner[-1]), self.has_prepaid(trace))

    def has_prepaid(self, trace: TracebackType | None) -> bool:
        """Whether ticks may have been charged in advance for code that the fault skips (`unused_ticks`)."""
        while trace is not None:
            places = self.library.codes.get(trace.tb_frame.f_code)
            if places is not None and places.has_prepaid(trace.tb_lineno):
                return True
            trace = trace.tb_next
        return False

    def unused_ticks(self, trace: TracebackType | None) -> int:
        """The number of ticks charged in advance for code that the fault skips."""
        found = 0
        while trace is not None:
            places = self.library.codes.get(trace.tb_frame.f_code)
            if places is not None:
                found = places.unused_ticks(trace.tb_lineno, trace.tb_frame)
            trace = trace.tb_next
        return found

    def frames_of(self, trace: TracebackType | None) -> list[tuple[int, int]]:
        """The functions through which a fault passed, with their offsets, outermost first."""
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

        trace: the frames that the fault has passed so far. outer: the next frame outwards.
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
        """Continue the machine's strand until it stops; return its outcome, or None if there is none yet.

        DEEPER: the interpreter must continue, which counts each call. COLD: the interpreter is faster.
        """
        machine = self.machine
        strand = machine.strand
        if len(strand.calls) + SLICE > machine.room:
            return DEEPER  # the interpreter detects the depth limit
        if strand.live is None and self.is_cold(strand):
            return COLD
        self.host = getcurrent()
        self.names["MAX_ITEMS"] = bounds.MAX_ITEMS
        self.allow()
        with self.running:
            live: LiveStrand | None = strand.live  # type: ignore[assignment]
            if live is None:
                live = strand.live = LiveStrand(greenlet(self.main))
                self.depth = len(strand.calls)
                self.deep = min(max(DEEP, 2 * self.depth), machine.room - 2 * SLICE)
                outcome = live.greenlet.switch(strand)
            else:
                outcome = live.greenlet.switch()
            if outcome is SETTLE or outcome is DEEPER or outcome is COLD or type(outcome) is _Fork:
                self.settle(strand)
            elif type(outcome) is _Deoptimized:
                self.settle(strand, outcome.callee)
        if outcome is SETTLE:
            return None
        if outcome is DEEPER or outcome is COLD:
            return outcome
        kind = type(outcome)
        if kind is Effect or kind is OutOfFuel:
            return outcome
        if kind is _Fork:
            try:
                machine.fork(outcome.callee, outcome.items)
            except PrimitiveFault as fault:
                frame = machine.calls[-1]
                return machine.unwind(fault, len(frame.function.block(frame.state)) - 1)
            return None
        if kind is _Deoptimized:
            self.settle_all()
            machine.direct = None
            machine.obstacle = outcome.reason
            return None
        strand.live = None
        if kind is _Returned:
            if strand.within is not None:
                return machine.end_strand(outcome.value)
            strand.calls += self.final_frames
            return machine.end(outcome.value)
        return (
            machine.fail(outcome.raised)
            if strand.within is None
            else machine.end_strand(None, outcome.raised)
        )

    def main(self, strand: Strand) -> Any:
        """The main function of a strand's greenlet: enter its innermost frame, then the frames to which it
        returns.
        """
        machine, library = self.machine, self.library
        calls = strand.calls
        while True:
            frame = calls[-1]
            try:
                begun = library.beginning(frame)
                entry = begun or library.entry(frame.function.index, frame.state, frame.slots)
                self.returned += begun is not None  # the entry charges a tick that was charged already
            except Untranslatable as error:
                self.host.switch(_Deoptimized(str(error)))
            slots = frame.slots
            calls.pop()
            del frame
            try:
                value = entry(slots)
            except PrimitiveFault as fault:
                self.returned += self.unused_ticks(fault.__traceback__)
                self.count()
                trace = self.frames_of(fault.__traceback__)
                self.locate(fault, trace, None)
                raised = Raised(fault, *self.trail(trace))
                if machine.catch(calls, raised, library.place(*trace[-1])):
                    self.restart()
                    continue
                whole = machine.whole(raised.under(calls))
                for function, state in raised.trace:  # for the backtrace
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
        """Whether the interpreter should continue a strand until it reaches a function or a loop.

        The interpreter must not reach other strands, which have live frames.
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
        """The frames that a fault left, which passed through `found`."""
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
        """Convert the frames of a strand to frames of the machine; `callee`: the frame of a function just
        called.
        """
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
        """The frames of the machine that a Python frame represents, innermost first. is_inner: it has called
        others.
        """
        machine, library = self.machine, self.library
        found = []
        for function, offset, names in reversed(library.codes[frame.f_code][frame.f_lineno]):
            code = machine.image.functions[function]
            if not (is_inner and code.code[offset] == TAILCALL):
                made = Frame(machine.functions[function], ())
                made.state = library.state_of(function, offset)
                # Read only from frames that are kept: Python builds a map of all locals.
                values = frame.f_locals
                made.slots = [_held(values, name) for name in names]
                found.append(made)
            is_inner = True
        return found

    def settle_all(self) -> None:
        for strand in walk(self.machine.strand):
            self.settle(strand)


def _held(local: Mapping[str, Value], name: str) -> Value:
    """The value of a slot: a local, or a list of several locals (`Place`)."""
    if "," in name:
        return tuple(finished_list(local.get(one)) for one in name.split(",")[:-1])
    return finished_list(local.get(name))
