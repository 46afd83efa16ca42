"""The subcommand `batch`."""

from __future__ import annotations

from ...host.errors import UserError
from ...launch import batch_command
from ...project.options import values
from .. import parameters as cli
from .. import subcommands

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated


def batch(
    targets: Annotated[
        cli.Texts,
        cli.argument(
            "[LOOP|JOBS]…",
            "Loops by name or path, job files (.jsonl), or - for jobs from standard input.",
            cli.complete_loop,
        ),
    ] = None,
    resume: Annotated[bool, cli.option("--resume", "", "Resume unfinished runs.")] = False,
    at_once: Annotated[
        cli.Count,
        cli.option(
            "--at-once",
            "N",
            "Limit of concurrently performed actions of all runs (default 8).",
            cli.LIMITS,
            least=1,
        ),
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
    max_depth: cli.MaxDepth = None,
    max_size: cli.MaxSize = None,
    tier: cli.Tier = None,
    budget: cli.Budget = None,
    no_input: cli.NoInput = False,
    script: cli.Script = None,
    on_unknown: cli.OnUnknown = None,
    on: cli.On = None,
    label: cli.Labels = None,
    json: Annotated[
        bool, cli.option("--json", "", "Write a line of JSON to stdout for each finished run.", cli.OUTPUT)
    ] = False,
    quiet: Annotated[bool, cli.option("--quiet -q", "", "Show only errors.", cli.OUTPUT)] = False,
    no_preflight: cli.NoPreflight = False,
) -> int:
    """Run several loops in one process.

    Examples:
        llc batch lint types tests
        llc batch jobs.jsonl --at-once 50
        llc batch jobs.jsonl --on cluster
        llc batch --resume
    """
    parameters = locals()
    del parameters["targets"], parameters["resume"]
    url, labels = parameters.pop("on"), tuple(parameters.pop("label") or ())
    if url is not None:
        if resume:
            help = "to queue a stopped run again: llc resume RUN --on URL"
            raise UserError("bad-option", "`--resume` and `--on` exclude each other", help)
        submit = subcommands.load_runtime("launch.submission:submit_jobs")
        submitted: int = submit(values("", parameters), targets or [], url, labels)
        return submitted
    if labels:
        raise UserError(
            "bad-option",
            "`--label` requires `--on`",
            "--label selects workers; --on URL names their database",
        )
    return batch_command.batch(values("", parameters), targets or [], resume)
