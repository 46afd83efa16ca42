"""The subcommand `task`."""

from __future__ import annotations

from typing import Annotated

from ....frontend.tasks.registry import TaskRegistry
from ...host.paths import LOOPS
from ...launch import task as task_run
from ...project.options import read
from ...terminal import task_line
from .. import parameters as cli
from ..subcommands import find


def complete_task(args: list[str], incomplete: str) -> list[str]:
    """Tasks and tools; after a name, its parameters."""
    words = task_line.words_after(args, TaskRegistry(LOOPS))
    if args:
        words += [name for row in find("task").options for name in row.names if name.startswith("--")]
        words.append("--help")
    return [word for word in words if word.startswith(incomplete)]


def task(
    words: Annotated[
        list[str],
        cli.argument(
            "NAME [KEY=VALUE]… [--FLAG]… | '(EXPRESSION)'",
            "A task or tool with its parameters, or an S-expression; NAME --help shows its parameters.",
            complete_task,
        ),
    ],
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
    script: cli.Script = None,
    record: cli.Record = None,
    profile: cli.Profile = False,
    flame: cli.Flame = None,
    json: cli.JsonOutcome = False,
    quiet: cli.Quiet = False,
    verbose: cli.Verbose = False,
) -> int:
    """Run one task or evaluate an expression; show the result.

    Examples:
        llc task user:review --help
        llc task user:review diff="$(git diff)" files='["README.md"]'
        llc task system:execute_shell_command command='make test' timeout=60 --json
        llc task '(map (user:review (diff item)) (list "a" "b"))'
    """
    parameters = locals()
    del parameters["words"]
    return task_run.run(words, read(parameters), find("task").options)
