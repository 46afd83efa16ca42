"""Control operations of a machine: calls, strands, and the end of a run.

`Control` holds the complete state of a run, and the operations that change more than the running frame. Steps
(`steps`), the machine and the compiled tier work on it. Must not contain: the loop that runs steps, tiers,
what a host calls (`machine`).
"""

from __future__ import annotations

from ...ir.compile_options import LIBRARY_FOLDER
from ...ir.python_internals import deque
from ..code.image import FunctionCode, Image
from ..values import bounds
from ..values.faults import Fault, Place, PrimitiveFault, fault_map, show_place
from ..values.values import MAX_HOST_DEPTH, Box, DynamicBox, FunctionValue, Value, from_host, show, to_host
from .frames import Frame, FuelMeter, Functions
from .outcomes import Done, Waiting
from .strands import Fork, Raised, Strand, Trail

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

# A fault in a library function is reported at the author's call of it, which is searched for at most NEAR
# calls outwards.
NEAR = 32
# Limit of the caught faults whose trails are kept, the latest ones.
TRAILS = 32


def plain(value: Value, what: str) -> Any:
    """A value in host form. Raises PrimitiveFault if it has none."""
    try:
        return to_host(value, MAX_HOST_DEPTH)
    except TypeError as error:
        raise PrimitiveFault("type-error", f"{what}: {error}") from None
    except ValueError as error:
        raise PrimitiveFault("too-large", f"{what}: {error}") from None


