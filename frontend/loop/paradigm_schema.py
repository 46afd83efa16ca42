"""What loops may say that are not written as states: the classes of the other paradigms, as in `schema`."""

from __future__ import annotations

from typing import Any

import attrs

from ...ir.records import frozen
from ..source.schema import ARGUMENTS, BOOLEAN, MEASURE, NAME, TEMPLATE, TEXT, Spec, Type, block, choice, of
from .schema import Loop, LoopSettings


@frozen(kw_only=True)
class CallSpec(Spec):
    """A call where a paradigm takes an action."""

    call: str = attrs.field(
        metadata=of(TEXT, "A function of a file, such as `flows.sexp#summarise`; see `call` of a state.")
    )
    args: Any = attrs.field(
        default=None,
        metadata=of(ARGUMENTS, "What it is called with: a list, or a mapping by parameter names."),
    )


ACTION = Type("either", options=(TEMPLATE, block(CallSpec)), says="a template or a call")


@frozen(kw_only=True)
class GoalSpec(LoopSettings):
    """`paradigm: goal`: a state of the world to reach, and tools that look and repair."""

    name: str | None = attrs.field(
        default=None, metadata=of(NAME, "The loop's name; absent: `goal-` and the goal's words.")
    )
    goal: str = attrs.field(metadata=of(TEXT, "What should be true."))
    tools: tuple[str | CallSpec, ...] = attrs.field(
        metadata=of(Type("list", ACTION, least=1), "The first checks, the others repair, one after another.")
    )


@frozen(kw_only=True)
class ConvergenceSpec(LoopSettings):
    """`paradigm: convergence`: a metric to drive toward a target."""

    name: str = attrs.field(metadata=of(NAME, "The loop's name."))
    check: str | CallSpec = attrs.field(metadata=of(ACTION, "The command whose output is the metric."))
    toward: int | float | str = attrs.field(metadata=of(MEASURE, "The target."))
    using: str | CallSpec = attrs.field(metadata=of(ACTION, "The action that moves the metric."))
    tolerance: int | float | str = attrs.field(
        default=0, metadata=of(Type("measure", least=0), "How near counts as reached.")
    )
    direction: str | None = attrs.field(
        default=None,
        metadata=of(choice("minimize", "maximize"), "Which way is progress; absent: `minimize`."),
    )


@frozen(kw_only=True)
class Constraint(Spec):
    """One of `constraints`."""

    name: str = attrs.field(metadata=of(TEXT, "Names the states `check_<name>` and `fix_<name>`."))
    check: str | CallSpec = attrs.field(metadata=of(ACTION, "The action that tells whether it holds."))
    fix: str | CallSpec = attrs.field(metadata=of(ACTION, "The action that restores it."))


@frozen(kw_only=True)
class InvariantsSpec(LoopSettings):
    """`paradigm: invariants`: constraints to keep, each with its repair."""

    name: str = attrs.field(metadata=of(NAME, "The loop's name."))
    constraints: tuple[Constraint, ...] = attrs.field(
        metadata=of(Type("list", block(Constraint), least=1), "The constraints, in order.")
    )


@frozen(kw_only=True)
class Until(Spec):
    """`until`: when the steps have done their work."""

    check: str | CallSpec = attrs.field(metadata=of(ACTION, "The action that tells."))
    passes: bool = attrs.field(
        default=True, metadata=of(BOOLEAN, "Whether its `success` or its `failure` ends the loop.")
    )


@frozen(kw_only=True)
class ImperativeSpec(LoopSettings):
    """`paradigm: imperative`: steps to repeat until a check passes."""

    name: str = attrs.field(metadata=of(NAME, "The loop's name."))
    steps: tuple[str | CallSpec, ...] = attrs.field(
        metadata=of(Type("list", ACTION, least=1), "The actions, one after another.")
    )
    until: Until = attrs.field(metadata=of(block(Until), "When to stop."))


@frozen(kw_only=True)
class NaturalSpec(LoopSettings):
    """`paradigm: natural`: what the loop is for in words; what a model makes of them is pinned."""

    name: str | None = attrs.field(
        default=None, metadata=of(NAME, "The loop's name; absent: the one that the model found.")
    )
    description: str = attrs.field(metadata=of(TEXT, "What the loop should do."))
    tools: tuple[str, ...] | None = attrs.field(
        default=None, metadata=of(Type("list", TEMPLATE, least=1), "Actions that it may use.")
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
