"""Migration of a stopped machine to a changed program, with its frames, slots and values.

Decides the state of the new program for each frame, and the reasons why a migration is impossible. Pending
effects are requested again with the arguments of the new program; nothing else of their states is executed
again.
"""

from __future__ import annotations

from itertools import pairwise

from ...ir.effects import EFFECTS
from ..code.image import FunctionCode, Image
from ..values.faults import PrimitiveFault
from ..values.values import to_host
from .frames import Functions
from .machine import Machine
from .outcomes import Effect
from .snapshot import SnapshotError
from .steps import STEPS
from .strands import Strand, walk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    M = TypeVar("M", bound=Machine)

# Steps that empty the operand stack: the exit of a state follows the last of them.
_ENDS = (STEPS["STORE"], STEPS["NOTE"], STEPS["SETBOX"])
# Kinds of effects that may replace each other in a state.
_WORK = tuple(row.name for row in EFFECTS.values() if row.is_work)


class MigrationError(Exception):
    """The machine cannot continue with the other program; the message says why."""


def migrate(machine: M, image: Image) -> tuple[M, list[str]]:
    """The machine in another program, and the names of slots that the program no longer has.

    The machine must wait for effects. Raises MigrationError and then leaves the machine unchanged.
    """
    if machine.ended or machine.is_ready:
        raise MigrationError("it does not stand at an action")
    data = machine.snapshot()
    data.pop("trails", None)  # backtraces in the old program
    functions = _Functions(image)
    dropped: list[str] = []
    rows = [data, *data.get("strands", ())]
    for row in rows:
        frames = row["frames"]
        for frame in frames:
            code = functions.code(frame["function"])
            effect = row.get("effect") if frame is frames[-1] else None
            if effect is None:
                functions.check(code, frame["state"])
            else:
                frame["state"], effect["kind"] = functions.performing(code, frame["state"], effect["kind"])
            gone = [name for name in frame["slots"] if name not in code.slots]
            for name in gone:
                del frame["slots"][name]
            dropped += [name for name in gone if not name.startswith("seen.")]
    data["program_hash"] = image.program_hash
    data["program"] = image.name
    try:
        renewed = type(machine).restore(image, data)
    except SnapshotError as error:
        raise MigrationError(str(error)) from None
    _begin_counters(renewed, {code.name: code for code in machine.image.functions})
    for strand in walk(renewed.strand):
        if strand.effect is not None:
            _ask_again(renewed, strand)
    return renewed, dropped


class _Functions:
    """The functions of the new program."""

    def __init__(self, image: Image) -> None:
        self._loaded = Functions(image, STEPS)
        self._index = {code.name: index for index, code in enumerate(image.functions)}

    def code(self, name: str) -> FunctionCode:
        if name not in self._index:
            raise MigrationError(f"the function `{name}`, in which it is, is not there any more")
        return self._loaded[self._index[name]].code

    def check(self, code: FunctionCode, state: str) -> None:
        if state not in code.states:
            raise MigrationError(f"the call in `{_author(state)}`, in which it is, is not there any more")

    def performing(self, code: FunctionCode, state: str, kind: str) -> tuple[str, str]:
        """The state that performs the effect of `state`, and the kind of that effect.

        The IR states of an author's state are named `name` or `name/…`. Which of them exist
        depends on limits and incoming routes, so the state need not have the same name.
        """
        found = {name: performed for name in code.states if (performed := self._kind(code, name))}
        if found.get(state) == kind:
            return state, kind
        own = {name: performed for name, performed in found.items() if _author(name) == _author(state)}
        if not own and _author(state) not in map(_author, code.states):
            raise MigrationError(f"the state `{_author(state)}`, in which it is, is not there any more")
        for kinds in ((kind,), _WORK if kind in _WORK else ()):
            same = [name for name, performed in own.items() if performed in kinds]
            if len(same) == 1:
                return same[0], own[same[0]]
        raise MigrationError(f"the state `{_author(state)}`, in which it is, performs no `{kind}` any more")

    def _kind(self, code: FunctionCode, state: str) -> str | None:
        """The kind of effect that a state performs; None for other exits."""
        step, operands = self._loaded[self._index[code.name]].block(code.states.index(state))[-1]
        return str(operands[0]) if step is STEPS["PERFORM"] else None


def _author(state: str) -> str:
    return state.partition("/")[0] or state


def _begin_counters(machine: Machine, before: dict[str, FunctionCode]) -> None:
    """Initialise slots that the old program did not have like the first state of the function does."""
    for frame in machine.calls:
        function = frame.function
        was = before.get(function.code.name)
        block = function.block(0)
        for (first, value), (step, slot) in pairwise(block):
            if first is not STEPS["CONST"] or step is not STEPS["STORE"] or was is None:
                continue
            if function.code.slots[slot] not in was.slots:
                frame.slots[slot] = value


def _ask_again(machine: Machine, strand: Strand) -> None:
    """Request the pending effect of a strand again, as its state now declares it."""
    frame = strand.calls[-1]
    assert strand.effect is not None
    block = frame.function.block(frame.state)
    begin = 1 + max((index for index, (step, _) in enumerate(block) if step in _ENDS), default=-1)
    stack, machine.stack = machine.stack, []
    args: Any = None
    try:
        for step, operand in block[begin:-1]:
            step(machine, frame, operand)
        args = to_host(machine.stack.pop())
    except PrimitiveFault as fault:
        state = _author(frame.function.code.states[frame.state])
        raise MigrationError(f"what `{state}` does cannot be said: {fault.message}") from None
    except (TypeError, ValueError):
        pass
    finally:
        machine.stack = stack
    if not isinstance(args, dict):
        raise MigrationError("what its state asks for is no map")
    old = strand.effect
    strand.effect = Effect(old.seq, block[-1][1][0], args, frame.function.exit_place(frame.state))
