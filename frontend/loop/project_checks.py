"""Checks of a loop against its project: agents that exist, models whose price is known.

Skipped for a loop that is compiled without a project.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.compile_options import Project
from ...ir.diagnostics import Diagnostic, suggest
from .schema import Loop, StateSpec, model_name


def check_project(loop: Loop, project: Project | None, default_model: str) -> Iterator[Diagnostic]:
    """Agents that the project does not have, and budgets in USD for models without a price."""
    if project is None or loop.flawed:
        return
    if isinstance(loop.agent, str):
        known = project.agents()
        if known is not None and loop.agent not in known:
            help = suggest(loop.agent, known, "`agents` in .loops/config.yaml and llc itself have")
            yield Diagnostic(
                "unknown-agent", f"no agent is called `{loop.agent[:80]}`", loop.span_of("agent"), "", help
            )
    judged = [state for state in loop.states.values() if is_judged_by_model(loop, state)]
    model = model_name(loop, default_model)
    for budget in (loop.budget, *(state.budget for state in judged)) if judged else ():
        if budget is not None and budget.usd is not None and not project.is_priced(model):
            message = f"the price of `{model[:80]}` is not known, so one call of it uses up all of `usd`"
            help = "give it a `price` under `models` in .loops/config.yaml, or bound `tokens` or `calls`"
            yield Diagnostic("unpriced-model", message, budget.span_of("usd"), "", help, "warning")


def is_judged_by_model(loop: Loop, state: StateSpec) -> bool:
    """Whether a model evaluates the result of a state."""
    return state.acts and state.next is None and loop.evaluator_of(state).type == "llm_structured"
