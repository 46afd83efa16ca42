"""Budget of a run: its limits for models and agents, and its usage.

`--budget UNIT=N` or `.loops/config.yaml` sets the limits; a run records its initial limits. A call that would
exceed the budget does not start: the run stops and can be resumed with a larger budget. The `budget:` of a
loop is part of its program and is not handled here. The user's ledgers are checked after the budget of the
run. See `spec/tasks.md`, Budgets, and `spec/budget.md`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from ...ir.effects import SPENDERS, UNITS
from ..host.errors import UserError, suggest
from ..host.paths import ROOT
from ..journal.quantities import amount_text
from ..journal.totals import Used

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, Protocol

    class Ledgers(Protocol):
        """Claims of a run on the user's ledgers; `run_ledgers.RunLedgers` is the implementation."""

        def claim(
            self, seq: int, kind: str, args: Mapping[str, Any], bounds: Mapping[str, float], has_started: bool
        ) -> Refusal | dict[str, float]: ...
        def settle(self, seq: int, result: Mapping[str, Any]) -> None: ...
        def close(self) -> None: ...


# Fraction of a reservation that is kept for the turn in which an agent exceeds its cap.
LAST_TURN_FRACTION = 0.2


class Refusal(NamedTuple):
    """Refusal of an effect.

    Args:
        message: the reason.
        help: what to do; `{run}` is a placeholder for the run.
        is_final: False if the effect can be performed after other calls have ended.
        renews_at: time at which the refusing ledger is renewed, in seconds since 1970; None for never.
    """

    message: str
    help: str
    is_final: bool = True
    renews_at: float | None = None


class Spending:
    """Budget accounting of a run. An amount that a result does not state uses up the whole limit.

    Args:
        limits: limits by unit; other units are not limited.
        unpriced: function of an effect's kind and arguments: its model if the price is unknown, otherwise
            None.
        total: usage of the run so far.
        ledgers: claims of the run on the user's ledgers; None without ledgers.
    """

    def __init__(
        self,
        limits: Mapping[str, float],
        unpriced: Callable[[str, Mapping[str, Any]], str | None] | None = None,
        total: Used | None = None,
        ledgers: Ledgers | None = None,
    ) -> None:
        self.limits = dict(limits)
        self.total = total or Used()
        self._unpriced = unpriced
        self._ledgers = ledgers
        self._caps: dict[int, float] = {}

    @property
    def used(self) -> dict[str, float]:
        """The usage by unit; a call counts from its start."""
        total = self.total
        return {"usd": total.usd, "tokens": total.tokens, "calls": total.begun, "seconds": total.seconds}

    def begin(self, seq: int, kind: str) -> None:
        """Record the start of an effect; an effect that is performed again counts as one call."""
        self.total.begin(seq, kind)

    def take(self, seq: int, kind: str, result: Mapping[str, Any]) -> None:
        """Record the result of an effect and release the rest of its reservation."""
        self.total.add(seq, kind, result)
        self._caps.pop(seq, None)
        if self._ledgers is not None:
            self._ledgers.settle(seq, result)

    def cap(self, seq: int) -> float | None:
        """Maximum cost of an admitted agent effect in USD; None without a limit."""
        return self._caps.get(seq)

    def close(self) -> None:
        """Release the reservations of calls without a result, because the run ends or stops."""
        if self._ledgers is not None:
            self._ledgers.close()

    def admit(
        self, seq: int, kind: str, args: Mapping[str, Any], has_started: bool = False
    ) -> Refusal | None:
        """Admit an effect and make its reservation; return None, or the refusal.

        has_started: the action has survived an earlier driver, so it cannot be refused any more.
        """
        refusal = None if has_started else self.refusal(kind, args, seq)
        if refusal is not None or kind not in SPENDERS:
            return refusal
        used = self.used
        bounds = {unit: limit - used[unit] for unit, limit in self.limits.items()}
        cap = args.get("cap_usd")  # remaining budget of the loop and the state
        if cap is not None:
            bounds["usd"] = min(bounds.get("usd", cap), cap)
        if self._ledgers is not None:
            answer = self._ledgers.claim(seq, kind, args, bounds, has_started)
            if isinstance(answer, Refusal):
                return answer
            bounds |= answer
        if "usd" in bounds:
            self._caps[seq] = bounds["usd"] * (1 - LAST_TURN_FRACTION)
        return None

    def _is_unknown(self, unit: str) -> bool:
        return (unit == "usd" and self.total.unpriced > 0) or (unit == "tokens" and self.total.is_uncounted)

    def refusal(self, kind: str, args: Mapping[str, Any], seq: int | None = None) -> Refusal | None:
        """Check an effect against the budget of the run; return None, or the refusal."""
        if kind not in SPENDERS:
            return None
        used = self.used
        used["calls"] -= seq in self.total.open  # an effect that is performed again is the same call
        for unit, limit in self.limits.items():
            if used[unit] >= limit:
                message = f"the run has used {amount_text(unit, used[unit])} of {amount_text(unit, limit)}"
                return Refusal(message, "to continue with a larger budget: llc resume {run} --budget UNIT=N")
            if self._is_unknown(unit):
                message = f"the usage of a call is unknown, so a budget in {_WORDS[unit]} cannot be enforced"
                help = f"to continue without this budget: llc resume {{run}} --budget {unit}=none"
                return Refusal(message, help)
        model = self._unpriced(kind, args) if "usd" in self.limits and self._unpriced is not None else None
        if model is not None:
            message = f"the price of `{model}` is unknown, so a budget in USD cannot be enforced"
            help = "give it a `price` under `models` in .loops/config.yaml, then: llc resume {run}"
            return Refusal(message, help)
        return None


def unpriced_model(kind: str, args: Mapping[str, Any]) -> str | None:
    """The model that an effect calls if its price is unknown; otherwise None."""
    from . import configuration, models
    from .prices import Prices

    model = models.of_effect(kind, args, configuration.load(ROOT))
    return None if model is None or Prices().row(model.name, model.price) else model.name


_WORDS = {"usd": "USD", "tokens": "tokens"}


def limits_of_options(pairs: Iterable[tuple[str, str]], defaults: Mapping[str, float]) -> dict[str, float]:
    """The limits of a run by unit: `defaults`, changed by the values of `--budget`. Raises UserError."""
    limits = dict(defaults)
    for unit, text in pairs:
        if unit not in UNITS:
            help = suggest(unit, UNITS, "it is one of")
            raise UserError("bad-option", f"--budget has no unit `{unit[:40]}`", help)
        amount = _number(text)
        if text == "none":
            limits.pop(unit, None)
        elif amount is None or (unit in ("tokens", "calls") and amount != int(amount)):
            message = f"--budget {unit} is a number from 0, not `{text[:40]}`"
            raise UserError("bad-option", message, f"--budget {unit}=none removes a limit")
        else:
            limits[unit] = amount
    return limits


def limits_on_resume(start: dict[str, Any], pairs: Iterable[tuple[str, str]]) -> dict[str, float]:
    """The limits of a resumed run: those in its `run_start` event, changed by the values of `--budget`."""
    recorded = start.get("budget")
    budget = recorded if isinstance(recorded, dict) else {}
    return limits_of_options(pairs, {unit: _amount(budget[unit]) for unit in UNITS if unit in budget})


def _number(text: str) -> float | None:
    try:
        amount = float(text)
    except ValueError:
        return None
    return (int(amount) if amount == int(amount) else amount) if 0 <= amount < 1e15 else None


def _amount(value: Any) -> float:
    """The value if it is a finite number of at least 0, otherwise 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return 0
    return max(0, value)
