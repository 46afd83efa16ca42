"""Generated core programs: compiled, they mean what a plain evaluator says, however they are run."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from core_programs import Endless, Evaluator, Generator, answer, plain
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from llc.frontend.core import Core, Lambda
from llc.frontend.flows import lower_flow
from llc.ir.text import parse_program, print_program
from llc.ir.verify import verify
from llc.vm.emit import emit
from llc.vm.faults import Fault, PrimitiveFault
from llc.vm.image import Image
from llc.vm.machine import Done, Effect, Machine, OutOfFuel
from llc.vm.verify import verify_image

LAWS = settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))


def no_library(name: str) -> Lambda:
    raise AssertionError(name)


def compiled(node: Core) -> Image:
    """The image of a core program, once every verifier has seen it."""
    program = lower_flow(node, "generated", (), no_library)
    assert [diagnostic for diagnostic in verify(program) if diagnostic.is_error] == []
    image = Image.from_bytes(emit(program).to_bytes())
    assert [diagnostic for diagnostic in verify_image(image) if diagnostic.is_error] == []
    return image


def expected(node: Core) -> tuple[Any, list[Any]]:
    """The outcome and the trace by the evaluator; programs it gives up on are not considered."""
    evaluator = Evaluator()
    try:
        outcome = evaluator.run(node)
    except (Endless, RecursionError):
        assume(False)
    if outcome[0] == "value":
        try:
            outcome = ("value", plain(outcome[1]))
        except PrimitiveFault as fault:
            outcome = ("fault", fault.kind, fault.message)
    return outcome, evaluator.trace


def observed(machine: Machine, between: Callable[[Machine], Machine]) -> tuple[Any, list[Any], int]:
    """Run to the end, with `between` wherever the machine stands; outcome, trace and ticks."""
    trace: list[Any] = []
    result = None
    while True:
        outcome = machine.resume(result)
        result = None
        machine = between(machine) if not machine.ended else machine
        trace += machine.take_notes()
        match outcome:
            case Done(value=value):
                return ("value", value), trace, machine.ticks
            case Fault(kind=kind, message=message):
                return ("fault", kind, message), trace, machine.ticks
            case Effect(seq=seq, kind=kind, args=args):
                trace.append((kind, args))
                result = answer(seq)
            case OutOfFuel():
                machine.refuel(3)


def without_names(found: Any) -> str:
    """As text, without what functions are called: that is the compiler's to decide."""
    return re.sub("`[^`]*` takes", "`f` takes", repr(found))


def straight(machine: Machine) -> Machine:
    return machine


def moved(machine: Machine) -> Machine:
    """The machine as it stands, gone through JSON into a new one."""
    snapshot = json.loads(json.dumps(machine.snapshot()))
    return Machine.restore(machine.image, snapshot)


def moved_and_cut(machine: Machine) -> Machine:
    again = moved(machine)
    again.refuel(3)
    return again


@LAWS
@given(st.integers(0, 1 << 48))
def test_compiled_programs_mean_what_the_evaluator_says(seed: int) -> None:
    """Same value or fault, same effects and notes in the same order."""
    node = Generator(seed).program()
    outcome, trace = expected(node)
    found = observed(Machine(compiled(node)), straight)[:2]
    assert without_names(found) == without_names((outcome, trace))


@LAWS
@given(st.integers(0, 1 << 48))
def test_a_program_may_stop_at_every_effect_and_go_on_elsewhere(seed: int) -> None:
    """Through JSON into a new machine at each effect: same outcome, trace and ticks."""
    node = Generator(seed).program()
    expected(node)
    image = compiled(node)
    assert observed(Machine(image), moved) == observed(Machine(image), straight)


@LAWS
@given(st.integers(0, 1 << 48))
def test_a_program_may_be_cut_off_by_fuel_anywhere(seed: int) -> None:
    """Three ticks at a time, through JSON at each stop: same outcome, trace and ticks."""
    node = Generator(seed).program()
    expected(node)
    image = compiled(node)
    assert observed(Machine(image, fuel=3), moved_and_cut) == observed(Machine(image), straight)


@LAWS
@given(st.integers(0, 1 << 48))
def test_lowered_programs_survive_their_text_form(seed: int) -> None:
    """Printed and parsed, the program is the same."""
    program = lower_flow(Generator(seed).program(), "generated", (), no_library)
    assert parse_program(print_program(program), "<text>") == program
