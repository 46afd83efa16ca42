"""The subcommands that run programs: run, resume, batch, fork."""

from __future__ import annotations

import sys

from ...host.errors import UserError
from ...host.screen import Screen
from ...launch import run as launch
from ...project.options import OVERRIDES, values
from .. import parameters as shared
from ..completers import complete_loop, complete_run

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated

    import typer

    from ...journal.run_folder import RunFolder

# `run` starts from the cache as quickly as possible, so the others import what they need.


def run(
    loop: Annotated[
        str | None,
        typer.Argument(
            help="A loop's name, or the path of a .yaml, .sexp or .llb file.",
            metavar="LOOP",
            autocompletion=complete_loop,
        ),
    ] = None,
    expression: Annotated[
        str | None,
        typer.Option("--expression", "-e", metavar="EXPR", help="Run this expression instead of a file."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be run, without running it.")
    ] = False,
    max_iterations: shared.MaxIterations = None,
    no_llm: shared.NoLlm = False,
    llm_model: shared.LlmModel = None,
    context: shared.Context = None,
    arguments: shared.Arguments = None,
    declare: shared.Declare = None,
    max_expansions: shared.MaxExpansions = None,
    max_nesting: shared.MaxNesting = None,
    fuel: shared.Fuel = None,
    max_depth: shared.MaxDepth = None,
    max_size: shared.MaxSize = None,
    tier: shared.Tier = None,
    budget: shared.Budget = None,
    jobs: shared.Jobs = None,
    queue: shared.Queue = False,
    background: shared.Background = False,
    script: shared.Script = None,
    record: shared.Record = None,
    profile: shared.Profile = False,
    flame: shared.Flame = None,
    json: shared.JsonOutcome = False,
    quiet: shared.Quiet = False,
    verbose: shared.Verbose = False,
) -> int:
    """Run a loop."""
    given = locals()
    target = given.pop("loop")
    if (target is None) == (expression is None):
        raise UserError("bad-option", "name one thing to run", "a loop, a file, or -e EXPRESSION")
    return launch.run(values(target or "", given))


def resume(
    run: Annotated[
        str,
        typer.Argument(help="A loop's name, or a run's id.", metavar="RUN", autocompletion=complete_run),
    ],
    on_unknown: shared.OnUnknown = None,
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
    """Resume an interrupted run."""
    given = locals()
    from ...launch import resume as resuming

    return resuming.resume(values(given.pop("run"), given))


def batch(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            help="Loops by name or path, files of jobs (.jsonl), or - for jobs from standard input.",
            metavar="[LOOP|JOBS]…",
            autocompletion=complete_loop,
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume interrupted runs.")] = False,
    at_once: Annotated[
        int | None,
        typer.Option(
            "--at-once",
            metavar="N",
            min=1,
            help="Limit of concurrently performed actions of all runs (default 8).",
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
    max_depth: shared.MaxDepth = None,
    max_size: shared.MaxSize = None,
    tier: shared.Tier = None,
    budget: shared.Budget = None,
    script: shared.Script = None,
    on_unknown: shared.OnUnknown = None,
    json: Annotated[
        bool,
        typer.Option("--json", help="Write a line of JSON to stdout for each finished run."),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show only errors.")] = False,
) -> int:
    """Run many loops in one process.

    Examples:
        llc batch lint types tests
        llc batch jobs.jsonl --at-once 50
        llc batch --resume
    """
    given = locals()
    del given["targets"], given["resume"]
    from ...launch import batch_command

    return batch_command.batch(values("", given), targets or [], resume)


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
    from ...launch import resume as resuming
    from ...recordings import fork as forking

    def make() -> RunFolder:
        forked = forking.fork(run, at, state, iteration, changes)
        if not quiet:
            Screen(sys.stderr).write(f"{forked}\n")
        return forked.run

    return resuming.fork(values("", given), make)
