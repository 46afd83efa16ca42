"""Translation of little-loops keys to llc's own keys.

`translate` rewrites alternative spellings in every loop. In a loop with `dialect: little-loops` it also
rewrites the keys that have another meaning there (`spec/dialect.md`). Must not contain: composition of files.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...ir.diagnostics import Diagnostic
from ...ir.python_internals import late_pattern, sha256
from ..source.document import Document
from ..template.nodes import RuntimeValue, text_of
from ..template.template import parse
from .agent_schema import Budget
from .dialect_schema import LITTLE_LOOPS, LOOP_KEYS, STATE_KEYS, Learning
from .evaluator_schema import Convergence, ExitCode, OutputJson
from .schema import GuardSettings, Loop, StallSettings, StateSpec

# Names of terminals that little-loops counts as failures.
FAILURE_NAMES = frozenset({"failed", "error", "aborted", "finalize_aborted"})
MAX_IN_A_ROW = 12
# Variables that little-loops sets from its own settings, with the defaults of those settings.
SETTING_DEFAULTS = {
    "readiness_threshold": 85,
    "outcome_threshold": 65,
    "design_tokens_context": "",
    "design_guidance_context": "",
}
INPUT_HASH, HASH_LENGTH = "input_hash", 12
# Patterns of test files in little-loops.
TEST_PATHS = ("**/test_*", "**/*_test.*", "**/*.test.*", "**/*.spec.*", "**/tests/**", "**/conftest.py")
DEFAULT_STEPS = 50
# A path of `output_json` without its leading dot.
_PATH_WITHOUT_DOT = late_pattern(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_RUN_FOLDER = late_pattern(r"\$\{context\.run_dir(?:[:?][^}]*)?\}")
SESSIONS = {"fresh": "new", "continue": "continue"}
_NOT_USED = ("Not ", "Not.")


def translate(loop: Loop) -> Loop:
    """Rewrite a loop so that it uses only llc's own keys and meaning."""
    if any(loop.is_given(key) for key in LOOP_KEYS):
        loop = _translate_settings(loop)
    states = {name: _translate_state(loop, state) for name, state in loop.states.items()}
    if any(new is not old for new, old in zip(states.values(), loop.states.values(), strict=True)):
        loop = loop.evolve(states=states)
    return _apply_dialect(loop) if loop.dialect == LITTLE_LOOPS else loop


def unused_keys(loop: Loop) -> Iterator[Diagnostic]:
    """Report keys of little-loops that are accepted but have no effect, each with the alternative."""
    for block, keys in ((loop, LOOP_KEYS), *((state, STATE_KEYS) for state in loop.states.values())):
        for key, field in keys.items():
            if f"key:{key}" in block.spans and field.doc.startswith(_NOT_USED):
                why = field.doc.partition(": ")[2].rstrip(".")
                place = block.span_of(f"key:{key}")
                yield Diagnostic(
                    "unused-key", f"`{key}` has no effect", place, "a key of little-loops", why, "warning"
                )


def check_parameters(loop: Loop) -> Iterator[Diagnostic]:
    """Report values of `context` that do not have the type of their parameter."""
    for name, parameter in (loop.parameters or {}).items():
        value = loop.context.get(name, "")
        wanted = None if value == "" or isinstance(value, RuntimeValue) else parameter.mismatch(value)
        if wanted is not None:
            place = loop.span_of(f"context.{name}")
            if not loop.is_given("context") or f"context.{name}" not in loop.spans:
                place = parameter.span_of("default")
            yield Diagnostic("wrong-type", f"`{name}` should be {wanted}", place, "", parameter.description)


def missing_inputs(loop: Loop) -> list[str]:
    """The required inputs without a value; the loop cannot start without them."""
    parameters = loop.parameters or {}
    required = [name for name, one in parameters.items() if one.required and name != "run_dir"]
    names = dict.fromkeys((*(loop.required_inputs or ()), *required))
    return [name for name in names if loop.context.get(name, "") in ("", None)]


# --- spellings --------------------------------------------------------------------------------


