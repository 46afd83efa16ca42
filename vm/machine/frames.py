"""Loaded functions, stack frames, and views of frames for displays.

A loaded function is a function of an image with its states decoded to steps; a frame is an active
function: a state and the values of its slots. The steps themselves are given (`steps`).
Must not contain: strands, what a step does, the machine.
"""

from __future__ import annotations

from itertools import islice

from ..code.image import Image
from ..code.opcodes import NO_STATE, Opcode, decode
from ..primitives.handlers import HANDLERS
from ..values.faults import Place
from ..values.values import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, TypeAlias

# The implementation of an opcode: (machine, frame, operand) → the outcome that stops the machine, or None
# (`steps`).
Step: TypeAlias = "Callable[[Any, Frame, Any], Any]"
# A state's code, ready to run: (step, its operand).
Block: TypeAlias = "list[tuple[Step, Any]]"


class LoadedFunction:
    """A function of the image; each state is decoded when it is first entered.

    Equal instructions share one pair across states, so that a walk through ten thousand states uses
    little memory (`benchmarks/`, scale).
    """

    __slots__ = ("blocks", "code", "exits", "image", "index", "instructions", "steps")

    def __init__(self, image: Image, index: int, steps: Mapping[str, Step]) -> None:
        self.index = index
        self.code = image.functions[index]
        self.image = image
        self.steps = steps
        self.blocks: dict[int, Block] = {}
        self.instructions: dict[tuple[Opcode, tuple[int, ...]], tuple[Step, Any]] = {}
        self.exits: dict[int, Place | None] = {}

    def block(self, state: int) -> Block:
        """The decoded steps of a state. Raises ValueError if they do not end in an exit."""
        block = self.blocks.get(state)
        if block is None:
            block = []
            row = None
            known = self.instructions
            for _, row, words in decode(self.code.code, *self.code.bounds(state)):
                instruction = known.get((row, words))
                if instruction is None:
                    operands = [self._operand(*pair) for pair in zip(row.operands, words, strict=True)]
                    instruction = (self.steps[row.name], operands[0] if len(operands) == 1 else operands)
                    known[row, words] = instruction
                block.append(instruction)
            if row is None or not row.is_exit:
                raise ValueError(f"state `{self.code.states[state]}` has no exit")
            self.blocks[state] = block
        return block

    def place(self, state: int, index: int) -> Place | None:
        """Source place of the instruction with that index in a state."""
        steps = decode(self.code.code, *self.code.bounds(state))
        offset = next(islice(steps, index, None))[0]
        return self.image.place_at(self.code, offset)

    def exit_place(self, state: int) -> Place | None:
        """Source place of the exit of a state."""
        if state not in self.exits:
            self.exits[state] = self.place(state, len(self.block(state)) - 1)
        return self.exits[state]

    def _operand(self, kind: str, word: int) -> Any:
        """The value of an operand word; indices that a frame resolves are unchanged."""
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
    """The functions of an image by index; each is loaded on first use.

    All machines of an image share them (`Image.loaded`). translators: the data of the compiled tier for
    the image (`jit/runtime/functions.py`).
    """

    def __init__(self, image: Image, steps: Mapping[str, Step]) -> None:
        self.image = image
        self.steps = steps
        self.translators: dict[Any, Any] = {}

    def __missing__(self, index: int) -> LoadedFunction:
        function = self[index] = LoadedFunction(self.image, index, self.steps)
        return function


class FuelMeter:
    """Fuel used so far, in ticks: one per function entry and per jump that is not forward."""

    __slots__ = ("ticks",)

    def __init__(self) -> None:
        self.ticks = 1  # the entry function's


class Frame:
    """An active function. Its operand stack is the machine's, and is empty between states."""

    __slots__ = ("function", "slots", "state")

    def __init__(self, function: LoadedFunction, arguments: Sequence[Value]) -> None:
        self.function = function
        self.state = 0
        slots: list[Value] = [None] * len(function.code.slots)
        slots[: len(arguments)] = arguments
        self.slots = slots

    def go(self, meter: FuelMeter, target: int) -> None:
        """Move control to another state of this frame. A jump that is not forward costs a tick."""
        if target <= self.state:
            meter.ticks += 1
        self.state = target


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
