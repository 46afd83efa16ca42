"""Steps: the implementation of each opcode, one for each row of `opcodes.ROWS`, checked at import.

A step takes the machine, the running frame and its operand (a list where it has several). An exit may
return an outcome, which stops the machine. Operations on more than the running frame belong to `control`.
"""

from __future__ import annotations

from ..code.opcodes import BY_NAME
from ..primitives.operands import items as items_of
from ..values import bounds
from ..values.faults import PrimitiveFault
from ..values.maps import is_map, read
from ..values.values import FunctionValue, Value, show, small_map
from .control import Control, plain
from .frames import Frame, Step
from .outcomes import Effect, Outcome

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NOTE_FIELDS = "the fields of note"
EFFECT_ARGUMENTS = "the arguments of effect"


def plain_map(value: Value, what: str, kind: str) -> dict[str, Any]:
    """The fields of an effect or a note, in host form."""
    made = small_map(value)
    if made is not None:
        return made
    if not is_map(value):
        raise PrimitiveFault("type-error", f"{what} `{kind}` are a map, not {show(value)}")
    return plain(value, f"{what} `{kind}`")  # type: ignore[no-any-return]


def _const(machine: Control, frame: Frame, value: Value) -> None:
    machine.stack.append(value)


def _load(machine: Control, frame: Frame, slot: int) -> None:
    machine.stack.append(frame.slots[slot])


def _store(machine: Control, frame: Frame, slot: int) -> None:
    frame.slots[slot] = machine.stack.pop()


def _prim(machine: Control, frame: Frame, operands: Any) -> None:
    primitive, count = operands
    stack = machine.stack
    first = len(stack) - count
    stack[first:] = [primitive(*stack[first:])]


def _closure(machine: Control, frame: Frame, operands: Any) -> None:
    function, count = operands
    stack = machine.stack
    first = len(stack) - count
    stack[first:] = [FunctionValue(function, tuple(stack[first:]))]


def _setbox(machine: Control, frame: Frame, operands: Any) -> None:
    value = machine.stack.pop()
    machine.set_box(machine.stack.pop(), value)


def _note(machine: Control, frame: Frame, kind: str) -> None:
    machine.notes.append((kind, plain_map(machine.stack.pop(), NOTE_FIELDS, kind)))


def _jump(machine: Control, frame: Frame, target: int) -> None:
    frame.go(machine, target)


def _branch(machine: Control, frame: Frame, targets: Any) -> None:
    then, otherwise = targets
    frame.go(machine, then if machine.stack.pop() else otherwise)


def _switch(machine: Control, frame: Frame, operands: Any) -> None:
    table, default = operands
    subject = machine.stack.pop()
    target = table.get(subject, default) if type(subject) is str else default
    if target is None:
        cases = ", ".join(f"`{case}`" for case in list(table)[:12]) + (", …" if len(table) > 12 else "")
        raise PrimitiveFault("no-case", f"no case for {show(subject)} (cases: {cases or 'none'})")
    frame.go(machine, target)


def _call(machine: Control, frame: Frame, operands: Any) -> None:
    if len(machine.calls) >= machine.room:
        raise PrimitiveFault("too-deep", f"more than {bounds.MAX_CALLS} calls inside one another")
    # Slot and target state are read from this exit again when the call returns.
    machine.calls.append(machine.call(operands[0]))


def _tailcall(machine: Control, frame: Frame, count: int) -> None:
    machine.calls[-1] = machine.call(count)


def _perform(machine: Control, frame: Frame, operands: Any) -> Effect:
    kind = operands[0]
    args = plain_map(machine.stack.pop(), EFFECT_ARGUMENTS, kind)
    machine.seq += 1
    place = frame.function.exit_place(frame.state)
    strand = machine.strand
    if strand.within is not None:
        machine.asked[machine.seq] = strand
    effect = strand.effect = Effect(machine.seq, kind, args, place)
    return effect


def _parallel(machine: Control, frame: Frame, operands: Any) -> None:
    items = items_of(machine.stack.pop())
    callee = machine.stack.pop()
    if items:
        machine.fork(callee, items)
    else:
        slot, target = operands
        frame.slots[slot] = ()
        frame.go(machine, target)


def _return(machine: Control, frame: Frame, operands: Any) -> Outcome | None:
    value = machine.stack.pop()
    if len(machine.calls) == 1:
        if machine.strand.within is not None:
            return machine.end_strand(value)
        return machine.end(value)
    machine.calls.pop()
    caller = machine.calls[-1]
    _, slot, target = caller.function.block(caller.state)[-1][1]
    caller.slots[slot] = value
    caller.go(machine, target)
    return None


def _fail(machine: Control, frame: Frame, operands: Any) -> None:
    raise fault_of(machine.stack.pop())


def fault_of(error: Value) -> PrimitiveFault:
    """The fault that FAIL raises for its operand."""
    if not is_map(error):
        return PrimitiveFault("user", error if type(error) is str else show(error))
    field = read(error).get
    kind, message, place, details = field("kind"), field("message"), field("span"), field("details")
    return PrimitiveFault(
        kind if type(kind) is str else "user",
        message if type(message) is str else show(error),
        details if is_map(details) else None,
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
    "PARALLEL": _parallel,
    "RETURN": _return,
    "FAIL": _fail,
}

if STEPS.keys() != BY_NAME.keys():
    raise AssertionError(f"opcodes and steps do not pair up: {sorted(STEPS.keys() ^ BY_NAME.keys())}")
