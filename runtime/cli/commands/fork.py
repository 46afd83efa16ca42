"""The subcommand `fork`."""

from __future__ import annotations

from ...launch import resume as resuming
from ...project.options import OVERRIDES, values
from ...recordings import fork as forking
from .. import parameters as cli
from .. import subcommands

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated

    from ...recordings.fork import Forked


def fork(
    run: cli.Run,
    at: Annotated[
        cli.Count, cli.option("--at", "N", "Before the effect with this number (`llc trace`).")
    ] = None,
    state: Annotated[cli.Text, cli.option("--state", "NAME", "Where this state is entered.")] = None,
    iteration: Annotated[
        cli.Count, cli.option("--iteration", "K", "With --state: in this iteration.")
    ] = None,
    with_: Annotated[
        cli.Text,
        cli.option("--with", "LOOP", "Continue with this program, if it replays the record identically."),
    ] = None,
    max_iterations: cli.MaxIterations = None,
    no_llm: cli.NoLlm = False,
    llm_model: cli.LlmModel = None,
    dialect: cli.Dialect = None,
    context: cli.Context = None,
    arguments: cli.Arguments = None,
    declare: cli.Declare = None,
    max_expansions: cli.MaxExpansions = None,
    max_nesting: cli.MaxNesting = None,
    fuel: cli.Fuel = None,
    tier: cli.Tier = None,
    budget: cli.Budget = None,
    accept_changes: cli.AcceptChanges = False,
    jobs: cli.Jobs = None,
    queue: cli.Queue = False,
    background: cli.Background = False,
    on: cli.On = None,
    profile: cli.Profile = False,
    flame: cli.Flame = None,
    json: cli.JsonOutcome = False,
    quiet: cli.Quiet = False,
    verbose: cli.Verbose = False,
    no_preflight: cli.NoPreflight = False,
) -> int:
    """Start a new run from a point of another run, with the same record up to there.

    Examples:
        llc fork fix-types --at 12
        llc fork fix-types --state fix --iteration 3
        llc fork fix-types --at 12 --with edited.yaml
        llc fork fix-types --at 12 --on postgresql://llc@db.example/llc
    """
    parameters = locals()
    for name in ("run", "at", "state", "iteration", "with_", "on"):
        del parameters[name]
    overrides = {name: parameters.pop(name) for name in OVERRIDES}
    is_changed = with_ is not None or any(overrides.values())
    if on is not None:
        subcommands.refuse_driver_options(parameters, ("json", "quiet"))
    changes = values(with_ or "", overrides) if is_changed else None

    def make() -> Forked:
        return forking.fork(run, at, state, iteration, changes)

    if on is not None:
        return int(
            subcommands.load_runtime("launch.submission:submit_fork")(values("", parameters), on, make)
        )

    return resuming.fork(values("", parameters), make)
