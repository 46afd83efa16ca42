"""The verbs that are talked to: task, repl."""

from __future__ import annotations

from ..project import options
from ..project.options import values
from .declare import SOME, Argument, command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def complete_task(given: dict[str, Any], incomplete: str) -> list[str]:
    """Tasks and tools; behind a name its parameters."""
    from ...frontend.tasks.registry import TaskRegistry
    from ..host.paths import LOOPS
    from ..terminal import task_line

    words = given.get("words") or []
    found = task_line.words_after(words, TaskRegistry(LOOPS))
    if words:
        found += [name for row in options.TASK for name in row.names if name.startswith("--")]
        found.append("--help")
    return [word for word in found if word.startswith(incomplete)]


_WORDS = Argument(
    "words",
    SOME,
    "A task or tool with its parameters, or an S-expression; NAME --help shows what it takes.",
    "NAME [KEY=VALUE]… [--FLAG]… | '(EXPRESSION)'",
    complete_task,
)


@command(
    options.TASK,
    _WORDS,
    examples=(
        "llc task user:review --help",
        'llc task user:review diff="$(git diff)" files=\'["README.md"]\'',
        "llc task system:execute_shell_command command='make test' timeout=60 --json",
        'llc task \'(map (user:review (diff item)) (list "a" "b"))\'',
    ),
    is_open=True,
)
def task(given: dict[str, Any]) -> int:
    from ..launch import task as task_run

    words = given.pop("words")
    read = values(options.TASK, "", given)
    return task_run.run(words, {row.name: getattr(read, row.name) for row in options.TASK})


@command((*options.LIMITS, options.TIER))
def repl(given: dict[str, Any]) -> int:
    from ..launch import repl as reading

    return reading.run(values((*options.LIMITS, options.TIER), "", given))
