"""Evaluate S-expressions in a world that answers from a table."""

from __future__ import annotations

from typing import Any

from llc.frontend.link.flow import compile_flow
from llc.frontend.source.files import EXPRESSION_PATH, text_source
from llc.vm.code.emit import emit
from llc.vm.code.image import Image
from llc.vm.machine.machine import Done, Effect
from llc.vm.tiered import Machine
from llc.vm.values.faults import Fault

ANSWERS: dict[str, Any] = {
    "clock": {"time": "2024-01-15T10:30:00.000Z", "elapsed_ms": 0},
    "sleep": {"elapsed_ms": 0},
    "env": {"values": {"HOME": "/home/ann"}},
}


class ExitCalled(Exception):
    """The program called `exit`."""

    def __init__(self, code: int) -> None:
        self.code = code


def machine_of(text: str) -> Machine:
    """A machine for a program; the image goes through its file format."""
    program = compile_flow(text_source(text, EXPRESSION_PATH)).program
    return Machine(Image.from_bytes(emit(program).to_bytes()))


def finish(machine: Machine, restoring: bool = False) -> Any:
    """The value of a program as plain data, or its Fault. `restoring`: restore from a snapshot at each
    effect.
    """
    outcome = machine.resume()
    while isinstance(outcome, Effect):
        if outcome.kind == "exit":
            raise ExitCalled(outcome.args["code"])
        if restoring:
            machine = Machine.restore(machine.image, machine.snapshot())
        outcome = machine.resume(ANSWERS[outcome.kind])
    assert isinstance(outcome, Done | Fault)
    return outcome.value if isinstance(outcome, Done) else outcome


def value_of(text: str) -> Any:
    """The value of a program. Raises AssertionError for a fault."""
    result = finish(machine_of(text))
    assert not isinstance(result, Fault), result
    return result


def outcome_of(expression: str) -> str:
    """Value of an expression as printed by the language, `! kind` for a fault, `exit code` for an exit."""
    try:
        result = finish(machine_of(f'(format "~s" {expression})'))
    except ExitCalled as end:
        return f"exit {end.code}"
    return f"! {result.kind}" if isinstance(result, Fault) else str(result)
