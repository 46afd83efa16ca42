"""Totals of a run and of its states: visits, time, verdicts, effects, and used budget.

Also converts these records to plain data for checkpoints.
"""

from __future__ import annotations

from ...ir.effects import EFFECTS
from ...ir.light_records import LightRecord, field
from .events import LARGEST

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, TypeVar

    R = TypeVar("R", bound=LightRecord)

# Kinds of effects that always call a model or an agent.
CALLS = frozenset(row.name for row in EFFECTS.values() if row.is_model_call)


def to_data(record: LightRecord) -> list[Any]:
    """Convert the fields of a record to plain data."""
    return [getattr(record, name) for name in record.field_names]


def from_data(kind: type[R], data: list[Any]) -> R:
    """Restore a record from its fields. Raises ValueError for values of wrong types."""
    record, empty = kind(*map(own, data)), kind(0)
    if len(data) != len(kind.field_names):
        raise ValueError(f"{len(data)} fields")
    for name in kind.field_names:
        check_type(getattr(record, name), getattr(empty, name))
    return record


def own(value: Any) -> Any:
    """Copy a dict or list, because the history changes it and the checkpoint must remain unchanged."""
    return value.copy() if type(value) in (dict, list) else value


def check_type(value: Any, default: Any) -> None:
    """Raise ValueError if the type of a value differs from that of the default of its field."""
    if default is None or type(value) is type(default):
        return
    is_number = type(default) in (int, float) and type(value) in (int, float)
    # A text may be encoded as a dict (`codec.pack`).
    if not is_number and not (type(default) is str and type(value) is dict):
        raise ValueError(f"{type(value).__name__} instead of {type(default).__name__}")


class Used(LightRecord):
    """Used budget of a run: money, tokens, calls, and time in calls.

    Args:
        usd, tokens, seconds: used amounts.
        calls: number of finished calls.
        begun: number of started calls; a repeated call counts once.
        open: effect numbers of the calls without a result.
        unpriced: number of results without a cost.
        is_uncounted: whether some results do not contain a number of tokens.
    """

    usd: float = 0.0
    tokens: int = 0
    calls: int = 0
    seconds: float = 0.0
    begun: int = 0
    open: list[int] = field(factory=list)
    unpriced: int = 0
    is_uncounted: bool = False

    def begin(self, seq: int, kind: str) -> None:
        """Count the start of an effect."""
        if kind in CALLS and seq not in self.open:
            self.begun += 1
            self.open.append(seq)

    def add(self, seq: int, kind: str, result: Mapping[str, Any]) -> tuple[float, int]:
        """Add the result of an effect; return its cost and its tokens."""
        if kind in CALLS:
            if seq in self.open:
                self.open.remove(seq)
            self.calls += 1
            self.seconds += amount(result.get("duration_ms")) / 1000
        usage = result.get("usage")
        if not isinstance(usage, dict):
            return 0, 0
        usd, tokens = amount(usage.get("usd")), int(amount(usage.get("tokens")))
        self.usd += usd
        self.tokens += tokens
        self.unpriced += usage.get("usd") is None
        self.is_uncounted = self.is_uncounted or usage.get("tokens") is None
        return usd, tokens

    def as_usage(self) -> dict[str, Any]:
        """Return the sum in the form of a result's usage; {} without usage; None for an unknown amount."""
        if not (self.tokens or self.usd or self.unpriced or self.is_uncounted):
            return {}
        usd, tokens = None if self.unpriced else self.usd, None if self.is_uncounted else self.tokens
        return {"usd": usd, "tokens": tokens}

    def by_unit(self) -> dict[str, float]:
        """Return the rounded amounts by unit of a budget."""
        return {
            "usd": round(self.usd, 9),
            "tokens": self.tokens,
            "calls": self.calls,
            "seconds": round(self.seconds, 3),
        }


def amount(value: Any) -> float:
    """Return a valid amount; 0 for other values."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return value if 0 <= value < LARGEST else 0


class StateHistory(LightRecord):
    """Totals of one state: visits, time, verdicts, effects, money and tokens.

    effects: number of results. effect_ms: sum of the durations that the results report. errors: number of
    results that are errors.
    """

    visits: int = 0
    ms: int = 0
    effects: int = 0
    effect_ms: int = 0
    errors: int = 0
    verdicts: dict[str, int] = field(factory=dict)
    usd: float = 0.0
    tokens: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "entered": self.visits,
            "duration_ms": self.ms,
            "verdicts": self.verdicts,
            "effects": self.effects,
            "effect_ms": self.effect_ms,
            "errors": self.errors,
            "usd": round(self.usd, 9),
            "tokens": self.tokens,
        }

    def add(self, totals: dict[str, Any]) -> None:
        """Add the totals of the same state in another run, in the format of `to_json`."""
        self.visits += totals["entered"]
        self.ms += totals["duration_ms"]
        self.effects += totals["effects"]
        self.effect_ms += totals["effect_ms"]
        self.errors += totals["errors"]
        self.usd += totals["usd"]
        self.tokens += totals["tokens"]
        for verdict, count in totals["verdicts"].items():
            self.verdicts[verdict] = self.verdicts.get(verdict, 0) + count