def _translate_settings(loop: Loop) -> Loop:
    changes: dict[str, Any] = {}
    if loop.session is None and loop.session_mode is not None:
        changes["session"] = SESSIONS[loop.session_mode]
    if loop.idle_timeout is None and loop.default_idle_timeout is not None:
        changes["idle_timeout"] = loop.default_idle_timeout
    policies = [loop.tamper_guard, *(state.tamper_guard for state in loop.states.values())]
    policy = next((policy for policy in policies if policy not in (None, "allow")), None)
    if loop.guard is None and policy is not None:
        changes["guard"] = GuardSettings(paths=TEST_PATHS, on=policy)
    failure = loop.circuit.repeated_failure if loop.circuit is not None else None
    if failure is not None and loop.stall is None:
        changes["stall"] = StallSettings(rounds=failure.window)
        if failure.on_repeated_failure != "abort" and loop.on_stall is None:
            changes["on_stall"] = failure.on_repeated_failure
            place = failure.spans.get("on_repeated_failure")
            if place is not None:
                changes["spans"] = {**loop.spans, "on_stall": place}
    if loop.singleton:
        changes["scope"] = (
            *(loop.scope if loop.scope is not None else (".",)),
            f".loops/singletons/{loop.name}",
        )
    parameters = {
        name: parameter.default if parameter.default is not None else ""
        for name, parameter in (loop.parameters or {}).items()
        if name not in loop.context and name != "run_dir"
    }
    inputs = {name: "" for name in (loop.input_key, *(loop.required_inputs or ())) if name is not None}
    if parameters or inputs:
        changes["context"] = {**inputs, **parameters, **loop.context}
    return loop.evolve(**changes) if changes else loop


def _translate_state(loop: Loop, state: StateSpec) -> StateSpec:
    changes: dict[str, Any] = {}
    if state.action_type == "human_approval":
        edits = ("edit",) if "edit" in state.routes else ()
        changes |= {"action_type": "ask", "choices": state.choices or ("yes", "no", *edits)}
        changes["capture"] = state.capture or state.name
        # `on_timeout` applies without an answer, which is an error of `ask`.
        changes["on_error"] = state.on_error or state.routes.get("timeout") or state.routes.get("failure")
        changes["route"] = {key: to for key, to in (state.route or {}).items() if key != "timeout"} or None
    if state.learning is not None and state.action is None:
        changes |= {"action": f"/ll:explore-api {_targets(state.learning)}", "action_type": "slash"}
        if state.on_failure is None and "blocked" in state.routes:
            changes["on_failure"] = state.routes["blocked"]
    if state.failure and state.status is None:
        changes["status"] = "failure"
    if state.acts and not state.runs_loops and state.timeout is None and loop.default_timeout is not None:
        changes["timeout"] = loop.default_timeout
    if state.session is None and state.session_mode is not None:
        changes["session"] = SESSIONS[state.session_mode]
    if state.allowed_tools is None and state.tools:
        changes["allowed_tools"] = state.tools
    ceiling = state.cost_ceiling.cost_ceiling_per_state if state.cost_ceiling is not None else None
    if state.budget is None and ceiling is not None:
        changes["budget"] = Budget(usd=ceiling)
    return state.evolve(**changes) if changes else state


def _targets(learning: Learning) -> str:
    return learning.targets_csv or ", ".join(learning.targets or ())


# --- meaning ----------------------------------------------------------------------------------


def _apply_dialect(loop: Loop) -> Loop:
    """Rewrite a loop with `dialect: little-loops` to the same behaviour in llc."""
    changes: dict[str, Any] = {"nonzero_exit": "error", "checks": "late"}
    if loop.max_in_a_row is None:
        changes["max_in_a_row"] = MAX_IN_A_ROW
    if loop.max_steps is None:
        # In little-loops `max_iterations` limits states, unless `max_steps` is given.
        steps = loop.max_iterations if loop.is_given("max_iterations") else DEFAULT_STEPS
        changes["max_steps"] = changes["max_iterations"] = steps
    elif not loop.is_given("max_iterations"):
        changes["max_iterations"] = loop.max_steps
    if loop.input_key is None:
        changes["input_key"] = "input"
    if "input" not in loop.context:
        changes["context"] = {"input": "", **loop.context}
    if not loop.is_given("on_handoff"):
        changes["on_handoff"] = "pause"
    if not loop.llm.is_given("timeout"):
        changes["llm"] = loop.llm.evolve(timeout=1800)
    changes["states"] = {name: _apply_dialect_to_state(loop, state) for name, state in loop.states.items()}
    return loop.evolve(**changes)


