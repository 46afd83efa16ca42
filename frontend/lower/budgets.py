"""Budgets to branches and sums: what is compared before a call that may spend, and added after it.

Which slots there are is in `spec/lowering.md`; that no call gets past them is proved in `ir.limits`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...ir.builder import prim, store
from ...ir.nodes import Expr, Slot
from ..loop.schema import StateSpec
from .chain import Chain

if TYPE_CHECKING:
    from .loop import Lowering


def _bounds(lowering: Lowering, state: StateSpec) -> Iterator[tuple[str, str, float]]:
    """What bounds the calls of a state: unit, the slot that counts it, bound."""
    if lowering.loop.budget is not None:
        for unit, bound in lowering.loop.budget.bounds.items():
            yield unit, f"spent.{unit}", bound
    for unit, bound in lowering.limits.state_budgets.get(state.name, {}).items():
        yield unit, f"spent.{unit}.{state.name}", bound


def check_budget(lowering: Lowering, chain: Chain, state: StateSpec, phase: str) -> None:
    """A call that would start over budget does not start."""
    for unit, slot, bound in _bounds(lowering, state):
        lowering.ends.add("budget")
        name = f"{state.name}/{phase}_{unit}"
        own = "_here" if slot != f"spent.{unit}" else ""
        chain.unless(prim("ge", Slot(slot), bound), "/budget", name + own)


def spend(lowering: Lowering, chain: Chain, state: StateSpec, reply: str) -> None:
    """Add what a call reported as used to what was spent."""
    for unit, slot, bound in _bounds(lowering, state):
        used: Expr | int = 1
        if unit == "seconds":
            used = prim("div", prim("or", prim("lookup_or", Slot(reply), ("duration_ms",), 0), 0), 1000)
        elif unit != "calls":
            told = prim("lookup_or", Slot(reply), ("usage", unit), 0)
            # What nobody knows counts as all there is.
            used = prim("select", prim("is_null", told), bound, told)
        chain.add(store(slot, prim("add", Slot(slot), used)))
