"""Lowering of budgets: comparisons before a call that can use them, sums after it.

`spec/lowering.md` lists the slots; `ir.limit_proof` proves that no call bypasses the comparison.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...ir.builder import prim, store
from ...ir.call_limits import References
from ...ir.diagnostics import Diagnostic
from ...ir.effects import SPENDERS
from ...ir.nodes import Expr, Slot
from ..loop.schema import Loop, StateSpec
from .chain import Chain
from .loop_context import LoopContext


def _bounds(context: LoopContext, state: StateSpec) -> Iterator[tuple[str, str, float]]:
    """The budget limits for calls of a state, as (unit, counter slot, limit)."""
    if context.loop.budget is not None:
        for unit, bound in context.loop.budget.bounds.items():
            yield unit, f"spent.{unit}", bound
    for unit, bound in context.limits.state_budgets.get(state.name, {}).items():
        yield unit, f"spent.{unit}.{state.name}", bound


def check_budget(context: LoopContext, chain: Chain, state: StateSpec, phase: str) -> None:
    """Branch to the limit state if the next call would start over budget."""
    for unit, slot, bound in _bounds(context, state):
        context.ends.add("budget")
        name = f"{state.name}/{phase}_{unit}"
        own = "_here" if slot != f"spent.{unit}" else ""
        chain.unless(prim("ge", Slot(slot), bound), "/budget", name + own)


def remaining_usd(context: LoopContext, state: StateSpec) -> Expr | None:
    """The remaining budget of a state in USD; None without a budget in USD."""
    rest = [prim("sub", bound, Slot(slot)) for unit, slot, bound in _bounds(context, state) if unit == "usd"]
    return prim("min", *rest) if len(rest) > 1 else rest[0] if rest else None


def spend(context: LoopContext, chain: Chain, state: StateSpec, reply: str) -> None:
    """Add the usage that a call reported."""
    for unit, slot, bound in _bounds(context, state):
        used: Expr | int = 1
        if unit == "seconds":
            used = prim("div", prim("or", prim("lookup_or", Slot(reply), ("duration_ms",), 0), 0), 1000)
        elif unit != "calls":
            reported = prim("lookup_or", Slot(reply), ("usage", unit), 0)
            # Unknown usage counts as the whole budget.
            used = prim("select", prim("is_null", reported), bound, reported)
        chain.add(store(slot, prim("add", Slot(slot), used)))


def unbounded_calls(loop: Loop, callees: Mapping[str, str], references: References) -> Iterator[Diagnostic]:
    """Errors for functions called by a loop with a budget that can use models or agents.

    callees: the called function of each state.
    """
    if not loop.has_budget:
        return
    for state, function in callees.items():
        reached = {function, *references.reach([function])}
        kinds = sorted({kind for name in reached for kind in references.performed(name) if kind in SPENDERS})
        if kinds:
            shown = ", ".join(f"`{kind}`" for kind in kinds)
            yield Diagnostic(
                "unbounded-budget",
                f"this may use {shown}, but the budget of the loop does not count it",
                loop.states[state].span_of("call", "loop", "parallel"),
                "these calls are outside of the loop's budget",
                "make the call in a state of the loop, or limit the whole run: --budget UNIT=N",
            )
