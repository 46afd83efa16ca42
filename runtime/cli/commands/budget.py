"""The subcommand `budget`."""

from __future__ import annotations

import sys
from typing import Annotated

from ...host.errors import EXIT_OK, UserError
from ...host.screen import Screen
from ...inspection import ledgers
from .. import parameters as cli
from .. import subcommands
from ..output import write, write_json


def budget(
    action: Annotated[
        cli.Text,
        cli.argument("[set]", "Set a limit; without it, the limits are shown.", cli.complete_budget_action),
    ] = None,
    ledger: Annotated[
        cli.Text,
        cli.argument(
            "[LEDGER]", "`day`, `month`, `project`, `project:PATH` or `account:NAME`.", cli.complete_ledger
        ),
    ] = None,
    amount: Annotated[
        cli.Text,
        cli.argument(
            "[AMOUNT]",
            "Such as 20usd, 500000tokens, 50calls or 100usd/month; `none` removes the limits.",
            cli.complete_amount,
        ),
    ] = None,
    days: Annotated[
        cli.Count, cli.option("--days", "N", "Show the usage of the last N days.", least=1)
    ] = None,
    db: cli.RunsDatabase = None,
    json: cli.Json = False,
) -> int:
    """Show or set what agents and models may use per day, project and account.

    Examples:
        llc budget
        llc budget set day 20usd
        llc budget set project 50usd
        llc budget set account:claude 100usd/month
        llc budget close account:claude
        llc budget --days 7 --json
    """
    if db is not None:
        subcommands.load_runtime("database.shared_ledger:use")(db)
    if action == "close" and ledger is not None and amount is None:
        message = ledgers.close_breaker(ledger)
        if not json:
            write(message)
            return EXIT_OK
    elif action is not None:
        if action != "set" or ledger is None or amount is None:
            raise UserError(
                "bad-option",
                "`llc budget` shows the limits, `set` sets one, and `close` closes a circuit breaker",
                "llc budget set day 20usd",
            )
        message = ledgers.set_limit(ledger, amount)
        if not json:
            write(message)
            return EXIT_OK
    budgets = ledgers.report(days)
    if json:
        write_json(budgets)
    else:
        write(ledgers.as_text(budgets, Screen(sys.stdout)))
    return EXIT_OK
