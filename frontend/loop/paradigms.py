"""The paradigms other than states: their keys, and their rewriting to states and transitions.

The rewriting is pure and uses fixed templates (seed, Paradigm Compilation). Every state keeps the span of
its original text. Must not contain: checks, or files (`natural` reads the pins of `paradigm: natural`).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, assert_never

from ...ir.spans import Span
from ..source.schema import (
    ARGUMENTS,
    BOOLEAN,
    DURATION,
    EXIT_CODES,
    MEASURE,
    NAME,
    TARGET,
    TEMPLATE,
    TEXT,
    Spec,
    Type,
    block,
    choice,
    optional,
    required,
    values_of,
)
from .agent_schema import AGENT_OPTIONS, AgentOptions
from .evaluator_schema import Convergence, ExitCode
from .schema import Loop, LoopSettings, StateSpec


class CallSpec(Spec):
    """A call in place of an action."""

    call: str = required(TEXT, "A function of a file, such as `flows.sexp#summarise`; see `call` of a state.")
    args: Any = optional(ARGUMENTS, "Arguments: a list, or a mapping by parameter names.")


class CommandSpec(Spec):
    """A shell command in place of an action."""

    run: str = required(TEMPLATE, "The shell command; it may begin with `/`.")


class CheckSpec(Spec):
    """A shell command in place of a check, with the meaning of its exit codes."""

    run: str = required(TEMPLATE, "The shell command; it may begin with `/`.")
    success: tuple[int, ...] | None = optional(EXIT_CODES, "Exit codes that mean `success`; default: `[0]`.")
    failure: tuple[int, ...] | None = optional(
        EXIT_CODES, "Exit codes that mean `failure`; default: `[1]`. All others are errors."
    )


class PromptSpec(AgentOptions):
    """An instruction for the agent in place of an action."""

    prompt: str = required(TEMPLATE, "The instruction for the agent.")
    feedback: bool | None = optional(
        BOOLEAN, "Whether the last check's result follows the prompt; default: in repairs, not in checks."
    )
    agent: str | None = optional(NAME, "Name of the agent; default: that of the loop.")
    on_quota: str | None = optional(TARGET, "As the key of the loop, for this action.")
    max_quota_wait: float | None = optional(DURATION, "As the key of the loop, for this action.")


ActionSpec = str | CallSpec | CommandSpec | PromptSpec
JudgedSpec = str | CallSpec | CheckSpec | PromptSpec
_EXPECTED = "an action"
ACTION = Type(
    "either", options=(TEMPLATE, *map(block, (CommandSpec, PromptSpec, CallSpec))), expected=_EXPECTED
)
CHECK = Type("either", options=(TEMPLATE, *map(block, (CheckSpec, PromptSpec, CallSpec))), expected=_EXPECTED)


class GoalSpec(LoopSettings):
    """`paradigm: goal`: a condition to reach, and tools that check and repair."""

    name: str | None = optional(NAME, "The loop's name; default: `goal-` and the words of the goal.")
    goal: str = required(TEXT, "The condition that should become true.")
    tools: tuple[JudgedSpec, ...] = required(
        Type("list", CHECK, least=1), "The first tool checks, the others repair, one after another."
    )


class ConvergenceSpec(LoopSettings):
    """`paradigm: convergence`: a metric to drive towards a target."""

    name: str = required(NAME, "The loop's name.")
    check: ActionSpec = required(ACTION, "The command whose output is the metric.")
    toward: int | float | str = required(MEASURE, "The target.")
    using: ActionSpec = required(ACTION, "The action that changes the metric.")
    tolerance: int | float | str = optional(
        Type("measure", least=0), "Distance from the target that counts as reached.", 0
    )
    direction: str | None = optional(
        choice("minimize", "maximize"), "Direction of progress; default: `minimize`."
    )


class Constraint(Spec):
    """An entry of `constraints`."""

    example: ClassVar[str] = "such as `{name: tests, check: pytest, fix: {prompt: Make the tests pass}}`"

    name: str = required(TEXT, "Name of the constraint, for the states `check_<name>` and `fix_<name>`.")
    check: JudgedSpec = required(CHECK, "The action that checks the constraint.")
    fix: ActionSpec = required(ACTION, "The action that restores the constraint.")


class InvariantsSpec(LoopSettings):
    """`paradigm: invariants`: constraints to maintain, each with its repair."""

    name: str = required(NAME, "The loop's name.")
    constraints: tuple[Constraint, ...] = required(
        Type("list", block(Constraint), least=1, hint="each item is `- name: NAME`, with `check` and `fix`"),
        "The constraints, in order.",
    )


class Until(Spec):
    """`until`: the condition that ends the loop."""

    example: ClassVar[str] = "such as `{check: pytest}`"

    check: JudgedSpec = required(CHECK, "The action that checks the condition.")
    passes: bool = optional(
        BOOLEAN, "Whether `success` (true) or `failure` (false) of the check ends the loop.", True
    )


class ImperativeSpec(LoopSettings):
    """`paradigm: imperative`: steps to repeat until a check passes."""

    name: str = required(NAME, "The loop's name.")
    steps: tuple[ActionSpec, ...] = required(Type("list", ACTION, least=1), "The actions, one after another.")
    until: Until = required(block(Until), "The condition that ends the loop.")


class NaturalSpec(LoopSettings):
    """`paradigm: natural`: a description in words; a model writes the loop, which is pinned."""

    name: str | None = optional(NAME, "The loop's name; default: chosen by the model.")
    description: str = required(TEXT, "What the loop should do.")
    tools: tuple[str, ...] | None = optional(
        Type("list", TEMPLATE, least=1), "Actions that the loop may use."
    )


WrittenSpec = Loop | GoalSpec | ConvergenceSpec | InvariantsSpec | ImperativeSpec
LoopSpec = WrittenSpec | NaturalSpec

PARADIGMS: dict[str, type[LoopSettings]] = {
    "goal": GoalSpec,
    "convergence": ConvergenceSpec,
    "invariants": InvariantsSpec,
    "imperative": ImperativeSpec,
    "fsm": Loop,
    "natural": NaturalSpec,
}

# --- rewriting --------------------------------------------------------------------------------

_SLUG_LENGTH = 60


def to_fsm(spec: WrittenSpec) -> Loop:
    """The loop as states and transitions; an FSM is returned unchanged."""
    match spec:
        case Loop():
            return spec
        case GoalSpec():
            return _goal(spec)
        case ConvergenceSpec():
            return _convergence(spec)
        case InvariantsSpec():
            return _invariants(spec)
        case ImperativeSpec():
            return _imperative(spec)
    assert_never(spec)


def slug(text: str) -> str:
    """Convert a text to a name: lower-case words joined by `-`, of limited length, cut between words."""
    words = re.findall(r"[^\W_]+", unicodedata.normalize("NFKC", text).lower())
    joined = "-".join(words)
    if len(joined) <= _SLUG_LENGTH:
        return joined
    return joined[: _SLUG_LENGTH + 1].rpartition("-")[0] or joined[:_SLUG_LENGTH]


def _loop(spec: LoopSettings, name: str, paradigm: str, states: Iterable[StateSpec], **changed: Any) -> Loop:
    """A loop of these states with the settings of `spec`; the first state is the initial one."""
    table = {state.name: state for state in states}
    settings = values_of(spec, LoopSettings) | changed
    spans = {key: span for key, span in settings.pop("spans").items() if not key.endswith("paradigm")}
    spans.setdefault("name", spec.span_of("key:paradigm"))
    return Loop(
        name=name, initial=next(iter(table)), states=table, paradigm=paradigm, spans=spans, **settings
    )


def _state(
    name: str, place: Span | None, spans: Mapping[str, Span | None] | None = None, **fields: Any
) -> StateSpec:
    """A state whose fields have the spans in `spans`, or else the span `place`."""
    found = {key: span for key, span in (spans or {}).items() if span is not None}
    action = fields.pop("action", None)
    if isinstance(action, Spec):
        fields["flawed"] = action.flawed
        found = {**dict(action.spans), **found}
    match action:
        case CallSpec():
            fields |= {"call": action.call, "args": action.args}
        case CommandSpec() | CheckSpec():
            fields |= {"action": action.run, "action_type": "shell"}
            found |= _renamed_spans(found, "run", "action")
            if isinstance(action, CheckSpec) and (action.success, action.failure) != (None, None):
                places = {key: span for key, span in found.items() if "success" in key or "failure" in key}
                fields["evaluate"] = ExitCode(
                    success=action.success, failure=action.failure, span=action.span, spans=places
                )
                found["key:evaluate"] = found.get("key:success") or found["key:failure"]
        case PromptSpec():
            feedback = action.feedback if action.feedback is not None else "next" in fields
            fields |= {"action": action.prompt, "action_type": "prompt", "feedback": feedback}
            keys = ("agent", "on_quota", "max_quota_wait", *AGENT_OPTIONS)
            fields |= {key: getattr(action, key) for key in keys}
            found |= _renamed_spans(found, "prompt", "action")
        case str():
            fields["action"] = action
    if place is not None:
        found = {**dict.fromkeys((*fields, "name"), place), **found}
    return StateSpec(name=name, span=place, spans=found, **fields)


def _renamed_spans(spans: Mapping[str, Span], key: str, to: str) -> dict[str, Span]:
    """The spans of a key under another name."""
    return {prefix + to: spans[prefix + key] for prefix in ("", "key:") if prefix + key in spans}


def _done(spec: LoopSettings, initial: str, name: str = "done") -> StateSpec:
    restart = initial if spec.maintain else None
    return _state(name, spec.span_of("maintain", "key:paradigm"), terminal=True, on_maintain=restart)


def _goal(spec: GoalSpec) -> Loop:
    """The first tool checks, the others repair in order; a single tool does both (`loops.md` 16)."""
    name = spec.name if spec.name is not None else "-".join(filter(None, ("goal", slug(spec.goal))))
    check, *repairs = [(tool, spec.span_of(f"tools[{i}]")) for i, tool in enumerate(spec.tools)]
    repairs = repairs or [check]
    names = ["fix", *(f"fix_{i}" for i in range(2, len(repairs) + 1))]
    states = [_state("evaluate", check[1], action=check[0], on_success="done", on_failure="fix")]
    for fix, (tool, place), after in zip(names, repairs, [*names[1:], "evaluate"], strict=True):
        states.append(_state(fix, place, action=tool, next=after))
    return _loop(spec, name, "goal", [*states, _done(spec, "evaluate")])


def _convergence(spec: ConvergenceSpec) -> Loop:
    """Measure, apply while there is progress, end at the target or at a stall."""
    context_fields = {"metric_cmd": "check", "target": "toward", "tolerance": "tolerance"}
    if not isinstance(spec.check, str):
        del context_fields["metric_cmd"]  # a call is not a text and cannot be a context value
    names = {key: _unused_name(key, spec.context) for key in context_fields}
    context = {**spec.context, **{names[key]: getattr(spec, field) for key, field in context_fields.items()}}
    spans = dict(spec.spans)
    for key, field in context_fields.items():
        place = spec.span_of(field)
        if place is not None:
            spans[f"context.{names[key]}"] = spans[f"key:context.{names[key]}"] = place
    check, toward = spec.span_of("check"), spec.span_of("toward")
    evaluate = Convergence(
        target=f"${{context.{names['target']}}}",
        tolerance=f"${{context.{names['tolerance']}}}",
        previous="${prev.output}",
        direction=spec.direction or "minimize",
        span=toward,
        spans=_known_spans(target=toward, tolerance=spec.span_of("tolerance"), previous=toward),
    )
    measure = _state(
        "measure",
        check,
        {"evaluate": toward, "route": toward},
        action=f"${{context.{names['metric_cmd']}}}" if "metric_cmd" in names else spec.check,
        capture="current_value",
        evaluate=evaluate,
        route={"target": "done", "progress": "apply", "stall": "done"},
    )
    apply = _state("apply", spec.span_of("using"), action=spec.using, next="measure")
    states = (measure, apply, _done(spec, "measure"))
    return _loop(spec, spec.name, "convergence", states, context=context, spans=spans)


def _known_spans(**spans: Span | None) -> dict[str, Span]:
    return {key: span for key, span in spans.items() if span is not None}


def _unused_name(name: str, taken: Mapping[str, Any]) -> str:
    """`name`, with underscores appended until it is not in the author's context."""
    while name in taken:
        name += "_"
    return name


