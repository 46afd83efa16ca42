"""Functions: closures, boxes, tail calls, and recursion limited only by memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from llc.vm.machine.machine import Done
from llc.vm.tiered import Machine
from llc.vm.values import bounds
from llc.vm.values.faults import Fault

MachineOf = Callable[..., Machine]


def value_of(machine: Machine) -> Any:
    outcome = machine.resume()
    assert isinstance(outcome, Done), outcome
    return outcome.value


def test_slots_of_parameters_and_captures(machine_of: MachineOf) -> None:
    """Parameters come first, then the captures of the closure."""
    machine = machine_of("""
        function main() locals(x, f, r)
          state make
            x = 10
            f = closure inner(x, "c")
            x = 20
            call f(1, 2) -> r then end
          state end
            return r
        function inner(a, b) captures(c, d) locals(unset)
          state s
            return list(a, b, c, d, unset)
    """)
    assert value_of(machine) == [1, 2, 10, "c", None]


def test_a_function_is_a_value(machine_of: MachineOf) -> None:
    """A function may be in a list, be an argument and be returned."""
    machine = machine_of("""
        function main() locals(f, r)
          state make
            call closure adder()(5) -> f then use
          state use
            call closure apply()(f, 7) -> r then end
          state end
            return r
        function adder(n)
          state s
            return closure add_to(n)
        function add_to(m) captures(n)
          state s
            return add(m, n)
        function apply(f, x)
          state s
            tailcall f(x)
    """)
    assert value_of(machine) == 12


def test_box_is_shared(machine_of: MachineOf) -> None:
    """A closure changes a box that its creator reads."""
    machine = machine_of("""
        function main() locals(b, f, r)
          state make
            b = box(0)
            f = closure count(b)
            call f() -> r then again
          state again
            call f() -> r then end
          state end
            return list(r, unbox(b))
        function count() captures(b)
          state s
            setbox b add(unbox(b), 1)
            return unbox(b)
    """)
    assert value_of(machine) == [2, 2]


def test_recursion_is_bounded_by_memory_only(machine_of: MachineOf) -> None:
    """1,000,000 frames."""
    machine = machine_of(
        """
        function main(n) locals(r)
          state s
            call closure count()(n) -> r then end
          state end
            return r
        function count(n) locals(r)
          state s
            branch eq(n, 0) zero more
          state more
            call closure count()(sub(n, 1)) -> r then end
          state end
            return add(r, 1)
          state zero
            return 0
        """,
        [1_000_000],
    )
    assert value_of(machine) == 1_000_000


def test_tail_calls_keep_one_frame(machine_of: MachineOf) -> None:
    """Two functions that call each other in tail position use one frame."""
    machine = machine_of(
        """
        function main(n)
          state s
            tailcall closure even()(n)
        function even(n)
          state s
            branch eq(n, 0) yes more
          state yes
            return true
          state more
            tailcall closure odd()(sub(n, 1))
        function odd(n)
          state s
            branch eq(n, 0) no more
          state no
            return false
          state more
            tailcall closure even()(sub(n, 1))
        """,
        [10_001],
        fuel=100,
    )
    for _ in range(100):
        machine.resume()
        assert len(machine.frames()) == 1
        machine.refuel(100)
    assert value_of(machine) is False


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        ("call 5() -> r then end", "not-a-function", "cannot call 5: it is not a function"),
        ("call r() -> r then end", "not-a-function", "cannot call null"),
        ("call closure two()(1) -> r then end", "arity", "`two` takes 2 arguments, not 1"),
        ("tailcall closure two()(1, 2, 3)", "arity", "`two` takes 2 arguments, not 3"),
        ("tailcall closure one()()", "arity", "`one` takes 1 argument, not 0"),
    ],
)
def test_invalid_call_is_a_fault(machine_of: MachineOf, call: str, kind: str, message: str) -> None:
    """The fault is in the caller's state, whose handler takes it; no function is entered."""
    callee = "(5)" if "call 5" in call else None
    machine = machine_of(f"""
        function main() locals(r, fault)
          state s on fault -> caught(fault)
            {call.replace("5()", f"{callee}()") if callee else call}
          state end
            return r
          state caught
            return fault
        function two(a, b)
          state s
            return a
        function one(a)
          state s
            return a
    """)
    fault = value_of(machine)
    assert fault["kind"] == kind
    assert message in fault["message"]
    assert machine.ticks == 1


