"""Formatting of times and amounts for people: local time, and one notation for money.

Data (`--json`, files) contains UTC and numbers instead.
"""

from __future__ import annotations

from ..host import clock
from .codec import seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def local_time(ts: str | None) -> tuple[str, str]:
    """Convert a timestamp to day and time (with milliseconds) in the local time zone.

    An invalid timestamp is split without conversion.
    """
    moment = seconds(ts)
    if ts is None or moment is None:
        day, _, time = str(ts).partition("T")
        return day, time.rstrip("Z")
    day, _, time = clock_text(moment).partition(" ")
    return day, f"{time}.{ts[-4:-1]}"


def clock_text(moment: float) -> str:
    """Format seconds since 1970 in the local time zone: `2024-01-15 10:30:00`."""
    return clock.strftime("%Y-%m-%d %H:%M:%S", clock.localtime(moment))


def moment_text(ts: str | None) -> str:
    """Format a timestamp in the local time zone, to the second: `2024-01-15 10:30:00`."""
    return " ".join(local_time(ts))[:19]


def zone_name(ts: str | None) -> str:
    """Return the name of the local time zone at a timestamp."""
    return clock.strftime("%Z", clock.localtime(seconds(ts)))


def usd_text(amount: float, is_least: bool = False) -> str:
    """Format US dollars without the unit, with no or four decimals. is_least: the amount is a lower bound."""
    text = f"{int(amount):,}" if amount == int(amount) else f"{amount:,.4f}"
    return text + ("+" if is_least else "")


def amount_text(unit: str, amount: float, limit: float | None = None, is_least: bool = False) -> str:
    """Format an amount with its unit: `0.0200 USD`, `980 tokens`, `2.5 seconds`, `2 of 5 USD`."""
    if limit is not None:
        return f"{amount_text(unit, amount, None, is_least).split()[0]} of {amount_text(unit, limit)}"
    if unit == "usd":
        return f"{usd_text(amount, is_least)} USD"
    if unit == "seconds":
        return f"{amount:,.1f} seconds"
    return f"{int(amount):,} {unit.removesuffix('s') if amount == 1 else unit}"


def usage_texts(usage: Mapping[str, Any]) -> list[str]:
    """Format the known amounts that a call has used: money, then tokens."""
    known = [(unit, usage.get(unit)) for unit in ("usd", "tokens")]
    return [amount_text(unit, amount) for unit, amount in known if isinstance(amount, int | float)]
