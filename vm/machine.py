"""The machine: runs an image, one step after another, until it needs its host.

It never touches the world. `resume` runs until the program asks for an effect, ends, fails or is
out of fuel; a stopped machine is nothing but its frames, for each a function, a state and the
values of its slots (`spec/machine.md`).

Each row of `opcodes.ROWS` has one step here, paired at import. A state is decoded when it is first
entered, so a step costs what it costs however large the program is. An image is taken to be
verified (`verify`): one that is not may end in a Python exception, but cannot run on without using
fuel: a state must be left, and every jump that is not forward costs a tick whatever the code says.
"""

from __future__ import annotations

from itertools import islice
from operator import length_hint

from . import bounds
from .faults import TRACE_ENDS, Fault, PrimitiveFault, fault_map, show_place
from .opcodes import BY_NAME, NO_STATE, decode
from .primitives import HANDLERS
from .values import Box, FunctionValue, from_host, show, to_host

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from .faults import Place, TraceFrame
    from .image import FunctionCode, Image
    from .opcodes import Opcode
    from .values import Value

    Step = Callable[["Machine", "Frame", Any], "Effect | Done | None"]
    # A state's code, ready to run: (step, its operand).
    Block = list[tuple[Step, Any]]


# --- what the host sees -----------------------------------------------------------------------


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


class OutOfFuel:
    """All ticks are used; after `refuel`, `resume` goes on."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "OutOfFuel()"


class FrameView:
    """One active function, for displays: its name, its state's name and its slots."""

    __slots__ = ("_frame",)

    def __init__(self, frame: Frame) -> None:
        self._frame = frame

    @property
    def function(self) -> str:
        return self._frame.function.code.name

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


# --- frames -----------------------------------------------------------------------------------