REST = """
    function main(given) locals(r)
      state start
        call (applied(closure f("captured"), given))(1) -> r then end
      state end
        return r
    function f(a, others) rest captures(c)
      state s
        return list(a, others, c)
"""


@pytest.mark.parametrize("further", [[], [2], [2, 3, 4]])
def test_rest_parameter(machine_of: MachineOf, further: list[Any]) -> None:
    """With `rest` the last parameter is the list of further arguments, including those of `applied`."""
    assert value_of(machine_of(REST, [further])) == [1, further, "captured"]


def test_endless_recursion_is_a_fault(machine_of: MachineOf, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault `too-deep` can be handled, occurs before memory is full, and has a short backtrace."""
    monkeypatch.setattr(bounds, "MAX_CALLS", 1000)
    outcome = machine_of("""
        function main() locals(r)
          state start
            call closure main()() -> r then end
          state end
            return r
    """).resume()
    assert isinstance(outcome, Fault)
    assert (outcome.kind, len(outcome.backtrace)) == ("too-deep", 16)


def test_rest_parameter_and_minimum_arity(machine_of: MachineOf) -> None:
    """Too few arguments are the fault `arity`, whose message has the minimum."""
    outcome = machine_of("""
        function main()
          state start
            tailcall closure f()()
        function f(a, others) rest
          state s
            return a
    """).resume()
    assert isinstance(outcome, Fault)
    assert (outcome.kind, outcome.message) == ("arity", "`f` takes at least 1 argument, not 0")


def test_partially_applied_function_survives_a_snapshot(machine_of: MachineOf) -> None:
    """A function value with arguments and captures is stored with both."""
    machine = machine_of("""
        function main() locals(f, r)
          state start
            f = applied(closure g("c"), [2])
            perform clock map() -> r then call
          state call
            tailcall f(1)
        function g(a, b) captures(c)
          state s
            return list(a, b, c)
    """)
    machine.resume()
    restored = Machine.restore(machine.image, json.loads(json.dumps(machine.snapshot())))
    outcome = restored.resume({})
    assert isinstance(outcome, Done)
    assert outcome.value == [1, 2, "c"]


def test_unset_box_differs_from_null(machine_of: MachineOf) -> None:
    """Reading an unset box is the fault `uninitialised`, also after a snapshot."""
    machine = machine_of("""
        function main() locals(b, r)
          state start
            b = unset_box()
            perform clock map() -> r then read
          state read on fault -> set(r)
            r = unbox_set(b, "x")
            return "no fault"
          state set
            setbox b null
            return list(get(r, "kind"), get(r, "message"), unbox_set(b, "x"))
    """)
    machine.resume()
    outcome = Machine.restore(machine.image, machine.snapshot()).resume({})
    assert isinstance(outcome, Done)
    assert outcome.value == ["uninitialised", "`x` is used before it has its value", None]


def test_a_primitive_is_applied_to_a_list(machine_of: MachineOf) -> None:
    """`operate` checks the primitive's row and is not itself applicable."""
    text = """
        function main(name, operands)
          state start
            return operate(name, operands)
    """
    assert value_of(machine_of(text, ["add", [1, 2, 3]])) == 6
    assert machine_of(text, ["quotient", [1]]).resume().kind == "arity"
    assert machine_of(text, ["operate", ["operate", []]]).resume().kind == "type-error"
