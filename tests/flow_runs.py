"""Evaluate a piece of the language in a world that answers from a table."""

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


class Ended(Exception):
    """The program asked for the end of its run."""

    def __init__(self, code: int) -> None:
        self.code = code


def machine_of(text: str) -> Machine:
    """A machine for a program, whose image went through its file format."""
    program = compile_flow(text_source(text, EXPRESSION_PATH)).program
    return Machine(Image.from_bytes(emit(program).to_bytes()))


def finish(machine: Machine, restoring: bool = False) -> Any:
    """What a program gives as plain data, or its Fault. `restoring`: through a snapshot at each effect."""
    outcome = machine.resume()
    while isinstance(outcome, Effect):
        if outcome.kind == "exit":
            raise Ended(outcome.args["code"])
        if restoring:
            machine = Machine.restore(machine.image, machine.snapshot())
        outcome = machine.resume(ANSWERS[outcome.kind])
    assert isinstance(outcome, Done | Fault)
    return outcome.value if isinstance(outcome, Done) else outcome


def value_of(text: str) -> Any:
    """What the program gives; an AssertionError where it fails."""
    result = finish(machine_of(text))
    assert not isinstance(result, Fault), result
    return result


def outcome_of(expression: str) -> str:
    """What an expression gives as the language writes it, `! kind` for a fault, `exit code` for an end."""
    try:
        result = finish(machine_of(f'(format "~s" {expression})'))
    except Ended as end:
        return f"exit {end.code}"
    return f"! {result.kind}" if isinstance(result, Fault) else str(result)
