"""The subcommand `repl`."""

from __future__ import annotations

from ...launch import repl as session
from ...project.options import values

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .. import typer_parameters as shared


def repl(
    fuel: shared.Fuel = None,
    max_depth: shared.MaxDepth = None,
    max_size: shared.MaxSize = None,
    tier: shared.Tier = None,
) -> int:
    """Evaluate expressions interactively."""

    given = {"fuel": fuel, "max_depth": max_depth, "max_size": max_size, "tier": tier}
    return session.run(values("", given))
