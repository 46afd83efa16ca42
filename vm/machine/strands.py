"""Strands: calls of one function for many items that run side by side, and how they come together.

A machine runs one strand at a time, until that asks for an effect, forks or ends; then the one that
has been ready longest. So the order in which things happen follows from the order of the host's
answers alone (`spec/machine.md`, Strands). The first strand is the run itself.

Must not be in here: steps, frames and what a host sees of a machine (`machine`).
"""

from __future__ import annotations

from ..values.faults import TRACE_ENDS, fault_map, show_place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..jit.runtime.tier import Live
    from ..values.faults import Place, PrimitiveFault
    from ..values.values import Value
    from .machine import Frame, LoadedFunction, Machine
    from .outcomes import Effect


class Strand:
    """Frames that run one after another, innermost last.

    effect: what it asked for and waits for. fork: what it waits for, at the exit it stands at.
    within, item: the fork it belongs to, None for the first strand, and which item it is called for.
    """

    __slots__ = ("calls", "effect", "fork", "item", "live", "within")

    def __init__(self, calls: list[Frame], within: Fork | None = None, item: int = 0) -> None:
        self.calls = calls
        self.effect: Effect | None = None
        self.fork: Fork | None = None
        # What runs above `calls` in the direct tier (`direct`).
        self.live: Live | None = None
        self.within = within
        self.item = item


class Fork:
    """A strand that waits for others, one for each item of a list.

    strands: by item; None for those that ended, of which `results` has what they returned. `left`
    counts the others. `raised` is the fault of the first item, in order, that failed.
    """

    __slots__ = ("left", "parent", "raised", "results", "strands")

    def __init__(self, parent: Strand, frames: Sequence[Frame]) -> None:
        self.parent = parent
        self.strands: list[Strand | None] = [Strand([frame], self, i) for i, frame in enumerate(frames)]
        self.results: list[Value] = [None] * len(frames)
        self.left = len(frames)
        self.raised: Raised | None = None

    def end(self, item: int, value: Value, raised: Raised | None) -> bool:
        """The strand of an item has ended, by a fault or with a value; whether it was the last."""
        self.strands[item] = None
        self.left -= 1
        if raised is None:
            self.results[item] = value
        elif self.raised is None or item < self.raised.item:
            raised.item = item
            self.raised = raised
        return self.left == 0


class Raised:
    """A fault that ended the strand of an item.

    `trace` has function and state of the frames it went through, at most so many at each end and
    `omitted` between them; it happened at the instruction of index `at` of the last one's state.
    """

    __slots__ = ("at", "fault", "item", "omitted", "trace")

    def __init__(
        self,
        fault: PrimitiveFault,
        trace: Sequence[tuple[LoadedFunction, int]],
        at: int,
        omitted: int = 0,
        item: int = 0,
    ) -> None:
        # It may be kept long: not with it the Python frames it came through.
        self.fault = fault.with_traceback(None)
        self.at = at
        self.item = item
        self.trace = tuple(trace)
        self.omitted = omitted

    @property
    def place(self) -> Place | None:
        function, state = self.trace[-1]
        return function.place(state, self.at)

    def under(self, calls: Sequence[Frame]) -> Raised:
        """The same fault as it leaves these frames, which are outside of its own."""
        outer = calls if len(calls) <= 2 * TRACE_ENDS else [*calls[:TRACE_ENDS], *calls[-TRACE_ENDS:]]
        trace = [*((frame.function, frame.state) for frame in outer), *self.trace]
        shown = trace
        if len(trace) > 2 * TRACE_ENDS:
            shown = trace[:TRACE_ENDS] + trace[-TRACE_ENDS:]
        omitted = self.omitted + len(calls) + len(self.trace) - len(shown)
        return Raised(self.fault, shown, self.at, omitted, self.item)


def catch(machine: Machine, calls: list[Frame], fault: PrimitiveFault, place: Place | None) -> bool:
    """Control to the innermost handler among `calls`, if there is one; frames inside it are dropped."""
    for index in range(len(calls) - 1, -1, -1):
        frame = calls[index]
        handler = frame.function.code.handlers.get(frame.state)
        if handler is not None:
            del calls[index + 1 :]
            target, slot = handler
            frame.slots[slot] = fault_map(
                fault.kind, fault.message, fault.place or show_place(place), fault.details
            )
            frame.go(machine, target)
            return True
    return False


def walk(strand: Strand) -> Iterator[Strand]:
    """All strands of the tree that `strand` is in: each before those it forked, in order of items."""
    while strand.within is not None:
        strand = strand.within.parent
    todo = [strand]
    while todo:
        strand = todo.pop()
        yield strand
        if strand.fork is not None:
            todo += [inner for inner in reversed(strand.fork.strands) if inner is not None]


def chain(strand: Strand) -> list[Strand]:
    """The strands that a strand was forked from, outermost first, and itself."""
    found = [strand]
    while strand.within is not None:
        strand = strand.within.parent
        found.append(strand)
    return found[::-1]
