"""What a run may spend on models and agents, and what it has spent: the budget of a run.

Given with `--budget UNIT=N`, else in `.loops/config.yaml`; a run records what it began with. A call
that would start over budget does not start: the run stops where it is and can be resumed with more.
What a loop's own `budget:` allows is in its program, and none of this. The user's ledgers are asked after
the budget of the run. See `spec/tasks.md`, Budgets, and `spec/budget.md`.
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
        """The claims of a run on the user's ledgers; `ledgers.RunLedgers` is the implementation."""

        def claim(
            self, seq: int, kind: str, args: Mapping[str, Any], bounds: Mapping[str, float], has_begun: bool
        ) -> Refusal | dict[str, float]: ...
        def settle(self, seq: int, result: Mapping[str, Any]) -> None: ...
        def close(self) -> None: ...


# The part of a reservation that is kept for the turn in which an agent exceeds its cap.
LAST_TURN = 0.2


class Refusal(NamedTuple):
    """Why an effect is not performed, and what to do, with `{run}` for the run.

    is_final: False if it can be performed once other calls have ended. renews_at: seconds since 1970 when
    the ledger that refused it is renewed, None for never.
    """

    message: str
    help: str
    is_final: bool = True
    renews_at: float | None = None


class Spending:
    """limits: by unit; other units are not limited. An amount that no result says counts as the whole limit.

    total: what the run has used so far. unpriced(kind, args): the model that an effect will ask, where its
    price is not known. ledgers: the claims of the run on the user's ledgers, None where it makes none.
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
        """The amounts by unit; a call counts from its start."""
        total = self.total
        return {
            "usd": total.usd,
            "tokens": total.tokens,
            "calls": total.begun,
            "seconds": total.seconds,
        }

    def begin(self, seq: int, kind: str) -> None:
        """An effect is about to be performed; one that is performed again is one call."""
        self.total.begin(seq, kind)

    def take(self, seq: int, kind: str, result: Mapping[str, Any]) -> None:
        """An effect has its result."""
        self.total.add(seq, kind, result)
        self._caps.pop(seq, None)
        if self._ledgers is not None:
            self._ledgers.settle(seq, result)

    def cap(self, seq: int) -> float | None:
        """The most that an agent may spend in an effect that was admitted, in USD; None without a limit."""
        return self._caps.get(seq)

    def close(self) -> None:
        """The run ends or stops: give back what is reserved for calls without a result."""
        if self._ledgers is not None:
            self._ledgers.close()

    def admit(self, seq: int, kind: str, args: Mapping[str, Any], has_begun: bool = False) -> Refusal | None:
        """Why an effect is not performed; None if it is: then what it may use is reserved.

        has_begun: its action has survived an earlier driver, so it cannot be refused any more.
        """
        refusal = None if has_begun else self.refusal(kind, args, seq)
        if refusal is not None or kind not in SPENDERS:
            return refusal
        used = self.used
        bounds = {unit: limit - used[unit] for unit, limit in self.limits.items()}
        own = args.get("cap_usd")  # what the loop and the state leave
        if own is not None:
            bounds["usd"] = min(bounds.get("usd", own), own)
        if self._ledgers is not None:
            answer = self._ledgers.claim(seq, kind, args, bounds, has_begun)
            if isinstance(answer, Refusal):
                return answer
            bounds |= answer
        if "usd" in bounds:
            self._caps[seq] = bounds["usd"] * (1 - LAST_TURN)
        return None

    def _is_unknown(self, unit: str) -> bool:
        return (unit == "usd" and self.total.unpriced > 0) or (unit == "tokens" and self.total.is_uncounted)

    def refusal(self, kind: str, args: Mapping[str, Any], seq: int | None = None) -> Refusal | None:
        """Why an effect is not performed, None where it is."""
        if kind not in SPENDERS:
            return None
        used = self.used
        used["calls"] -= seq in self.total.open  # performed again, it is the same call
        for unit, limit in self.limits.items():
            if used[unit] >= limit:
                what = f"the run has used {amount_text(unit, used[unit])} of {amount_text(unit, limit)}"
                return Refusal(what, "to continue with a larger budget: llc resume {run} --budget UNIT=N")
            if self._is_unknown(unit):
                what = f"the usage of a call is unknown, so a budget in {_WORDS[unit]} cannot be enforced"
                return Refusal(
                    what, f"to continue without this budget: llc resume {{run}} --budget {unit}=none"
                )
        model = self._unpriced(kind, args) if "usd" in self.limits and self._unpriced is not None else None
        if model is not None:
            what = f"the price of `{model}` is unknown, so a budget in USD cannot be enforced"
            help = "give it a `price` under `models` in .loops/config.yaml, then: llc resume {run}"
            return Refusal(what, help)
        return None


def unpriced(kind: str, args: Mapping[str, Any]) -> str | None:
    """The model of which a project does not know what it costs, where an effect asks one."""
    from . import configuration, models
    from .prices import Prices

    model = models.asked(kind, args, configuration.load(ROOT))
    return None if model is None or Prices().row(model.name, model.price) else model.name


_WORDS = {"usd": "USD", "tokens": "tokens"}


def asked(pairs: Iterable[tuple[str, str]], otherwise: Mapping[str, float]) -> dict[str, float]:
    """The limits that `--budget` gives, and for other units what is said otherwise. Raises UserError."""
    limits = dict(otherwise)
    for unit, text in pairs:
        if unit not in UNITS:
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