def _invariants(spec: InvariantsSpec) -> Loop:
    """Check all constraints in order; after a repair, check again."""
    checks = [f"check_{constraint.name}" for constraint in spec.constraints]
    states = []
    for constraint, check, after in zip(spec.constraints, checks, [*checks[1:], "all_valid"], strict=True):
        fix = f"fix_{constraint.name}"
        spans = {"name": constraint.span_of("name")}
        states += [
            _state(
                check,
                constraint.span_of("check"),
                spans,
                action=constraint.check,
                on_success=after,
                on_failure=fix,
            ),
            _state(fix, constraint.span_of("fix"), spans, action=constraint.fix, next=check),
        ]
    return _loop(spec, spec.name, "invariants", [*states, _done(spec, checks[0], "all_valid")])


def _imperative(spec: ImperativeSpec) -> Loop:
    """Run the steps in order, then the check that ends the loop or starts again."""
    names = [f"step_{i}" for i in range(len(spec.steps))]
    states = []
    for i, (step, name, after) in enumerate(zip(spec.steps, names, [*names[1:], "check_done"], strict=True)):
        states.append(_state(name, spec.span_of(f"steps[{i}]"), action=step, next=after))
    targets = ("done", "step_0") if spec.until.passes else ("step_0", "done")
    check = _state(
        "check_done",
        spec.until.span_of("check"),
        action=spec.until.check,
        on_success=targets[0],
        on_failure=targets[1],
    )
    return _loop(spec, spec.name, "imperative", [*states, check, _done(spec, "step_0")])