class Control(FuelMeter):
    """The state of a run.

    Attributes:
        calls: the frames of `strand`, which runs or ran last: it can continue, or waits for a result.
        ready: the other strands that can run, in order.
        asked: all waiting strands except the first, by effect number, in order.
        dynamic: the dynamic boxes that were set, with their earlier values.
        outside: number of frames of all strands but `strand`.
        room: number of frames that `strand` may have.
        limit: the number of ticks after which the machine stops.
        trails: backtraces of caught faults, by place: a fault that is raised again keeps its first backtrace.
    """

    __slots__ = (
        "asked",
        "calls",
        "dynamic",
        "ended",
        "functions",
        "image",
        "limit",
        "notes",
        "outside",
        "ready",
        "room",
        "seq",
        "stack",
        "strand",
        "trails",
    )

    def __init__(self, image: Image, functions: Functions, args: Sequence[Any], fuel: int | None) -> None:
        super().__init__()
        self.image = image
        self.functions = functions
        self.stack: list[Value] = []
        self.calls = [Frame(functions[image.entry], [from_host(arg) for arg in args])]
        self.strand = Strand(self.calls)
        self.ready: deque[Strand] = deque()
        self.asked: dict[int, Strand] = {}
        self.dynamic: list[tuple[Box, Value]] = []
        self.trails: dict[str, Trail | Callable[[], Trail]] = {}
        self.outside = 0
        self.room = bounds.MAX_CALLS
        self.notes: list[tuple[str, dict[str, Any]]] = []
        self.seq = 0
        self.ended = False
        self.limit = float("inf") if fuel is None else fuel

    def call(self, count: int) -> Frame:
        """Make a frame for the callee and its `count` arguments on the stack. Costs one tick."""
        stack = self.stack
        arguments = stack[len(stack) - count :]
        callee = stack[-1 - count]
        stack.clear()
        if type(callee) is not FunctionValue:
            raise PrimitiveFault("not-a-function", f"cannot call {show(callee)}: it is not a function")
        function = self.functions[callee.function]
        code = function.code
        captures = callee.captures
        if len(captures) > code.captures:  # `applied` has added arguments
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

    def set_box(self, box: Value, value: Value) -> None:
        """Replace the value of a box; of a dynamic box, the value in the running strand."""
        if type(box) is DynamicBox:
            if all(known is not box for known, _ in self.dynamic):
                self.dynamic.append((box, box.value))
        elif type(box) is not Box:
            raise PrimitiveFault("type-error", f"cannot set {show(box)}: it is no box")
        box.value = value

    def save_dynamic(self) -> None:
        """Keep the dynamic boxes' values for the running strand."""
        self.strand.dynamic = [box.value for box, _ in self.dynamic]

    def dynamic_of(self, strand: Strand) -> list[Value]:
        """The values of the dynamic boxes in a strand that does not run."""
        held = strand.dynamic
        return held + [before for _, before in self.dynamic[len(held) :]]

    def load_dynamic(self) -> None:
        """Give the dynamic boxes the running strand's values."""
        for (box, _), value in zip(self.dynamic, self.dynamic_of(self.strand), strict=True):
            box.value = value

    def switch(self) -> None:
        """Make the strand that has been ready longest the running one."""
        self.outside += len(self.calls)
        if self.dynamic:
            self.save_dynamic()
        self.strand = self.ready.popleft()
        if self.dynamic:
            self.load_dynamic()
        self.calls = self.strand.calls
        self.outside -= len(self.calls)
        self.room = bounds.MAX_CALLS - self.outside

    def fork(self, callee: Value, items: Sequence[Value]) -> None:
        """Call `callee` for each item (at least one) in a strand of its own. Costs one tick each."""
        if len(self.calls) + len(items) > self.room:
            raise PrimitiveFault(
                "too-deep", f"more than {bounds.MAX_CALLS} calls inside one another or at once"
            )
        frames = []
        for item in items:
            self.stack[:] = [callee, item]
            frames.append(self.call(1))
        fork = self.strand.fork = Fork(self.strand, frames)
        self.save_dynamic()
        for strand in fork.strands:
            assert strand is not None
            strand.dynamic = self.strand.dynamic
            self.ready.append(strand)
        self.outside += len(frames)
        self.switch()

    def end_strand(self, value: Value, raised: Raised | None = None) -> Waiting | Fault | None:
        """End the running strand with a value or a fault, and run another one, perhaps its parent."""
        strand = self.strand
        self.calls.clear()
        while True:
            fork = strand.within
            assert fork is not None
            if not fork.end(strand.item, value, raised):
                break
            # The last one: the strand that forked continues.
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
            if self.catch(strand.calls, raised, raised.place):
                self.outside -= before - len(strand.calls)
                self.ready.append(strand)
                break
            raised = raised.under(strand.calls)
            if strand.within is None:
                self.strand, self.calls = strand, strand.calls
                return self.fail(raised)
            self.outside -= before
            strand.calls.clear()
        if self.ready:
            self.switch()
            return None
        # Displays show the strand with the latest request.
        self.ready.append(next(reversed(self.asked.values())))
        self.switch()
        return Waiting()

    def end(self, value: Value) -> Done | Fault:
        """End the run with a value; with a fault if the value has no host form."""
        self.ended = True
        try:
            return Done(plain(value, "the program's result"))
        except PrimitiveFault as fault:
            span = self.image.place(self.image.functions[self.image.entry].span)
            return Fault(fault.kind, fault.message, span)

    def unwind(self, fault: PrimitiveFault, index: int) -> Waiting | Fault | None:
        """Move control to the nearest handler, or end the strand; `index` of the faulting instruction."""
        self.stack.clear()
        frame = self.calls[-1]
        place = frame.function.place(frame.state, index)
        if fault.place is None and is_library(place):
            fault.place = show_place(self.author_place(self.calls[-2 : -2 - NEAR : -1]))
        raised = Raised(fault, (), index)
        if self.catch(self.calls, raised, place):
            return None
        raised = self.whole(raised.under(self.calls))
        return self.fail(raised) if self.strand.within is None else self.end_strand(None, raised)

    def catch(self, calls: list[Frame], raised: Raised, place: Place | None) -> bool:
        """Move control to the innermost handler in `calls`, dropping the frames inside it; False if none.

        raised: the fault as it came to `calls`; place: where it happened.
        """
        for index in range(len(calls) - 1, -1, -1):
            frame = calls[index]
            handler = frame.function.code.handlers.get(frame.state)
            if handler is not None:
                raised = self.whole(raised.under(calls[index:]))
                trail = raised.trail
                del calls[index + 1 :]
                target, slot = handler
                frame.slots[slot] = self.caught(raised.fault, show_place(place), trail)
                frame.go(self, target)
                return True
        return False

    def caught(self, fault: PrimitiveFault, place: str | None, trail: Trail | Callable[[], Trail]) -> Value:
        """The map of a caught fault. Its backtrace is kept, unless the program invented its place.

        place: the place of a fault without one. trail: the frames that it left, or a function
        that computes them when they are needed.
        """
        where = fault.place or place
        if where is not None and (not fault.is_again or where in self.trails):
            self.trails.pop(where, None)
            self.trails[where] = trail
            if len(self.trails) > TRAILS:
                del self.trails[next(iter(self.trails))]
        return fault_map(fault.kind, fault.message, where, fault.details)

    def trail_of(self, place: str) -> Trail:
        """The backtrace of the latest caught fault with this place."""
        found = self.trails[place]
        if callable(found):
            found = self.trails[place] = found()
        return found

    def whole(self, raised: Raised) -> Raised:
        """A fault with its original frames, if the function that caught it raises it again."""
        fault = raised.fault
        trail = self.trail_of(fault.place) if fault.is_again and fault.place in self.trails else None
        if raised.is_whole or trail is None or trail[0][0][0] is not raised.trace[-1][0]:
            return raised
        return raised.after(trail)

    def author_place(self, frames: list[Frame]) -> Place | None:
        """Source place where the author's code called the running library function, or None if unknown.

        `frames` are the nearest frames of the strand, innermost first.
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

    def fail(self, raised: Raised) -> Fault:
        """End the run with a fault."""
        self.ended = True
        fault, place = raised.fault, raised.place
        try:
            details = to_host(fault.details, MAX_HOST_DEPTH)
        except (TypeError, ValueError):
            details = {}
        first = place if fault.place is None else _find_place(self.image, fault.place) or place
        # All frames but the innermost are at the exit of their state.
        places = [function.exit_place(state) for function, state in raised.trace[:-1]]
        trace = [
            (function.code.name, function.code.states[state], here)
            for (function, state), here in zip(raised.trace, [*places, place], strict=True)
        ]
        return Fault(fault.kind, fault.message, first, tuple(trace), raised.omitted, details)


def is_library(place: Place | None) -> bool:
    return place is not None and place[0].startswith(LIBRARY_FOLDER)


def _find_place(image: Image, text: str) -> Place | None:
    """The widest place of the image that `show_place` prints as `text`."""
    found = [image.place(span) for span in range(1, len(image.spans) // 5 + 1)]
    return max((p for p in found if show_place(p) == text), key=lambda p: p[3:], default=None)  # type: ignore[index]


def takes(code: FunctionCode) -> str:
    """The number of arguments of a function, for a message."""
    count = code.parameters - code.rest
    least = "at least " if code.rest else ""
    return f"{least}{count} argument{'' if count == 1 else 's'}"
