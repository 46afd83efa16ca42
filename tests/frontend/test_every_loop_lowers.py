"""Every loop that the checks accept becomes a program that the verifier accepts."""

from __future__ import annotations

import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from laws import tried

from llc.frontend.compile import compile_text
from llc.frontend.loop.fsm_printer import print_fsm
from llc.ir.diagnostics import CompileError
from llc.ir.verify import verify

TARGETS = st.sampled_from(
    ["a", "b", "c", "$current", "${context.to}", "${captured.v.output}", "${prev.state}"]
)
ACTIONS = st.sampled_from(
    [
        "true",
        "/ll:x ${captured.v.output:default=}",
        "echo ${captured.v.output:default=1} ${loop.elapsed} ${env.HOME:default=x}",
        "${context.cmd} ${state.iteration} ${loop.started_at}",
        "echo '${result.verdict:default=}' \"${prev.stderr:default=}\"",
    ]
)
SOURCES = {"source": st.sampled_from(["${captured.v.output:default=3}", "${env.X:default=}", "{}"])}
EVALUATES = st.one_of(
    st.fixed_dictionaries({"type": st.just("exit_code")}, optional={"success": st.just([0, 3]), **SOURCES}),
    st.fixed_dictionaries(
        {
            "type": st.just("output_numeric"),
            "operator": st.just("le"),
            "target": st.sampled_from([3, "${context.n}"]),
        },
        optional={"ignore_exit": st.booleans(), **SOURCES},
    ),
    st.fixed_dictionaries(
        {
            "type": st.just("output_json"),
            "path": st.just(".a"),
            "target": st.sampled_from([None, [1], "${context.n}"]),
        },
        optional=SOURCES,
    ),
    st.fixed_dictionaries(
        {"type": st.just("output_contains"), "pattern": st.sampled_from(["a", "${prev.output:default=}"])},
        optional={"negate": st.booleans(), **SOURCES},
    ),
    st.fixed_dictionaries(
        {"type": st.just("convergence"), "target": st.just(0)},
        optional={"previous": st.sampled_from(["${prev.output}", "${captured.v.output}", 5]), **SOURCES},
    ),
    st.fixed_dictionaries(
        {"type": st.just("llm_structured")},
        optional={
            "prompt": st.just("ok? ${captured.v.output:default=}"),
            "uncertain_suffix": st.booleans(),
            **SOURCES,
        },
    ),
)
ROUTES = st.dictionaries(
    st.sampled_from(["success", "failure", "target", "stall", "blocked", "_error", "error"]),
    TARGETS,
    max_size=4,
).map(lambda route: {**route, "_": "b"})
STATES = st.one_of(
    st.fixed_dictionaries(
        {"action": ACTIONS, "route": ROUTES},
        optional={"evaluate": EVALUATES, "capture": st.just("v"), "timeout": st.just(2), "on_error": TARGETS},
    ),
    st.fixed_dictionaries(
        {"action": ACTIONS, "on_success": TARGETS, "on_failure": TARGETS},
        optional={"evaluate": EVALUATES, "on_error": TARGETS, "on_blocked": TARGETS},
    ),
    st.fixed_dictionaries(
        {"next": TARGETS}, optional={"action": ACTIONS, "capture": st.just("v"), "on_error": TARGETS}
    ),
    st.fixed_dictionaries({"evaluate": EVALUATES.filter(lambda it: "source" in it), "route": ROUTES}),
    st.fixed_dictionaries(
        {"terminal": st.just(True)},
        optional={
            "action": ACTIONS,
            "status": st.sampled_from(["success", "failure"]),
            "on_maintain": st.sampled_from(["a", "b", "$current"]),
            "on_error": TARGETS,
        },
    ),
)
FIRST = {"action": "true", "capture": "v", "next": "a"}
LOOPS = st.fixed_dictionaries(
    {
        "name": st.just("x"),
        "initial": st.sampled_from(["a", "first"]),
        "states": st.fixed_dictionaries({"first": st.just(FIRST), "a": STATES, "b": STATES, "c": STATES}),
        "context": st.just({"to": "b", "cmd": "echo hi", "n": 4}),
    },
    optional={
        "on_error": TARGETS,
        "maintain": st.booleans(),
        "max_steps": st.integers(1, 9),
        "timeout": st.just(5),
        "backoff": st.just(1),
        "maintain_delay": st.sampled_from([0, 2]),
        "budget": st.sampled_from([{"usd": 1}, {"tokens": 5}, {"usd": 1, "tokens": 2}]),
        "llm": st.sampled_from([{"enabled": False}, {"model": "m"}]),
    },
)


@settings(max_examples=tried(50), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(LOOPS)
def test_checked_loop_lowers_to_a_valid_program(data: dict[str, object]) -> None:
    """The verifier accepts every loop that the checks accept; its FSM form compiles to the same program."""
    refused: set[str] = set()
    try:
        compiled = compile_text(json.dumps(data))
    except CompileError as error:
        refused = {finding.id for finding in error.diagnostics if finding.is_error}
    if refused:
        assert refused == {"llm-disabled"}
        return
    assert [finding for finding in verify(compiled.program) if finding.is_error] == []
    assert compile_text(print_fsm(compiled.loop)).program.functions == compiled.program.functions
