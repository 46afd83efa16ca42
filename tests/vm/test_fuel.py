"""Fuel: one tick for each function entry and each backward jump, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llc.vm.code.image import FunctionCode, Image, words
from llc.vm.code.opcodes import BY_NAME, ROWS
from llc.vm.machine.machine import Done, Effect, OutOfFuel
from llc.vm.tiered import Machine

MachineOf = Callable[..., Machine]


def ticks(machine: Machine) -> int:
    outcome = machine.resume()
    while isinstance(outcome, Effect):
        outcome = machine.resume({})
    assert isinstance(outcome, Done), outcome
    return machine.ticks


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ("state a\n goto b\n state b\n goto c\n state c\n return 1", 1),
        ("state a\n goto c\n state b\n return 1\n state c\n goto b", 2),
        (
            "state a\n i = add(n, 0)\n goto b\n state b\n i = sub(i, 1)\n branch i b c\n state c\n return 1",
            10,
        ),
        ("state a\n goto c\n state b\n return 1\n state c\n perform clock map() -> i then b", 2),
        ("state a\n goto c\n state b\n return 1\n state c\n call closure f()() -> i then b", 3),
        ("state a\n goto c\n state b\n return 1\n state c\n switch i {else -> b}", 2),
        ("state a\n goto c\n state b\n return 1\n state c on fault -> b(i)\n fail 1", 2),
        ("state a\n call closure f()() -> i then b\n state b\n tailcall closure f()()", 3),
    ],
)
def test_ticks_are_function_entries_and_backward_jumps(
    machine_of: MachineOf, states: str, expected: int
) -> None:
    """Forward jumps, effects and returns are free, for any exit or handler."""
    text = f"function main(n) locals(i)\n {states}\n function f()\n state s\n return 1"
    assert ticks(machine_of(text, [10])) == expected


LOOP = """
function main(n) locals(i, x)
  state first
    i = 0
    goto loop
  state loop
    i = add(i, 1)
    branch lt(i, n) ask end
  state ask
    perform clock map("i", i) -> x then loop
  state end
    return i
"""


def test_out_of_fuel_stops_at_the_start_of_a_state(machine_of: MachineOf) -> None:
    """No instruction of the target state has run; `refuel` continues there."""
    machine = machine_of(LOOP, [3], fuel=2)
    assert isinstance(machine.resume(), Effect)
    assert isinstance(machine.resume({}), OutOfFuel)
    (view,) = machine.frames()
    assert (view.state, view.slots["i"], view.slots["x"]) == ("loop", 1, {})
    assert isinstance(machine.resume(), OutOfFuel)
    machine.refuel(1)
    assert isinstance(machine.resume(), Effect)
    assert machine.ticks == 2
    assert isinstance(machine.resume({}), OutOfFuel)
    machine.refuel(None)
    assert isinstance(machine.resume(), Done)


def test_endless_loop_uses_exactly_its_fuel(machine_of: MachineOf) -> None:
    machine = machine_of("function main()\n state s\n goto s", fuel=1000)
    for total in (1000, 1500, 2000):
        assert isinstance(machine.resume(), OutOfFuel)
        assert machine.ticks == total
        machine.refuel(500)


def test_no_fuel_is_no_step(machine_of: MachineOf) -> None:
    """With 0 or 1 ticks a machine stops before its first state, since entering it costs the first tick."""
    for fuel in (0, 1):
        assert isinstance(machine_of("function main()\n state s\n return 1", fuel=fuel).resume(), OutOfFuel)
    assert isinstance(machine_of("function main()\n state s\n return 1", fuel=2).resume(), Done)


def test_unverified_code_uses_fuel() -> None:
    """Offsets that lead backwards, fall through or overlap do not change the cost of a jump."""
    jump = BY_NAME["JUMP"].number
    code = [jump, 1, jump, 2, jump, 0]
    for offsets in ([0, 2, 4], [4, 2, 0], [0, 0, 0], [2, 4, 0]):
        outcome = run_unverified(code, offsets, {})
        assert isinstance(outcome, OutOfFuel | ValueError)


SMALL = st.integers(0, 3)
INSTRUCTIONS = st.sampled_from(ROWS).flatmap(
    lambda row: st.tuples(st.just(row.number), *[SMALL] * len(row.operands))
)


@given(
    st.lists(INSTRUCTIONS, max_size=8).map(lambda rows: [word for row in rows for word in row]),
    st.lists(st.integers(0, 20), min_size=1, max_size=4),
    st.dictionaries(SMALL, st.tuples(SMALL, SMALL)),
)
def test_any_code_ends_or_runs_out_of_fuel(
    code: list[int], offsets: list[int], handlers: dict[int, tuple[int, int]]
) -> None:
    """An unverified image gives an outcome or an exception, never an endless run."""
    run_unverified(code, offsets, handlers)


def run_unverified(code: list[int], offsets: list[int], handlers: dict[int, tuple[int, int]]) -> object:
    """Outcome or exception of an unverified image."""
    states = [f"s{index}" for index in range(len(offsets))]
    main = FunctionCode(
        "main", 0, 0, ("x", "y"), states, words(offsets), words(code), handlers, [{"a": 0}], 0
    )
    machine = Machine(Image("forged", 0, {}, ("a", {}, (), "list"), (main,)), fuel=50)
    outcome: object = None
    for _ in range(100):
        try:
            outcome = machine.resume({"a": 1} if machine.effect else None)
        except Exception as error:
            return error
        if not isinstance(outcome, Effect):
            return outcome
    return outcome
