"""The subcommand `db`."""

from __future__ import annotations

from typing import Annotated

from ...database import connection, metrics, schema
from ...host.errors import EXIT_OK, UserError
from .. import parameters as cli
from .. import subcommands
from ..output import write, write_json

_ACTIONS = ("init", "migrate", "check", "metrics")


def db(
    action: Annotated[
        str, cli.argument("ACTION", "`init`, `migrate`, `check` or `metrics`.", cli.complete_db_action)
    ],
    db: cli.Database = None,
    json: cli.Json = False,
) -> int:
    """Create, update or check the tables of a cluster's database, or show its metrics.

    Examples:
        llc db init --db postgresql://llc@db.example/llc
        LLC_DB=postgresql://llc@db.example/llc llc db check
    """
    if action not in _ACTIONS:
        raise UserError("bad-option", f"`llc db` has no `{action}`", "actions: " + ", ".join(_ACTIONS))
    if action == "metrics" and json:
        raise UserError("bad-option", "`llc db metrics` writes the text format of Prometheus only")
    address = connection.Address.resolve(db)
    change = {"init": "initialise", "migrate": "migrate"}.get(action)
    applied = (
        subcommands.load_runtime(f"database.installation:{change}")(address) if change is not None else 0
    )
    with connection.connected(address) as session:
        schema.check(session, address)
        if action == "metrics":
            write(metrics.format_metrics(session))
            return EXIT_OK
        server = session.info.server_version // 10_000
    if json:
        write_json({"schema": address.schema, "format": schema.FORMAT, "applied": applied, "server": server})
    else:
        done = f", {applied} migration{'s' if applied > 1 else ''} applied" if applied else ""
        write(f"{address}: schema `{address.schema}`, format {schema.FORMAT}, PostgreSQL {server}{done}\n")
    return EXIT_OK
