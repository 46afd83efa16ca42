"""The subcommand `run`."""

from __future__ import annotations

from ...host.errors import UserError
from ...launch import run as launch
from ...project.options import values
from .. import parameters as cli
from .. import subcommands

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated


def run(
    loop: cli.LoopToRun = None,
    expression: Annotated[
        cli.Text, cli.option("--expression -e", "EXPR", "Run this expression instead of a file.", cli.PROGRAM)
    ] = None,
    dry_run: Annotated[
        bool,
        cli.option("--dry-run", "", "Show the states and actions of the loop; run nothing.", cli.PROGRAM),
    ] = False,
    max_iterations: cli.MaxIterations = None,
    no_preflight: cli.NoPreflight = False,
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
    jobs: cli.Jobs = None,
    queue: cli.Queue = False,
    no_input: cli.NoInput = False,
    background: cli.Background = False,
    on: cli.On = None,
    label: cli.Labels = None,
    script: cli.Script = None,
    record: cli.Record = None,
    profile: cli.Profile = False,
    flame: cli.Flame = None,
    json: cli.JsonOutcome = False,
    quiet: cli.Quiet = False,
    verbose: cli.Verbose = False,
) -> int:
    """Run a loop."""
    parameters = locals()
    url, labels = parameters.pop("on"), tuple(parameters.pop("label") or ())
    target = parameters.pop("loop")
    if (target is None) == (expression is None):
        raise UserError("bad-option", "`run` needs one program", "a loop, a file, or -e EXPRESSION")
    if url is not None:
        submitted: int = subcommands.load_runtime("launch.submission:submit")(
            values(target or "", parameters), url, labels
        )
        return submitted
    if labels:
        raise UserError(
            "bad-option",
            "`--label` requires `--on`",
            "--label selects workers; --on URL names their database",
        )
    return launch.run(values(target or "", parameters))
