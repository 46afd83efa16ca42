"""The subcommand `resume`."""

from __future__ import annotations

from ...host.errors import EXIT_OK
from ...launch import resume as resuming
from ...project.options import values
from .. import parameters as cli
from .. import subcommands
from ..output import write, write_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated


def resume(
    run: Annotated[str, cli.argument("RUN", "A loop's name, or a run's id.", cli.complete_run)],
    on_unknown: cli.OnUnknown = None,
    fuel: cli.Fuel = None,
    tier: cli.Tier = None,
    budget: cli.Budget = None,
    accept_changes: cli.AcceptChanges = False,
    accept_loss: cli.AcceptLoss = False,
    jobs: cli.Jobs = None,
    queue: cli.Queue = False,
    no_input: cli.NoInput = False,
    background: cli.Background = False,
    on: cli.On = None,
    profile: cli.Profile = False,
    flame: cli.Flame = None,
    json: cli.JsonOutcome = False,
    quiet: cli.Quiet = False,
    verbose: cli.Verbose = False,
    no_preflight: cli.NoPreflight = False,
) -> int:
    """Resume an unfinished run."""
    parameters = locals()
    url = parameters.pop("on")
    if url is not None:
        subcommands.refuse_driver_options(parameters, ("run", "json", "quiet"))
        queued = subcommands.load_runtime("database.requests:resume")(url, run)
        if json:
            write_json({"run": queued, "status": "queued"})
        else:
            write(f"{queued}\n")
        return EXIT_OK
    return resuming.resume(values(parameters.pop("run"), parameters))
