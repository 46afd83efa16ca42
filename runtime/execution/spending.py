"""What a run may spend on models and agents, and what it has spent: the budget of a run.

Given with `--budget UNIT=N`, else in `.loops/config.yaml`; a run records what it began with. A call
that would start over budget does not start: the run stops where it is and can be resumed with more.
What a loop's own `budget:` allows is in its program, and none of this. See `spec/tasks.md`, Budgets.
"""

from __future__ import annotations

import math

from ...ir.effects import EFFECTS
from ..errors import UserError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

UNITS = ("usd", "tokens", "calls", "seconds")
# Effects that may be paid for, and those of them that always are a call of a model or an agent.
SPENDERS = frozenset(row.name for row in EFFECTS.values() if "usage?" in row.result.split())
CALLS = SPENDERS - {"context"}


class Spending:
    """limits: by unit; those that are not there are none. Money of which nobody knows how much it was
    counts as all there is.
    """

    __slots__ = ("_begun", "limits", "unpriced", "used")

    def __init__(self, limits: Mapping[str, float]) -> None:
        self.limits = dict(limits)
        self.used: dict[str, float] = dict.fromkeys(UNITS, 0)
        self.unpriced = False
        self._begun: set[int] = set()

    def begin(self, seq: int, kind: str) -> None:
        """An effect is about to be performed; one that is performed again is one call."""
        if kind in CALLS and seq not in self._begun:
            self._begun.add(seq)
            self.used["calls"] += 1

    def take(self, kind: str, result: Mapping[str, Any]) -> None:
        """An effect has its result."""
        usage = result.get("usage")
        if isinstance(usage, dict):
            tokens = _amount(usage.get("tokens"))
            self.used["tokens"] += tokens
            self.used["usd"] += _amount(usage.get("usd"))
            self.unpriced |= usage.get("usd") is None and tokens > 0
        if kind in CALLS:
            self.used["seconds"] += _amount(result.get("duration_ms")) / 1000

    def refusal(self, kind: str) -> str | None:
        """Why an effect is not performed, None where it is."""
        if kind not in SPENDERS:
            return None
        for unit, limit in self.limits.items():
            if self.used[unit] >= limit:
                return f"the run has used {shown(unit, self.used[unit])} of {shown(unit, limit)}"
        if self.unpriced and "usd" in self.limits:
            return "what a call has cost is not known, so a budget in USD cannot be kept"
        return None

    def take_events(self, events: Iterable[dict[str, Any]]) -> None:
        """What the events of a journal tell of it."""
        for event in events:
            name, kind = event.get("event"), event.get("kind")
            if kind not in SPENDERS:
                continue
            if name in ("action_start", "effect_start"):
                self.begin(event.get("seq", 0), kind)
            elif name in ("action_complete", "effect_complete") and isinstance(event.get("result"), dict):
                self.take(kind, event["result"])


def shown(unit: str, amount: float) -> str:
    if unit == "usd":
        return f"{amount:.4f} USD" if amount != int(amount) else f"{int(amount)} USD"
    if unit == "seconds":
        return f"{amount:,.1f} seconds"
    return f"{int(amount):,} {unit.removesuffix('s') if amount == 1 else unit}"


def asked(pairs: Iterable[tuple[str, str]], otherwise: Mapping[str, float]) -> dict[str, float]:
    """The limits that `--budget` gives, and for other units what is said otherwise. Raises UserError."""
    limits = dict(otherwise)
    for unit, text in pairs:
        if unit not in UNITS:
            from ...ir.diagnostics import suggest

            help = suggest(unit, UNITS, "it is one of")
            raise UserError("bad-option", f"--budget has no unit `{unit[:40]}`", help)
        amount = _number(text)
        if amount is None or (unit in ("tokens", "calls") and amount != int(amount)):
            raise UserError("bad-option", f"--budget {unit} is a number from 0, not `{text[:40]}`")
        limits[unit] = amount
    return limits


def recorded(start: dict[str, Any], pairs: Iterable[tuple[str, str]]) -> dict[str, float]:
    """The limits of a run that is resumed: those it began with, but for what is given anew."""
    began = start.get("budget")
    known = began if isinstance(began, dict) else {}
    return asked(pairs, {unit: _amount(known[unit]) for unit in UNITS if unit in known})


def _number(text: str) -> float | None:
    try:
        amount = float(text)
    except ValueError:
        return None
    return (int(amount) if amount == int(amount) else amount) if 0 <= amount < 1e15 else None


def _amount(value: Any) -> float:
    """A finite number from 0, 0 for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return 0
    return max(0, value)
