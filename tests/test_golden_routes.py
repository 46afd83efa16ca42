"""The worlds of a golden case take every route of its loop; exceptions are listed with a reason.

There are two measures. In terms of the source: each verdict that a state routes, `_`, `_error`, `next`, the
end at each terminal state, each restart. In terms of the program: each IR state, which includes implicit
paths: an unrouted verdict, a crash, a fault, each limit. For the second measure, the trace is replayed on the
same program with a note in every state.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from golden_cases import CASES, compile_case, trace_of, values_of, worlds

from llc.frontend.loop.schema import Loop
from llc.frontend.loop.variable_checks import read_texts
from llc.ir.builder import record
from llc.ir.nodes import Note, Program
from llc.vm.code.emit import emit
from llc.vm.machine.machine import Effect
from llc.vm.tiered import Machine

# Programs of several files have other kinds of states: `tests/runtime/test_linked_runs.py`.
RUNNING = [case for case in CASES if case.parent.name in ("loops", "rules") and not list(case.glob("*.sexp"))]
IDS = [f"{case.parent.name}/{case.name}" for case in RUNNING]
# States that count an entry in the same iteration: the states of a cycle are always entered in the same
# order, so only the first one reaches them.
GATE = ("/again", "/next", "/rested", "/rested/in_time")
# Every loop with an agent ends in the same way at a handoff; the cases `handoff…` show it.
HANDOFF = ("/handed_over", "/handoff")
ALWAYS_DEFINED = "what it reads has always been set before"
NO_MODEL = "models are switched off, so the state always errs"
# Routes that cannot be taken, with the reason.
UNTAKEN = {
    "02-prev-and-result": {"decide/error": ALWAYS_DEFINED},
    "04-convergence-templates": {"measure/error": ALWAYS_DEFINED},
    "08-exit-code-source": {"decide/error": ALWAYS_DEFINED},
    "11-llm-disabled": dict.fromkeys(
        ("look: success", "look: failure", "look/to/done", "look/unrouted", "look/error"), NO_MODEL
    ),
    "18-dynamic-targets": {"test/error": ALWAYS_DEFINED},
    "ask": {"confirm/error": ALWAYS_DEFINED, "confirm/unrouted": "every choice is routed"},
    "evaluate-contains": {"worked_out/error": ALWAYS_DEFINED},
}
# Variables that may be undefined.
MAY_FAULT = ("captured", "prev", "result", "env")


def events_of(world: Path) -> list[dict[str, Any]]:
    lines = trace_of(world).read_text("utf-8").splitlines()
    return [event for event in map(json.loads, lines) if "event" in event]


def routes_of(loop: Loop) -> Iterator[tuple[str, str]]:
    """Every route in the source: the state, and the verdict or key."""
    for name, state in loop.states.items():
        yield from ((name, verdict) for verdict in state.routes)
        if state.next is not None:
            yield name, "next"
        elif state.is_terminal:
            yield name, "end" if loop.restart_of(state) is None else "restart"
    if loop.on_error is not None:
        yield "", "on_error"


def routes_taken(loop: Loop, events: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    last = ""
    for event in events:
        match event["event"]:
            case "state_enter":
                last = event["state"]
            case "route":
                routes, verdict = loop.states[last].routes, event.get("verdict", "next")
                if verdict == "error":
                    yield (last, "_error") if "_error" in routes else ("", "on_error")
                else:
                    yield last, verdict if verdict in (*routes, "next") else "_"
            case "cycle":
                yield last, "restart"
            case "loop_complete" if event["terminated_by"] == "terminal":
                yield last, "end"


def states_taken(program: Program, events: list[dict[str, Any]]) -> set[str]:
    """The IR states of the run with these events."""
    function = program.function(program.entry)
    noted = tuple(
        attrs.evolve(state, body=(Note("state_enter", record({"ir": state.name})), *state.body))
        for state in function.states
    )
    others = tuple(other for other in program.functions if other is not function)
    marked = attrs.evolve(program, functions=(attrs.evolve(function, states=noted), *others))
    results = [event["result"] for event in events if event["event"].endswith("_complete") and "seq" in event]
    machine = Machine(emit(marked))
    outcome = machine.resume()
    taken = set()
    while True:
        taken.update(fields["ir"] for _, fields in machine.take_notes() if "ir" in fields)
        if not isinstance(outcome, Effect) or not results:
            break
        outcome = machine.resume(results.pop(0))
    assert not results
    return taken


def unreachable_states(loop: Loop) -> Iterator[str]:
    """IR states that no world can reach, as the evaluator and the texts of a state prove."""
    for name, state in loop.states.items():
        verdicts, routes = loop.evaluator_of(state).verdicts, state.routes
        takes_errors = "_error" in routes or loop.on_error not in (None, name)
        takes_all = takes_errors and (
            "_" in routes or (verdicts is not None and set(verdicts) <= routes.keys())
        )
        if takes_all and not state.is_terminal:
            yield f"{name}/unrouted"
        read = (
            variable
            for text in read_texts(loop)
            if text.state is state and text.field != "evaluate.previous"
            for variable in text.template.variables
        )
        may_fault = any(v.namespace in MAY_FAULT and v.default is None for v in read)
        if not may_fault and (takes_all or state.next is not None or state.is_terminal):
            yield from (f"{name}/{phase}" for phase in ("error", "error_time", "error_in_time"))


@pytest.mark.parametrize("case", RUNNING, ids=IDS)
def test_every_route_of_the_source_is_taken(case: Path) -> None:
    """Each route of the loop is taken in a trace, or listed as impossible."""
    loop = compile_case(case).loop
    taken = {way for world in worlds(case) for way in routes_taken(loop, events_of(world))}
    listed = UNTAKEN.get(case.name, {})
    missing = {f"{state}: {way}" for state, way in routes_of(loop) if (state, way) not in taken}
    assert missing == {way for way in listed if ": " in way}


@pytest.mark.parametrize("case", RUNNING, ids=IDS)
def test_every_state_of_the_program_is_reached(case: Path) -> None:
    """Including implicit paths: unrouted verdicts, crashes, faults, limits."""
    taken = set()
    for world in worlds(case):
        taken |= states_taken(compile_case(case, values_of(world)).program, events_of(world))
    compiled = compile_case(case)
    states = {state.name for state in compiled.program.functions[0].states}
    assert not taken & set(unreachable_states(compiled.loop))
    common = GATE if case.name.startswith("handoff") else GATE + HANDOFF
    missing = {
        name for name in states - taken - set(unreachable_states(compiled.loop)) if not name.endswith(common)
    }
    assert missing == {way for way in UNTAKEN.get(case.name, {}) if ": " not in way}


def test_exceptions_are_of_existing_cases() -> None:
    assert UNTAKEN.keys() <= {case.name for case in RUNNING}
