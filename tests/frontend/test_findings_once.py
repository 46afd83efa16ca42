"""Diagnostics are reported once, with the right message, and never for valid input."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from llc.frontend.compile import compile_text
from llc.frontend.loop.json_schema import json_schema
from llc.ir.diagnostics import CompileError, Diagnostic
from llc.vm.code.emit import emit
from llc.vm.machine.machine import Done, Effect
from llc.vm.tiered import Machine


def findings(**loop: Any) -> list[Diagnostic]:
    data = {"name": "x", "initial": "a", "states": {"a": {"terminal": True}}} | loop
    try:
        return list(compile_text(json.dumps(data)).diagnostics)
    except CompileError as refused:
        return list(refused.diagnostics)


def ids(**loop: Any) -> list[str]:
    return [finding.id for finding in findings(**loop)]


def chain(count: int) -> dict[str, str]:
    return {f"c{i}": f"${{context.c{i + 1}}}" for i in range(count)} | {f"c{count}": "x"}


def test_a_chain_of_context_values_that_is_too_deep_is_one_finding() -> None:
    """However many values lead into it."""
    assert ids(context=chain(3000)) == ["context-too-large"]


@pytest.mark.parametrize("count", [1, 2, 7, 40])
def test_a_cycle_of_context_values_is_one_finding(count: int) -> None:
    """Not one for each value on it; a second cycle is a second finding."""
    cycle = {f"c{i}": f"${{context.c{(i + 1) % count}}}" for i in range(count)}
    assert ids(context=cycle) == ["context-cycle"]
    other = {f"d{i}": f"${{context.d{(i + 1) % count}}}" for i in range(count)}
    assert ids(context=cycle | other) == ["context-cycle"] * 2


def test_an_exit_code_cannot_mean_success_and_failure() -> None:
    """Which it would be depends on the order of a comparison nobody sees."""
    state = {
        "action": "x",
        "evaluate": {"type": "exit_code", "success": [0, 1], "failure": [1]},
        "on_success": "z",
        "on_failure": "z",
    }
    assert ids(states={"a": state, "z": {"terminal": True}}) == ["ambiguous-exit-code"]
    state["evaluate"] = {"type": "exit_code", "success": [0, 1], "failure": [2]}
    assert ids(states={"a": state, "z": {"terminal": True}}) == []


@pytest.mark.parametrize("change", [{"states": {}}, {"name": "n" * 5000}])
def test_the_json_schema_refuses_what_the_checks_refuse(change: dict[str, Any]) -> None:
    """No states, a name beyond measure."""
    loop = {"name": "x", "initial": "a", "states": {"a": {"terminal": True}}}
    jsonschema.validate(loop, json_schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(loop | change, json_schema())
    assert ids(**change)


@pytest.mark.parametrize("states", [[], {}])
def test_states_that_are_missing_are_one_finding(states: Any) -> None:
    """That `initial` names none of them follows from it."""
    assert len(ids(states=states)) == 1


@pytest.mark.parametrize(
    ("action", "help"),
    [
        ({"action": "echo ${loop.iteration}"}, "did you mean `${state.iteration}`?"),
        ({"action": "x", "action_type": "bash"}, "did you mean `shell`?"),
    ],
)
def test_the_likely_meaning_is_suggested(action: dict[str, str], help: str) -> None:
    """What is meant is not always what is spelt alike."""
    (finding,) = findings(states={"a": {**action, "next": "z"}, "z": {"terminal": True}})
    assert finding.help == help


def test_an_unrouted_verdict_names_the_error_route_that_takes_it() -> None:
    """Only where there is none does the loop end."""
    state = {"action": "x", "on_success": "z"}
    (finding,) = findings(states={"a": state, "z": {"terminal": True}})
    assert "otherwise the loop ends with an error" in str(finding.help)
    (finding,) = findings(states={"a": state | {"on_error": "z"}, "z": {"terminal": True}})
    assert "an error goes to `z`" in str(finding.help)


@pytest.mark.parametrize("bound", [{"max_steps": 5}, {"timeout": 60}, {"budget": {"usd": 1}}])
def test_a_loop_with_a_bound_may_go_round_for_ever(bound: dict[str, Any]) -> None:
    """The bound is how it is meant to end; without one there is a warning."""
    states = {"a": {"action": "x", "next": "a"}}
    assert ids(states=states) == ["never-ends"]
    assert ids(states=states, **bound) == []


def test_rule_4_an_undefined_part_of_previous_falls_back() -> None:
    """Also where it is one of several parts: the measurement goes on, and says so."""
    evaluate = {"type": "convergence", "target": 0, "previous": "${captured.p.output}0"}
    states = {
        "a": {"action": "x", "evaluate": evaluate, "route": {"_": "p"}},
        "p": {"action": "y", "capture": "p", "next": "z"},
        "z": {"terminal": True},
    }
    program = compile_text(json.dumps({"name": "x", "initial": "a", "states": states})).program
    machine = Machine(emit(program))
    outcome = machine.resume()
    seen: list[dict[str, Any]] = []
    while isinstance(outcome, Effect):
        outcome = machine.resume(
            {"output": "5", "stderr": "", "exit_code": 0, "duration_ms": 1, "elapsed_ms": 1}
        )
        seen += [fields for _, fields in machine.take_notes()]
    assert isinstance(outcome, Done)
    details = next(fields["details"] for fields in seen if "details" in fields)
    assert "previous_ignored" in details
