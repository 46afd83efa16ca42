"""Checks of a loop against its project: known agents, models with a known price.

Skipped for a loop that is compiled without a project.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.compile_options import Project
from ...ir.diagnostics import Diagnostic, suggest
from .agent_schema import AGENT_OPTIONS
from .schema import Loop, StateSpec, model_name


def check_project(loop: Loop, project: Project | None, default_model: str) -> Iterator[Diagnostic]:
    """Report agents that the project does not have, and budgets in USD for models without a price."""
    if project is None or loop.flawed:
        return
    yield from _check_agents(loop, project)
    judged = [state for state in loop.states.values() if is_judged_by_model(loop, state)]
    model = model_name(loop, default_model)
    for budget in (loop.budget, *(state.budget for state in judged)) if judged else ():
        if budget is not None and budget.usd is not None and not project.is_priced(model):
            message = (
                f"the price of `{model[:80]}` is unknown, so a single call uses up the whole `usd` budget"
            )
            help = "add its `price` under `models` in .loops/config.yaml, or limit `tokens` or `calls`"
            yield Diagnostic("unpriced-model", message, budget.span_of("usd"), "", help, "warning")


def _check_agents(loop: Loop, project: Project) -> Iterator[Diagnostic]:
    """Report unknown agents, and agents without a capability that the loop requires."""
    if loop.agent is None and all(state.agent is None for state in loop.states.values()):
        return
    known = project.agents()
    if known is None:
        return
    unknown: set[str] = set()
    for block, agent in ((loop, loop.agent), *((state, state.agent) for state in loop.states.values())):
        if isinstance(agent, str) and agent not in known and agent not in unknown:
            unknown.add(agent)
            help = suggest(agent, known, "`agents` in .loops/config.yaml and llc itself have")
            message = f"no agent is called `{agent[:80]}`"
            yield Diagnostic("unknown-agent", message, block.span_of("agent"), "", help)
    reported: set[tuple[str, str]] = set()
    for state in loop.states.values():
        agent = state.agent if state.agent is not None else loop.agent
        if agent is None or agent in unknown or state.action is None or loop.kind_of(state) != "slash":
            continue
        needed = dict(_required_capabilities(loop, state))
        words, protocol = (agent, None) if isinstance(agent, str) else (agent.words, agent.protocol)
        for capability, others in project.lacking(words, tuple(needed), protocol).items() if needed else ():
            block, key = needed[capability]
            name = words if isinstance(words, str) else words[0] if protocol is None else " ".join(words)
            # A key of the loop is reported once for each agent.
            if block is loop and (name, capability) in reported:
                continue
            reported.add((name, capability))
            message = f"the agent `{name[:80]}` has no `{capability}`"
            help = f"{others} {'have' if ',' in others else 'has'} it" if others else f"leave out `{key}`"
            yield Diagnostic("missing-capability", message, block.span_of(key), "", help)


def _required_capabilities(
    loop: Loop, state: StateSpec
) -> Iterator[tuple[str, tuple[Loop | StateSpec, str]]]:
    """The capabilities that a state requires of its agent, with the block and the key that require them."""
    for key in AGENT_OPTIONS:
        block = state if getattr(state, key) is not None else loop
        value = getattr(block, key)
        if key == "permissions" and value is not None:
            yield f"permissions: {value}", (block, key)
        elif key == "session" and value in ("continue", "fork"):
            yield "session" if value == "continue" else "session: fork", (block, key)
        elif key in ("model", "effort", "allowed_tools", "append_prompt", "max_turns") and value is not None:
            yield key, (block, key)


def is_judged_by_model(loop: Loop, state: StateSpec) -> bool:
    """Whether a model evaluates the result of a state."""
    return state.acts and state.next is None and loop.evaluator_of(state).type == "llm_structured"
