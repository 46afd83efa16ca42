"""Views of a machine for displays: active functions and strands, shown as they are when asked."""

from __future__ import annotations

from ..values.faults import Place
from ..values.values import Value
from .frames import Frame
from .outcomes import Effect
from .strands import Strand, chain


class FrameView:
    """One active function, for displays: its name, its state's name and its slots."""

    __slots__ = ("_frame",)

    def __init__(self, frame: Frame) -> None:
        self._frame = frame

    @property
    def function(self) -> str:
        return self._frame.function.code.name

    @property
    def origin(self) -> Place | None:
        """Source place of its function."""
        return self._frame.function.image.place(self._frame.function.code.span)

    @property
    def state(self) -> str:
        return self._frame.function.code.states[self._frame.state]

    @property
    def slots(self) -> dict[str, Value]:
        """The slots that are set, by name. Values of the machine, not in host form."""
        names = self._frame.function.code.slots
        return {
            name: value for name, value in zip(names, self._frame.slots, strict=True) if value is not None
        }

    @property
    def place(self) -> Place | None:
        """Source place of control: the exit of its state, or else the state."""
        function, state = self._frame.function, self._frame.state
        return function.exit_place(state) or function.image.place(function.code.state_spans[state])


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