def _apply_dialect_to_state(loop: Loop, state: StateSpec) -> StateSpec:
    if state.is_terminal:
        return _apply_dialect_to_terminal(loop, state)
    if state.agent is not None:  # the name of a persona, not of a program
        state = state.evolve(agent=None)
    if isinstance(state.evaluate, Convergence) and state.evaluate.previous is None:
        state = state.evolve(evaluate=state.evaluate.evolve(previous=""))
    error = state.routes.get("_error")
    if state.next is not None:
        if not state.acts or error is None:
            return state
        route = {"success": state.next, "failure": error, "_error": error}
        # If exit codes decide whether `on_error` applies, all codes except 0 must be errors.
        judge = ExitCode() if state.retryable_exit_codes is None else ExitCode(failure=())
        return state.evolve(next=None, on_error=None, evaluate=judge, route=route)
    if state.runs_loops:
        return state
    if not state.acts and state.evaluate is None and "success" in state.routes:
        return state.evolve(next=state.routes["success"], route=None, on_success=None, on_failure=None)
    if isinstance(state.evaluate, OutputJson) and _PATH_WITHOUT_DOT.fullmatch(state.evaluate.path):
        state = state.evolve(evaluate=state.evaluate.evolve(path=f".{state.evaluate.path}"))
    changes: dict[str, Any] = {}
    if not state.acts and state.evaluate is not None and state.evaluate.source is None:
        source = "0" if isinstance(state.evaluate, ExitCode) else ""
        changes["evaluate"] = state.evaluate.evolve(source=source)
    if "failure" not in state.routes and "_" not in state.routes and error is not None:
        changes["on_failure"] = error
    return state.evolve(**changes) if changes else state


def with_setting_variables(loop: Loop, document: Document) -> Loop:
    """Add the variables that little-loops sets, if a file of the loop mentions them."""
    if loop.dialect != LITTLE_LOOPS:
        return loop
    variables: dict[str, Any] = dict(SETTING_DEFAULTS)
    given = loop.context.get("input", RuntimeValue())
    if not isinstance(given, RuntimeValue):
        variables[INPUT_HASH] = sha256(text_of(given).encode("utf-8", "replace")).hexdigest()[:HASH_LENGTH]
    texts = [source.text or "" for source in document.sources]
    read = {key: value for key, value in variables.items() if any(key in text for text in texts)}
    return loop.evolve(context={**read, **loop.context}) if read else loop


def _apply_dialect_to_terminal(loop: Loop, state: StateSpec) -> StateSpec:
    """A terminal of little-loops has no action, unless a limit leads to it."""
    changes: dict[str, Any] = {}
    if state.name in FAILURE_NAMES and state.status is None and state.failure is None:
        changes["status"] = "failure"
    if loop.maintain and state.on_maintain is None:
        changes["on_maintain"] = loop.initial  # also after a failure
    if state.name not in (loop.on_max_steps, loop.on_max_iterations):
        changes |= {"action": None, "action_type": None, "call": None, "capture": None, "evaluate": None}
        changes["timeout"] = None
    return state.evolve(**changes) if changes else state


def with_scope(loop: Loop) -> Loop:
    """Insert the values of `context` into the scope of a loop.

    The run's own folder is left out, because no other run works in it. Empty paths are left out too.
    """
    if loop.scope is None or not any("${" in path for path in loop.scope):
        return loop
    paths = []
    for path in loop.scope:
        text = path
        if "${" in path and not _RUN_FOLDER.search(path):
            parsed = parse(path, kind="value", context=loop.context)
            # A path that is known only at run time may be any path.
            unknown = "." if loop.checks == "late" and not parsed.problems else path
            text = unknown if parsed.problems or parsed.fixed is None else parsed.fixed
        if text and not _RUN_FOLDER.search(text):
            paths.append(text)
    return loop.evolve(scope=tuple(paths))
