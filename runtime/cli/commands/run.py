"""The subcommand `run`."""

from __future__ import annotations

from ...host.errors import UserError
from ...launch import run as launch
from ...project.options import values

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated

    from .. import typer_parameters as shared
    from ..typer_parameters import Text, option


def run(
    loop: shared.LoopToRun = None,
    expression: Annotated[
        Text, option("--expression -e", "EXPR", "Run this expression instead of a file.", shared.PROGRAM)
    ] = None,
    dry_run: Annotated[
        bool, option("--dry-run", "", "Show what would be run, without running it.", shared.PROGRAM)
    ] = False,
    max_iterations: shared.MaxIterations = None,
    no_preflight: shared.NoPreflight = False,
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
    no_input: shared.NoInput = False,
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
