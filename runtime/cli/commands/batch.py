"""The subcommand `batch`."""

from __future__ import annotations

from ...launch import batch_command
from ...project.options import values

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated

    from .. import typer_parameters as shared
    from ..typer_parameters import Count, Texts, argument, complete_loop, option


def batch(
    targets: Annotated[
        Texts,
        argument(
            "[LOOP|JOBS]…",
            "Loops by name or path, files of jobs (.jsonl), or - for jobs from standard input.",
            complete_loop,
        ),
    ] = None,
    resume: Annotated[bool, option("--resume", "", "Resume interrupted runs.")] = False,
    at_once: Annotated[
        Count,
        option(
            "--at-once",
            "N",
            "Limit of concurrently performed actions of all runs (default 8).",
            shared.LIMITS,
            least=1,
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
        bool, option("--json", "", "Write a line of JSON to stdout for each finished run.", shared.OUTPUT)
    ] = False,
    quiet: Annotated[bool, option("--quiet -q", "", "Show only errors.", shared.OUTPUT)] = False,
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
