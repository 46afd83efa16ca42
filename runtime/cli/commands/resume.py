"""The subcommand `resume`."""

from __future__ import annotations

from ...launch import resume as resuming
from ...project.options import values

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated

    from .. import typer_parameters as shared
    from ..typer_parameters import argument, complete_run


def resume(
    run: Annotated[str, argument("RUN", "A loop's name, or a run's id.", complete_run)],
    on_unknown: shared.OnUnknown = None,
    fuel: shared.Fuel = None,
    tier: shared.Tier = None,
    budget: shared.Budget = None,
    accept_changes: shared.AcceptChanges = False,
    accept_loss: shared.AcceptLoss = False,
    jobs: shared.Jobs = None,
    queue: shared.Queue = False,
    no_input: shared.NoInput = False,
    background: shared.Background = False,
    profile: shared.Profile = False,
    flame: shared.Flame = None,
    json: shared.JsonOutcome = False,
    quiet: shared.Quiet = False,
    verbose: shared.Verbose = False,
) -> int:
    """Resume an interrupted run."""
    given = locals()

    return resuming.resume(values(given.pop("run"), given))
