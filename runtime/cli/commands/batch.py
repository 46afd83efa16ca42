"""The subcommand `batch`."""

from __future__ import annotations

from ...launch import batch_command
from ...project.options import values
from .. import parameters as shared

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated

    import typer


def batch(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            help="Loops by name or path, files of jobs (.jsonl), or - for jobs from standard input.",
            metavar="[LOOP|JOBS]…",
            autocompletion=shared.complete_loop,
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume interrupted runs.")] = False,
    at_once: Annotated[
        int | None,
        shared.option(
            shared.LIMITS,
            "--at-once",
            "N",
            "Limit of concurrently performed actions of all runs (default 8).",
            1,
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
    no_input: shared.NoInput = False,
    script: shared.Script = None,
    on_unknown: shared.OnUnknown = None,
    json: Annotated[
        bool,
        shared.option(shared.OUTPUT, "--json", "", "Write a line of JSON to stdout for each finished run."),
    ] = False,
    quiet: Annotated[bool, shared.option(shared.OUTPUT, "--quiet -q", "", "Show only errors.")] = False,
) -> int:
    """Run many loops in one process.

    Examples:
        llc batch lint types tests
        llc batch jobs.jsonl --at-once 50
        llc batch --resume
    """
    given = locals()
    del given["targets"], given["resume"]

    return batch_command.batch(values("", given), targets or [], resume)
