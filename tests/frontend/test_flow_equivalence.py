"""Generated core programs: compiled code agrees with a plain evaluator in every execution mode."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from typing import Any

from core_programs import Evaluator, Generator, Undefined, by_arguments, by_number, to_plain
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from laws import tried

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

LAWS = settings(deadline=None, max_examples=tried(60), suppress_health_check=list(HealthCheck))


def no_library(name: str) -> Lambda:
    raise AssertionError(name)


def compiled(node: Core) -> Image:
    """Compile a core program; the IR and image verifiers accept the result."""
    program = lower_flow(node, "generated", (), no_library)
    assert [diagnostic for diagnostic in verify(program) if diagnostic.is_error] == []
    image = Image.from_bytes(emit(program).to_bytes())
    assert [diagnostic for diagnostic in verify_image(image) if diagnostic.is_error] == []
    return image


def expected(node: Core, evaluator: Evaluator | None = None) -> tuple[Any, list[Any]]:
    """Outcome and trace by the reference evaluator; skips programs on which the evaluator gives up."""
    evaluator = evaluator or Evaluator()
    try:
        outcome = evaluator.run(node)
    except (Undefined, RecursionError):
        assume(False)
    if outcome[0] == "value":
        try:
            outcome = ("value", to_plain(outcome[1]))
        except PrimitiveFault as fault:
            outcome = ("fault", fault.kind, fault.message)
    return outcome, evaluator.trace


def run_machine(machine: Machine, between: Callable[[Machine], Machine]) -> tuple[Any, list[Any], int]:
    """Run a machine to the end and call `between` at each stop; returns outcome, trace and ticks."""
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


def without_function_names(result: Any) -> str:
    """Text of a result without function names, which the compiler chooses."""
    return re.sub("`[^`]*` takes", "`f` takes", repr(result))


def unchanged(machine: Machine) -> Machine:
    return machine


def restored(machine: Machine) -> Machine:
    """The machine restored from its JSON snapshot."""
    stored = json.dumps(machine.snapshot())
    copy = Machine.restore(machine.image, json.loads(stored))
    assert json.dumps(copy.snapshot()) == stored
    return copy


def restored_with_little_fuel(machine: Machine) -> Machine:
    copy = restored(machine)
    copy.refuel(3)
    return copy


@LAWS
@given(st.integers(0, 1 << 48))
def test_compiled_program_agrees_with_evaluator(seed: int) -> None:
    """Value or fault, effects and notes are equal and have the same order."""
    node = Generator(seed).program()
    outcome, trace = expected(node)
    actual = run_machine(Machine(compiled(node)), unchanged)[:2]
    assert without_function_names(actual) == without_function_names((outcome, trace))


@LAWS
@given(st.integers(0, 1 << 48))
def test_restore_at_every_effect_changes_nothing(seed: int) -> None:
    """A new machine restored from JSON at each effect gives the same outcome, trace and ticks."""
    node = Generator(seed).program()
    expected(node)
    image = compiled(node)
    assert run_machine(Machine(image), restored) == run_machine(Machine(image), unchanged)


@LAWS
@given(st.integers(0, 1 << 48))
def test_restore_at_any_tick_changes_nothing(seed: int) -> None:
    """With three ticks of fuel at a time and a restore at each stop, outcome, trace and ticks are the
    same.
    """
    node = Generator(seed).program()
    expected(node)
    image = compiled(node)
    assert run_machine(Machine(image, fuel=3), restored_with_little_fuel) == run_machine(
        Machine(image), unchanged
    )


@LAWS
@given(st.integers(0, 1 << 48))
def test_lowered_programs_round_trip_through_text(seed: int) -> None:
    program = lower_flow(Generator(seed).program(), "generated", (), no_library)
    assert parse_program(print_program(program), "<text>") == program


# --- concurrent calls, answered in any order ------------------------------------------------------


def random_order(seed: int) -> Callable[[list[int]], int]:
    """Function that picks the effect to answer next; deterministic for a seed."""
    chance = random.Random(seed)
    return lambda waiting: chance.choice(waiting)


def run_concurrently(
    machine: Machine,
    pick: Callable[[list[int]], int],
    answer: Callable[[int, Any], Any],
    between: Callable[[Machine], Machine] = unchanged,
) -> tuple[Any, list[Any], int]:
    """Like `run_machine`, but run all strands that are ready, then answer one effect that `pick` chooses."""
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


def answer_by_number(seq: int, args: Any) -> Any:
    return by_number(seq)


def answer_by_arguments(seq: int, args: Any) -> Any:
    return by_arguments(args)


SEEDS = st.integers(0, 1 << 48)
# Programs with concurrent calls in one part or everywhere.
CONCURRENT = st.builds(
    lambda seed: Generator(seed, parallel=6, perform=4, fail=0).program(), SEEDS
) | st.builds(lambda seed: Generator(seed).concurrent_program(), SEEDS)
# Concurrent programs without assignments, whose outcome does not depend on the order of answers.
PURE = st.builds(lambda seed: Generator(seed, assign=0).concurrent_program(is_pure=True), SEEDS)


@LAWS
@given(CONCURRENT, SEEDS)
def test_concurrent_calls_agree_with_evaluator(node: Core, order: int) -> None:
    """Outcome, effects and notes are equal for any order of answers."""
    outcome, trace = expected(node, Evaluator(random_order(order)))
    actual = run_concurrently(Machine(compiled(node)), random_order(order), answer_by_number)[:2]
    assert without_function_names(actual) == without_function_names((outcome, trace))


@LAWS
@given(CONCURRENT)
def test_immediate_answers_agree_with_evaluator(node: Core) -> None:
    """A host that answers each effect immediately gets the result of the evaluator."""
    outcome, trace = expected(node)
    actual = run_machine(Machine(compiled(node)), unchanged)[:2]
    assert without_function_names(actual) == without_function_names((outcome, trace))


@LAWS
@given(CONCURRENT, SEEDS)
def test_restore_of_concurrent_calls_changes_nothing(node: Core, order: int) -> None:
    """A restore at each effect, and at every third tick, keeps outcome, trace and ticks."""
    expected(node, Evaluator(random_order(order)))
    image = compiled(node)
    whole = run_concurrently(Machine(image), random_order(order), answer_by_number)
    assert run_concurrently(Machine(image), random_order(order), answer_by_number, restored) == whole
    assert (
        run_concurrently(
            Machine(image, fuel=3), random_order(order), answer_by_number, restored_with_little_fuel
        )
        == whole
    )


@LAWS
@given(PURE, SEEDS, SEEDS)
def test_pure_concurrent_calls_are_order_independent(node: Core, first: int, second: int) -> None:
    """Without assignments and with a stateless world, the outcome does not depend on the order of answers."""
    expected(node, Evaluator(random_order(first), answer_by_arguments))
    image = compiled(node)
    one = run_concurrently(Machine(image), random_order(first), answer_by_arguments)[0]
    assert run_concurrently(Machine(image), random_order(second), answer_by_arguments)[0] == one
