"""The subcommand `repl`."""

from __future__ import annotations

from ...launch import repl as session
from ...project.options import values
from .. import parameters as cli


def repl(
    fuel: cli.Fuel = None,
    max_depth: cli.MaxDepth = None,
    max_size: cli.MaxSize = None,
    tier: cli.Tier = None,
) -> int:
    """Evaluate expressions interactively."""

    parameters = {"fuel": fuel, "max_depth": max_depth, "max_size": max_size, "tier": tier}
    return session.run(values("", parameters))
