"""Strands: concurrent calls of one function for many items, and how their results are joined.

A machine runs one strand until it requests an effect, forks or ends, then the one that has been ready
longest. The order of execution therefore depends only on the order of the host's answers
(`spec/machine.md`, Strands). The first strand is the run itself.

Must not contain: steps, scheduling (`control`).
"""

from __future__ import annotations

from ..values.faults import TRACE_ENDS, Place, PrimitiveFault
from ..values.values import Value
from .frames import Frame, FrameView, FuelMeter, LoadedFunction
from .outcomes import Effect

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import TypeAlias

# The frames that a fault left, the index of the faulting instruction in the last one, and the number of
# omitted frames.
Trail: TypeAlias = "tuple[tuple[tuple[LoadedFunction, int], ...], int, int]"


class CompiledStrand:
    """The running part of a strand in a compiled tier, which defines it (`jit/runtime/tier.py`)."""

    __slots__ = ()

    def take(self, meter: FuelMeter, value: Value) -> None:
        """Give the answer to the pending effect."""
        raise NotImplementedError  # by kind of strand, below


class Strand:
    """A call stack, innermost frame last.

    Attributes:
        effect: the pending effect.
        fork: the pending fork, at the exit of the innermost frame's state.
        within, item: the fork that the strand belongs to, None for the first strand; and the index of its
        item.
        live: its running part above `calls`, in the compiled tier.
        dynamic: the values of the machine's dynamic boxes, while another strand runs.
    """

    __slots__ = ("calls", "dynamic", "effect", "fork", "item", "live", "within")

    def __init__(self, calls: list[Frame], within: Fork | None = None, item: int = 0) -> None:
        self.calls = calls
        self.dynamic: list[Value] = []
        self.effect: Effect | None = None
        self.fork: Fork | None = None
        self.live: CompiledStrand | None = None
        self.within = within
        self.item = item


class Fork:
    """A strand that waits for others, one for each item of a list.

    strands: by item, None once ended; `results` has their values. `left` counts the unfinished ones.
    `raised` is the fault of the first item, in item order, that failed.
    """

    __slots__ = ("left", "parent", "raised", "results", "strands")

    def __init__(self, parent: Strand, frames: Sequence[Frame]) -> None:
        self.parent = parent
        self.strands: list[Strand | None] = [Strand([frame], self, i) for i, frame in enumerate(frames)]
        self.results: list[Value] = [None] * len(frames)
        self.left = len(frames)
        self.raised: Raised | None = None

    def end(self, item: int, value: Value, raised: Raised | None) -> bool:
        """Record the end of an item's strand, with a value or a fault. True if it was the last."""
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

    `trace` has function and state of the frames that it left, at most TRACE_ENDS at each end with
    `omitted` between them; `at` is the index of the faulting instruction in the last one's state.
    is_whole: a fault that was raised again has its original frames in the trace (`Control.whole`).
    """

    __slots__ = ("at", "fault", "is_whole", "item", "omitted", "trace")

    def __init__(
        self,
        fault: PrimitiveFault,
        trace: Sequence[tuple[LoadedFunction, int]],
        at: int,
        omitted: int = 0,
        item: int = 0,
        is_whole: bool = False,
    ) -> None:
        # Without the traceback, which would keep Python frames alive.
        self.fault = fault.with_traceback(None)
        self.at = at
        self.is_whole = is_whole
        self.item = item
        self.trace = tuple(trace)
        self.omitted = omitted

    @property
    def place(self) -> Place | None:
        function, state = self.trace[-1]
        return function.place(state, self.at)

    def under(self, calls: Sequence[Frame]) -> Raised:
        """The same fault after it has left these frames, which are outside its own."""
        outer = calls if len(calls) <= 2 * TRACE_ENDS else [*calls[:TRACE_ENDS], *calls[-TRACE_ENDS:]]
        shown = _ends([*((frame.function, frame.state) for frame in outer), *self.trace])
        omitted = self.omitted + len(calls) + len(self.trace) - len(shown)
        return Raised(self.fault, shown, self.at, omitted, self.item, self.is_whole)

    def after(self, trail: Trail) -> Raised:
        """The same fault, raised again by its innermost frame, with the backtrace with which it arrived
        there.
        """
        inner, at, omitted = trail
        trace = [*self.trace[:-1], *inner]
        shown = _ends(trace)
        omitted += self.omitted + len(trace) - len(shown)
        return Raised(self.fault, shown, at, omitted, self.item, is_whole=True)

    @property
    def trail(self) -> Trail:
        return self.trace, self.at, self.omitted


def _ends(trace: list[tuple[LoadedFunction, int]]) -> list[tuple[LoadedFunction, int]]:
    """The frames of a trace that are kept."""
    return trace if len(trace) <= 2 * TRACE_ENDS else trace[:TRACE_ENDS] + trace[-TRACE_ENDS:]


def walk(strand: Strand) -> Iterator[Strand]:
    """All strands of the tree that contains `strand`: each before those it forked, in order of items."""
    while strand.within is not None:
        strand = strand.within.parent
    todo = [strand]
    while todo:
        strand = todo.pop()
        yield strand
        if strand.fork is not None:
            todo += [inner for inner in reversed(strand.fork.strands) if inner is not None]


def chain(strand: Strand) -> list[Strand]:
    """The ancestors of a strand, outermost first, then the strand itself."""
    found = [strand]
    while strand.within is not None:
        strand = strand.within.parent
        found.append(strand)
    return found[::-1]


class StrandView:
    """One of several concurrent calls, for displays.

    `items` is its path: the index of the item in the first fork, in the fork inside it, and so on; empty
    for the main strand. `effect` is the effect that it waits for.
    """

    __slots__ = ("_strand",)

    def __init__(self, strand: Strand) -> None:
        self._strand = strand

    @property
    def items(self) -> tuple[int, ...]:
        return tuple(strand.item for strand in chain(self._strand)[1:])

    @property
    def effect(self) -> Effect | None:
        return self._strand.effect

    @property
    def frames(self) -> list[FrameView]:
        """Its own active functions, innermost last."""
        return [FrameView(frame) for frame in self._strand.calls]
