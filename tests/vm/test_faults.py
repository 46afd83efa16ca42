"""Faults: their handlers, messages and positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from llc.vm.code.image import Image
from llc.vm.machine.machine import Done, Fault
from llc.vm.tiered import Machine
from llc.vm.values.faults import TRACE_ENDS

MachineOf = Callable[..., Machine]


def fault_of(machine: Machine) -> Fault:
    outcome = machine.resume()
    assert isinstance(outcome, Fault), outcome
    return outcome


def value_of(machine: Machine) -> Any:
    outcome = machine.resume()
    assert isinstance(outcome, Done), outcome
    return outcome.value


def test_a_fault_has_kind_message_place_and_backtrace(machine_of: MachineOf) -> None:
    """The span is the innermost one; frames have the spans of their calls."""
    fault = fault_of(
        machine_of("""
        source 0 "flow.sexp"
        function main() locals(r)
          state s
            call closure inner()(1) -> r then end @0:3:5-3:20
          state end
            return r
        function inner(n) locals(x)
          state t
            x = list(add(n, "one") ^0:9:8-9:15, n) @0:9:1-9:30
            return x
    """)
    )
    assert fault.kind == "type-error"
    assert fault.span == ("flow.sexp", 9, 8, 9, 15)
    assert fault.backtrace == (
        ("main", "s", ("flow.sexp", 3, 5, 3, 20)),
        ("inner", "t", ("flow.sexp", 9, 8, 9, 15)),
    )
    assert fault.omitted == 0
    assert fault.trace_lines() == [
        "in `main`, state `s` (flow.sexp:3:5)",
        "in `inner`, state `t` (flow.sexp:9:8)",
    ]


def test_a_handler_gets_the_fault_as_a_map(machine_of: MachineOf) -> None:
    """Kind, message and span; earlier assignments of the state are kept."""
    machine = machine_of("""
        source 0 "a.yaml"
        function main() locals(x, fault)
          state s on fault -> caught(fault)
            x = 1
            x = add(x, null) @0:4:5-4:9
            return x
          state caught
            return list(x, fault)
    """)
    x, fault = value_of(machine)
    assert x == 1
    assert fault.keys() == {"kind", "message", "span"}
    assert (fault["kind"], fault["span"]) == ("type-error", "a.yaml:4:5")


def test_a_fault_unwinds_to_the_nearest_handler(machine_of: MachineOf) -> None:
    """Through calls without a handler; handlers of other states do not apply."""
    machine = machine_of("""
        function main() locals(r, fault)
          state s on fault -> outer(fault)
            call closure middle()() -> r then end
          state end on fault -> outer(fault)
            return r
          state outer
            return "outer"
        function middle() locals(r, fault)
          state s on fault -> caught(fault)
            call closure inner()() -> r then end
          state end
            return r
          state caught
            return list("middle", get(fault, "message"))
        function inner() locals(r, fault)
          state other on fault -> never(fault)
            goto s
          state s
            fail "no"
          state never
            return "inner"
    """)
    assert value_of(machine) == ["middle", "no"]
    assert len(machine.calls) == 1


def test_a_fault_in_an_exit_belongs_to_its_state(machine_of: MachineOf) -> None:
    """Arguments of effects, switch subjects without a case."""
    for exit in ("perform shell 5 -> r then end", 'switch "x" {"y" -> end}', "fail 5"):
        machine = machine_of(f"""
            function main() locals(r, fault)
              state s on fault -> caught(fault)
                {exit}
              state end
                return r
              state caught
                return "caught"
        """)
        assert value_of(machine) == "caught"
        assert machine.seq == 0


@pytest.mark.parametrize(
    ("exit", "kind", "message"),
    [
        ("perform shell 5 -> r then end", "type-error", "the arguments of effect `shell` are a map, not 5"),
        ('perform shell map("f", box(1)) -> r then end', "type-error", "a box cannot leave the machine"),
        ("return list(closure main())", "type-error", "a function cannot leave the machine"),
        ("note cycle [1] goto end", "type-error", "the fields of note `cycle` are a map, not [1]"),
        ("setbox 5 6 goto end", "type-error", "cannot set 5: it is no box"),
        ('switch "x" {"y" -> end, "z" -> s}', "no-case", 'no case for "x" (cases: `y`, `z`)'),
        ("switch 5 {}", "no-case", "no case for 5 (cases: none)"),
        ('fail "gone"', "user", "gone"),
        ("fail [1, 2]", "user", "[1, 2]"),
        ('fail {"kind": "lost", "message": "gone"}', "lost", "gone"),
        ('fail {"kind": 5}', "user", '{"kind": 5}'),
    ],
)
def test_kinds_and_messages_of_faults(machine_of: MachineOf, exit: str, kind: str, message: str) -> None:
    """Faults of the machine and of `fail`."""
    fault = fault_of(machine_of(f"function main() locals(r)\n state s\n {exit}\n state end\n return r"))
    assert fault.kind == kind
    assert message in fault.message


def test_reraised_fault_is_unchanged(machine_of: MachineOf) -> None:
    """Kind, message, details and original span survive a handler that fails with the same map."""
    machine = machine_of("""
        source 0 "a.yaml"
        function main() locals(fault)
          state s on fault -> again(fault)
            fail {"kind": "lost", "message": "gone", "details": {"n": [1]}} @0:4:5-4:9
          state again
            fail fault @0:9:1-9:2
    """)
    fault = fault_of(machine)
    assert (fault.kind, fault.message, fault.details) == ("lost", "gone", {"n": [1]})
    assert fault.span == ("a.yaml", 4, 5, 4, 9)
    assert fault.backtrace == (("main", "s", ("a.yaml", 4, 5, 4, 9)),)


def test_backtrace_is_limited(machine_of: MachineOf) -> None:
    """The first and last eight frames, and the number of omitted ones."""
    machine = machine_of("""
        function main()
          state s
            tailcall closure down()(1000)
        function down(n) locals(r)
          state s
            branch eq(n, 0) bottom more
          state more
            call closure down()(sub(n, 1)) -> r then end
          state end
            return r
          state bottom
            fail "here"
    """)
    fault = fault_of(machine)
    assert len(fault.backtrace) == 2 * TRACE_ENDS
    assert fault.omitted == 1001 - 2 * TRACE_ENDS
    assert fault.backtrace[-1] == ("down", "bottom", None)
    assert fault.trace_lines()[TRACE_ENDS] == "… 985 more"


def test_failed_program_has_ended(machine_of: MachineOf) -> None:
    """Its frames can be inspected, but it cannot resume."""
    machine = machine_of('function main()\n state s\n fail "no"')
    fault_of(machine)
    assert [view.state for view in machine.frames()] == ["s"]
    with pytest.raises(RuntimeError):
        machine.resume()


def test_exponential_value_is_too_large_for_the_host(machine_of: MachineOf) -> None:
    """Sharing keeps it small in the machine; expanded it would fill memory, so that is a fault."""
    machine = machine_of("""
        function main() locals(i, x)
          state first
            i = 0
            x = "text"
            goto loop
          state loop
            x = list(x, x)
            i = add(i, 1)
            branch lt(i, 100) loop end
          state end
            return x
    """)
    assert fault_of(machine).kind == "too-large"


def test_program_without_spans_faults_without_a_span(image_of: Callable[[str], Image]) -> None:
    """The other fields are the same."""
    fault = fault_of(Machine(image_of('function main()\n state s\n fail "no"')))
    assert fault.span is None
    assert fault.trace_lines() == ["in `main`, state `s`"]
