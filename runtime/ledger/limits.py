"""Limits of ledgers: scopes, periods and amounts; parsing and formatting of their text forms.

A ledger counts the usage of agents and models in one scope and one period, in the units of a budget. See
`spec/budget.md`.
"""

from __future__ import annotations

import os.path
import re
from typing import NamedTuple

from ...ir.effects import UNITS
from ..host import clock
from ..host.errors import UserError
from ..journal.quantities import amount_text

# Scopes: all calls of the user, the calls in one project, the calls of one account.
ALL, PROJECT, ACCOUNT = "all", "project", "account"
# Periods: a local day, a local month, unlimited.
DAY, MONTH, EVER = "day", "month", "ever"
MAX_AMOUNT = 1e12
_AMOUNT = re.compile(r"(\d[\d,_]*(?:\.\d+)?|\.\d+)\s*([a-z]+)(?:\s*/\s*([a-z]+))?", re.IGNORECASE)


class Limit(NamedTuple):
    """Limit of a ledger in one unit.

    Args:
        scope: `ALL`, `PROJECT` or `ACCOUNT`.
        name: path of the project; account, or its name without the fingerprint for all accounts of that name;
            "".
        period: `DAY`, `MONTH` or `EVER`.
        unit: one of `UNITS`.
        amount: maximum amount.
    """

    scope: str
    name: str
    period: str
    unit: str
    amount: float

    def is_charged(self, project: str, account: str) -> bool:
        """Whether a call in a project with an account is charged to the ledger."""
        if self.scope == ACCOUNT:
            return account == self.name or account.startswith(f"{self.name}:")
        return self.scope == ALL or project == self.name

    @property
    def title(self) -> str:
        """Name of the ledger in messages: `the day`, `the project`, `the account claude in a month`."""
        if self.scope == ALL:
            return f"the {self.period}" if self.period != EVER else "all calls"
        scope = "the project" if self.scope == PROJECT else f"the account {self.name}"
        return scope if self.period == EVER else f"{scope} in a {self.period}"

    @property
    def key(self) -> str:
        """Name of the ledger in the arguments of `llc budget set`."""
        if self.scope == ALL:
            return self.period
        return PROJECT if self.scope == PROJECT else f"{ACCOUNT}:{self.name}"


def first_day(period: str, now: float) -> str:
    """Return the first local day of the current period (`2024-01-15`); "" for an unlimited period."""
    if period == EVER:
        return ""
    return clock.strftime("%Y-%m-%d" if period == DAY else "%Y-%m-01", clock.localtime(now))


def days_back(days: int, now: float) -> str:
    """Return the local day `days` days ago; `days` is limited to 100,000."""
    today = clock.localtime(now)
    noon = clock.mktime((today.tm_year, today.tm_mon, today.tm_mday - min(days, 100_000), 12, 0, 0, 0, 0, -1))
    return first_day(DAY, noon)


def renewal(period: str, now: float) -> float | None:
    """Return the start of the next period (a local midnight) in seconds since 1970; None: never.

    A day with a change of the clock has 23 or 25 hours. If the midnight does not exist, the first moment
    after it counts.
    """
    if period == EVER:
        return None
    today = clock.localtime(now)
    year, month, day = today.tm_year, today.tm_mon, today.tm_mday
    following = (year, month, day + 1) if period == DAY else (year, month + 1, 1)
    return clock.mktime((*following, 0, 0, 0, 0, 0, -1))


def renewal_text(period: str, now: float) -> str:
    """Format the start of the next period in local time; "never" for an unlimited period."""
    moment = renewal(period, now)
    return "never" if moment is None else clock.strftime("%Y-%m-%d %H:%M", clock.localtime(moment))


def parse_amount(text: str) -> tuple[str, float, str | None]:
    """Parse a text such as `20usd`, `1,000,000 tokens` or `100usd/month`; return unit, amount and period.

    The period is None if it is absent. Raises UserError.
    """
    example = "for example 20usd, 500000tokens, 50calls, 3600seconds or 100usd/month"
    match = _AMOUNT.fullmatch(text.strip())
    if match is None:
        raise UserError("bad-option", f"`{text[:40]}` is not a valid amount", example)
    number, unit, period = match[1].replace(",", "").replace("_", ""), match[2].lower(), match[3]
    if unit not in UNITS and unit + "s" in UNITS:
        unit += "s"
    amount = float(number)
    if unit not in UNITS or (period is not None and period.lower() not in (DAY, MONTH)):
        raise UserError("bad-option", f"`{text[:40]}` is not an amount of {', '.join(UNITS)}", example)
    if amount > MAX_AMOUNT or (unit in ("tokens", "calls") and amount != int(amount)):
        raise UserError("bad-option", f"`{text[:40]}` is too large or not a whole number", example)
    return unit, amount, period.lower() if period else None


def parse_ledger(text: str, project: str, period: str | None) -> tuple[str, str, str]:
    """Parse the ledger argument of `llc budget set`; return scope, name and period. Raises UserError.

    project: path of the current project. period: period in the amount; None if absent.
    """
    scope, colon, name = text.partition(":")
    if scope in (DAY, MONTH) and not colon and period in (None, scope):
        return ALL, "", scope
    if scope == PROJECT and (name or not colon):
        return PROJECT, os.path.normpath(name) if name else project, period or EVER
    if scope == ACCOUNT and name:
        return ACCOUNT, name, period or EVER
    help = "use `day`, `month`, `project`, `project:PATH` or `account:NAME`"
    raise UserError("bad-option", f"unknown ledger `{text[:80]}`", help)


def used_up_message(limit: Limit, spent: float, now: float) -> str:
    """Return the error message for a ledger that is used up, with the time of its renewal."""
    text = f"the budget of {limit.title} is used up: {amount_text(limit.unit, spent)}"
    text = f"{text} of {amount_text(limit.unit, limit.amount)}"
    return text if limit.period == EVER else f"{text}; it renews {renewal_text(limit.period, now)}"
