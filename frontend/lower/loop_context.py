"""Shared context of the lowering of one loop: limits, parsed texts, notes, errors, time and jumps.

The modules for parts of a state (`actions`, `calls`, `evaluators`, `budgets`) use a `LoopContext` and
a `Chain` and import nothing else of the lowering of loops. Must not contain: the IR states of an
author's state (`loop`).
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
from ..template.nodes import RuntimeValue, Template
from ..template.template import parse
from . import templates
from .chain import Chain, states_on_cycles
from .templates import Needs, Place

VERDICT = prim("get", Slot("result"), "verdict")
DETAILS = prim("get", Slot("result"), "details")
CONFIDENCE = prim("lookup_or", Slot("result"), ("details", "confidence"), None)
# The result of the last check with its command, for prompts that include it.
CHECKED = Slot("checked")
# The prompt of the agent.
ASKED = Slot("asked")
# The deadline of a nested loop, as active time of the run.
DEADLINE = Slot(call_limits.DEADLINE)


@frozen
class Callee:
    """A function that a state calls, with its arguments in order as (place, value)."""

    function: Closure
    arguments: tuple[tuple[str, Any], ...]


@frozen
class LateCallee:
    """The functions that a state may call, by the names of their loops; and the file of the state."""

    file: str
    linked: tuple[tuple[str, Callee], ...]


NO_CALLEES: Mapping[str, Callee | LateCallee] = {}


def milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else max(1, round(seconds * 1000))


class LoopContext:
    """A loop that is lowered to one function.

    Args:
        inner: the name of the loop in notes if a flow runs it; None if the program is the loop.
        callees: the called function of each state.
        gives_results: whether captures are returned as results instead of strings.

    Attributes:
        ends: the limits that can be reached.
        until, acted: see `deadlines.Calls`; complete when the function has been built.
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
        # A nested loop computes its deadline at run time.
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
        given = [key for key, value in loop.context.items() if isinstance(value, RuntimeValue)]
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
        # The commands of evaluated states, for prompts that include the last check.
        self.commands: dict[str, Expr] = {}
        read = {variable.path[0] for variable in used if variable.namespace == "loop"}
        self.reads_start = "started_at" in read
        self.reads_folder = "run_dir" in read
        self.reads_elapsed = inner is not None and not read.isdisjoint({"elapsed", "elapsed_ms"})

    def note(self, kind: str, fields: dict[str, Any]) -> Note:
        """A note; it names the loop if the program has several."""
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
        """The route for errors of a state: its own, or the loop's `on_error`.

        The target of the loop's `on_error` does not use it for itself, which could repeat forever.
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
        """Whether the state is a check: its result is evaluated, and it is not the report of an agent."""
        is_judged = state.acts and state.next is None and not state.is_terminal
        return is_judged and self.loop.kind_of(state) != "slash"

    def remember(self, state: StateSpec) -> list[Instruction]:
        """Store the action that ran as `prev` for the following states."""
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
        """Note the route and jump; the action that ran becomes `prev` after the target is computed."""
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
        """The parsed template of a target that is computed at run time, and its field."""
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
        """Write the state for an action that was ended or could not start, if no evaluator handles this."""
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
        """The fault for an error without a route: the fault of the state's call, if there was one."""
        unrouted = prim("unrouted", state.name, Slot("result"))
        if not state.calls:
            return unrouted
        fault = prim("lookup_or", Slot("last"), ("error", "fault"), None)
        return prim("select", prim("is_null", fault), unrouted, fault)

    def prepare(self, chain: Chain, state: StateSpec, phase: str, needs: Needs) -> None:
        """Read the environment and the clock if the texts of a phase need them."""
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
        """Check the loop's deadline on a path that does not wait."""
        if self.deadline is None:
            return
        self.ends.add("timeout")
        chain.perform("clock", {}, "now", f"{state.name}/{phase}time")
        late = prim("ge", prim("get", Slot("now"), "elapsed_ms"), self.deadline)
        chain.unless(late, "/timeout", f"{state.name}/{phase}in_time")

    def in_time(self, chain: Chain, slot: str, then: str) -> None:
        """Branch to `/timeout` if the loop's deadline ended the effect."""
        if self.deadline is not None:
            self.ends.add("timeout")
            late = prim("eq", prim("get", Slot(slot), "timed_out"), "loop")
            chain.unless(late, "/timeout", then)