class LoadedFunction:
    """A function of the image, each state decoded when it is first entered.

    Equal instructions are one pair, whatever states they stand in: a walk through ten thousand
    states then keeps to little memory (`benchmarks/`, scale).
    """

    __slots__ = ("blocks", "code", "exits", "image", "instructions")

    def __init__(self, image: Image, code: FunctionCode) -> None:
        self.code = code
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

    `effect` is the effect that waits for its answer, if one does; hosts read it after `restore`.
    `seq` counts the effects so far, `ended` says that there is nothing to resume. The other
    attributes are the package's own.
    """

    __slots__ = ("calls", "effect", "ended", "functions", "image", "limit", "notes", "seq", "stack", "ticks")

    def __init__(self, image: Image, args: Sequence[Any] = (), fuel: int | None = None) -> None:
        entry = image.functions[image.entry]
        if len(args) != entry.parameters:
            raise ValueError(f"`{entry.name}` takes {entry.parameters} arguments, not {len(args)}")
        self.image = image
        self.functions = [LoadedFunction(image, code) for code in image.functions]
        self.stack: list[Value] = []
        self.calls = [Frame(self.functions[image.entry], [from_host(arg) for arg in args])]
        self.notes: list[tuple[str, dict[str, Any]]] = []
        self.effect: Effect | None = None
        self.seq = 0
        self.ended = False
        self.ticks = 1
        self.limit = float("inf") if fuel is None else fuel

    def resume(self, result: Any = None) -> Effect | Done | Fault | OutOfFuel:
        """Run on. `result` answers the effect that waits; it is plain data and a map as a rule.

        An answer never faults by itself. TypeError for an answer that is no plain data (the effect
        still waits), RuntimeError where nothing waits for one or the program has ended.
        """
        if self.ended:
            raise RuntimeError("the program has ended")
        if self.effect is not None:
            value = from_host(result)
            frame = self.calls[-1]
            _, slot, target = frame.function.block(frame.state)[-1][1]
            self.effect = None
            frame.slots[slot] = value
            frame.go(self, target)
        elif result is not None:
            raise RuntimeError("no effect waits for an answer")
        while self.ticks < self.limit:
            frame = self.calls[-1]
            outcome: Effect | Done | Fault | None = None
            state = frame.state
            block = frame.function.block(state)
            steps = iter(block)
            try:
                for step, operand in steps:
                    outcome = step(self, frame, operand)
            except PrimitiveFault as fault:
                # The iterator knows which instruction it was; counting along would cost each of them.
                index = len(block) - length_hint(steps) - 1
                outcome = self._unwind(fault, frame.function.place(state, index))
            if outcome is not None:
                return outcome
        return OutOfFuel()

    def refuel(self, fuel: int | None) -> None:
        """Allow so many further ticks; None is no bound."""
        self.limit = float("inf") if fuel is None else self.ticks + fuel

    def take_notes(self) -> list[tuple[str, dict[str, Any]]]:
        """The notes since the last call, in order, as (kind, fields in plain data).

        They are kept until taken: the host of a long run bounds them by giving fuel in portions.
        """
        taken, self.notes = self.notes, []
        return taken

    def frames(self) -> list[FrameView]:
        """The active functions, innermost last. A view shows the frame as it is when asked."""
        return [FrameView(frame) for frame in self.calls]

    def snapshot(self) -> dict[str, Any]:
        """All there is to this run, as JSON-able data; not once the program has ended."""
        from .snapshot import take

        return take(self)

    @staticmethod
    def restore(image: Image, snapshot: Any, fuel: int | None = None) -> Machine:
        """A machine that goes on where the snapshot was taken. SnapshotError if it cannot."""
        from .snapshot import restore

        return restore(image, snapshot, fuel)

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
            raise PrimitiveFault("arity", f"`{code.name}` takes {_takes(code)}, not {count}")
        self.ticks += 1
        return Frame(function, (*arguments, *captures))

    def _unwind(self, fault: PrimitiveFault, place: Place | None) -> Fault | None:
        """Control to the nearest handler, else the fault as the outcome."""
        self.stack.clear()
        calls = self.calls
        for index in range(len(calls) - 1, -1, -1):
            frame = calls[index]
            handler = frame.function.code.handlers.get(frame.state)
            if handler is not None:
                del calls[index + 1 :]
                target, slot = handler
                frame.slots[slot] = fault_map(
                    fault.kind, fault.message, fault.place or show_place(place), fault.details
                )
                frame.go(self, target)
                return None
        self.ended = True
        try:
            details = to_host(fault.details)
        except (TypeError, ValueError):
            details = {}
        first = place if fault.place is None else _find_place(self.image, fault.place) or place
        trace, omitted = self._backtrace(place)
        return Fault(fault.kind, fault.message, first, trace, omitted, details)

    def _backtrace(self, place: Place | None) -> tuple[tuple[TraceFrame, ...], int]:
        calls = self.calls
        shown = calls
        if len(calls) > 2 * TRACE_ENDS:
            shown = calls[:TRACE_ENDS] + calls[-TRACE_ENDS:]
        trace = []
        for frame in shown:
            code = frame.function.code
            # All but the innermost frame stand at the call that ends their state.
            here = place
            if frame is not calls[-1]:
                here = frame.function.exit_place(frame.state)
            trace.append((code.name, code.states[frame.state], here))
        return tuple(trace), len(calls) - len(shown)


def _find_place(image: Image, text: str) -> Place | None:
    """The widest place of the image that `show_place` shows as `text`."""
    found = [image.place(span) for span in range(1, len(image.spans) // 5 + 1)]
    return max((p for p in found if show_place(p) == text), key=lambda p: p[3:], default=None)  # type: ignore[index]


def _takes(code: FunctionCode) -> str:
    """How many arguments a function takes, for a message."""
    count = code.parameters - code.rest
    least = "at least " if code.rest else ""
    return f"{least}{count} argument{'' if count == 1 else 's'}"


def _plain(value: Value, what: str) -> Any:
    """A value in host form; a fault where it has none."""
    try:
        return to_host(value)
    except TypeError as error:
        raise PrimitiveFault("type-error", f"{what}: {error}") from None
    except ValueError as error:
        raise PrimitiveFault("too-large", f"{what}: {error}") from None


def _map(value: Value, what: str) -> dict[str, Any]:
    if type(value) is not dict:
        raise PrimitiveFault("type-error", f"{what} are a map, not {show(value)}")
    return _plain(value, what)  # type: ignore[no-any-return]


# --- steps: one for each opcode ---------------------------------------------------------------
#
# A step takes the machine, the running frame and its operand (a list where it has several). An exit
# may return an outcome, which stops the machine.


def _const(machine: Machine, frame: Frame, value: Value) -> None:
    machine.stack.append(value)


def _load(machine: Machine, frame: Frame, slot: int) -> None:
    machine.stack.append(frame.slots[slot])


def _store(machine: Machine, frame: Frame, slot: int) -> None:
    frame.slots[slot] = machine.stack.pop()


def _prim(machine: Machine, frame: Frame, operands: Any) -> None:
    primitive, count = operands
    stack = machine.stack
    first = len(stack) - count
    stack[first:] = [primitive(*stack[first:])]


def _closure(machine: Machine, frame: Frame, operands: Any) -> None:
    function, count = operands
    stack = machine.stack
    first = len(stack) - count
    stack[first:] = [FunctionValue(function, tuple(stack[first:]))]


def _setbox(machine: Machine, frame: Frame, operands: Any) -> None:
    value = machine.stack.pop()
    box = machine.stack.pop()
    if type(box) is not Box:
        raise PrimitiveFault("type-error", f"cannot set {show(box)}: it is no box")
    box.value = value


def _note(machine: Machine, frame: Frame, kind: str) -> None:
    machine.notes.append((kind, _map(machine.stack.pop(), f"the fields of note `{kind}`")))


def _jump(machine: Machine, frame: Frame, target: int) -> None:
    frame.go(machine, target)


def _branch(machine: Machine, frame: Frame, targets: Any) -> None:
    then, otherwise = targets
    frame.go(machine, then if machine.stack.pop() else otherwise)


def _switch(machine: Machine, frame: Frame, operands: Any) -> None:
    table, default = operands
    subject = machine.stack.pop()
    target = table.get(subject, default) if type(subject) is str else default
    if target is None:
        cases = ", ".join(f"`{case}`" for case in list(table)[:12]) + (", …" if len(table) > 12 else "")
        raise PrimitiveFault("no-case", f"no case for {show(subject)} (cases: {cases or 'none'})")
    frame.go(machine, target)


def _call(machine: Machine, frame: Frame, operands: Any) -> None:
    if len(machine.calls) >= bounds.MAX_CALLS:
        raise PrimitiveFault("too-deep", f"more than {bounds.MAX_CALLS} calls inside one another")
    # Slot and state are read again on return: until then this frame stands at this exit.
    machine.calls.append(machine.call(operands[0]))


def _tailcall(machine: Machine, frame: Frame, count: int) -> None:
    machine.calls[-1] = machine.call(count)


def _perform(machine: Machine, frame: Frame, operands: Any) -> Effect:
    kind = operands[0]
    args = _map(machine.stack.pop(), f"the arguments of effect `{kind}`")
    machine.seq += 1
    place = frame.function.exit_place(frame.state)
    machine.effect = Effect(machine.seq, kind, args, place)
    return machine.effect


def _return(machine: Machine, frame: Frame, operands: Any) -> Done | None:
    value = machine.stack.pop()
    if len(machine.calls) == 1:
        done = Done(_plain(value, "the program's result"))
        machine.ended = True
        return done
    machine.calls.pop()
    caller = machine.calls[-1]
    _, slot, target = caller.function.block(caller.state)[-1][1]
    caller.slots[slot] = value
    caller.go(machine, target)
    return None


def _fail(machine: Machine, frame: Frame, operands: Any) -> None:
    error = machine.stack.pop()
    if type(error) is not dict:
        raise PrimitiveFault("user", error if type(error) is str else show(error))
    kind, message, place, details = map(error.get, ("kind", "message", "span", "details"))
    raise PrimitiveFault(
        kind if type(kind) is str else "user",
        message if type(message) is str else show(error),
        details if type(details) is dict else None,
        place if type(place) is str else None,
    )


STEPS: dict[str, Step] = {
    "CONST": _const,
    "LOAD": _load,
    "STORE": _store,
    "PRIM": _prim,
    "CLOSURE": _closure,
    "SETBOX": _setbox,
    "NOTE": _note,
    "JUMP": _jump,
    "BRANCH": _branch,
    "SWITCH": _switch,
    "CALL": _call,
    "TAILCALL": _tailcall,
    "PERFORM": _perform,
    "RETURN": _return,
    "FAIL": _fail,
}

if STEPS.keys() != BY_NAME.keys():
    raise AssertionError(f"opcodes and steps do not pair up: {sorted(STEPS.keys() ^ BY_NAME.keys())}")
