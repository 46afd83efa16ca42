"""Generated core programs: compiled code agrees with a plain evaluator in every execution mode."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from typing import Any

from core_programs import Endless, Evaluator, Generator, by_number, by_question, plain
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from llc.frontend.core.nodes import Core, Lambda
from llc.frontend.lower.program import lower_flow
from llc.ir.text import parse_program, print_program
from llc.ir.verify import verify
from llc.vm.code.emit import emit
from llc.vm.code.image import Image
from llc.vm.code.verify import verify_image
from llc.vm.machine.machine import Done, Effect, OutOfFuel, Waiting
from llc.vm.tiered import Machine
from llc.vm.values.faults import Fault, PrimitiveFault

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


def expected(node: Core, evaluator: Evaluator | None = None) -> tuple[Any, list[Any]]:
    """The outcome and the trace by the evaluator; programs it gives up on are not considered."""
    evaluator = evaluator or Evaluator()
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
                result = by_number(seq)
            case OutOfFuel():
                machine.refuel(3)


def without_names(found: Any) -> str:
    """As text, without what functions are called: that is the compiler's to decide."""
    return re.sub("`[^`]*` takes", "`f` takes", repr(found))


def straight(machine: Machine) -> Machine:
    return machine


def moved(machine: Machine) -> Machine:
    """The machine as it stands, gone through JSON into a new one."""
    stored = json.dumps(machine.snapshot())
    again = Machine.restore(machine.image, json.loads(stored))
    assert json.dumps(again.snapshot()) == stored
    return again


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


# --- calls at once, their effects answered in any order -------------------------------------------


def picking(seed: int) -> Callable[[list[int]], int]:
    """Which effect to answer next; two of one seed pick alike."""
    chance = random.Random(seed)
    return lambda waiting: chance.choice(waiting)


def ordered(
    machine: Machine,
    pick: Callable[[list[int]], int],
    answer: Callable[[int, Any], Any],
    between: Callable[[Machine], Machine] = straight,
) -> tuple[Any, list[Any], int]:
    """As `observed`, by a host that runs all that is ready, then answers one effect, and so on."""
    trace: list[Any] = []
    given: tuple[Any, ...] = ()
    while True:
        outcome = machine.resume(*given)
        given = ()
        machine = between(machine) if not machine.ended else machine
        trace += machine.take_notes()
        match outcome:
            case Done(value=value):
                return ("value", value), trace, machine.ticks
            case Fault(kind=kind, message=message):
                return ("fault", kind, message), trace, machine.ticks
            case Effect(kind=kind, args=args):
                trace.append((kind, args))
            case OutOfFuel():
                machine.refuel(3)
            case Waiting():
                assert not machine.is_ready
        if not machine.is_ready:
            seq = pick(list(machine.waiting))
            given = (answer(seq, machine.waiting[seq].args), seq)


def numbered(seq: int, args: Any) -> Any:
    return by_number(seq)


def questioned(seq: int, args: Any) -> Any:
    return by_question(args)


SEEDS = st.integers(0, 1 << 48)
# Programs of which one part or all runs at once.
BUSY = st.builds(lambda seed: Generator(seed, parallel=6, perform=4, fail=0).program(), SEEDS) | st.builds(
    lambda seed: Generator(seed).crowd(), SEEDS
)
# Programs in which nobody can tell in which order things happened.
PURE = st.builds(lambda seed: Generator(seed, assign=0).crowd(is_pure=True), SEEDS)


@LAWS
@given(BUSY, SEEDS)
def test_calls_at_once_mean_what_the_evaluator_says(node: Core, order: int) -> None:
    """In whatever order the answers come: same outcome, same effects and notes in the same order."""
    outcome, trace = expected(node, Evaluator(picking(order)))
    found = ordered(Machine(compiled(node)), picking(order), numbered)[:2]
    assert without_names(found) == without_names((outcome, trace))


@LAWS
@given(BUSY)
def test_a_host_that_answers_at_once_is_one_of_those(node: Core) -> None:
    """Each effect answered as it comes: what the evaluator says too."""
    outcome, trace = expected(node)
    found = observed(Machine(compiled(node)), straight)[:2]
    assert without_names(found) == without_names((outcome, trace))


@LAWS
@given(BUSY, SEEDS)
def test_calls_at_once_may_stop_anywhere_and_go_on_elsewhere(node: Core, order: int) -> None:
    """Through JSON at each stop, and three ticks at a time: same outcome, trace and ticks."""
    expected(node, Evaluator(picking(order)))
    image = compiled(node)
    whole = ordered(Machine(image), picking(order), numbered)
    assert ordered(Machine(image), picking(order), numbered, moved) == whole
    assert ordered(Machine(image, fuel=3), picking(order), numbered, moved_and_cut) == whole


@LAWS
@given(PURE, SEEDS, SEEDS)
def test_what_shares_nothing_gives_the_same_in_any_order(node: Core, first: int, second: int) -> None:
    """Without assignments, in a world without memory, the outcome does not depend on the order."""
    expected(node, Evaluator(picking(first), questioned))
    image = compiled(node)
    one = ordered(Machine(image), picking(first), questioned)[0]
    assert ordered(Machine(image), picking(second), questioned)[0] == one
