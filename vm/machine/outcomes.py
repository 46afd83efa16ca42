"""What a host sees of a machine: what `resume` gives, and views of what is active, for displays."""

from __future__ import annotations

from .strands import chain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..values.faults import Place
    from ..values.values import Value
    from .machine import Frame
    from .strands import Strand


class Effect:
    """The program asks for something; `resume` goes on with the host's answer.

    `seq` counts effects from 1, `args` is plain data, `span` is where it was asked for.
    """

    __slots__ = ("args", "kind", "seq", "span")

    def __init__(self, seq: int, kind: str, args: dict[str, Any], span: Place | None = None) -> None:
        self.seq = seq
        self.kind = kind
        self.args = args
        self.span = span

    def __repr__(self) -> str:
        return f"Effect({self.seq}, {self.kind!r}, {self.args!r})"


class Done:
    """The program ended; `value` is plain data."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"Done({self.value!r})"


class Waiting:
    """Nothing can run until one of the effects that wait (`Machine.waiting`) is answered."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "Waiting()"


class OutOfFuel:
    """All ticks are used; after `refuel`, `resume` goes on."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "OutOfFuel()"


class NoAnswer:
    """What `resume` is given where it is given no answer: null is one."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "NO_ANSWER"


NO_ANSWER = NoAnswer()


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
        """Where its function stands in the source."""
        return self._frame.function.image.place(self._frame.function.code.span)

    @property
    def state(self) -> str:
        return self._frame.function.code.states[self._frame.state]

    @property
    def slots(self) -> dict[str, Value]:
        """The slots that are set, by name. Values as they are, not in host form."""
        names = self._frame.function.code.slots
        return {
            name: value for name, value in zip(names, self._frame.slots, strict=True) if value is not None
        }

    @property
    def place(self) -> Place | None:
        """Where in the source it stands: the exit of its state, or else the state."""
        function, state = self._frame.function, self._frame.state
        return function.exit_place(state) or function.image.place(function.code.state_spans[state])


class StrandView:
    """One of the calls that run side by side, for displays.

    `items` is its place: which item of the first fork, of the fork inside it and so on; empty for the
    run's own. `effect` is what it waits for. It shows the strand as it is when asked.
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
