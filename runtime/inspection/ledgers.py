"""`llc budget`: limits and balances of the user's ledgers, and usage by day. See `spec/budget.md`."""

from __future__ import annotations

from typing import Any

from ..host import clock
from ..host.errors import Failure, UserError, reason
from ..host.paths import ROOT
from ..host.screen import Screen, printable
from ..journal.codec import seconds
from ..journal.quantities import amount_text, clock_text, usd_text
from ..ledger import breakers, claims, database, ledger
from ..ledger.ledger import Balance
from ..ledger.limits import (
    ACCOUNT,
    DAY,
    Limit,
    days_back,
    first_day,
    parse_amount,
    parse_ledger,
    renewal_text,
)
from ..project import configuration
from ..project.run_ledgers import limits_of
from .tables import columns


def set_limit(name: str, text: str) -> str:
    """Set the limit of a ledger, or remove its limits with the text `none`; returns a message.

    Raises UserError.
    """
    project = claims.this_project()
    try:
        if text == "none":
            scope, owner, period = parse_ledger(name, project, None)
            count = ledger.remove_limits(scope, owner, period if scope == "all" else None)
            return f"removed the limit of {name}\n" if count else f"{name} had no limit\n"
        unit, amount, wanted = parse_amount(text)
        limit = Limit(*parse_ledger(name, project, wanted), unit, amount)
        ledger.set_limit(limit)
    except OSError as error:
        raise Failure("cannot-write", f"cannot write {database.place()}: {reason(error)}") from None
    message = f"{limit.title}: {amount_text(unit, amount)} at most\n"
    if limit.scope == ACCOUNT and not any(limit.is_charged("", name) for name in ledger.accounts()):
        message += f"note: no call has been charged to the account {limit.name} yet\n"
    return message


def close_breaker(name: str) -> str:
    """Close the circuit breaker of an account, `account:NAME`; returns a message. Raises UserError."""
    scope, _, account = name.partition(":")
    if scope != ACCOUNT or not account:
        message = f"`{name[:80]}` is not an account"
        raise UserError("bad-option", message, "use: llc budget close account:NAME, as `llc budget` lists it")
    shown = printable(account)
    if breakers.close(account):
        return f"the circuit breaker of the account {shown} is closed\n"
    return f"the circuit breaker of the account {shown} was not open\n"


def report(days: int | None) -> dict[str, Any]:
    """The ledgers with their balances, and the usage of the last `days` days (None: without).

    Raises UserError and CompileError.
    """
    project = claims.this_project()
    now = clock.time()
    own = limits_of(configuration.load(ROOT), project)
    has_calls = database.exists()  # reading must not create it
    if has_calls:
        claims.settle_dead()
    balances = ledger.balances(own) if has_calls else [Balance(limit, 0, 0, False) for limit in own]
    found: dict[str, Any] = {
        "file": database.place(),
        "project": project,
        "ledgers": [balance.to_json(now) for balance in balances],
    }
    found["breakers"] = [breaker.to_json() for breaker in breakers.open_breakers()] if has_calls else []
    today = ledger.usage_by_day(first_day(DAY, now)) if has_calls else []
    found["today"] = {unit: sum(row[unit] for row in today) for unit in ("calls", "usd", "tokens", "unknown")}
    if days is not None:
        found["days"] = ledger.usage_by_day(days_back(days - 1, now)) if has_calls else []
    return found


def as_text(found: dict[str, Any], screen: Screen) -> str:
    """The ledgers and the days as tables."""
    now = clock.time()
    rows = [["LEDGER", "LIMIT", "SPENT", "RESERVED", "LEFT", "RENEWS"]]
    for row in found["ledgers"]:
        limit = Limit(*(row[name] for name in ("scope", "name", "period", "unit", "limit")))
        balance = Balance(limit, row["spent"], row["reserved"], row["is_least"])
        shown = limit.name if limit.scope == "project" and limit.name != found["project"] else ""
        rows.append(
            [
                f"{limit.title} {shown}",
                amount_text(limit.unit, limit.amount),
                amount_text(limit.unit, balance.spent, None, balance.is_least),
                amount_text(limit.unit, balance.held),
                amount_text(limit.unit, balance.left),
                renewal_text(limit.period, now),
            ]
        )
    today = found["today"]
    used = amount_text("usd", today["usd"], None, today["unknown"] > 0)
    text = (
        columns(rows, screen) if len(rows) > 1 else "no limit is set; to set one: llc budget set day 20usd\n"
    )
    text += (
        f"today: {used}, {amount_text('tokens', today['tokens'])}, {amount_text('calls', today['calls'])}\n"
    )
    for row in found["breakers"]:
        account, until = printable(row["account"]), seconds(row["until"]) or 0
        state = f"until {clock_text(until)}"
        if row["run"] is not None or until <= now:
            state = "until the next call succeeds"
        text += f"calls of the account {account} are blocked {state}: {printable(row['reason'])}\n"
        text += f"  to unblock them: llc budget close account:{account}\n"
    if "days" in found:
        text += "\n" + _days(found["days"], screen)
    return text


def _days(rows: list[dict[str, Any]], screen: Screen) -> str:
    if not rows:
        return "no usage in these days\n"
    table = [["DAY", "PROJECT", "AGENT", "MODEL", "ACCOUNT", "CALLS", "USD", "TOKENS", "SECONDS"]]
    for row in rows:
        names = [row["day"], row["project"], row["agent"] or "-", row["model"] or "-", row["account"]]
        amounts = [usd_text(row["usd"], row["unknown"] > 0), f"{row['tokens']:,}", f"{row['seconds']:,.1f}"]
        table.append([*names, str(row["calls"]), *amounts])
    return columns(table, screen, ("SECONDS", "TOKENS", "ACCOUNT", "MODEL"))


def ledger_names() -> list[str]:
    """The ledgers that `llc budget set` can name."""
    accounts = ledger.accounts() if database.exists() else []
    return ["day", "month", "project", *(f"{ACCOUNT}:{name}" for name in accounts)]
