"""The subcommand `fork`."""

from __future__ import annotations

import sys

from ...host.screen import Screen
from ...launch import resume as resuming
from ...project.options import OVERRIDES, values
from ...recordings import fork as forking
from .. import parameters as shared

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated

    import typer

    from ...journal.run_folder import RunFolder


def fork(
    run: shared.Run,
    at: Annotated[
        int | None,
        typer.Option("--at", metavar="N", help="Before the effect of this number (`llc trace`)."),
    ] = None,
    state: Annotated[
        str | None, typer.Option("--state", metavar="NAME", help="Where this state is entered.")
    ] = None,
    iteration: Annotated[
        int | None, typer.Option("--iteration", metavar="K", help="With --state: in this iteration.")
    ] = None,
    with_: Annotated[
        str | None,
        typer.Option(
            "--with", metavar="LOOP", help="Continue with this program, if the past is the same under it."
        ),
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
