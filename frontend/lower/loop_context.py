"""What all lowering of a loop shares: its limits, its parsed texts, its notes, errors, time and jumps.

The parts of a state (`actions`, `calls`, `evaluators`, `budgets`) are written with a `LoopContext` and
a `Chain`, and import nothing else of the loop's lowering. Must not contain: which states a state of the
author becomes (`loop`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from ...ir import call_limits
from ...ir.builder import FunctionBuilder, prim, record, store
from ...ir.nodes import Closure, Exit, Expr, Fail, Goto, Handler, Instruction, Limits, Note, Slot
from ...ir.records import frozen
from ..loop.agent_schema import Budget
from ..loop.schema import CURRENT, Loop, StateSpec, model_name
from ..loop.texts import Within, argument_key, template_of, texts_of_loop, texts_of_state
from ..template.nodes import Given, Template
from ..template.template import parse
from . import templates
from .chain import Chain, states_on_cycles
from .templates import Needs, Place

VERDICT = prim("get", Slot("result"), "verdict")
DETAILS = prim("get", Slot("result"), "details")
CONFIDENCE = prim("lookup_or", Slot("result"), ("details", "confidence"), None)
# The result of the last check with its command, for prompts that include it.
CHECKED = Slot("checked")
# What an agent was asked to do.
ASKED = Slot("asked")
# The active time of the run at which the time of a loop inside it is over.
DEADLINE = Slot(call_limits.DEADLINE)


@frozen
class Callee:
    """A function that a state calls, with its arguments as (place, value) in order."""

    function: Closure
    arguments: tuple[tuple[str, Any], ...]


@frozen
class LateCallee:
    """The functions that a state may call, by the names of loops; the file that has the state."""

    file: str
    linked: tuple[tuple[str, Callee], ...]


NO_CALLEES: Mapping[str, Callee | LateCallee] = {}


def milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else max(1, round(seconds * 1000))


class LoopContext:
    """A loop that is being lowered to one function.

    inner: the name of the loop in its notes where a flow runs it; None for a program that is the loop.
    callees: the called function by state. gives_results: what it captured is returned as results, not as
    texts. ends: the limits that some state can reach. until, acted: see
    `deadlines.Calls`; both are complete once the function has been built.
    """

    def __init__(
        self,
        loop: Loop,
        within: Within,
        default_model: str,
        inner: str | None = None,
        callees: Mapping[str, Callee | LateCallee] = NO_CALLEES,
        gives_results: bool = False,
    ) -> None:
        self.gives_results = gives_results
        self.loop = loop
        self.within = within
        self.inner = inner
        self.callees = callees
        self.until: dict[str, Expr] = {}
        self.acted: list[str] = []
        self.model = model_name(loop, default_model)
        timeout = milliseconds(loop.timeout)
        # A loop that does not begin with the program works out when its time is over.
        self.deadline: int | Slot | None = timeout if inner is None or timeout is None else DEADLINE
        budget = loop.budget or Budget()
        self.limits = Limits(
            max_iterations=loop.max_iterations,
            max_steps=loop.max_steps,
            timeout_ms=timeout,
            budget_usd=budget.usd,
            budget_tokens=budget.tokens,
            budget_calls=budget.calls,
            budget_seconds=budget.seconds,
            state_budgets={
                state.name: state.budget.bounds
                for state in loop.states.values()
                if state.budget is not None and state.budget.bounds
            },
        )
        given = [key for key, value in loop.context.items() if isinstance(value, Given)]
        self.builder = FunctionBuilder(inner or "main", [f"context.{key}" for key in given])
        self.looping = states_on_cycles(loop, self.error_route)
        self.ends: set[str] = set()
        self.dynamic = False
        self.templates = {
            (name, field): template_of(loop, name, kind, text)
            for name, state in loop.states.items()
            for field, kind, text in texts_of_state(loop, state)
        }
        self.templates |= {
            ("", field): template_of(loop, None, kind, text) for field, kind, text in texts_of_loop(loop)
        }
        used = [v for template in self.templates.values() for v in template.variables]
        self.read_fields = {(variable.namespace, *variable.path) for variable in used}
        self.reads_prev = any(variable.namespace == "prev" for variable in used)
        self.judged = {
            name
            for name, state in loop.states.items()
            if state.acts
            and not state.is_terminal
            and state.next is None
            and loop.is_judged_by_evidence(state)
        }
        self.reads_checked = bool(self.judged) or any(state.feedback for state in loop.states.values())
        self.continues_sessions = any(
            (state.session if state.session is not None else loop.session) in ("continue", "fork")
            for state in loop.states.values()
        )
        # The commands of states that are judged, for prompts that include the last check.
        self.commands: dict[str, Expr] = {}
        read = {variable.path[0] for variable in used if variable.namespace == "loop"}
        self.reads_start = "started_at" in read
        self.reads_folder = "run_dir" in read
        self.reads_elapsed = inner is not None and not read.isdisjoint({"elapsed", "elapsed_ms"})

    def note(self, kind: str, fields: dict[str, Any]) -> Note:
        """A note, which says whose it is where the loop is one among others."""
        return Note(kind, record({"loop": self.inner, **fields}))

    def place(self, state: StateSpec, field: str, text: str) -> Place:
        block, _, key = field.partition(".")
        if block == "evaluate" and state.evaluate is not None:
            span = state.evaluate.span_of(key)
        else:
            span = state.span_of(argument_key(field), field, f"on_{key}")
        within = lambda start, end: self.within(span, text, start, end)  # noqa: E731
        return Place(state.name, self.loop.name, within, self.inner is not None)

    def error_route(self, state: StateSpec) -> str | None:
        """Where errors of a state go: its own route, then the loop's `on_error`.

        The state that takes the loop's errors does not take its own: it would fail again and again.
        """
        target = state.routes.get("_error")
        if target is None and self.loop.on_error != state.name:
            target = self.loop.on_error
        return state.name if target == CURRENT else target

    def chain(self, state: StateSpec) -> Chain:
        routed = self.error_route(state) is not None
        handler = Handler(f"{state.name}/error", "fault") if routed else None
        return Chain(self.builder, handler, span=state.span)

    def is_check(self, state: StateSpec) -> bool:
        """Whether what the state runs is judged, and no agent, which would report of itself."""
        is_judged = state.acts and state.next is None and not state.is_terminal
        return is_judged and self.loop.kind_of(state) != "slash"

    def remember(self, state: StateSpec) -> list[Instruction]:
        """Make the action that ran the `prev` of the states to come."""
        if not self.reads_prev or not state.acts:
            return []
        return [store("prev", prim("put", Slot("last"), "state", state.name))]

    def go(
        self,
        chain: Chain,
        state: StateSpec,
        target: str,
        verdict: bool = True,
        remember: list[Instruction] | None = None,
    ) -> None:
        """Note the way taken and take it; what ran here becomes `prev` once the target is known."""
        fields: dict[str, Any] = {"from": state.name, "to": target}
        if target == CURRENT:
            fields["to"] = target = state.name
        exit: Exit = Goto(target)
        if "${" in target:
            template, field = self.target(state, target)
            needs = Needs()
            goal = templates.text_of(template, self.place(state, field, target), needs)
            self.prepare(chain, state, f"to_{len(self.builder.states)}", needs)
            goal = prim("select", prim("eq", goal, CURRENT), state.name, goal)
            chain.add(store("goal", goal))
            fields["to"] = Slot("goal")
            exit = Goto("/dispatch")
            self.dynamic = True
        if verdict:
            fields["verdict"] = VERDICT
        chain.add(*(self.remember(state) if remember is None else remember))
        chain.add(self.note("route", fields))
        chain.close(exit)

    def target(self, state: StateSpec, text: str) -> tuple[Template, str]:
        """The parsed template of a target that is worked out at run time, and its field."""
        for field in (*(f"route.{verdict}" for verdict in state.routes), "next"):
            template = self.templates.get((state.name, field))
            if template is not None and template.text == text:
                return template, field
        return parse(text, kind="value", context=self.loop.context), "on_error"

    def note_verdict(self, chain: Chain, state: StateSpec, kind: str) -> None:
        fields: dict[str, Any] = {"state": state.name, "type": kind}
        fields["verdict"] = VERDICT
        if kind == "llm_structured":
            fields["confidence"] = CONFIDENCE
        fields["details"] = DETAILS
        note = self.note("evaluate", fields)
        if kind == "llm_structured":
            note = attrs.evolve(note, fields=prim("without_nulls", note.fields))
        chain.add(note)

    def crashed(self, state: StateSpec) -> None:
        """The action was ended or could not start, where no evaluator says what that means."""
        chain = self.chain(state)
        chain.open(f"{state.name}/crashed")
        chain.add(store("result", prim("judge_crash", Slot("last"))))
        self.note_verdict(chain, state, self.loop.evaluator_of(state).type)
        target = self.error_route(state)
        if target is None:
            chain.close(Fail(self.unrouted_fault(state), span=state.spans.get("action")))
        else:
            self.go(chain, state, target)

    def unrouted_fault(self, state: StateSpec) -> Expr:
        """The fault of a state whose error has no route: the fault of its call, if that had one."""
        unrouted = prim("unrouted", state.name, Slot("result"))
        if not state.calls:
            return unrouted
        fault = prim("lookup_or", Slot("last"), ("error", "fault"), None)
        return prim("select", prim("is_null", fault), unrouted, fault)

    def prepare(self, chain: Chain, state: StateSpec, phase: str, needs: Needs) -> None:
        """Ask for the environment and the clock where the texts of a phase name them."""
        if needs.env:
            chain.perform("env", {"names": tuple(needs.env)}, "env", f"{state.name}/{phase}_env")
        if needs.clock:
            chain.perform("clock", {}, "now", f"{state.name}/{phase}_clock")

    def sleep(self, chain: Chain, seconds: float, then: str, limit: str = "timeout") -> None:
        chain.perform("sleep", {"seconds": seconds, "deadline_ms": self.deadline}, "slept", then)
        if self.deadline is not None:
            self.ends.add(limit)
            late = prim("eq", prim("get", Slot("slept"), "timed_out"), "loop")
            chain.unless(late, f"/{limit}", f"{then}/in_time")

    def watch_deadline(self, chain: Chain, state: StateSpec, phase: str = "") -> None:
        """A way that waits for nothing still sees that the loop's time is over."""
        if self.deadline is None:
            return
        self.ends.add("timeout")
        chain.perform("clock", {}, "now", f"{state.name}/{phase}time")
        late = prim("ge", prim("get", Slot("now"), "elapsed_ms"), self.deadline)
        chain.unless(late, "/timeout", f"{state.name}/{phase}in_time")

    def in_time(self, chain: Chain, slot: str, then: str) -> None:
        """To `/timeout` where an effect was ended because the loop's time was over."""
        if self.deadline is not None:
            self.ends.add("timeout")
            late = prim("eq", prim("get", Slot(slot), "timed_out"), "loop")
            chain.unless(late, "/timeout", then)
