"""The subcommand `task`."""

from __future__ import annotations

from ....frontend.tasks.registry import TaskRegistry
from ...host.paths import LOOPS
from ...launch import task as task_run
from ...project.options import read
from ...terminal import task_line
from ..verbs import find

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated

    from .. import typer_parameters as shared
    from ..typer_parameters import argument


def complete_task(args: list[str], incomplete: str) -> list[str]:
    """Tasks and tools; after a name, its parameters."""
    found = task_line.words_after(args, TaskRegistry(LOOPS))
    if args:
        found += [name for row in find("task").options for name in row.names if name.startswith("--")]
        found.append("--help")
    return [word for word in found if word.startswith(incomplete)]


def task(
    words: Annotated[
        list[str],
        argument(
            "NAME [KEY=VALUE]… [--FLAG]… | '(EXPRESSION)'",
            "A task or tool with its parameters, or an S-expression; NAME --help shows its parameters.",
            complete_task,
        ),
    ],
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
    """Run one task or evaluate an expression, and show the result.

    Examples:
        llc task user:review --help
        llc task user:review diff="$(git diff)" files='["README.md"]'
        llc task system:execute_shell_command command='make test' timeout=60 --json
        llc task '(map (user:review (diff item)) (list "a" "b"))'
    """
    given = locals()
    del given["words"]
    return task_run.run(words, read(given), find("task").options)
