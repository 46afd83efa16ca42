"""Limits of ledgers: their scopes, periods and amounts, and the texts that people write and read.

A ledger counts what calls of agents and models use, of one scope in one period. Amounts are in the units of
a budget. See `spec/budget.md`.
"""

from __future__ import annotations

import os.path
import re
from typing import NamedTuple

from ...ir.effects import UNITS
from ..host import clock
from ..host.errors import UserError
from ..journal.quantities import amount_text

# What a ledger counts: every call of the user, those in one project, those of one account.
ALL, PROJECT, ACCOUNT = "all", "project", "account"
# When it begins anew: each local day or month, or never.
DAY, MONTH, EVER = "day", "month", "ever"
LARGEST = 1e12
_AMOUNT = re.compile(r"(\d[\d,_]*(?:\.\d+)?|\.\d+)\s*([a-z]+)(?:\s*/\s*([a-z]+))?", re.IGNORECASE)


class Limit(NamedTuple):
    """The most that a ledger allows in one unit.

    scope: `ALL`, `PROJECT` or `ACCOUNT`. name: the path of the project; the account, or its name without a
    fingerprint for all of that name; or "".
    period: `DAY`, `MONTH` or `EVER`. unit: one of `UNITS`.
    """

    scope: str
    name: str
    period: str
    unit: str
    amount: float

    def is_charged(self, project: str, account: str) -> bool:
        """Whether a call of a project and an account is charged to the ledger."""
        if self.scope == ACCOUNT:
            return account == self.name or account.startswith(f"{self.name}:")
        return self.scope == ALL or project == self.name

    @property
    def title(self) -> str:
        """The ledger in words: `the day`, `the project`, `the account claude in a month`."""
        if self.scope == ALL:
            return f"the {self.period}" if self.period != EVER else "all calls"
        what = "the project" if self.scope == PROJECT else f"the account {self.name}"
        return what if self.period == EVER else f"{what} in a {self.period}"

    @property
    def key(self) -> str:
        """The ledger as `llc budget set` names it."""
        if self.scope == ALL:
            return self.period
        return PROJECT if self.scope == PROJECT else f"{ACCOUNT}:{self.name}"


def first_day(period: str, now: float) -> str:
    """The first local day of the current period, `2024-01-15`; "" if it has none."""
    if period == EVER:
        return ""
    return clock.strftime("%Y-%m-%d" if period == DAY else "%Y-%m-01", clock.localtime(now))


def days_back(days: int, now: float) -> str:
    """The local day `days` days ago, at most 100,000."""
    today = clock.localtime(now)
    noon = clock.mktime((today.tm_year, today.tm_mon, today.tm_mday - min(days, 100_000), 12, 0, 0, 0, 0, -1))
    return first_day(DAY, noon)


def renewal(period: str, now: float) -> float | None:
    """When the next period begins, in seconds since 1970: a local midnight. None for never.

    A day has 23 or 25 hours where the clock is changed; a midnight that does not exist is the first
    moment after it.
    """
    if period == EVER:
        return None
    today = clock.localtime(now)
    year, month, day = today.tm_year, today.tm_mon, today.tm_mday
    following = (year, month, day + 1) if period == DAY else (year, month + 1, 1)
    return clock.mktime((*following, 0, 0, 0, 0, 0, -1))


def renewal_text(period: str, now: float) -> str:
    """When the next period begins, in local time; "never" without one."""
    moment = renewal(period, now)
    return "never" if moment is None else clock.strftime("%Y-%m-%d %H:%M", clock.localtime(moment))


def parse_amount(text: str) -> tuple[str, float, str | None]:
    """Unit, amount and period of a text such as `20usd`, `1,000,000 tokens` or `100usd/month`.

    The period is None where it is absent. Raises UserError.
    """
    example = "such as 20usd, 500000tokens, 50calls, 3600seconds or 100usd/month"
    match = _AMOUNT.fullmatch(text.strip())
    if match is None:
        raise UserError("bad-option", f"`{text[:40]}` is no amount", example)
    number, unit, period = match[1].replace(",", "").replace("_", ""), match[2].lower(), match[3]
    if unit not in UNITS and unit + "s" in UNITS:
        unit += "s"
    amount = float(number)
    if unit not in UNITS or (period is not None and period.lower() not in (DAY, MONTH)):
        raise UserError("bad-option", f"`{text[:40]}` is no amount of {', '.join(UNITS)}", example)
    if amount > LARGEST or (unit in ("tokens", "calls") and amount != int(amount)):
        raise UserError("bad-option", f"`{text[:40]}` is too large, or no whole number", example)
    return unit, amount, period.lower() if period else None


def parse_ledger(text: str, project: str, period: str | None) -> tuple[str, str, str]:
    """Scope, name and period of the ledger that `llc budget set` names. Raises UserError.

    project: the path of the current one. period: of the amount, None if it has none.
    """
    scope, colon, name = text.partition(":")
    if scope in (DAY, MONTH) and not colon and period in (None, scope):
        return ALL, "", scope
    if scope == PROJECT and (name or not colon):
        return PROJECT, os.path.normpath(name) if name else project, period or EVER
    if scope == ACCOUNT and name:
        return ACCOUNT, name, period or EVER
    help = "it is `day`, `month`, `project`, `project:PATH` or `account:NAME`"
    raise UserError("bad-option", f"there is no ledger `{text[:80]}`", help)


def used_up(limit: Limit, spent: float, now: float) -> str:
    """That a ledger is used up, and when it is renewed, for an error."""
    what = f"the budget of {limit.title} is used up: {amount_text(limit.unit, spent)}"
    text = f"{what} of {amount_text(limit.unit, limit.amount)}"
    return text if limit.period == EVER else f"{text}; it renews {renewal_text(limit.period, now)}"
