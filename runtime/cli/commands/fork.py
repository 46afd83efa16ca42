"""The subcommand `fork`."""

from __future__ import annotations

import sys

from ...host.screen import Screen
from ...launch import resume as resuming
from ...project.options import OVERRIDES, values
from ...recordings import fork as forking

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated

    from ...journal.run_folder import RunFolder
    from .. import typer_parameters as shared
    from ..typer_parameters import Count, Text, option


def fork(
    run: shared.Run,
    at: Annotated[Count, option("--at", "N", "Before the effect of this number (`llc trace`).")] = None,
    state: Annotated[Text, option("--state", "NAME", "Where this state is entered.")] = None,
    iteration: Annotated[Count, option("--iteration", "K", "With --state: in this iteration.")] = None,
    with_: Annotated[
        Text, option("--with", "LOOP", "Continue with this program, if the past is the same under it.")
    ] = None,
    max_iterations: shared.MaxIterations = None,
    no_llm: shared.NoLlm = False,
    llm_model: shared.LlmModel = None,
    context: shared.Context = None,
    arguments: shared.Arguments = None,
    declare: shared.Declare = None,
    max_expansions: shared.MaxExpansions = None,
    max_nesting: shared.MaxNesting = None,
    fuel: shared.Fuel = None,
    tier: shared.Tier = None,
    budget: shared.Budget = None,
    accept_changes: shared.AcceptChanges = False,
    jobs: shared.Jobs = None,
    queue: shared.Queue = False,
    background: shared.Background = False,
    profile: shared.Profile = False,
    flame: shared.Flame = None,
    json: shared.JsonOutcome = False,
    quiet: shared.Quiet = False,
    verbose: shared.Verbose = False,
) -> int:
    """Start a new run at a point of another run, with the same past.

    Examples:
        llc fork fix-types --at 12
        llc fork fix-types --state fix --iteration 3
        llc fork fix-types --at 12 --with edited.yaml
    """
    given = locals()
    for name in ("run", "at", "state", "iteration", "with_"):
        del given[name]
    overrides = {name: given.pop(name) for name in OVERRIDES}
    is_changed = with_ is not None or any(overrides.values())
    changes = values(with_ or "", overrides) if is_changed else None

    def make() -> RunFolder:
        forked = forking.fork(run, at, state, iteration, changes)
        if not quiet:
            Screen(sys.stderr).write(f"{forked}\n")
        return forked.run

    return resuming.fork(values("", given), make)
