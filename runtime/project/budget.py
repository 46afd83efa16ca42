"""What a run may spend on models and agents, and what it has spent: the budget of a run.

Given with `--budget UNIT=N`, else in `.loops/config.yaml`; a run records what it began with. A call
that would start over budget does not start: the run stops where it is and can be resumed with more.
What a loop's own `budget:` allows is in its program, and none of this. See `spec/tasks.md`, Budgets.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from ...ir.effects import EFFECTS, SPENDERS, UNITS
from ..host.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

# Kinds of effects that always call a model or an agent.
CALLS = frozenset(row.name for row in EFFECTS.values() if row.is_model_call)


class Refusal(NamedTuple):
    """Why an effect is not performed, and what to do, with `{run}` for the run."""

    message: str
    help: str


class Spending:
    """limits: by unit; those that are not there are none. What nobody knows counts as all there is.

    unpriced(kind, args): the model that an effect will ask, where nobody knows what it costs.
    """

    __slots__ = ("_begun", "_unpriced", "limits", "unknown", "used")

    def __init__(
        self,
        limits: Mapping[str, float],
        unpriced: Callable[[str, Mapping[str, Any]], str | None] | None = None,
    ) -> None:
        self.limits = dict(limits)
        self.used: dict[str, float] = dict.fromkeys(UNITS, 0)
        self.unknown: set[str] = set()
        self._unpriced = unpriced
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
            for unit in ("usd", "tokens"):
                self.used[unit] += _amount(usage.get(unit))
                if usage.get(unit) is None:
                    self.unknown.add(unit)
        if kind in CALLS:
            self.used["seconds"] += _amount(result.get("duration_ms")) / 1000

    def refusal(self, kind: str, args: Mapping[str, Any]) -> Refusal | None:
        """Why an effect is not performed, None where it is."""
        if kind not in SPENDERS:
            return None
        for unit, limit in self.limits.items():
            if self.used[unit] >= limit:
                what = f"the run has used {shown(unit, self.used[unit])} of {shown(unit, limit)}"
                return Refusal(what, "if it should go on: llc resume {run} --budget UNIT=N")
            if unit in self.unknown:
                what = f"nobody knows what a call has used, so a budget in {_WORDS[unit]} cannot be kept"
                return Refusal(what, f"without one: llc resume {{run}} --budget {unit}=none")
        model = self._unpriced(kind, args) if "usd" in self.limits and self._unpriced is not None else None
        if model is not None:
            what = f"nobody knows what `{model}` costs, so a budget in USD cannot be kept"
            help = "give it a `price` under `models` in .loops/config.yaml, then: llc resume {run}"
            return Refusal(what, help)
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


def unpriced(kind: str, args: Mapping[str, Any]) -> str | None:
    """The model of which a project does not know what it costs, where an effect asks one."""
    from ..host.paths import ROOT
    from . import configuration, models
    from .prices import Prices

    model = models.asked(kind, args, configuration.load(ROOT))
    return None if model is None or Prices().row(model.name, model.price) else model.name


_WORDS = {"usd": "USD", "tokens": "tokens"}


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
        if text == "none":
            limits.pop(unit, None)
        elif amount is None or (unit in ("tokens", "calls") and amount != int(amount)):
            what = f"--budget {unit} is a number from 0, not `{text[:40]}`"
            raise UserError("bad-option", what, f"--budget {unit}=none takes a bound away")
        else:
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
