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


def test_too_deep_context_chain_is_one_error() -> None:
    """The number of values that lead into the chain does not matter."""
    assert ids(context=chain(3000)) == ["context-too-large"]


@pytest.mark.parametrize("count", [1, 2, 7, 40])
def test_context_cycle_is_one_error(count: int) -> None:
    """Each cycle is reported once, not once per value on it."""
    cycle = {f"c{i}": f"${{context.c{(i + 1) % count}}}" for i in range(count)}
    assert ids(context=cycle) == ["context-cycle"]
    other = {f"d{i}": f"${{context.d{(i + 1) % count}}}" for i in range(count)}
    assert ids(context=cycle | other) == ["context-cycle"] * 2


def test_an_exit_code_cannot_mean_success_and_failure() -> None:
    """The order of comparison would decide which one applies."""
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
def test_json_schema_agrees_with_the_checks(change: dict[str, Any]) -> None:
    """Both reject a loop without states and a name that is too long."""
    loop = {"name": "x", "initial": "a", "states": {"a": {"terminal": True}}}
    jsonschema.validate(loop, json_schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(loop | change, json_schema())
    assert ids(**change)


@pytest.mark.parametrize("states", [[], {}])
def test_missing_states_are_one_error(states: Any) -> None:
    """`initial` causes no further error."""
    assert len(ids(states=states)) == 1


@pytest.mark.parametrize(
    ("action", "help"),
    [
        ({"action": "echo ${loop.iteration}"}, "did you mean `${state.iteration}`?"),
        ({"action": "x", "action_type": "bash"}, "did you mean `shell`?"),
    ],
)
def test_the_likely_meaning_is_suggested(action: dict[str, str], help: str) -> None:
    """The suggestion is not always the nearest spelling."""
    (finding,) = findings(states={"a": {**action, "next": "z"}, "z": {"terminal": True}})
    assert finding.help == help


def test_an_unrouted_verdict_names_the_error_route_that_takes_it() -> None:
    """The loop ends only if there is no error route."""
    state = {"action": "x", "on_success": "z"}
    (finding,) = findings(states={"a": state, "z": {"terminal": True}})
    assert "otherwise the loop ends with an error" in str(finding.help)
    (finding,) = findings(states={"a": state | {"on_error": "z"}, "z": {"terminal": True}})
    assert "an error goes to `z`" in str(finding.help)


@pytest.mark.parametrize("bound", [{"max_steps": 5}, {"timeout": 60}, {"budget": {"usd": 1}}])
def test_cycle_with_a_limit_gives_no_warning(bound: dict[str, Any]) -> None:
    """A limit ends the cycle; without one there is a warning."""
    states = {"a": {"action": "x", "next": "a"}}
    assert ids(states=states) == ["never-ends"]
    assert ids(states=states, **bound) == []


def test_rule_4_an_undefined_part_of_previous_falls_back() -> None:
    """An undefined variable as one of several parts of `previous` also falls back, with a note."""
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
